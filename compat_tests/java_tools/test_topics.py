"""kafka-topics: create, list, describe, alter, delete, and what it says when it cannot."""

from __future__ import annotations

from compat_tests.java_tools import feature
from compat_tests.java_tools.comparison import Comparison

TOOL = "kafka-topics"


@feature("kafka-topics --create")
def test_create(compare: Comparison) -> None:
    def create(*options: str, exit: int = 0) -> None:
        compare.server(TOOL, "--create", *options, exit=exit)

    def describe(topic: str) -> None:
        compare.server_until("PartitionCount", TOOL, "--describe", "--topic", topic)

    create("--topic", "create-plain")
    describe("create-plain")
    create("--topic", "create-plain", exit=1)
    create("--topic", "create-plain", "--if-not-exists")
    create(
        "--topic",
        "create-full",
        "--partitions",
        "3",
        "--replication-factor",
        "1",
        "--config",
        "retention.ms=100000",
        "--config",
        "cleanup.policy=compact,delete",
        "--config",
        "max.message.bytes=2000000",
    )
    describe("create-full")
    create("--topic", "create-assigned", "--replica-assignment", "1,1,1")
    describe("create-assigned")
    # Names that collide in metrics, and names that are not allowed.
    create("--topic", "create.dots")
    create("--topic", "create_dots", exit=1)
    create("--topic", "no spaces", exit=1)
    create("--topic", ".", exit=1)
    create("--topic", "x" * 250, exit=1)
    create("--topic", "", exit=1)
    create("--topic", "__consumer_offsets", "--config", "retention.ms=soon", exit=1)
    # Configs.
    create("--topic", "create-no", "--config", "retention.ms=soon", exit=1)
    create("--topic", "create-no", "--config", "no.such.config=1", exit=1)
    create("--topic", "create-no", "--config", "cleanup.policy=sometimes", exit=1)
    create("--topic", "create-no", "--config", "segment.bytes=1", exit=1)
    create("--topic", "create-no", "--config", "min.insync.replicas=0", exit=1)
    create("--topic", "create-no", "--config", "retention.ms", exit=1)
    create("--topic", "create-no", "--config", "compression.type=zstd,compression.zstd.level=99", exit=1)
    # Counts and assignments.
    create("--topic", "create-no", "--partitions", "0", exit=1)
    create("--topic", "create-no", "--partitions", "-5", exit=1)
    create("--topic", "create-no", "--replication-factor", "3", exit=1)
    create("--topic", "create-no", "--replication-factor", "0", exit=1)
    create("--topic", "create-no", "--replica-assignment", "1:2,1:2", exit=1)
    create("--topic", "create-no", "--replica-assignment", "7", exit=1)
    create("--topic", "create-no", "--replica-assignment", "1:1", exit=1)
    create("--topic", "create-no", "--replica-assignment", "1:1,1", exit=1)
    create("--topic", "create-no", "--replica-assignment", "1", "--partitions", "2", exit=1)
    create("--partitions", "2", exit=1)
    compare.server_until(r"(?m)^create\.dots$", TOOL, "--list")


@feature("kafka-topics --list, --describe")
def test_describe(compare: Comparison) -> None:
    compare.topic("describe-plain", 2)
    compare.topic("describe-configured", 1, "--config", "retention.ms=100000", "--config", "flush.ms=5000")
    compare.server(TOOL, "--list", "--topic", "describe-.*")
    compare.server(TOOL, "--list", "--topic", "describe-never")
    compare.server(TOOL, "--list", "--exclude-internal", "--topic", "describe-.*,__.*")
    compare.server(TOOL, "--describe", "--topic", "describe-.*")
    compare.server(TOOL, "--describe", "--topic", "describe-.*", "--exclude-internal")
    compare.server(TOOL, "--describe", "--topic", "describe-plain,describe-configured")
    compare.server(TOOL, "--describe", "--topic", "describe-.*", "--partition-size-limit-per-response", "1")
    compare.server(TOOL, "--describe", "--topic", "describe-.*", "--topics-with-overrides")
    for flag in ("under-replicated", "unavailable", "under-min-isr", "at-min-isr"):
        compare.server(TOOL, "--describe", "--topic", "describe-.*", f"--{flag}-partitions")
    compare.server(TOOL, "--describe", "--topic", "describe-never", exit=1)
    compare.server(TOOL, "--describe", "--topic", "describe-never", "--if-exists")
    compare.server(TOOL, "--describe", "--topic", "describe-plain,describe-never")
    compare.server(TOOL, "--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAQ", exit=1)
    compare.server(TOOL, "--describe", "--topic-id", "not-an-id", exit=1)

    def by_id(side: object) -> str:
        assert isinstance(side, type(compare.ours))
        described = side.run(TOOL, "--bootstrap-server", "{server}", "--describe", "--topic", "describe-plain")
        topic_id = described.out.split("TopicId: ")[1].split()[0]
        found = side.run(TOOL, "--bootstrap-server", "{server}", "--describe", "--topic-id", topic_id)
        return side.normalized(found.out + found.err, ())

    compare.note("kafka-topics --describe --topic-id ID", *compare.both(by_id))


@feature("kafka-topics --alter")
def test_alter(compare: Comparison) -> None:
    compare.topic("alter-me", 3)

    def alter(*options: str, exit: int = 0) -> None:
        compare.server(TOOL, "--alter", *options, exit=exit)

    alter("--topic", "alter-me", "--partitions", "5")
    compare.server_until("PartitionCount: 5", TOOL, "--describe", "--topic", "alter-me")
    alter("--topic", "alter-me", "--partitions", "7", "--replica-assignment", "1,1,1,1,1,1,1")
    compare.server_until("PartitionCount: 7", TOOL, "--describe", "--topic", "alter-me")
    alter("--topic", "alter-me", "--partitions", "7", exit=1)
    alter("--topic", "alter-me", "--partitions", "2", exit=1)
    alter("--topic", "alter-me", "--partitions", "0", exit=1)
    alter("--topic", "alter-me", "--partitions", "8", "--replica-assignment", "1,1,1,1,1,1,1,9", exit=1)
    alter("--topic", "alter-me", "--partitions", "8", "--replica-assignment", "1,1,1,1,1,1,1,1,1", exit=1)
    alter("--topic", "alter-never", "--partitions", "2", exit=1)
    alter("--topic", "alter-never", "--partitions", "2", "--if-exists")


@feature("kafka-topics --delete")
def test_delete(compare: Comparison) -> None:
    for name in ("delete-one", "delete-two", "delete-three"):
        compare.topic(name)
    compare.server(TOOL, "--delete", "--topic", "delete-one")
    compare.server_until("^$", TOOL, "--list", "--topic", "delete-one")
    compare.server(TOOL, "--delete", "--topic", "delete-one", exit=1)
    compare.server(TOOL, "--delete", "--topic", "delete-one", "--if-exists")
    compare.server(TOOL, "--delete", "--topic", "delete-t.*")
    compare.server_until("^$", TOOL, "--list", "--topic", "delete-.*")
    compare.server(TOOL, "--delete", "--topic", "delete-t.*", exit=1)


@feature("kafka-topics, wrong usage")
def test_usage(compare: Comparison) -> None:
    compare.server(TOOL, exit=1)
    compare.server(TOOL, "--create", "--delete", "--topic", "t", exit=1)
    compare.run(TOOL, "--list", exit=1)
