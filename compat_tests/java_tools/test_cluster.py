"""The tools' view of the cluster: its id, brokers, features, quorum, directories, leaders and APIs."""

from __future__ import annotations

import json
import time

from compat_tests.java_tools import feature
from compat_tests.java_tools.comparison import Comparison, Side
from tests.patience import LONG


@feature("kafka-cluster")
def test_cluster(compare: Comparison) -> None:
    at = ("--bootstrap-server", "{server}")
    compare.run("kafka-cluster", "cluster-id", *at)
    compare.run("kafka-cluster", "list-endpoints", *at)
    compare.run("kafka-cluster", "list-endpoints", "--include-fenced-brokers", *at)
    compare.run("kafka-cluster", "unregister", "--id", "7", *at, exit=1)
    compare.run("kafka-cluster", "unregister", "--id", "-1", *at, exit=1)
    compare.run("kafka-cluster", "nonsense", *at, exit=1, process=True)


@feature("kafka-features")
def test_features(compare: Comparison) -> None:
    def features(*options: str, exit: int = 0) -> None:
        compare.server("kafka-features", *options, exit=exit, aside=((r"Epoch: \d+", "Epoch: N"),))

    features("describe")
    features("describe", "--node-id", "1")
    features("upgrade", "--release-version", "4.3", "--dry-run", exit=1)
    features("upgrade", "--release-version", "4.2", "--dry-run", exit=1)
    features("upgrade", "--feature", "no.such.version=1", exit=1)
    features("upgrade", "--feature", "group.version=9", exit=1)
    features("upgrade", "--metadata", "4.3-IV0", "--dry-run", exit=1)
    features("upgrade", "--feature", "metadata.version=33", "--feature", "transaction.version=2", "--dry-run")
    features("upgrade", "--metadata", "nonsense", exit=1)
    features("downgrade", "--feature", "kraft.version=0", exit=1)
    features("downgrade", "--metadata", "3.3-IV3", "--dry-run", exit=1)
    features("disable", "--feature", "no.such.version", exit=1)
    features("version-mapping", "--release-version", "4.3")
    features("feature-dependencies", "--feature", "transaction.version=2")


@feature("kafka-metadata-quorum")
def test_metadata_quorum(compare: Comparison) -> None:
    moving = (
        (r"(LeaderEpoch|HighWatermark|MaxFollowerLagTimeMs): +\d+", r"\1: N"),
        (r"\d+ ms ago|\b\d{13}\b", "TIME"),
        # Node, directory, log end offset.
        (r"(?m)^(\d+\s+\S+\s+)\d+", r"\1OFFSET"),
        (r"[ \t]+", " "),
    )
    tool = "kafka-metadata-quorum"
    compare.server(tool, "describe", "--status", aside=moving)
    compare.server(tool, "describe", "--replication", aside=moving)
    compare.server(tool, "describe", "--replication", "--human-readable", aside=moving)
    compare.server(tool, "describe", exit=1)


@feature("kafka-log-dirs")
def test_log_dirs(compare: Comparison) -> None:
    compare.topic("dirs-one", 2)
    compare.topic("dirs-two", 1, lines=("a", "b"))
    # Sizes of logs are compared; what is free on the disk is not. Partitions come in no order.
    free = ((r'"(totalBytes|usableBytes)":-?\d+', r'"\1":N'),)

    def partitions(side: Side) -> str:
        described = ("--bootstrap-server", "{server}", "--describe", "--topic-list", "dirs-one,dirs-two,dirs-never")
        printed = side.run("kafka-log-dirs", *described)
        deadline = time.monotonic() + LONG
        # Apache Kafka tells of partitions a moment before it makes their directories.
        while printed.out.count('"partition"') < 3 and time.monotonic() < deadline:
            printed = side.run("kafka-log-dirs", *described)
        lines = side.normalized(printed.out + printed.err, free).splitlines()
        told = json.loads(lines[-1])
        for broker in told["brokers"]:
            for directory in broker["logDirs"]:
                directory["partitions"].sort(key=lambda entry: entry["partition"])
        return "\n".join([*lines[:-1], json.dumps(told, indent=1)])

    compare.note("kafka-log-dirs --describe --topic-list", *compare.both(partitions))
    compare.server("kafka-log-dirs", "--describe", "--broker-list", "1", "--topic-list", "dirs-two", aside=free)
    compare.server("kafka-log-dirs", "--describe", "--broker-list", "77", exit=1)
    compare.server("kafka-log-dirs", "--describe", "--broker-list", "1,77", exit=1)


@feature("kafka-leader-election")
def test_leader_election(compare: Comparison) -> None:
    compare.topic("leader-topic", 2)

    def elect(*options: str, exit: int = 0) -> None:
        compare.server("kafka-leader-election", *options, exit=exit, ordered=False)

    for kind in ("preferred", "unclean"):
        elect("--election-type", kind, "--topic", "leader-topic", "--partition", "0")
        elect("--election-type", kind, "--topic", "leader-topic", "--partition", "9", exit=1)
        elect("--election-type", kind, "--topic", "leader-never", "--partition", "0", exit=1)
        elect("--election-type", kind, "--all-topic-partitions")
    entries = [{"topic": "leader-topic", "partition": number} for number in (0, 1)]
    compare.file("elections.json", json.dumps({"partitions": entries}))
    elect("--election-type", "preferred", "--path-to-json-file", "{dir}/elections.json")
    elect("--election-type", "favourite", "--all-topic-partitions", exit=1)


@feature("kafka-reassign-partitions")
def test_reassign(compare: Comparison) -> None:
    compare.topic("moved", 2)
    tool = "kafka-reassign-partitions"

    def plan(*replicas: list[int], topic: str = "moved", first: int = 0) -> str:
        entries = [{"topic": topic, "partition": first + n, "replicas": list(r)} for n, r in enumerate(replicas)]
        return compare.file("plan.json", json.dumps({"version": 1, "partitions": entries}))

    compare.server(tool, "--list")
    for options in (("--execute",), ("--verify",), ("--cancel",)):
        compare.server(tool, "--reassignment-json-file", plan([1], [1]), *options)
    compare.server(tool, "--list")
    compare.server(tool, "--reassignment-json-file", plan([1, 7], [1]), "--execute", exit=1)
    compare.server(tool, "--reassignment-json-file", plan([1, 1], [1]), "--execute", exit=1)
    compare.server(tool, "--reassignment-json-file", plan([]), "--execute", exit=1)
    compare.server(tool, "--reassignment-json-file", plan([1], topic="moved-never"), "--execute", exit=1)
    compare.server(tool, "--reassignment-json-file", plan([1], first=9), "--execute", exit=1)
    compare.server(tool, "--reassignment-json-file", plan([1], first=9), "--verify")
    compare.server(tool, "--reassignment-json-file", plan([1]), "--execute", "--throttle", "1000000")
    compare.server(tool, "--reassignment-json-file", plan([1]), "--verify", "--preserve-throttles")
    compare.server(tool, "--reassignment-json-file", plan([1]), "--verify")
    topics = json.dumps({"version": 1, "topics": [{"topic": "moved"}]})
    compare.file("topics.json", topics)
    generate = ("--topics-to-move-json-file", "{dir}/topics.json", "--generate")
    compare.server(tool, *generate, "--broker-list", "1")
    compare.server(tool, *generate, "--broker-list", "7,8", ordered=False, exit=1)
    compare.file("topics.json", topics.replace("moved", "moved-never"))
    compare.server(tool, *generate, "--broker-list", "1", exit=1)


@feature("kafka-broker-api-versions")
def test_broker_api_versions(compare: Comparison) -> None:
    # The line of each API for itself: without the comma, which the last one does not have.
    compare.server("kafka-broker-api-versions", aside=((r"(?m),$", ""), (r"(?m)^\t", "")))
