"""All that a secure node and every command that looks at one tell is searched for secrets.

The secrets are passwords of users, right and wrong ones, those of stores, the key and the secrets of delegation tokens.
Searched are logs and the audit log at DEBUG, answers of commands in both forms, bundles, what the protocol explorer and
the console show, pages of metrics, the record of faults, and command lines.
"""

from __future__ import annotations

import io
import logging
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kbroker.config.properties_file import format_properties
from kbroker.testing import RunningBroker, running_broker
from kbroker.tools.cli import COMMANDS
from kbroker.tools.cli.parser import all_parsers
from tests.cli_command import Run
from tests.console.console_process import console_process
from tests.node.metrics_pages import LISTENER as METRICS
from tests.node.metrics_pages import ask, port_of
from tests.node.test_explorer import LISTENER as EXPLORER
from tests.node.test_explorer import watching
from tests.secret_forms import forms, shown_in

ADMIN, ALICE, WRONG, NEW, KEY, STORE, CHANGED = (
    f"{name}-is-planted-{index * 7919}"
    for index, name in enumerate(("admin", "alice", "wrong", "new", "key", "store", "changed"))
)
PLANTED = {text for secret in (ADMIN, ALICE, WRONG, NEW, KEY, STORE, CHANGED) for text in forms(secret.encode())}

LOOKS: dict[str, tuple[str, ...]] = {
    "topic list": (),
    "topic describe": ("orders",),
    "topic offsets": ("orders",),
    "group list": (),
    "txn find-hanging": (),
    "txn list": (),
    "txn producers": ("orders", "0"),
    "config describe": ("broker", "1", "-a", "-d"),
    "cluster describe": (),
    "cluster features": (),
    "cluster quorum": (),
    "cluster api-versions": (),
    "cluster health": (),
    "cluster log-dirs": (),
    "user list": (),
    "token list": (),
    "acl list": (),
    "quota list": (),
    "top": ("--once", "--interval", "1"),
    "doctor": ("--look-again", "0"),
    "bundle": ("--look-again", "0"),
    "scrub": ("--status",),
    "balance": ("--seconds", "1"),
}
"""Commands that look at a cluster, and what else they are told."""

OTHERS = {
    *("topic create", "topic alter", "topic delete", "topic truncate", "topic move", "topic elect"),
    *("produce", "import", "replay", "cluster drain", "cluster restart", "cluster unregister"),
    *("group reset", "group delete", "txn abort", "config set", "config unset", "user add", "user delete"),
    *("token create", "token renew", "token expire", "acl add", "acl delete", "quota set", "quota delete"),
    *("table follow", "table backfill", "table run", "table list", "table describe"),
    *("consume", "export", "group describe", "group members", "txn describe"),
}
"""Those that change something, or look at records or at one group or transaction."""

LONG = {"top", "doctor", "bundle"}
"""Commands that are not run again without ``--json``: they take long. A bundle has the doctor's text."""


def test_each_command_that_looks_at_a_cluster_is_searched() -> None:
    """A new command belongs to one of the two."""
    found = set()
    for name, parser in all_parsers(COMMANDS):
        if {"--json", "--command-config"} <= set(parser._option_string_actions):
            found.add(name)
    assert found == set(LOOKS) | OTHERS


def command_lines_of_children() -> str:
    """The processes that this one has started, as ``ps`` shows them."""
    lines = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # threads and processes end meanwhile
            children = (task / "children").read_text().split()
            lines += [Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode() for child in children]
    assert lines, "the console is a process of its own"
    return "\n".join(lines)


def content_of(bundle: Path) -> str:
    """The files of a bundle, one after the other."""
    with tarfile.open(bundle) as archive:
        files = [archive.extractfile(entry) for entry in archive.getmembers()]
        return "\n".join(file.read().decode() for file in files if file is not None)


def as_user(directory: Path, broker: RunningBroker, user: str, **replaced: str) -> tuple[str, str]:
    """The option by which a command comes as a user."""
    given = broker.client_properties(user)
    for old, new in replaced.items():
        given["sasl.jaas.config"] = given["sasl.jaas.config"].replace(old, new)
    path = directory / f"{user}-{len(replaced)}.properties"
    path.write_text(format_properties(given, "of a test"))
    return "--command-config", str(path)


def server_properties(directory: Path, broker: RunningBroker) -> Path:
    """A node's file with secrets, which listens on all addresses."""
    login = f'required username="admin" password="{ADMIN}" user_admin="{ADMIN}" user_alice="{ALICE}";'
    path = directory / "server.properties"
    given = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "OPEN://0.0.0.0:9092,CLIENTS://0.0.0.0:9094,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "OPEN:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "advertised.listeners": "OPEN://localhost:9092,CLIENTS://localhost:9094",
        "inter.broker.listener.name": "CLIENTS",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "log.dirs": str(broker.data_dir),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule {login}"
        ),
        "delegation.token.secret.key": KEY,
        "ssl.keystore.password": STORE,
        "an.unknown.password": STORE,
    }
    path.write_text(format_properties(given, "of a test"))
    return path


class Told:
    """All that was told, by the place where it was."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def add(self, where: str, text: str) -> None:
        """Keep what one place has told."""
        self.texts[where] = text

    def leaks(self, secrets: set[str]) -> list[tuple[str, str]]:
        """The places that show a secret, and which."""
        return [(where, secret) for where, text in self.texts.items() for secret in shown_in(text, secrets)]


def change(kb: Run, directory: Path, broker: RunningBroker, told: Told) -> set[str]:
    """Have secrets go to and fro: logins, users, tokens, stores. Gives the secrets of tokens, which are told once."""
    admin, alice = (as_user(directory, broker, user) for user in ("admin", "alice"))
    wrong = as_user(directory, broker, "alice", **{ALICE: WRONG})
    password, out = directory / "password", directory / "token.properties"
    password.write_text(f"{NEW}\n")
    kb("topic", "create", "orders", *admin)
    secrets: set[str] = set()
    ids = []
    for who in (admin, alice):
        token = kb("token", "create", "--json", *who)
        secrets |= forms(token.json["hmac"].encode())
        assert shown_in(token.out, secrets), "what would be found"
        ids.append(token.json["token_id"])
    words: tuple[tuple[tuple[str, ...], int | None], ...] = (
        (("topic", "list", *wrong), 1),
        (("user", "add", "bob", "--password-file", str(password), *admin), 0),
        (("config", "set", "broker", "1", f"ssl.key.password={CHANGED}", f"a.password={CHANGED}", *admin), None),
        (("token", "create", "--out", str(out), *alice), 0),
        (("topic", "list", "--command-config", str(out)), 0),
        (("token", "create", "--owner", "admin", *alice), 1),
        (("token", "renew", ids[0], *admin), 0),
        (("token", "expire", ids[1], "--yes", *alice), 0),
    )
    for number, (each, code) in enumerate(words):
        done = kb(*each, code=code)
        told.add(f"{number}: {' '.join(each[:2])}", f"{done.out}{done.err}")
    return secrets


def test_no_secret_is_told(kb: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    given = {
        **EXPLORER,
        **METRICS,
        "delegation.token.secret.key": KEY,
        "ssl.keystore.password": STORE,
        "connection.failed.authentication.delay.ms": "0",
    }
    with (
        caplog.at_level(logging.DEBUG),
        caplog.at_level(logging.DEBUG, "kbroker.authorizer"),
        running_broker(
            given, security="sasl_plaintext", users={"admin": ADMIN, "alice": ALICE}, super_users=["admin"]
        ) as broker,
    ):
        explorer = broker.in_broker(lambda node: node.explorer_port)
        assert explorer is not None
        faults = [
            broker.faults.delay(api, 0)
            for api in ("SaslAuthenticate", "CreateDelegationToken", "RenewDelegationToken", "IncrementalAlterConfigs")
        ]
        with watching(explorer) as watched:
            tokens = change(kb, tmp_path, broker, told)
            watched.named("ExpireDelegationToken")
        look(kb, tmp_path, broker, told)
        look_at_page(broker, told)
        told.add("faults", "\n".join(str(each) for each in (*broker.faults.record, *faults)))
        told.add("explorer", explored(watched))
        told.add("metrics", ask(port_of(broker), "/metrics")[1])
        told.add("node", repr(broker) + broker.in_broker(lambda node: repr((node.config, node.config.values))))
    told.add("log", caplog.text)
    for line in ("Denied: User:alice", "Allowed: User:admin", "CREATE_TOKENS on USER:User:admin"):
        assert line in caplog.text
    assert told.leaks(PLANTED | tokens) == []
    assert "CreateDelegationToken" in told.texts["explorer"] and "CreateDelegationToken" in told.texts["faults"]


def look(kb: Run, directory: Path, broker: RunningBroker, told: Told) -> None:
    """Run all commands that look at the cluster or at the node's file."""
    admin = as_user(directory, broker, "admin")
    file = server_properties(directory, broker)
    log = directory / "node.log"
    log.write_text(f"INFO sasl.jaas.config=a.b.LoginModule required password={ADMIN};\nINFO started\n")
    for name, words in LOOKS.items():
        more = (*words, *admin)
        if name == "bundle":
            more = (str(directory / "b.tar.gz"), "--config", str(file), "--log", str(log), *more)
        elif name == "doctor":
            more = ("--config", str(file), *more)
        for form in (("--json",), ()):
            if form or name not in LONG:
                done = kb(*name.split(), *more, *form, code=None)
                assert done.code < 2 and done.out + done.err, done
                told.add(f"{name} {' '.join(form)}", done.out + done.err)
    told.add("content of the bundle", content_of(directory / "b.tar.gz"))
    for form in (("--json",), ()):
        done = kb("info", "--config", str(file), *form, code=None)
        assert "NO AUTHENTICATION on" in done.out
        told.add(f"info {' '.join(form)}", done.out + done.err)


def look_at_page(broker: RunningBroker, told: Told) -> None:
    """Sign in at the console, and have it show who may what and how the broker is set."""
    file = Path(broker.data_dir) / "console.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n")
    with console_process("-b", broker.bootstrap_servers, "--command-config", str(file), "--sign-in") as console:
        told.add("ps", command_lines_of_children())
        console.post("sign-in", {"user": "admin", "password": ADMIN})
        for path, params in PAGES:
            answer = console.get(path, **params)
            assert answer.status == 200, (path, answer.body)
            told.add(f"console: {path}", answer.body.decode())
        told.add("console's log", "\n".join(console.log))


PAGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("session", {}),
    ("overview", {}),
    ("broker", {"id": 1}),
    ("acls", {}),
    ("users", {}),
)


def explored(watched: Any) -> str:
    """All that a watcher has been told, as bytes and as text."""
    from kbroker.observe.explorer.text import details

    out = io.StringIO()
    for each in watched.told:
        out.write(f"{each.summary}\n{each.decoded.name}\n")
        out.writelines(f"{line}\n" for line in details(each))
        for frame in (each.decoded.exchange.request, each.decoded.exchange.response):
            if frame is not None:
                out.write(f"{frame.filled()!r}\n")
    return out.getvalue()
