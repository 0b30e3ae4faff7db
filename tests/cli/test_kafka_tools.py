"""Kafka's tools as far as the image has them; `compat_tests/cli/test_kafka_tools.py` compares them with Kafka's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.client.groups import GroupDescription
from kbroker.client.records_io.line_records import InputOptions
from kbroker.testing import RunningBroker
from kbroker.tools.cli.kafka_tools.__main__ import TOOLS, main
from kbroker.tools.cli.kafka_tools.console_consumer import OPTIONS as CONSUMER_OPTIONS
from kbroker.tools.cli.kafka_tools.console_consumer import formatter
from kbroker.tools.cli.kafka_tools.console_producer import records
from kbroker.tools.cli.kafka_tools.options import Kind, Options, UsageError
from kbroker.tools.cli.kafka_tools.topics import in_hash_order
from kbroker.wire.batch_header import TimestampType
from kbroker.wire.record_batch import Record
from tests.cli_command import Result, Run
from tests.patience import LONG

Tool = Callable[..., Result]


@pytest.fixture
def tool(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> Tool:
    """``tool("kafka-topics", "--list")`` runs a tool on the broker of the module."""

    def run(name: str, *words: str, code: int = 0) -> Result:
        ended = main([name, *words, "--bootstrap-server", broker.bootstrap_servers])
        captured = capsys.readouterr()
        assert ended == code, captured
        return Result(ended, captured.out, captured.err)

    return run


def test_a_topics_life(tool: Tool) -> None:
    create = ("--create", "--topic", "orders", "--partitions", "2")
    assert tool("kafka-topics", *create, "--config", "retention.ms=1000").out == "Created topic orders.\n"
    again = tool("kafka-topics", *create, code=1)
    assert again.out.startswith("Error while executing topic command : ") and "already exists" in again.out
    assert tool("kafka-topics", *create, "--if-not-exists").out == ""
    tool("kafka-topics", "--create", "--topic", "invoices")
    listed = tool("kafka-topics", "--list", "--exclude-internal").out.splitlines()
    assert listed == sorted(listed) and {"invoices", "orders"} <= set(listed)
    assert tool("kafka-topics", "--list", "--topic", "ord.*, none").out == "orders\n"
    tool("kafka-topics", "--alter", "--topic=orders", "--partitions=3")
    first, *partitions = tool("kafka-topics", "--describe", "--topic", "orders").out.splitlines()
    assert "\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: " in first and "retention.ms=1000" in first
    assert partitions[2] == "\tTopic: orders\tPartition: 2\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: "
    tool("kafka-topics", "--alter", "--topic", "invoices|orders", "--partitions", "2", code=1)
    assert "PartitionCount: 2" in tool("kafka-topics", "--describe", "--topic", "invoices").out, "one fails, not both"
    assert tool("kafka-topics", "--describe", "--under-replicated-partitions").out == ""
    tool("kafka-topics", "--delete", "--topic", "orders")
    assert "does not exist" in tool("kafka-topics", "--describe", "--topic", "orders", code=1).out
    assert tool("kafka-topics", "--delete", "--topic", "orders", "--if-exists").out == ""


def test_console(tool: Tool, kb: Run, broker: RunningBroker) -> None:
    produce = [sys.executable, "-m", "kbroker.tools.cli.kafka_tools", "kafka-console-producer", "--topic", "lines"]
    produce += ["--bootstrap-server", broker.bootstrap_servers, "--property", "parse.key=true"]
    produce += ["--property", "key.separator=:"]
    done = subprocess.run(produce, input="a:1\nb:2\nnone\nc:3\n", capture_output=True, text=True, timeout=LONG)
    assert (done.returncode, done.stdout) == (1, "") and "line 3" in done.stderr
    assert kb("topic", "offsets", "lines", "--json").json[0]["end_offset"] == 2
    consume = ("kafka-console-consumer", "--topic", "lines", "--from-beginning", "--timeout-ms", "120000")
    shown = ("--property", "print.key=true", "--property", "print.offset=true")
    told = tool(*consume, *shown, "--max-messages", "2")
    assert told.out == "Offset:0\ta\t1\nOffset:1\tb\t2\n"
    assert told.err == "Processed a total of 2 messages\n"
    assert tool(*consume, "--max-messages", "1").out == "1\n"
    assert tool(*consume[:3], "--partition", "0", "--offset", "1", "--max-messages", "1").out == "2\n"
    assert tool(*consume[:3], "--timeout-ms", "100").out == "", "from the end"


def test_questions_of_health_checks(tool: Tool, broker: RunningBroker) -> None:
    versions = tool("kafka-broker-api-versions").out
    assert versions.startswith(
        f"{broker.bootstrap_servers} (id: 1 rack: null isFenced: false) -> (\n\tProduce(0): 0 to "
    )
    assert versions.endswith("]\n)\n")
    assert len(tool("kafka-cluster", "cluster-id").out) == len("Cluster ID: \n") + 22


def test_offsets_of_groups(tool: Tool, kb: Run, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("a\nb\nc\n")
    kb("produce", "counted", str(tmp_path / "lines"))
    kb("group", "reset", "counters", "--topic", "counted", "--to-offset", "1", "--execute")
    assert tool("kafka-consumer-groups", "--list").out == "counters\n"
    told = tool("kafka-consumer-groups", "--describe", "--group", "counters")
    assert [line.split() for line in told.out.splitlines()] == [
        [],
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"],
        ["counters", "counted", "0", "1", "3", "2", "-", "-", "-"],
    ]
    assert told.err == "\nConsumer group 'counters' has no active members.\n"
    assert tool("kafka-consumer-groups", "--describe", "--all-groups", "--offsets").out == told.out
    missing = tool("kafka-consumer-groups", "--describe", "--group", "none", code=0)
    assert missing.out == (
        "\nError: Executing consumer group command failed due to"
        " org.apache.kafka.common.errors.GroupIdNotFoundException: Group none not found.\n"
    )


def test_a_group_of_another_protocol(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = GroupDescription("workers", "Classic", "Stable", "connect", "default", 1, ())
    monkeypatch.setattr("kbroker.client.groups.describe_group", lambda client, name: workers)
    told = tool("kafka-consumer-groups", "--describe", "--group", "workers")
    assert told.out.endswith("GroupId workers is not a consumer group (connect).\n"), told


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = ("--bootstrap-server", "127.0.0.1:1")
    assert main(["kafka-topics", "--list", *nowhere]) == 1
    assert capsys.readouterr().out.startswith("Error while executing topic command : ")
    assert main(["kafka-broker-api-versions", *nowhere]) == 1
    assert capsys.readouterr().err.startswith("kafka-broker-api-versions: ")
    assert main(["kafka-consumer-groups", "--list", *nowhere]) == 0, "as Kafka's"
    assert capsys.readouterr().out.startswith("\nError: Executing consumer group command failed due to ")


@pytest.mark.parametrize(
    "words",
    [
        "kafka-topics --bootstrap-server x:1 --list --topic-id y",
        "kafka-topics --bootstrap-server x:1",
        "kafka-topics --bootstrap-server x:1 --list --describe",
        "kafka-topics --bootstrap-server x:1 --create",
        "kafka-topics --bootstrap-server x:1 --create --topic x --config y",
        "kafka-topics --bootstrap-server x:1 --list --topic (?i)x",
        "kafka-topics --list",
        "kafka-topics --list --bootstrap-server",
        "kafka-topics --list --list --bootstrap-server x:1",
        "kafka-topics list",
        "kafka-cluster unregister --bootstrap-server x:1",
        "kafka-consumer-groups --bootstrap-server x:1",
        "kafka-console-consumer --bootstrap-server x:1 --topic x --group y",
        "kafka-console-consumer --bootstrap-server x:1 --topic x --property print.epoch=true",
        "kafka-console-producer --bootstrap-server x:1 --topic x --property parse.headers=true",
        "kafka-console-producer --topic x",
        "kafka-console-producer --bootstrap-server x:1 --topic x --request-required-acks 5",
        "kafka-console-producer --bootstrap-server x:1 --topic x --command-config /none --producer.config /none",
        "kafka-console-producer --bootstrap-server x:1 --topic x --producer.config /none",
        "kafka-console-consumer --bootstrap-server x:1 --topic x --consumer.config /none",
        "kafka-console-consumer --bootstrap-server x:1 --topic x --command-config /none",
        "kafka-consumer-groups --list",
        "kafka-acls --list",
    ],
)
def test_what_is_not_served_is_said_in_one_line(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 1
    told = capsys.readouterr()
    errors = [line for line in told.err.splitlines() if not line.startswith("Processed a total of")]
    assert len(errors) == 1 and told.out == "", told


@pytest.mark.parametrize("name", TOOLS)
def test_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert "--bootstrap-server" in capsys.readouterr().out
    assert main([name]) == 1


def test_options() -> None:
    kinds = {"a": Kind.VALUE, "b": Kind.FLAG, "c": Kind.REPEATED}
    options = Options("x", kinds, ["--c", "1", "--a=x=y", "--b", "--c=--d"])
    assert (options.value("a"), options.values("c"), "b" in options) == ("x=y", ["1", "--d"], True)
    for words in (["--b=1"], ["-a", "1"], ["--a"], ["--a", "1", "--a", "2"]):
        with pytest.raises(UsageError):
            Options("x", kinds, words)


def test_records_are_shown_as_by_kafkas_formatter() -> None:
    def shown(record: Record, *properties: str) -> bytes:
        words = [f"--property={each}" for each in properties]
        return formatter(Options("x", CONSUMER_OPTIONS, words))(3, record, TimestampType.CREATE_TIME)

    record = Record(5, 99, None, b"v", (("h", b"1"), ("i", None)))
    assert shown(record) == b"v\n"
    every = [f"print.{part}=true" for part in ("key", "headers", "offset", "partition", "timestamp")]
    assert shown(record, *every) == b"CreateTime:99\tPartition:3\tOffset:5\th:1,i:null\tnull\tv\n"
    assert shown(Record(5, 99, b"k", None), "print.key=true", "key.separator= = ", "null.literal=-") == b"k = -\n"
    assert shown(Record(5, 99, b"k", b"v"), "print.headers=true", "print.value=false") == b"NO_HEADERS\n"
    assert shown(record, "print.value=false") == b""


def test_a_header_whose_name_is_not_utf_8_is_shown() -> None:
    show = formatter(Options("x", CONSUMER_OPTIONS, ["--property", "print.headers=true"]))
    record = Record(0, 5, None, b"v", ((b"\xff".decode("utf-8", "surrogateescape"), b"x"),))
    assert show(0, record, TimestampType.CREATE_TIME) == "\ufffd:x\tv\n".encode()


def test_lines_end_as_for_java() -> None:
    found = [item.record.value for item in records([b"a\r", b"b\rc", b"", b"d"], InputOptions())]  # type: ignore[union-attr]
    assert found == [b"a", b"b", b"c", b"", b"d"]


def test_javas_order() -> None:
    """Of ``new HashMap<String, String>()`` in Java 17."""
    names = ["cleanup.policy", "retention.ms", "segment.bytes", "max.message.bytes", "min.insync.replicas"]
    assert in_hash_order(["b", "a", "c"]) == ["a", "b", "c"]
    assert in_hash_order(["Aa", "BB"]) == ["Aa", "BB"], "the same hash: as they were put"
    assert sorted(in_hash_order(names)) == sorted(names)
