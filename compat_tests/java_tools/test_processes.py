"""Tools that need a process of their own, and those that measure: their figures are left aside."""

from __future__ import annotations

import json

from compat_tests.java_tools import feature
from compat_tests.java_tools.comparison import Comparison
from compat_tests.java_tools.driver import Output

FIGURES = (
    # A report every five seconds, which only a slow machine comes to.
    (r"(?m)^\d+ records sent, .* ms max latency\.\n", ""),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[:.]\d+", "TIME"),
    (r"-?\d+(\.\d+)?(E-?\d+)?", "N"),
)
"""Every number: the test compares the shape only."""


@feature("a tool as its own process")
def test_process(compare: Comparison) -> None:
    """A tool prints the same as a process of its own as in the JVM that the other tests share."""
    compare.topic("process-topic")
    describe = ("kafka-topics", "--bootstrap-server", "{server}", "--describe", "--topic", "process-topic")
    unknown = ("kafka-topics", "--bootstrap-server", "{server}", "--describe", "--topic", "process-never")
    as_process = compare.run(*describe, process=True)
    assert compare.run(*describe) == as_process
    as_process = compare.run(*unknown, process=True, exit=1)
    inside = compare.run(*unknown, exit=1)
    assert [output.out for output in inside] == [output.out for output in as_process]


@feature("kafka-producer-perf-test, kafka-consumer-perf-test")
def test_perf(compare: Comparison) -> None:
    compare.topic("perf-topic")
    produce = ("--topic", "perf-topic", "--record-size", "100", "--throughput", "-1")
    servers = ("--command-property", "bootstrap.servers={server}")
    produced = compare.run("kafka-producer-perf-test", *produce, "--num-records", "2000", *servers, aside=FIGURES)
    assert all(output.out.startswith("2000 records sent, ") for output in produced)
    compare.run("kafka-producer-perf-test", *produce, "--num-records", "100", *servers, "--print-metrics", quiet=True)
    compare.server("kafka-get-offsets", "--topic", "perf-topic")
    consume = ("--topic", "perf-topic", "--num-records", "2000", "--timeout", "200000", "--group", "perf-group")
    compare.server("kafka-consumer-perf-test", *consume, aside=FIGURES)


@feature("kafka-e2e-latency")
def test_e2e_latency(compare: Comparison) -> None:
    sizes = ("--num-records", "20", "--record-size", "100", "--record-key-size", "10", "--num-headers", "1")
    topic = ("--topic", "latency-topic", "--producer-acks", "all")
    compare.server(
        "kafka-e2e-latency", *topic, *sizes, "--record-header-key-size", "3", "--record-header-size", "5", aside=FIGURES
    )


def _events(output: Output) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.out.splitlines() if line.startswith("{")]


@feature("kafka-verifiable-producer, kafka-verifiable-consumer")
def test_verifiable(compare: Comparison) -> None:
    compare.topic("verifiable-topic")
    timed = ((r'"timestamp":\d+', '"timestamp":TIME'), (r'"avg_throughput":[\d.]+', '"avg_throughput":N'))
    topic = ("--topic", "verifiable-topic", "--max-messages", "20")
    produced = compare.server("kafka-verifiable-producer", *topic, "--acks", "-1", process=True, aside=timed)
    for output in produced:
        assert _events(output)[-1]["acked"] == 20
    compare.server(
        "kafka-verifiable-producer", *topic, "--repeating-keys", "3", "--value-prefix", "7", process=True, aside=timed
    )
    for protocol in ("classic", "consumer"):
        group = ("--group-id", f"verifiable-{protocol}", "--group-protocol", protocol, "--verbose")
        # How records are spread over polls depends on timing: they are compared, and not the polls. A member whose
        # first heartbeat is answered before its assignment is there tells of an empty one.
        nothing_yet = (r'(?m)^.*"name":"partitions_assigned","partitions":\[\].*\n?', "")
        polled = ((r'(?m)^.*"name":"(records_consumed|offsets_committed)".*\n?', ""), nothing_yet)
        consumed = compare.server("kafka-verifiable-consumer", *topic, *group, process=True, aside=(*polled, *timed))
        for output in consumed:
            read = [event for event in _events(output) if event["name"] == "record_data"]
            assert [event["offset"] for event in read] == list(range(20))
