"""The tools of kbroker's image and Kafka's own, asked the same on the same broker: they print the same."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator

import pytest

from compat_tests.apache_kafka import SERVER_VERSION
from compat_tests.clients import skip_without
from compat_tests.java_tools.driver import ToolDriver
from kbroker.tools.cli.kafka_tools.__main__ import main
from tests.patience import LONG

Both = Callable[..., str]


@pytest.fixture(scope="module")
def tools(bootstrap: str) -> Iterator[ToolDriver]:
    skip_without("java")
    driver = ToolDriver(bootstrap, SERVER_VERSION)
    yield driver
    driver.close()


@pytest.fixture
def both(tools: ToolDriver, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Both:
    """``both("kafka-topics", "--list")`` runs both tools, which must agree; the output is given back."""

    def run(name: str, *words: str, ordered: bool = True) -> str:
        words = (*words, "--bootstrap-server", bootstrap)
        theirs = tools.run(name, *words)
        capsys.readouterr()
        code = main([name, *words])
        ours = capsys.readouterr().out
        assert code == theirs.exit, (ours, theirs)
        # Warnings are left out: they have no line of their own in the table of what a script reads.
        told = "".join(line for line in theirs.out.splitlines(True) if not _is_warning(line))
        if not ordered:
            ours, told = ("".join(sorted(text.splitlines(True))) for text in (ours, told))
        assert ours == told, words
        return ours

    return run


def _is_warning(line: str) -> bool:
    return line.startswith("WARNING: ") or " is deprecated and will be removed " in line


@pytest.fixture
def topic(tools: ToolDriver, bootstrap: str) -> str:
    """A topic with configs of its own; what is written to it stays for longer than any test takes."""
    name = f"image-tools-{uuid.uuid4().hex[:8]}"
    create = ["--create", "--topic", name, "--partitions", "3"]
    for config in (
        "retention.ms=100000000",
        "cleanup.policy=compact,delete",
        "segment.ms=50000000",
        "max.message.bytes=9999",
    ):
        create += ["--config", config]
    assert tools.run("kafka-topics", "--bootstrap-server", bootstrap, *create).exit == 0
    return name


@pytest.mark.feature("kbroker's command", "commands", "the image's tools as Kafka's own")
def test_topics(both: Both, topic: str) -> None:
    assert topic in both("kafka-topics", "--list").splitlines()
    assert topic not in both("kafka-topics", "--list", "--topic", "image-tools-none|other").splitlines()
    both("kafka-topics", "--list", "--exclude-internal")
    assert "retention.ms=100000000" in both("kafka-topics", "--describe", "--topic", topic)
    both("kafka-topics", "--describe", "--topic", f"{topic}-none")
    both("kafka-topics", "--describe", "--topic", f"{topic}-none", "--if-exists")
    both("kafka-topics", "--describe", "--under-replicated-partitions")
    both("kafka-topics", "--describe", "--topic", topic, "--at-min-isr-partitions")
    both("kafka-topics", "--describe", "--topic", topic, "--unavailable-partitions", "--under-min-isr-partitions")
    both("kafka-topics", "--create", "--topic", topic)
    both("kafka-topics", "--create", "--topic", topic, "--if-not-exists")
    both("kafka-topics", "--create", "--topic", f"{topic}-x", "--replication-factor", "9")
    both("kafka-topics", "--create", "--topic", "no spaces")
    both("kafka-topics", "--alter", "--topic", topic, "--partitions", "2")
    both("kafka-topics", "--alter", "--topic", f"{topic}-none", "--partitions", "4")
    both("kafka-topics", "--delete", "--topic", f"{topic}-none")
    both("kafka-topics", "--delete", "--topic", f"{topic}-none", "--if-exists")


@pytest.mark.feature("kbroker's command", "commands", "the image's tools as Kafka's own")
def test_console(both: Both, topic: str, tools: ToolDriver, bootstrap: str) -> None:
    produce = ("kafka-console-producer", "--bootstrap-server", bootstrap, "--topic", topic)
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    text = "k:1\r\nk:two words\nk:\nk:ü:x\n"
    tools.run(*produce, *keyed, stdin=text)
    ours = [sys.executable, "-m", "kbroker.tools.cli.kafka_tools", *produce, *keyed]
    done = subprocess.run(ours, input=text.encode(), capture_output=True, timeout=LONG)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    consume = ("kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "8")
    everything = [f"--formatter-property=print.{part}=true" for part in ("key", "offset", "partition", "headers")]
    shown = both(*consume, "--timeout-ms", "120000", *everything)
    rows = [row.split("\t", 2) for row in shown.splitlines()]
    assert [row[2] for row in rows[:4]] == [row[2] for row in rows[4:]], "each has written the same"
    both(
        *consume,
        "--timeout-ms",
        "120000",
        "--formatter-property",
        "print.timestamp=true",
        "--isolation-level",
        "read_committed",
    )
    both(*consume[:4], "--max-messages", "3", "--property", "print.key=true", "--property", "key.separator= = ")
    partition = rows[0][0].removeprefix("Partition:")
    placed = ("kafka-console-consumer", "--topic", topic, "--partition", partition)
    both(*placed, "--offset", "6", "--max-messages", "2")
    both(*placed, "--offset", "earliest", "--max-messages", "2")


@pytest.mark.feature("kbroker's command", "commands", "the image's tools as Kafka's own")
def test_questions_of_health_checks(both: Both, tools: ToolDriver, bootstrap: str, topic: str) -> None:
    assert "Produce(0)" in both("kafka-broker-api-versions")
    assert both("kafka-cluster", "cluster-id").startswith("Cluster ID: ")
    group = ("--group", topic, "--topic", topic, "--reset-offsets", "--to-earliest", "--execute")
    assert tools.run("kafka-consumer-groups", "--bootstrap-server", bootstrap, *group).exit == 0
    assert topic in both("kafka-consumer-groups", "--list", ordered=False).splitlines()
    assert topic in both("kafka-consumer-groups", "--describe", "--group", topic, ordered=False)
    tools.join(f"{topic}-group", {"client.id": "a"}, [topic], commit=0)
    both("kafka-consumer-groups", "--describe", "--group", f"{topic}-group", "--offsets", ordered=False)
    tools.leave()
    both("kafka-consumer-groups", "--describe", "--group", f"{topic}-none")  # fails, and the exit code is 0
