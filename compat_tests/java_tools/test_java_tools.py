"""Kafka's own command-line tools: what they print about kbroker must be what they print about Apache Kafka.

``expected/*.txt`` were recorded from Apache Kafka 4.3.1 (``pytest compat_tests/java_tools --broker apache
--record``) and are
compared on every run against either broker, ids, times, sizes and addresses aside.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from compat_tests.apache_kafka import java_command, tool, tool_class
from compat_tests.api_versions import served_apis
from compat_tests.client import LineDriverClient
from compat_tests.clients import unavailable
from compat_tests.conftest import Broker
from compat_tests.java.client import compiled

EXPECTED = Path(__file__).with_name("expected")
TOPIC = "tools-orders"
SOME_TIME = 1_717_000_000_000


@dataclass(frozen=True)
class Output:
    """What a tool run gave."""

    exit: int
    out: str
    err: str


class Tools(LineDriverClient):
    """The tools, run one after another in one JVM."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(
            java_command("ToolDriver", class_path=[compiled(Path(__file__).with_name("ToolDriver.java"))]), bootstrap
        )
        self.bootstrap = bootstrap

    def run(self, name: str, *arguments: str, stdin: str = "", timeout: float = 90) -> Output:
        """Run the tool `name`."""
        result: dict[str, Any] = self.call("tool", timeout, main=tool_class(name), args=list(arguments), stdin=stdin)
        return Output(result["exit"], result["out"], result["err"])

    def server(self, name: str, *arguments: str, stdin: str = "") -> Output:
        """Run a tool that takes the broker's address."""
        return self.run(name, "--bootstrap-server", self.bootstrap, *arguments, stdin=stdin)

    def prepare(self, topic: str, partitions: int = 1, *options: str) -> None:
        """Make `topic` anew."""
        self.server("kafka-topics", "--delete", "--if-exists", "--topic", topic)
        for _ in range(100):
            made = self.server("kafka-topics", "--create", "--topic", topic, "--partitions", str(partitions), *options)
            if made.exit == 0:
                return
        raise AssertionError(made)


@pytest.fixture(scope="module")
def tools(broker: Broker) -> Iterator[Tools]:
    reason = unavailable("java")
    if reason:
        pytest.skip(reason)
    driver = Tools(broker.bootstrap)
    yield driver
    driver.close()


#: What differs from run to run, in the order of replacement.
_VARIABLE = (
    (r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\] ", ""),
    (r"127\.0\.0\.1:\d+", "HOST:PORT"),
    (r"127\.0\.0\.1 \d+ +", "HOST PORT "),
    (r"\b[A-Za-z0-9_-]{22}\b", "UUID"),
    (r"CreateTime: ?\d+", "CreateTime: TIME"),
    (r"(producerId|crc|size|position|sequence|lastSequence|baseSequence): ?-?\d+", r"\1: N"),
    (r"Log starting time.*|Dumping .*", ""),
    (r'"(size|totalBytes|usableBytes)":-?\d+', r'"\1":N'),
    (r'"logDir":"[^"]*"', '"logDir":"DIR"'),
    (r"Epoch: \d+", "Epoch: N"),
    (r"\s+\n", "\n"),
)


#: What a kbroker does not have yet, and so does not claim: taken out of what Apache Kafka printed before the two
#: are compared. Eligible leader replicas come with ISR replication, and with them the cluster-wide
#: min.insync.replicas; the other features come with the protocols that they stand for.
_NOT_YET = (
    (r"DYNAMIC_DEFAULT_BROKER_CONFIG:min\.insync\.replicas=1, ", ""),
    (r"min\.insync\.replicas=1,", ""),
    (r"Feature: (eligible\.leader\.replicas|group|share|streams|transaction)\.version .*\n", ""),
)


def normalized(text: str) -> str:
    """`text` without what differs from run to run."""
    for pattern, replacement in _VARIABLE:
        text = re.sub(pattern, replacement, text)
    return text.strip() + "\n"


@pytest.fixture
def matches(request: pytest.FixtureRequest) -> Any:
    """Compare outputs with what was recorded from Apache Kafka."""
    path = EXPECTED / f"{request.node.name.removeprefix('test_')}.txt"
    steps: list[str] = []

    def step(title: str, output: Output, *, ordered: bool = True) -> None:
        out = output.out if ordered else "\n".join(sorted(output.out.splitlines()))
        # Stack traces are the tool's affair; the sentences before them are the broker's.
        err = "\n".join(line for line in output.err.splitlines() if not re.match(r"\s+at |\s+\.\.\. \d+ more", line))
        steps.append(f"--- {title}: exit {output.exit}\n{normalized(out + chr(10) + err)}")

    yield step
    text = "".join(steps)
    if request.config.getoption("--record"):
        EXPECTED.mkdir(exist_ok=True)
        path.write_text(text)
    expected = path.read_text()
    if request.config.getoption("--broker") != "apache":
        for pattern, replacement in _NOT_YET:
            expected = re.sub(pattern, replacement, expected)
    if text != expected:
        lines = difflib.unified_diff(
            expected.splitlines(), text.splitlines(), "Apache Kafka", "this broker", "", "", 2, ""
        )
        pytest.fail("\n".join(lines), pytrace=False)


def feature(title: str) -> pytest.MarkDecorator:
    return pytest.mark.feature("java tools", "Kafka's command-line tools", title)


@feature("kafka-topics")
def test_topics(tools: Tools, matches: Any) -> None:
    tools.prepare(TOPIC, 3, "--config", "retention.ms=100000")
    matches("create again", tools.server("kafka-topics", "--create", "--topic", TOPIC))
    matches("create, if not exists", tools.server("kafka-topics", "--create", "--topic", TOPIC, "--if-not-exists"))
    matches("create, bad name", tools.server("kafka-topics", "--create", "--topic", "no spaces"))
    matches(
        "create, bad config",
        tools.server("kafka-topics", "--create", "--topic", "t-x", "--config", "retention.ms=soon"),
    )
    matches(
        "create, 3 replicas", tools.server("kafka-topics", "--create", "--topic", "t-x", "--replication-factor", "3")
    )
    matches("create, no partitions", tools.server("kafka-topics", "--create", "--topic", "t-x", "--partitions", "0"))
    matches("list", tools.server("kafka-topics", "--list", "--topic", "tools-.*"))
    matches("describe", tools.server("kafka-topics", "--describe", "--topic", TOPIC))
    matches(
        "describe, overrides", tools.server("kafka-topics", "--describe", "--topic", TOPIC, "--topics-with-overrides")
    )
    matches("describe unknown", tools.server("kafka-topics", "--describe", "--topic", "tools-never"))
    matches("alter", tools.server("kafka-topics", "--alter", "--topic", TOPIC, "--partitions", "5"))
    matches("alter back", tools.server("kafka-topics", "--alter", "--topic", TOPIC, "--partitions", "2"))
    matches("describe again", tools.server("kafka-topics", "--describe", "--topic", TOPIC))
    matches("unavailable", tools.server("kafka-topics", "--describe", "--unavailable-partitions"))
    matches("delete", tools.server("kafka-topics", "--delete", "--topic", TOPIC))
    matches("delete again", tools.server("kafka-topics", "--delete", "--topic", TOPIC))


@feature("kafka-configs, topics")
def test_configs_topics(tools: Tools, matches: Any) -> None:
    tools.prepare("tools-configs")
    entity = ("--entity-type", "topics", "--entity-name", "tools-configs")

    def alter(*options: str) -> Output:
        return tools.server("kafka-configs", "--alter", *entity, *options)

    matches("describe", tools.server("kafka-configs", "--describe", *entity))
    matches("add", alter("--add-config", "retention.ms=3600000,cleanup.policy=[compact,delete]"))
    matches("describe changed", tools.server("kafka-configs", "--describe", *entity))
    matches("delete", alter("--delete-config", "retention.ms"))
    matches("describe deleted", tools.server("kafka-configs", "--describe", *entity))
    matches("unknown", alter("--add-config", "no.such.config=1"))
    matches("wrong", alter("--add-config", "retention.ms=soon"))
    matches("delete one not set", alter("--delete-config", "flush.ms"))


@feature("kafka-configs --describe --all, topics")
def test_configs_all_topic(tools: Tools, matches: Any) -> None:
    tools.prepare("tools-configs", 1, "--config", "retention.ms=100000")
    entity = ("--entity-type", "topics", "--entity-name", "tools-configs")
    matches("describe all", tools.server("kafka-configs", "--describe", "--all", *entity), ordered=False)


@feature("kafka-configs, brokers")
def test_configs_broker(tools: Tools, matches: Any) -> None:
    entity = ("--entity-type", "brokers", "--entity-name", "1")
    matches("describe", tools.server("kafka-configs", "--describe", *entity))
    matches("add", tools.server("kafka-configs", "--alter", *entity, "--add-config", "log.cleaner.threads=2"))
    matches("describe changed", tools.server("kafka-configs", "--describe", *entity))
    matches("not dynamic", tools.server("kafka-configs", "--alter", *entity, "--add-config", "process.roles=broker"))
    matches("delete", tools.server("kafka-configs", "--alter", *entity, "--delete-config", "log.cleaner.threads"))
    matches("describe deleted", tools.server("kafka-configs", "--describe", *entity))


@feature("kafka-console-producer, kafka-console-consumer")
def test_console(tools: Tools, matches: Any) -> None:
    tools.prepare("tools-console")
    options = (
        "--sync",  # without it the tool lingers, and the second one's record may overtake the first one's
        "--topic",
        "tools-console",
        "--reader-property",
        "parse.key=true",
        "--reader-property",
        "parse.headers=true",
    )
    lines = "a:1,b:2\tk1\tv1\nc:3\tk2\tv2\nd:4\tk3\tv3\n"
    matches("produce", tools.server("kafka-console-producer", *options, stdin=lines))
    matches(
        "produce zstd",
        tools.server(
            "kafka-console-producer",
            "--sync",
            "--topic",
            "tools-console",
            "--compression-codec",
            "zstd",
            stdin="without key\n",
        ),
    )
    show = ("--topic", "tools-console", "--partition", "0", "--timeout-ms", "20000")
    for prop in ("print.key", "print.headers", "print.offset", "print.partition"):
        show += ("--formatter-property", f"{prop}=true")
    matches("consume", tools.server("kafka-console-consumer", *show, "--offset", "earliest", "--max-messages", "4"))
    matches("consume from 2", tools.server("kafka-console-consumer", *show, "--offset", "2", "--max-messages", "1"))


@feature("kafka-get-offsets")
def test_get_offsets(tools: Tools, matches: Any) -> None:
    tools.prepare("tools-offsets", 2)
    tools.server("kafka-console-producer", "--topic", "tools-offsets", "--sync", stdin="a\nb\nc\n")

    def offsets(*options: str) -> Output:
        return tools.server("kafka-get-offsets", *options)

    found = sum(int(line.rsplit(":", 1)[1]) for line in offsets("--topic", "tools-offsets").out.split())
    assert found == 3
    matches("earliest", offsets("--topic", "tools-offsets", "--time", "earliest"))
    tools.prepare("tools-offsets-one")
    tools.server("kafka-console-producer", "--topic", "tools-offsets-one", "--sync", stdin="a\nb\nc\n")
    matches("since long ago", offsets("--topic", "tools-offsets-one", "--time", str(SOME_TIME)))
    matches("latest", offsets("--topic", "tools-offsets-one"))
    matches("unknown", offsets("--topic", "tools-never"))
    matches("pattern", offsets("--topic-partitions", "tools-offs.*:1-", "--time", "-2"))


@feature("kafka-delete-records")
def test_delete_records(tools: Tools, matches: Any, tmp_path: Path) -> None:
    tools.prepare("tools-delete")
    tools.server("kafka-console-producer", "--topic", "tools-delete", "--sync", stdin="a\nb\nc\nd\n")
    for title, topic, offset in (
        ("two", "tools-delete", 2),
        ("too far", "tools-delete", 99),
        ("all", "tools-delete", -1),
    ):
        file = tmp_path / "offsets.json"
        file.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": offset}]}))
        matches(title, tools.server("kafka-delete-records", "--offset-json-file", str(file)))
    matches("earliest", tools.server("kafka-get-offsets", "--topic", "tools-delete", "--time", "earliest"))


@feature("kafka-log-dirs")
def test_log_dirs(tools: Tools, matches: Any) -> None:
    tools.prepare("tools-dirs", 2)
    matches("describe", tools.server("kafka-log-dirs", "--describe", "--topic-list", "tools-dirs"), ordered=False)
    matches("unknown broker", tools.server("kafka-log-dirs", "--describe", "--broker-list", "77"))


@feature("kafka-cluster")
def test_cluster(tools: Tools, matches: Any) -> None:
    matches("cluster-id", tools.run("kafka-cluster", "cluster-id", "--bootstrap-server", tools.bootstrap))
    matches("list-endpoints", tools.run("kafka-cluster", "list-endpoints", "--bootstrap-server", tools.bootstrap))


@feature("kafka-features")
def test_features(tools: Tools, matches: Any) -> None:
    matches("describe", tools.server("kafka-features", "describe"))


@feature("kafka-broker-api-versions")
def test_broker_api_versions(tools: Tools, broker: Broker) -> None:
    output = tools.server("kafka-broker-api-versions")
    assert output.exit == 0, output
    assert re.match(r"127\.0\.0\.1:\d+ \(id: 1 rack: null isFenced: false\) -> \(\n", output.out), output.out[:200]
    # Every API that is advertised is usable by this client, and none is missing from what it prints.
    usable = re.findall(r"\w+\((\d+)\): [\d to]+ \[usable: (\d+)\]", output.out)
    assert {int(key) for key, _ in usable} == set(served_apis(broker.bootstrap)), output.out


@feature("kafka-producer-perf-test")
def test_producer_perf_test(tools: Tools) -> None:
    tools.prepare("tools-perf")
    output = tools.run(
        "kafka-producer-perf-test",
        "--topic",
        "tools-perf",
        "--num-records",
        "2000",
        "--record-size",
        "100",
        "--throughput",
        "-1",
        "--command-property",
        f"bootstrap.servers={tools.bootstrap}",
    )
    assert output.exit == 0 and output.out.startswith("2000 records sent, "), output
    offsets = tools.server("kafka-get-offsets", "--topic", "tools-perf")
    assert offsets.out.strip() == "tools-perf:0:2000"


@feature("kafka-verifiable-producer")
def test_verifiable_producer(tools: Tools) -> None:
    tools.prepare("tools-verifiable")
    # It acknowledges in a shutdown hook, so it needs a process of its own.
    output = tool(
        "kafka-verifiable-producer",
        "--bootstrap-server",
        tools.bootstrap,
        "--topic",
        "tools-verifiable",
        "--max-messages",
        "50",
        "--acks",
        "-1",
        check=True,
    )
    events = [json.loads(line) for line in output.stdout.splitlines() if line.startswith("{")]
    sent = [event for event in events if event["name"] == "producer_send_success"]
    assert sorted(event["offset"] for event in sent) == list(range(50))
    assert events[-1]["acked"] == 50


def _partition_file(broker: Broker, directory: str, suffix: str) -> str:
    if broker.data_dir is None:
        pytest.skip("the data directory is not known")
    return str(broker.data_dir / directory / f"00000000000000000000.{suffix}")


@feature("kafka-dump-log, partition")
def test_dump_log(tools: Tools, matches: Any, broker: Broker) -> None:
    log = _partition_file(broker, "tools-dump-0", "log")
    tools.prepare("tools-dump")
    for index, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        tools.server(
            "kafka-console-producer",
            "--topic",
            "tools-dump",
            "--compression-codec",
            codec,
            "--reader-property",
            "parse.key=true",
            "--batch-size",
            "16384",
            "--sync",
            stdin=f"k{index}\tvalue {index}\n",
        )
    matches("log", tools.run("kafka-dump-log", "--deep-iteration", "--print-data-log", "--files", log))


@feature("kafka-dump-log, indexes")
def test_dump_indexes(tools: Tools, broker: Broker) -> None:
    log = _partition_file(broker, "tools-indexes-0", "log")
    # The indexes of a segment are complete once it is rolled, so there must be more than one.
    tools.prepare("tools-indexes", 1, "--config", "segment.bytes=1048576")
    output = tools.run(
        "kafka-producer-perf-test",
        *("--topic", "tools-indexes", "--num-records", "3000", "--record-size", "1000", "--throughput", "-1"),
        *("--command-property", f"bootstrap.servers={tools.bootstrap}"),
    )
    assert output.exit == 0, output
    for suffix in ("index", "timeindex"):
        file = log.removesuffix("log") + suffix
        assert Path(file).stat().st_size > 0
        output = tools.run("kafka-dump-log", "--index-sanity-check", "--files", file)
        assert output.out.rstrip().endswith(f"{file} passed sanity check."), output
        output = tools.run("kafka-dump-log", "--verify-index-only", "--files", file)
        assert (output.exit, output.err) == (0, ""), output
        assert "Found" not in output.out and "Exception" not in output.out, output
    logs = ",".join(sorted(map(str, Path(log).parent.glob("*.log"))))
    output = tools.run("kafka-dump-log", "--files", logs)
    assert (output.exit, output.err) == (0, ""), output
    assert "isvalid: false" not in output.out


@feature("kafka-dump-log, metadata log")
def test_dump_metadata_log(tools: Tools, broker: Broker) -> None:
    log = _partition_file(broker, "__cluster_metadata-0", "log")
    tools.prepare("tools-metadata")
    output = tools.run("kafka-dump-log", "--cluster-metadata-decoder", "--files", log)
    assert output.exit == 0, output.err
    for kind in ("TOPIC_RECORD", "PARTITION_RECORD", "REGISTER_BROKER_RECORD", "LeaderChange"):
        assert kind in output.out, f"no {kind} in the metadata log"
    assert "tools-metadata" in output.out
    assert "isvalid: false" not in output.out
    assert "Error" not in output.out and "Exception" not in output.out + output.err


@feature("a tool as its own process")
def test_process(broker: Broker, tools: Tools) -> None:
    result = tool("kafka-topics", "--bootstrap-server", broker.bootstrap, "--list", check=True)
    assert result.stderr == ""
