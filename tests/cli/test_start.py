"""kbroker start as a user meets it: a process, its output, its exit code."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from kbroker.client import Client
from kbroker.client.nodes import describe_quorum
from kbroker.config import BrokerConfig
from kbroker.errors import ErrorCode, FatalError
from kbroker.handlers.registration import Preload, Registration
from kbroker.log.checkpoint_files import CLEAN_SHUTDOWN
from kbroker.runtime.bound_ports import canonical_host_name
from kbroker.testing import running_cluster
from kbroker.tools.cli import main, start
from kbroker.tools.cli.cluster_plan import free_ports
from kbroker.tools.cli.config_warnings import warn_about
from kbroker.tools.cli.parser import UsageError
from kbroker.tools.cli.start import find_fatal, parse_overrides, with_controller_listener
from kbroker.wire.messages.acls import DescribeAclsRequest
from kbroker.wire.messages.metadata import MetadataRequest
from tests.cli_command import kbroker, process_put_back
from tests.patience import LONG, SHORT, eventually

ROOT = str(Path(__file__).parents[2])
ENVIRONMENT = os.environ | {"PYTHONPATH": ROOT}
"""Lets the tests run from a clone that is not installed, too."""


def test_a_start_in_the_tests_process_leaves_it_as_it_was(tmp_path: Path) -> None:
    before = logging.getLogger().handlers[:], logging.getLogger().level
    refused = kbroker("start", "-c", str(tmp_path / "missing"))
    assert refused.returncode and "missing" in refused.stderr
    assert gc.isenabled()
    assert (logging.getLogger().handlers, logging.getLogger().level) == before


@pytest.fixture
def untouched_logging() -> Iterator[None]:
    """For tests that run the command in their own process: it sets up logging for itself."""
    with process_put_back():
        yield


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "kbroker", *words]


@contextmanager
def started(tmp_path: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running node and its ready line; killed at the end if it still runs."""
    with (tmp_path / "stderr").open("w") as errors:
        process = subprocess.Popen(
            command("start", *words), stdout=subprocess.PIPE, stderr=errors, text=True, cwd=tmp_path, env=ENVIRONMENT
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, (tmp_path / "stderr").read_text()
        yield process, line
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def finish(process: subprocess.Popen[str], number: int) -> tuple[int, str, float]:
    """Send the signal; exit code, rest of the output, seconds."""
    begin = time.monotonic()
    process.send_signal(number)
    output, _ = process.communicate(timeout=LONG)
    return process.returncode, output, time.monotonic() - begin


def api_versions(address: str) -> int:
    """Ask for ApiVersions v0 by hand; the error code of the answer."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=SHORT) as connection:
        connection.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
        head = connection.recv(10, socket.MSG_WAITALL)
        size, correlation, error = struct.unpack(">iih", head)
        assert size > 6 and correlation == 7
        return int(error)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_development_node(tmp_path: Path, number: int) -> None:
    with started(tmp_path, "--port", "0") as (process, line):
        match = re.fullmatch(r"kbroker ready: (127\.0\.0\.1:\d+)\n", line)
        assert match is not None
        assert api_versions(match[1]) == 0
        assert (tmp_path / "kbroker-data" / "meta.properties").is_file()
        code, rest, seconds = finish(process, number)
    assert code == 0
    assert rest == ""
    assert seconds < 60
    log = (tmp_path / "stderr").read_text()
    assert f"stopping on {signal.Signals(number).name}" in log
    assert "Traceback" not in log and "NO AUTHENTICATION" not in log


def test_a_second_signal_does_not_cut_a_clean_stop_short() -> None:
    """Service managers tell all processes of a group that they are to end, and a supervisor tells its nodes, too."""
    with running_cluster(3) as cluster:
        node = cluster.node(3)
        for other in (1, 2):  # so nobody lets it go, which it waits for a second for
            cluster.node(other).pause()
        assert node.pid is not None
        os.kill(node.pid, signal.SIGTERM)
        eventually(lambda: "stopping on SIGTERM" in node.log, "it stops")
        assert node.stop() == 0
        assert (node.data_dir / CLEAN_SHUTDOWN).is_file()


def test_started_again_it_is_the_same_cluster(tmp_path: Path) -> None:
    identities = []
    for _ in range(2):
        with started(tmp_path, "--port", "0") as (process, _line):
            identities.append((tmp_path / "kbroker-data" / "meta.properties").read_text())
            assert finish(process, signal.SIGTERM)[0] == 0
    assert identities[0] == identities[1]


def test_the_audit_log_is_a_file_of_its_own_that_may_be_moved_away(tmp_path: Path) -> None:
    authorizer = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    audit = tmp_path / "audit.log"
    line = (
        r"[-\d]+ [:.\d]+ INFO kbroker\.authorizer: Denied: User:ANONYMOUS from 127\.0\.0\.1, "
        r"DESCRIBE on CLUSTER:kafka-cluster for DescribeAcls: no ACL allows it\n"
    )
    unspecific = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    with started(tmp_path, "--port", "0", "--audit-log", str(audit), "-o", authorizer) as (process, ready):
        with Client(ready.rsplit(" ", 1)[1].strip()) as client:
            for moved in ("audit.1", "audit.2"):
                assert client.ask_any(unspecific).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                assert re.fullmatch(line, audit.read_text())
                audit.rename(tmp_path / moved)
        assert finish(process, signal.SIGTERM)[0] == 0
    assert "Denied" not in (tmp_path / "stderr").read_text()
    assert "cannot write the audit log" in one_line_of(tmp_path, "--audit-log", str(tmp_path / "none" / "audit.log"))


def one_line_of(tmp_path: Path, *words: str) -> str:
    """Run a start that must fail; its one line on standard error."""
    done = subprocess.run(
        command("start", "--log-level", "error", *words),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=ENVIRONMENT,
        timeout=LONG,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("kbroker: ")
    return done.stderr


def test_a_metadata_log_that_is_not_looked_for_where_it_is_is_not_begun_anew(tmp_path: Path) -> None:
    """It is in the first of ``log.dirs`` by default. A voter that has lost it may vote twice."""
    port, controller = free_ports(2)
    words = ["-o", f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"]
    words += ["-o", f"controller.quorum.voters=1@127.0.0.1:{controller}", "-o"]
    with started(tmp_path, *words, "log.dirs=one,two") as (process, _line):
        assert finish(process, signal.SIGTERM)[0] == 0
    told = one_line_of(tmp_path, *words, "log.dirs=two,one")
    log = tmp_path / "one" / "__cluster_metadata-0"
    assert f"{log} is a metadata log, and this node's is to be in {tmp_path / 'two'}" in told
    with started(tmp_path, *words, "log.dirs=two,one", "-o", "metadata.log.dir=one") as (process, _line):
        assert finish(process, signal.SIGTERM)[0] == 0


def test_what_keeps_a_node_from_starting_is_one_line(tmp_path: Path) -> None:
    with started(tmp_path, "--port", "0") as (_process, line):
        port = line.rsplit(":", 1)[1].strip()
        assert "locked" in one_line_of(tmp_path, "--port", "0")
        assert "port is in use" in one_line_of(tmp_path, "--port", port, "--data-dir", "other")


@pytest.mark.usefixtures("untouched_logging")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", "num.partitions=many"], "num.partitions"),
        (["--config", "missing.properties"], "missing.properties"),
        (["-o", "listeners=TLS://:9092"], "TLS"),
    ],
)
def test_bad_properties_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["start", *words]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("kbroker: ") and said in last
    assert not (tmp_path / "kbroker-data").exists()


@pytest.mark.usefixtures("untouched_logging")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", "num.partitions"], "-o num.partitions: expected NAME=VALUE"),
        (["--config", "x.properties", "--port", "0"], "--port is for the development node"),
    ],
)
def test_wrong_usage_is_told_from_bad_properties(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["start", *words]) == 2
    assert capsys.readouterr().err.startswith(f"kbroker start: {said}")


STOCK = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
num.network.threads=3
log.dirs={directory}
offsets.topic.replication.factor=1
"""


def test_a_properties_file_needs_format_first(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(STOCK.format(directory=tmp_path / "data"))
    assert "kbroker format" in one_line_of(tmp_path, "--config", "server.properties")
    formatting = command("format", "-t", "2esCd6SOSHm2pOYY9gzXPQ", "-c", "server.properties", "--standalone")
    assert subprocess.run(formatting, cwd=tmp_path, env=ENVIRONMENT, timeout=LONG).returncode == 0
    with started(tmp_path, "--config", "server.properties", "-o", "num.partitions=2") as (process, line):
        assert api_versions(line.split()[-1]) == 0
        assert finish(process, signal.SIGTERM)[0] == 0
    assert "without effect in kbroker: num.network.threads" in (tmp_path / "stderr").read_text()


QUORUM = """
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=localhost:{port}
log.dirs=data
offsets.topic.replication.factor=1
"""
CONTROLLER = f"process.roles=controller\nnode.id=1\nlisteners=CONTROLLER://:{{port}}\n{QUORUM}"
BROKER = f"process.roles=broker\nnode.id=2\nlisteners=PLAINTEXT://:{{client_port}}\n{QUORUM}"


def formatted(directory: Path, properties: str, *words: str) -> Path:
    directory.mkdir()
    (directory / "server.properties").write_text(properties)
    formatting = command("format", "-t", "2esCd6SOSHm2pOYY9gzXPQ", "-c", "server.properties", *words)
    done = subprocess.run(formatting, cwd=directory, env=ENVIRONMENT, timeout=LONG, check=False)
    assert done.returncode == 0
    return directory


def test_a_controller_of_all_addresses_is_found_by_the_name_of_its_host(tmp_path: Path) -> None:
    """Apache Kafka 4.4.0 gives the canonical name; without it brokers are sent to an empty host, and never ready."""
    port, client_port = free_ports(2)
    controller = formatted(tmp_path / "controller", CONTROLLER.format(port=port), "--standalone")
    broker = formatted(tmp_path / "broker", BROKER.format(port=port, client_port=client_port))
    with (
        started(controller, "--config", "server.properties") as (first, _),
        started(broker, "--config", "server.properties") as (second, _),
    ):
        with Client(f"localhost:{client_port}") as client:
            found = describe_quorum(client)
            assert [(node.node_id, [(each.host, each.port) for each in node.listeners]) for node in found.nodes] == [
                (1, [(canonical_host_name(), port)])
            ]
            [node] = client.ask_any(MetadataRequest(topics=[])).brokers
            assert (node.host, node.port) == (canonical_host_name(), client_port)
        assert finish(second, signal.SIGTERM)[0] == 0
        assert finish(first, signal.SIGTERM)[0] == 0


def test_several_listeners_and_a_warning(tmp_path: Path) -> None:
    words = (
        "-o",
        "listeners=IN://127.0.0.1:0,OUT://0.0.0.0:0",
        "-o",
        "advertised.listeners=IN://127.0.0.1:0,OUT://localhost:0",
        "-o",
        "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "-o",
        "inter.broker.listener.name=IN",
    )
    with started(tmp_path, *words) as (process, line):
        addresses = line.removeprefix("kbroker ready: ").split()
        assert len(addresses) == 2 and addresses[1].startswith("localhost:")
        assert [api_versions(address) for address in addresses] == [0, 0]
        assert finish(process, signal.SIGTERM)[0] == 0
    assert "NO AUTHENTICATION on OUT://0.0.0.0:0" in (tmp_path / "stderr").read_text()


def test_a_controller_listener_is_added_for_development() -> None:
    properties = {"listeners": "PLAINTEXT://:1", "controller.listener.names": "CONTROLLER"}
    assert with_controller_listener(dict(properties))["listeners"] == "PLAINTEXT://:1,CONTROLLER://127.0.0.1:0"
    properties["listeners"] = "PLAINTEXT://:1,controller://:2"
    assert with_controller_listener(dict(properties)) == properties


def test_overrides() -> None:
    assert parse_overrides(["a=b=c", " d = e "]) == {"a": "b=c", "d": "e"}
    with pytest.raises(UsageError, match="NAME=VALUE"):
        parse_overrides(["=x"])


def test_fatal_errors_are_found_in_groups() -> None:
    fatal = FatalError("x")
    assert find_fatal(BaseExceptionGroup("", [ValueError(), BaseExceptionGroup("", [fatal])])) is fatal
    assert find_fatal(BaseExceptionGroup("", [ValueError()])) is None


def test_the_collector_is_on_for_a_command_and_off_for_its_imports() -> None:
    program = (
        "import gc, sys\n"
        "from kbroker.__main__ import main\n"
        "class Imported:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'argparse': print(gc.isenabled())\n"
        "sys.meta_path.insert(0, Imported())\n"
        "sys.argv = ['kbroker', 'random-uuid']\n"
        "main()\n"
        "print(gc.isenabled())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=ENVIRONMENT)
    told = done.stdout.split()
    assert (told[0], told[-1]) == ("False", "True"), done.stderr


def test_nothing_heavy_is_imported_for_help() -> None:
    program = (
        "import sys, kbroker.tools.cli\n"
        "try: kbroker.tools.cli.main(['start', '--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('trio', 'construct', 'asyncio', 'kbroker.wire') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ))
    assert done.stdout.splitlines()[-1] == "[]"


def test_what_nobody_asked_for_is_imported_later_and_construct_never() -> None:
    """Layouts are for people who look at bytes, and for tests (docs/decisions/0005-a-second-decoder.md)."""
    program = (
        "import sys, trio, trio.testing\n"
        "from kbroker.tools.cli import start\n"
        "import kbroker.node.broker\n"
        "names = ('handlers.fetch', 'handlers.quorum', 'cores.groups.group_coordinator', 'handlers.share_fetch')\n"
        "def loaded(): return [name for name in names if f'kbroker.{name}' in sys.modules]\n"
        "before = loaded()\n"
        "from kbroker.handlers.registration import Preload\n"
        "wanted = set(Preload) - {Preload.NONE}\n"
        "trio.run(start._import_the_rest, wanted, clock=trio.testing.MockClock(autojump_threshold=0))\n"
        "print(before, loaded(), {'construct', 'kbroker.wire.layouts'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=ENVIRONMENT)
    told = "[] ['handlers.fetch', 'handlers.quorum', 'cores.groups.group_coordinator'] set()\n"
    assert done.stdout == told, done.stderr


NOT_OF_A_PLAIN_NODE = """
    client config.absent config.not_at_run_time config.security cores.groups.assignors cores.groups.share
    cores.groups.streams cores.share_coordinator cores.share_partitions cores.transactions.coordinator
    cores.transactions.records log.compaction node.explorer node.metrics node.rules node.telemetry observe registry
    rules security.authorizer security.sasl security.tls sim tables testing tools.console tools.diagnosis
    tools.doctor tools.top wire.layouts wire.messages.produce
"""
"""Rooms and modules of which a node that serves nobody yet uses none."""

MOST_MODULES = 270
"""Modules of kbroker that a plain node imports before it serves: each takes a quarter of a millisecond and 40 KB. One
that is needed later is imported where it is first used."""

ALSO_OF_PYTHON = {"argparse", "gettext", "importlib", "json", "locale", "resource"}
"""Modules of Python that a node uses besides those that Trio imports."""

IMPORTED = """
import os, sys, trio
before = set(sys.modules)
class Output:
    def write(self, text):
        if "ready" in text:
            os.write(1, "\\n".join(sorted(set(sys.modules) - before)).encode())
            os._exit(0)
    def flush(self): pass
sys.stdout = Output()
from kbroker.tools.cli import main
main(["start", "--port", "0", "--data-dir", "data"])
"""
"""Starts a node; tells what it has imported, when it serves, besides what Trio imports."""


def test_a_node_that_serves_has_imported_what_it_uses(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, env=ENVIRONMENT, cwd=tmp_path
    )
    found = done.stdout.split()
    own = [name.removeprefix("kbroker.") for name in found if name.startswith("kbroker.")]
    assert own, done.stderr
    rooms = NOT_OF_A_PLAIN_NODE.split()
    places = [Path(ROOT, "kbroker", *room.split(".")) for room in rooms]
    assert [place for place in places if not (place.is_dir() or place.with_suffix(".py").exists())] == []
    assert [name for name in own if any(f"{name}.".startswith(f"{room}.") for room in rooms)] == []
    assert len(own) <= MOST_MODULES
    others = {name.split(".")[0].lstrip("_") for name in found} - {"kbroker", "main"}
    assert others <= ALSO_OF_PYTHON


def test_a_plain_node_does_without_openssl_though_trio_imports_it(tmp_path: Path) -> None:
    program = IMPORTED.replace("import os, sys, trio", "import os, sys")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=ENVIRONMENT, cwd=tmp_path
    )
    found = set(done.stdout.split())
    assert {"trio", "ssl"} <= found, done.stderr
    assert not found & {"_ssl", "_hashlib", "_bz2", "_lzma", "idna.core"}


@pytest.mark.parametrize(
    ("properties", "is_alone", "more"),
    [
        ({}, True, set()),
        ({}, False, {Preload.PEERS}),
        ({"process.roles": "controller", "listeners": "CONTROLLER://127.0.0.1:0"}, True, {Preload.PEERS}),
        ({"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}, True, {Preload.SECURED}),
    ],
)
def test_a_node_imports_what_it_may_be_asked_for(
    properties: dict[str, str], is_alone: bool, more: set[Preload]
) -> None:
    given = with_controller_listener(start.development_properties()) | properties
    assert start._wanted_handlers(BrokerConfig.from_properties(given), is_alone) == {Preload.ALL} | more


def test_a_module_that_is_gone_does_not_end_the_node(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def load(registration: Registration) -> None:
        raise ModuleNotFoundError("kbroker.handlers.fetch")

    monkeypatch.setattr(Registration, "load", load)
    trio.run(start._import_the_rest, {Preload.ALL}, clock=trio.testing.MockClock(autojump_threshold=0))
    assert "not everything could be imported" in caplog.text


def test_super_users_without_an_authorizer_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    properties = with_controller_listener(start.development_properties())
    with caplog.at_level(logging.WARNING, "kbroker"):
        warn_about(BrokerConfig.from_properties(properties | {"super.users": "User:admin"}))
    assert [record.getMessage() for record in caplog.records] == [
        "authorizer.class.name is not set, so everybody may do everything; without effect: super.users"
    ]


def test_what_is_not_there_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    properties = with_controller_listener(start.development_properties())
    given = {
        "ssl.provider": "Conscrypt",
        "listener.name.plaintext.sasl.login.class": "x",
        "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter,com.example.Reporter",
        "unstable.feature.versions.enable": "true",
        "my.own.setting": "x",
        "nmu.partitions": "3",
    }
    with caplog.at_level(logging.WARNING, "kbroker"):
        warn_about(BrokerConfig.from_properties(properties | given))
    assert [record.getMessage() for record in caplog.records] == [
        "unknown properties, which have no effect: my.own.setting, nmu.partitions: did you mean num.partitions?",
        "kbroker loads no Java classes: properties without effect: listener.name.plaintext.sasl.login.class",
        "kbroker's TLS is OpenSSL's, and there is no JVM: properties without effect: ssl.provider",
        "no level of a feature is unstable in kbroker: properties without effect: unstable.feature.versions.enable",
        "metric.reporters: Java classes cannot be loaded, and have no effect: com.example.Reporter",
    ]


def test_what_apache_kafka_will_drop_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    properties = with_controller_listener(start.development_properties())

    def said(given: dict[str, str]) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "kbroker"):
            warn_about(BrokerConfig.from_properties(properties | given))
        return [record.getMessage() for record in caplog.records]

    assert said({"log.cleaner.enable": "true", "num.partitions": "3"}) == []
    gone = "is deprecated, and Apache Kafka 5.0 will not have it"
    given = {"broker.id": "1", "group.coordinator.rebalance.protocols": "classic", "log.cleaner.enable": "false"}
    assert said(given) == [
        f"broker.id {gone}: set node.id",
        f"group.coordinator.rebalance.protocols {gone}: "
        "features (group.version, streams.version, share.version) say what is on",
        f"log.cleaner.enable {gone}: the cleaner will always run",
    ]
    assert said({"process.roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:9092", "num.partitions": "3"}) == [
        "set on a broker, but Apache Kafka 5.0 will read them on controllers alone: num.partitions"
    ]


class NeverServes:
    """A node that recovers its logs for an hour, and tells when the collector has come on."""

    def __init__(self, *_: object) -> None:
        self.lifecycle = None

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        began = trio.current_time()
        assert not gc.isenabled()
        while not gc.isenabled() and trio.current_time() < began + 3600:
            await trio.sleep(1)
        raise FatalError(f"after {trio.current_time() - began:.0f} s")


def test_the_collector_comes_on_in_a_start_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbroker.node.broker.Broker", NeverServes)
    threshold = gc.get_threshold()
    gc.disable()
    try:
        with pytest.raises(BaseExceptionGroup) as raised:
            trio.run(
                start._serve, BrokerConfig({}), False, None, None, None, None, lambda: None,
                clock=trio.testing.MockClock(autojump_threshold=0),
            )  # fmt: skip
    finally:
        gc.enable()
        gc.set_threshold(*threshold)
    assert re.fullmatch(r"after [5-7] s", str(find_fatal(raised.value)))
