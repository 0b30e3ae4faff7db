"""kafka-console-producer and kafka-console-consumer, also on __consumer_offsets."""

from __future__ import annotations

from compat_tests.java_tools import feature
from compat_tests.java_tools.comparison import Comparison

PRODUCER = "kafka-console-producer"
CONSUMER = "kafka-console-consumer"

TIMES = (
    (r"(CreateTime|LogAppendTime):\d+", r"\1:TIME"),
    (r'"(\w*[tT]imestamp\w*)":[1-9]\d+', r'"\1":TIME'),
    # The tool says how long it waited in vain.
    (r"after \d+ ms", "after N ms"),
)
ALL = tuple(
    f"--formatter-property=print.{what}=true"
    for what in ("key", "headers", "offset", "partition", "timestamp", "epoch", "delivery")
)


def group_partition(group: str, partitions: int = 50) -> int:
    """The partition of __consumer_offsets that holds `group`: Java's String.hashCode, without its sign."""
    code = 0
    for character in group:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return min(code, (1 << 32) - code) % partitions


@feature("kafka-console-producer, kafka-console-consumer")
def test_records(compare: Comparison) -> None:
    compare.topic("console-records")

    def produce(text: str, *options: str, exit: int = 0) -> None:
        compare.server(PRODUCER, "--topic", "console-records", *options, stdin=text, exit=exit, aside=TIMES)

    def consume(count: int, *options: str, exit: int = 0) -> None:
        counted = ("--max-messages", str(count), "--timeout-ms", "120000")
        compare.server(CONSUMER, "--topic", "console-records", *counted, *options, exit=exit, aside=TIMES)

    keyed = ("--reader-property", "parse.key=true")
    headed = (*keyed, "--reader-property", "parse.headers=true")
    produce("plain\n")
    produce("k1:v1\nk2:v2\n", *keyed, "--reader-property", "key.separator=:")
    produce("a:1,b:2\tk3\tv3\nc:\tk4\tv4\n", *headed)
    produce("NULL\tNULL\tNULL\n", *headed, "--reader-property", "null.marker=NULL")
    produce("no separator\n", *keyed, exit=1)
    produce("no separator\n", *keyed, "--reader-property", "ignore.error=true")
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        produce(f"{codec}\n", "--compression-codec", codec)
    produce("acks 1\n", "--command-property", "acks=1", "--batch-size", "1")
    produce("sync\n", "--sync", "--request-required-acks", "0", "--command-property", "enable.idempotence=false")
    count = 13
    part = ("--partition", "0")
    consume(count, *part, "--offset", "earliest")
    consume(count, *part, "--offset", "earliest", *ALL)
    consume(count, "--from-beginning", "--group", "console-all", *ALL)
    consume(2, *part, "--offset", "3")
    consume(
        2,
        *part,
        "--offset",
        "3",
        "--formatter-property",
        "print.key=true",
        "--formatter-property",
        "key.separator= => ",
        "--formatter-property",
        "null.literal=nothing",
    )
    consume(3, *part, "--offset", "1", "--isolation-level", "read_committed")
    consume(1, *part, "--offset", "1", "--formatter", "org.apache.kafka.tools.consumer.LoggingMessageFormatter")
    consume(1, *part, "--offset", "1", "--formatter", "org.apache.kafka.tools.consumer.NoOpMessageFormatter")
    compare.server(
        CONSUMER,
        *("--topic", "console-records", "--partition", "9", "--offset", "earliest", "--timeout-ms", "2000"),
        aside=TIMES,
    )


@feature("kafka-console-consumer --group")
def test_group(compare: Comparison) -> None:
    compare.topic("console-group", 1, lines=("one", "two", "three"))

    def consume(count: int, *options: str) -> None:
        counted = ("--max-messages", str(count), "--timeout-ms", "120000")
        compare.server(CONSUMER, "--topic", "console-group", *counted, *options, aside=TIMES)

    for protocol in ("classic", "consumer"):
        group = ("--group", f"console-{protocol}", "--command-property", f"group.protocol={protocol}")
        consume(2, *group, "--from-beginning")
        consume(1, *group)
        # A consumer does not wait for the answer to its leaving.
        described = ("--describe", "--group", f"console-{protocol}")
        compare.server_until("no active members", "kafka-consumer-groups", *described)
    pattern = (
        "--include",
        "console-gr.*",
        "--group",
        "console-pattern",
        "--from-beginning",
        "--max-messages",
        "3",
        "--timeout-ms",
        "120000",
    )
    compare.server(CONSUMER, *pattern, aside=TIMES)


@feature("kafka-console-consumer, nothing to read")
def test_nothing(compare: Comparison) -> None:
    compare.topic("console-empty")
    # A group that would otherwise be named by chance.
    group = ("--group", "console-nothing")
    compare.server(CONSUMER, "--topic", "console-empty", "--timeout-ms", "500", *group, aside=TIMES)
    compare.server(CONSUMER, "--topic", "console-empty", "--timeout-ms", "500", "--partition", "0", aside=TIMES)
    compare.server(CONSUMER, exit=1)
    compare.server(CONSUMER, "--topic", "no spaces", "--timeout-ms", "120000", *group, aside=TIMES)
    compare.server(PRODUCER, "--topic", "no spaces", "--sync", stdin="x\n", exit=1, aside=TIMES)
    # In half a second a broker may have heard of the group or not: other tests list all groups.
    gone = ("--delete", "--group", "console-nothing")
    compare.server_until("GroupIdNotFoundException", "kafka-consumer-groups", *gone, quiet=True)


def _internal(compare: Comparison, formatter: str, group: str, count: int) -> None:
    options = ("--partition", str(group_partition(group)), "--offset", "earliest", "--max-messages", str(count))
    printed = compare.server(
        CONSUMER,
        *("--topic", "__consumer_offsets", *options, "--timeout-ms", "120000"),
        *("--formatter", f"org.apache.kafka.tools.consumer.{formatter}MessageFormatter"),
        aside=TIMES,
    )
    assert group in printed[1].out, printed[1]


@feature("kafka-console-consumer on __consumer_offsets")
def test_consumer_offsets(compare: Comparison) -> None:
    compare.topic("console-offsets", 2)
    # Groups whose partitions of __consumer_offsets no other test's group shares (the console consumer's own group
    # is of a partition assigned by hand, and commits nothing).
    for name, protocol in (("internal-classic", "classic"), ("internal-consumer", "consumer")):
        configs = {"group.protocol": protocol, "client.id": "internal"}
        compare.both(lambda side: side.tools.join(name, configs, ["console-offsets"], commit=0))  # noqa: B023
        compare.both(lambda side: side.tools.leave())
        delete = ("--delete-offsets", "--group", name, "--topic", "console-offsets:1")
        compare.server_until("Successful", "kafka-consumer-groups", *delete)
        if protocol == "classic":
            _internal(compare, "Offsets", name, 3)
            _internal(compare, "GroupMetadata", name, 2)
        else:  # more records come before the offsets, and the other formatter shows none of them
            _internal(compare, "Offsets", name, 8)
