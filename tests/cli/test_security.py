"""``kbroker acl``, ``kbroker user``, ``kbroker certs`` and ``--command-config``."""

from __future__ import annotations

import io
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbroker.client import Client
from kbroker.client.acls import delete_acls
from kbroker.client.properties import ClientProperties
from kbroker.client.security import security_of
from kbroker.client.tokens import describe_tokens, expire_token
from kbroker.config.properties_file import format_properties
from kbroker.security.authorizer.acls import AclFilter
from kbroker.testing import RunningBroker, running_broker

AsUser = Callable[..., str]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """``admin`` may do everything, ``alice`` what ACLs allow."""
    with running_broker(security="sasl_plaintext", super_users=["admin"]) as running:
        yield running


@pytest.fixture
def as_user(broker: RunningBroker, tmp_path: Path) -> Iterator[AsUser]:
    """The file of client properties of a user. The rules and tokens of a test end with it, even if it fails midway."""

    def write(user: str, mechanism: str = "PLAIN", **replaced: str) -> str:
        given = broker.client_properties(user if user in broker.security.users else None, mechanism=mechanism)
        for old, new in replaced.items():
            given["sasl.jaas.config"] = given["sasl.jaas.config"].replace(old, new)
        path = tmp_path / f"{user}.properties"
        path.write_text(format_properties(given, "of a test"))
        return str(path)

    yield write
    for user in ("admin", "alice"):
        with Client(broker.bootstrap_servers, security=security_of(properties_of(broker, user))) as client:
            if user == "admin":
                delete_acls(client, [AclFilter()])
            for token in describe_tokens(client):
                if token.owner.name == user:
                    expire_token(client, token)


def properties_of(broker: RunningBroker, user: str) -> ClientProperties:
    return ClientProperties(broker.client_properties(user, mechanism="PLAIN"))


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


# --- --command-config


def test_every_command_that_asks_a_cluster_has_the_option() -> None:
    from kbroker.tools.cli import COMMANDS
    from kbroker.tools.cli.parser import all_parsers

    for name, parser in all_parsers(COMMANDS):
        options = parser._option_string_actions
        asks_a_cluster = "--bootstrap-server" in options or name == "table backfill"  # that asks a schema registry
        assert asks_a_cluster == ("--command-config" in options), name


def test_the_file_names_the_cluster_and_the_user(kb, broker, as_user, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("KBROKER_BOOTSTRAP", "127.0.0.1:1")
    kb("topic", "create", "mine", "--command-config", as_user("admin"))
    assert "mine" in kb("topic", "list", "--command-config", as_user("admin", "SCRAM-SHA-512")).out
    refused = kb("topic", "list", "-b", "127.0.0.1:1", "--command-config", as_user("admin"), code=1)
    assert refused.err.startswith("kbroker: cannot connect to 127.0.0.1:1")


def test_wrong_passwords_and_files_are_one_line_without_the_password(kb, as_user, tmp_path) -> None:  # type: ignore[no-untyped-def]
    wrong = kb("topic", "list", "--command-config", as_user("admin", **{"admin-secret": "s3cr3t"}), code=1)
    assert "SASL_AUTHENTICATION_FAILED" in wrong.err and wrong.err.count("\n") == 1 and "s3cr3t" not in wrong.err
    path = tmp_path / "odd.properties"
    path.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=s3cr3t\n")
    odd = kb("topic", "list", "--command-config", str(path), code=1)
    assert (
        odd.err.startswith(f"kbroker: {path}: sasl.jaas.config: ")
        and odd.err.count("\n") == 1
        and "s3cr3t" not in odd.err
    )
    assert "none.properties" in kb("topic", "list", "--command-config", "none.properties", code=1).err
    path.write_text("bootstrap.servers=a:b\n")
    assert f"{path}: bootstrap.servers: 'a:b'" in kb("topic", "list", "--command-config", str(path), code=2).err


def test_who_gives_no_properties_to_a_secure_listener_is_told_how(kb, broker) -> None:  # type: ignore[no-untyped-def]
    refused = kb("topic", "list", "-b", broker.bootstrap_servers, code=1)
    assert refused.err.endswith("; for a listener with TLS or SASL give --command-config FILE\n")


def test_names_without_effect_are_told_in_one_line(kb, broker, tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "more.properties"
    path.write_text(format_properties(broker.client_properties("admin") | {"acks": "all", "ssl.trust": "x"}, ""))
    assert kb("topic", "list", "--command-config", str(path)).err == (
        f"kbroker: {path}: without effect here: acks, ssl.trust\n"
    )


def test_tls_and_a_password_together(kb, kafka_secure_broker, tmp_path) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("cryptography")
    path = tmp_path / "client.properties"
    path.write_text(format_properties(kafka_secure_broker.client_properties("admin"), ""))
    kb("topic", "create", "encrypted", "--command-config", str(path))
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{number}\n" for number in range(1000)))
    kb("produce", "encrypted", str(lines), "-q", "--command-config", str(path))
    read = kb(
        "consume", "encrypted", "--until", "now", "-q", "--value-only", "--command-config", str(path), "--from", "start"
    )
    assert read.out.split() == [str(number) for number in range(1000)]


# --- acl


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("billing.example", "rules are for addresses, such as 10.0.0.7; names never match"),
        ("::1", "an address matches in the form that Java prints: 0:0:0:0:0:0:0:1"),
    ],
)
def test_a_rule_whose_host_matches_nobody_is_refused(kb, host: str, said: str) -> None:  # type: ignore[no-untyped-def]
    refused = kb("acl", "add", "--deny", "bob", "--host", host, "--topic", "orders", code=2)
    assert refused.err == f"kbroker acl add: --host {host!r}: {said} (see kbroker acl add --help)\n"


def test_rules_are_added_listed_and_removed(kb, as_user) -> None:  # type: ignore[no-untyped-def]
    admin = ("--command-config", as_user("admin"))
    added = kb("acl", "add", "--allow", "User:alice", "--operation", "read", "--topic", "orders", *admin)
    assert added.out == "User:alice may READ topic orders\n"
    kb("acl", "add", "--deny", "bob", "--host", "10.0.0.7", "--topic", "ord", "--prefix", *admin)
    everybody = ("--allow", "User:*", "--operation", "describe-configs", "--cluster", "--prefix", "--json", *admin)
    allowed = kb("acl", "add", *everybody).json
    listed = kb("acl", "list", "--json", *admin).json
    assert allowed == listed[2:]
    assert listed == [
        {
            "resource_type": kind,
            "resource_name": name,
            "pattern_type": pattern,
            "principal": principal,
            "host": host,
            "operation": operation,
            "permission": permission,
        }
        for kind, name, pattern, principal, host, operation, permission in [
            ("TOPIC", "ord", "PREFIXED", "User:bob", "10.0.0.7", "ALL", "DENY"),
            ("TOPIC", "orders", "LITERAL", "User:alice", "*", "READ", "ALLOW"),
            ("CLUSTER", "kafka-cluster", "LITERAL", "User:*", "*", "DESCRIBE_CONFIGS", "ALLOW"),
        ]
    ]
    names = [row[1] for row in kb("acl", "list", "--topic", "orders", *admin).rows[1:]]
    assert names == ["ord", "orders"]  # those that hold for it
    assert len(kb("acl", "list", "--topic", "orders", "--pattern", "literal", *admin).rows) == 2
    assert len(kb("acl", "list", "--principal", "bob", "--operation", "all", *admin).rows) == 2
    assert "Give --yes" in kb("acl", "delete", "--topic", "orders", *admin, code=1).err
    removed = kb("acl", "delete", "--topic", "orders", "--yes", *admin)
    assert removed.out == "deleted: User:alice may READ topic orders\n"
    kb("acl", "delete", "--deny", "bob", "--yes", *admin)
    assert kb("acl", "delete", "--cluster", "--yes", "--json", *admin).json == allowed
    assert kb("acl", "delete", "--cluster", "--yes", "--json", *admin).json == []
    assert kb("acl", "delete", "--cluster", "--yes", *admin).out == "there is no such rule\n"
    assert kb("acl", "list", "--json", *admin).json == []


def test_what_producers_and_consumers_need_is_added_and_taken_back(kb, as_user) -> None:  # type: ignore[no-untyped-def]
    admin = ("--command-config", as_user("admin"))
    options = ("--allow", "alice", "--producer", "--topic", "t", "--transactional-id", "x")
    kb("acl", "add", *options, *admin)
    kb("acl", "add", "--allow", "alice", "--consumer", "--topic", "t", "--group", "g", *admin)
    rows = {(row[0], row[1], row[-1]) for row in kb("acl", "list", *admin).rows[1:]}
    assert rows == {
        ("topic", "t", "describe"),
        ("topic", "t", "write"),
        ("topic", "t", "create"),
        ("topic", "t", "read"),
        ("group", "g", "read"),
        ("transactional_id", "x", "write"),
        ("transactional_id", "x", "describe"),
    }
    kb("acl", "delete", *options, "--yes", *admin)
    assert {row[-1] for row in kb("acl", "list", *admin).rows[1:]} == {"read"}
    kb("acl", "delete", "--allow", "alice", "--yes", *admin)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--topic", "t"], "give whom it is for"),
        (["--allow", "a"], "give what it is for"),
        (["--allow", ":a", "--topic", "t"], "':a' is not of the form User:NAME"),
        (["--allow", "user:a", "--topic", "t"], "did you mean User:a?"),
        (["--deny", "CN=a:b", "--topic", "t"], "did you mean User:CN=a:b?"),
        (["--allow", "a", "--topic", "shop.*"], "did you mean --topic shop. --prefix?"),
        (["--allow", "a", "--topic", "shop.*", "--prefix"], "did you mean --topic shop. --prefix?"),
        (["--allow", "a", "--topic", "*", "--prefix"], "leave --prefix out"),
        (["--allow", "a", "--topic", "a b"], "no topic can have this name: only letters"),
        (["--allow", "a", "--topic", "t", "--operation", "fly"], "'fly' is not one of"),
        (["--allow", "a", "--group", "g", "--operation", "alter"], "alter means nothing for a group, only all, read"),
        (["--allow", "a", "--topic", "t", "--consumer"], "--consumer needs a --group"),
        (["--allow", "a", "--topic", "t", "--group", "g", "--producer"], "--group goes with --consumer"),
        (["--deny", "a", "--topic", "t", "--producer"], "use --operation with --deny"),
        (["--allow", "a", "--topic", "t", "--producer", "--operation", "read"], "leave --operation out"),
    ],
)
def test_rules_that_make_no_sense(kb, words, problem) -> None:  # type: ignore[no-untyped-def]
    assert problem in kb("acl", "add", *words, code=2).err


def test_principals_of_a_type_of_ones_own_and_prefixed(kb, as_user) -> None:  # type: ignore[no-untyped-def]
    admin = ("--command-config", as_user("admin"))
    rule = ("--allow", "Service:a", "--operation", "read", "--topic", ".", "--prefixed")
    added = kb("acl", "add", *rule, "--principal-type", "Service", *admin)
    assert added.out == "Service:a may READ each topic that begins with .\n"
    assert "deleted: Service:a" in kb("acl", "delete", *rule, "--yes", *admin).out


def test_who_may_not_is_told_so_in_plain_words(kb, as_user) -> None:  # type: ignore[no-untyped-def]
    refused = kb("acl", "list", "--command-config", as_user("alice"), code=1)
    assert refused.err == "kbroker: ACLs: not authorized for this on the cluster (CLUSTER_AUTHORIZATION_FAILED)\n"


def test_who_may_not_write_is_told_which_rule_is_missing(kb, as_user, tmp_path) -> None:  # type: ignore[no-untyped-def]
    lines = tmp_path / "lines"
    lines.write_text("x\n")
    refused = kb("produce", "forbidden", str(lines), "--command-config", as_user("alice"), code=1)
    assert "TOPIC_AUTHORIZATION_FAILED" in refused.err and "topic create" not in refused.err
    assert "kbroker acl add --allow User:NAME --producer --topic forbidden" in refused.err


def test_sizes_that_may_not_be_seen_are_not_zero(kb, as_user) -> None:  # type: ignore[no-untyped-def]
    admin = ("--command-config", as_user("admin"))
    kb("topic", "create", "seen", *admin)
    rule = ("--allow", "alice", "--operation", "describe", "--topic", "seen")
    kb("acl", "add", *rule, *admin)
    found = kb("topic", "list", "--json", "--command-config", as_user("alice"))
    assert [(topic["name"], topic["size"]) for topic in found.json] == [("seen", None)]
    assert found.err == "kbroker: sizes are not shown: they need the right to DESCRIBE the cluster\n"
    kb("acl", "delete", *rule, "--yes", *admin)
    kb("topic", "delete", "seen", "--yes", *admin)


# --- user


def test_users_are_added_changed_and_removed(kb, as_user, monkeypatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    admin = ("--command-config", as_user("admin"))
    typed(monkeypatch, "first\nnot read\n")
    assert kb("user", "add", "carol", *admin).out == "user carol can log in with SCRAM-SHA-512\n"
    carol = as_user("carol", "SCRAM-SHA-512", **{'"admin"': '"carol"', "admin-secret": "first"})
    kb("topic", "list", "--command-config", carol)
    secret = tmp_path / "password"
    secret.write_text("second\n")
    both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "SCRAM-SHA-512")
    kb("user", "add", "carol", *both, "--iterations", "5000", "--password-file", str(secret), *admin)
    assert kb("user", "list", "carol", "--json", *admin).json == [
        {"user": "carol", "mechanism": mechanism, "iterations": 5000}
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    ]
    assert "SASL_AUTHENTICATION_FAILED" in kb("topic", "list", "--command-config", carol, code=1).err
    assert {row[0] for row in kb("user", "list", *admin).rows[1:]} == {"admin", "alice", "carol"}
    kb("user", "delete", "carol", "--mechanism", "SCRAM-SHA-256", "--yes", *admin)
    assert [row[1] for row in kb("user", "list", "carol", *admin).rows[1:]] == ["SCRAM-SHA-512"]
    removed = kb("user", "delete", "carol", "--yes", *admin)
    first, second = removed.out.splitlines()
    assert first == "user carol cannot log in with SCRAM-SHA-512 any more"
    assert "connections.max.reauth.ms" in second and "kbroker acl delete --allow User:carol" in second
    assert "user carol: there is no such user" in kb("user", "list", "carol", *admin, code=1).err


def test_a_password_that_cannot_be_had(kb, as_user, monkeypatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    typed(monkeypatch, "\n")
    assert "the password is empty" in kb("user", "add", "dave", code=2).err
    assert "cannot read" in kb("user", "add", "dave", "--password-file", str(tmp_path / "none"), code=1).err
    (tmp_path / "binary").write_bytes(b"\xff")
    assert "not UTF-8" in kb("user", "add", "dave", "--password-file", str(tmp_path / "binary"), code=1).err
    typed(monkeypatch, "s3cr3t\n")
    refused = kb("user", "add", "dave", "--iterations", "7", "--command-config", as_user("admin"), code=1)
    assert "Too few iterations (UNACCEPTABLE_CREDENTIAL)" in refused.err and "s3cr3t" not in refused.err


# --- token


def test_tokens_are_made_used_renewed_and_removed(kb, as_user, tmp_path) -> None:  # type: ignore[no-untyped-def]
    alice, admin = (("--command-config", as_user(user)) for user in ("alice", "admin"))
    made = kb("token", "create", "--renewer", "admin", "--max-lifetime", "2h", *alice)
    told, secret = made.out.splitlines()  # a token that ends with its longest life cannot be renewed
    token_id, password = told.split()[1], secret.split()[-1]
    assert told.startswith(f"token {token_id} logs in as User:alice until 20")
    assert len(password) == 88
    # Nobody tells the secret again.
    for shown in (kb("token", "list", *alice), kb("token", "list", "--json", *alice)):
        assert token_id in shown.out and password not in shown.out
    [listed] = kb("token", "list", "--owner", "User:admin", "--json", *admin).json
    assert listed["owner"] == listed["requester"] == "User:alice" and listed["renewers"] == ["User:admin"]
    assert listed["max_ms"] == listed["issued_ms"] + 7_200_000 == listed["expires_ms"]
    sooner = kb("token", "expire", token_id, "--in", "20m", "--json", *admin).json["expires_ms"]
    assert sooner < listed["expires_ms"]
    renewed = kb("token", "renew", token_id, "--period", "30m", "--json", *admin).json["expires_ms"]
    assert sooner < renewed < listed["expires_ms"]
    assert kb("token", "renew", token_id, *alice).out.startswith(f"token {token_id} expires at 20")
    assert "Give --yes" in kb("token", "expire", token_id, *alice, code=1).err
    kb("token", "expire", token_id, "--yes", *alice)
    assert kb("token", "list", "--json", *alice).json == []
    assert "there is no token" in kb("token", "renew", token_id, *alice, code=1).err
    told, renewal, _ = kb("token", "create", *alice).out.splitlines()
    assert renewal.endswith(f": kbroker token renew {told.split()[1]}")
    kb("token", "expire", told.split()[1], "--yes", *alice)


def test_a_token_is_written_to_a_file_that_logs_in(kb, as_user, tmp_path) -> None:  # type: ignore[no-untyped-def]
    kb("topic", "create", "of-tokens", "--command-config", as_user("admin"))
    kb(
        "acl",
        "add",
        "--allow",
        "alice",
        "--operation",
        "all",
        "--topic",
        "of-tokens",
        "--command-config",
        as_user("admin"),
    )
    out = tmp_path / "token.properties"
    made = kb("token", "create", "--owner", "alice", "--out", str(out), "--json", "--command-config", as_user("admin"))
    assert made.json["owner"] == "User:alice" and made.json["requester"] == "User:admin" and "hmac" not in made.json
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    token = ("--command-config", str(out))
    assert [row[0] for row in kb("topic", "list", *token).rows[1:]] == ["of-tokens"]
    # A token makes no token, and does not see any.
    refused = kb("token", "create", *token, code=1)
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in refused.err and refused.err.count("\n") == 1
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in kb("token", "list", *token, code=1).err
    kb("token", "create", "--out", str(out), "--mechanism", "SCRAM-SHA-256", *("--command-config", as_user("alice")))
    kb("topic", "list", *token)
    # alice may not make one of admin's; nothing is written.
    refused = kb(
        "token",
        "create",
        "--owner",
        "admin",
        "--out",
        str(tmp_path / "no"),
        "--command-config",
        as_user("alice"),
        code=1,
    )
    assert "DELEGATION_TOKEN_AUTHORIZATION_FAILED" in refused.err and not (tmp_path / "no").exists()
    assert "tokens use SASL" in kb("token", "create", "--out", str(out), code=2).err
    for period in ("0s", "-1h", "soon", "9" * 400 + "d"):
        assert "is not a period" in kb("token", "create", f"--max-lifetime={period}", code=2).err


def test_a_broker_without_tokens_says_so(kb, tmp_path) -> None:  # type: ignore[no-untyped-def]
    with running_broker({"delegation.token.secret.key": ""}, security="sasl_plaintext") as none:
        path = tmp_path / "none.properties"
        path.write_text(format_properties(none.client_properties("alice"), ""))
        refused = kb("token", "create", "--command-config", str(path), code=1)
    assert refused.err == (
        "kbroker: token: the cluster has no delegation tokens: delegation.token.secret.key is not set"
        " (DELEGATION_TOKEN_AUTH_DISABLED)\n"
    )


# --- certs


def test_certificates_are_made_once_and_secrets_are_their_owner_s(kb, tmp_path) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("cryptography")
    directory = tmp_path / "certs"
    made = kb("certs", str(directory), "--host", "kafka1,127.0.0.1", "--client", "alice, odd")
    assert f"made {directory / 'kafka1.pem'}" in made.out
    assert f"ssl.keystore.location={directory / 'alice__odd.pem'}" in made.out.splitlines()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert {name for name, mode in modes.items() if mode & 0o077} == {"ca.pem"}
    before = (directory / "kafka1.pem").read_bytes()
    assert f"kept {directory / 'kafka1.pem'}" in kb("certs", str(directory), "--host", "kafka1").out
    assert "is not for 10.0.0.1: --renew" in kb("certs", str(directory), "--host", "kafka1,10.0.0.1", code=1).err
    assert before == (directory / "kafka1.pem").read_bytes()
    kb("certs", str(directory), "--host", "kafka1,10.0.0.1", "--renew")
    assert before != (directory / "kafka1.pem").read_bytes()
    assert "certificate of another name" in kb("certs", str(directory), "--client", "alice__odd", code=1).err
    assert "the authority's own file" in kb("certs", str(directory), "--client", "ca", code=1).err
    assert "the same name" in kb("certs", str(directory), "--client", "a", "--host", "A", code=2).err
    (directory / "ca.key").write_text("no key")
    damaged = kb("certs", str(directory), "--client", "b", code=1)
    assert damaged.err.startswith(f"kbroker: {directory}: ") and damaged.err.count("\n") == 1


def test_all_certificates_are_renewed_with_the_names_they_have(kb, tmp_path) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("cryptography")
    directory = tmp_path / "certs"
    certs = str(directory)
    kb("certs", certs, "--host", "kafka1,10.0.0.1,::1", "--client", "alice, odd", "--pkcs12", "--days", "2")
    (directory / "other.pem").write_text("of somebody else")
    kept = {path.name: path.read_bytes() for path in directory.iterdir()}
    told = kb("certs", certs, "--renew", "--days", "5").out
    assert f"renewed {directory / 'kafka1.pem'} for kafka1, 10.0.0.1, ::1, valid until " in told
    assert f"left {directory / 'other.pem'}" in told
    changed = {path.name for path in directory.iterdir() if kept.get(path.name) != path.read_bytes()}
    # The trust store is made again with a new salt.
    assert changed - {"ca.p12"} == {"kafka1.pem", "kafka1.p12", "alice__odd.pem", "alice__odd.p12"}
    # It is still for these: otherwise this is an error.
    kb("certs", certs, "--host", "kafka1,10.0.0.1,::1", "--client", "alice, odd")
    # Only for clients that have certificates are clients asked for them.
    assert (
        "\nssl.client.auth=required"
        in kb("certs", certs, "--host", "kafka1,10.0.0.1,::1", "--client", "alice, odd").out
    )
    assert "\nssl.client.auth" not in kb("certs", certs, "--host", "kafka1,10.0.0.1,::1").out
    assert "kafka1.pem" not in kb("certs", str(tmp_path / "none"), "--renew").out


def test_the_stores_serve_a_node_and_its_clients(kb, tmp_path) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("cryptography")
    certs = str(tmp_path / "certs")
    told = kb("certs", certs, "--pkcs12", "--host", "localhost,127.0.0.1", "--client", "alice").out
    password = (tmp_path / "certs" / "stores.password").read_text().strip()
    assert password not in told
    of_node, of_client = (
        dict(line.split("=", 1) for line in part.splitlines() if "=" in line and not line.startswith("#"))
        | {"ssl.keystore.password": password, "ssl.truststore.password": password}
        for part in told.split(" For its ")[1:]
    )
    assert of_node["ssl.keystore.type"] == "PKCS12" and of_node["ssl.client.auth"] == "required"
    node = {
        "listeners": "SSL://127.0.0.1:0",
        "inter.broker.listener.name": "SSL",
        "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
    }
    with running_broker(node | of_node) as secured:
        path = tmp_path / "alice.properties"
        path.write_text(format_properties(of_client | {"bootstrap.servers": secured.bootstrap_servers}, ""))
        kb("topic", "list", "--command-config", str(path))


# --- quota


def test_quotas_are_set_listed_and_removed(kb, as_user) -> None:  # type: ignore[no-untyped-def]
    admin = ("--command-config", as_user("admin"))
    rates = ("--producer-byte-rate", "1000000", "--request-percentage", "12.5")
    made = kb("quota", "set", "--user", "alice", "--client-id", "default", *rates, *admin)
    whom = "user alice with every client id without its own"
    assert made.out == f"{whom}: producer_byte_rate is 1000000\n{whom}: request_percentage is 12.5\n"
    kb("quota", "set", "--ip", "default", "--connection-creation-rate", "1000", *admin)
    assert kb("quota", "list", "--json", *admin).json == [
        {
            "entity": {"client-id": None, "user": "alice"},
            "quotas": {"producer_byte_rate": 1000000, "request_percentage": 12.5},
        },
        {"entity": {"ip": None}, "quotas": {"connection_creation_rate": 1000}},
    ]
    assert len(kb("quota", "list", "--user", "alice", *admin).rows) == 3
    assert kb("quota", "list", "--user", "bob", "--json", *admin).json == []
    wrong = kb("quota", "set", "--user", "alice", "--connection-creation-rate", "1", *admin, code=1)
    assert "Invalid configuration key connection_creation_rate" in wrong.err
    assert "give whom it is for" in kb("quota", "set", *rates, *admin, code=2).err
    assert "give a quota" in kb("quota", "set", "--user", "a", *admin, code=2).err
    assert "not a number above 0" in kb("quota", "set", "--user", "a", "--producer-byte-rate", "0", code=2).err
    assert "--ip goes with no" in kb("quota", "list", "--user", "a", "--ip", "::1", *admin, code=2).err
    entity = ("--user", "alice", "--client-id", "default")
    kb("quota", "delete", *entity, "--request-percentage", *admin)
    kb("quota", "delete", *entity, *admin)
    assert "there is no such quota for user alice" in kb("quota", "delete", *entity, *admin, code=1).err
    kb("quota", "delete", "--ip", "default", *admin)
    assert kb("quota", "list", "--json", *admin).json == []
