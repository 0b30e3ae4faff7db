"""kafka-dump-log on what the brokers have written."""

from __future__ import annotations

import re

import pytest

from compat_tests.java_tools import feature
from compat_tests.java_tools.comparison import Comparison, Side
from compat_tests.java_tools.test_console import group_partition

TOOL = "kafka-dump-log"
FIRST = "0" * 20

ASIDE = (
    (r"CreateTime: \d+", "CreateTime: TIME"),
    (r"(timestamp|Timestamp|ms): \d{13}", r"\1: TIME"),
    (r'"(\w*[tT]imestamp\w*)":[1-9]\d+', r'"\1":TIME'),
    (r'"metadataHash":-?[1-9]\d*', '"metadataHash":N'),  # of topics' ids, too
    (r"(producerId|crc|size|position|keySize|valueSize|startingOffset|lastLoggedOffset): -?\d+", r"\1: N"),
)
"""Times, and what depends on them: checksums, and sizes since a record's time is a difference of variable length."""


@pytest.fixture(autouse=True)
def files(compare: Comparison) -> None:
    """Without the data directories there is nothing to dump."""
    if compare.ours.broker.data_dir is None:
        pytest.skip("the data directory of the broker is not known")


@feature("kafka-dump-log, a partition's log")
def test_log(compare: Comparison) -> None:
    compare.topic("dump-log")
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        keyed = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
        compare.produce("dump-log", f"h:{number}\tk{number}\tvalue {number}", "--compression-codec", codec, *keyed)

    def dump(*options: str) -> None:
        compare.run(TOOL, *options, "--files", f"{{data}}/dump-log-0/{FIRST}.log", aside=ASIDE)

    dump()
    dump("--deep-iteration")
    dump("--print-data-log")
    dump("--deep-iteration", "--print-data-log")
    dump("--print-data-log", "--skip-record-metadata")
    dump("--max-bytes", "100")
    dump("--value-decoder-class", "org.apache.kafka.tools.api.StringDecoder", "--print-data-log")
    compare.run(TOOL, "--files", f"{{data}}/dump-log-0/{FIRST}.nothing")
    compare.run(TOOL, "--files", "{data}/dump-log-0/never.log", exit=1)


@feature("kafka-dump-log, indexes of the active segment")
def test_active_indexes(compare: Comparison) -> None:
    compare.topic("dump-active", 1, lines=("a", "b"))
    for suffix in ("index", "timeindex"):
        compare.run(TOOL, "--index-sanity-check", "--files", f"{{data}}/dump-active-0/{FIRST}.{suffix}", aside=ASIDE)


@feature("kafka-dump-log, indexes of rolled segments")
def test_rolled_indexes(compare: Comparison) -> None:
    compare.topic("dump-rolled", 1, "--config", "segment.bytes=1048576")
    perf = ("--num-records", "3000", "--record-size", "1000", "--throughput", "-1", "--topic", "dump-rolled")
    servers = ("--command-property", "bootstrap.servers={server}", "batch.size=16384")
    compare.run("kafka-producer-perf-test", *perf, *servers, quiet=True)
    compare.server("kafka-get-offsets", "--topic", "dump-rolled")

    # Where batches end depends on timing, so what is compared is what the tool finds, and that there is no complaint.
    def check(side: Side) -> str:
        assert side.broker.data_dir is not None
        directory = side.broker.data_dir / "dump-rolled-0"
        found = []
        for suffix in ("index", "timeindex"):
            rolled = directory / f"{FIRST}.{suffix}"
            assert rolled.stat().st_size > 0
            sanity = side.run(TOOL, "--index-sanity-check", "--files", str(rolled))
            verified = side.run(TOOL, "--verify-index-only", "--files", str(rolled))
            found.append(f"{suffix}: {side.normalized(sanity.out + sanity.err, ())}{verified.err}")
            assert "Found" not in verified.out and "Exception" not in verified.out, verified
        dumped = side.run(TOOL, "--files", ",".join(map(str, sorted(directory.glob("*.log")))))
        snapshots = ",".join(map(str, sorted(directory.glob("*.snapshot"))))
        snapshot = side.run(TOOL, "--files", snapshots)
        last = re.findall(r"lastOffset: (\d+)", dumped.out)[-1]
        fields = re.sub(r"-?\d+", "N", snapshot.out.splitlines()[1])
        found.append(f"last offset {last}, {'isvalid: false' in dumped.out}, snapshot {fields}")
        return "\n".join(found)

    compare.note("kafka-dump-log on rolled segments", *compare.both(check))


@feature("kafka-dump-log --offsets-decoder")
def test_offsets(compare: Comparison) -> None:
    compare.topic("dump-offsets")
    for name, protocol in (("dump-classic", "classic"), ("dump-consumer", "consumer")):
        configs = {"group.protocol": protocol, "client.id": "dumped"}
        compare.both(lambda side: side.tools.join(name, configs, ["dump-offsets"], commit=0))  # noqa: B023
        compare.both(lambda side: side.tools.leave())
        compare.server_until("Empty|no active", "kafka-consumer-groups", "--describe", "--state", "--group", name)
        file = f"{{data}}/__consumer_offsets-{group_partition(name)}/{FIRST}.log"
        compare.run(TOOL, "--offsets-decoder", "--print-data-log", "--files", file, aside=ASIDE)
        compare.run(TOOL, "--offsets-decoder", "--skip-record-metadata", "--files", file, aside=ASIDE)


def _with_sorted_features(line: str) -> str:
    """`line` of a registration with its features in the order of their names: theirs is that of a hash map."""
    found = re.search(r'"features":\[(.*?)\]', line)
    if found is None:
        return line
    features = sorted(re.findall(r"\{.*?\}", found[1]))
    return line.replace(found[0], f'"features":[{",".join(features)}]')


@feature("kafka-dump-log --cluster-metadata-decoder")
def test_metadata(compare: Comparison) -> None:
    compare.topic("dump-metadata", 2, "--config", "retention.ms=100000")
    compare.server("kafka-topics", "--delete", "--topic", "dump-metadata")

    def records(side: Side) -> str:
        """The records about one topic; the others depend on what has been done to the cluster."""
        file = f"{side.broker.data_dir}/__cluster_metadata-0/{FIRST}.log"
        output = side.run(TOOL, "--cluster-metadata-decoder", "--skip-record-metadata", "--files", file)
        assert output.exit == 0 and "Error" not in output.out + output.err, output
        assert "isvalid: false" not in output.out
        made = next(line for line in output.out.splitlines() if '"name":"dump-metadata"' in line)
        topic_id = re.findall(r'"topicId":"([^"]+)"', made)[0]
        about = [line for line in output.out.splitlines() if topic_id in line or "dump-metadata" in line]
        return side.normalized("\n".join(about), (*ASIDE, (r'"(\w*Epoch)":\d+', r'"\1":N')))

    compare.note("kafka-dump-log --cluster-metadata-decoder, of one topic", *compare.both(records))

    def first(side: Side) -> str:
        """The first records: the quorum's, the features, the brokers. The order of features is that of a hash map."""
        file = f"{side.broker.data_dir}/__cluster_metadata-0/{FIRST}.log"
        output = side.run(TOOL, "--cluster-metadata-decoder", "--skip-record-metadata", "--files", file)
        kinds = (
            "FEATURE_LEVEL",
            "REGISTER_BROKER_RECORD",
            "BROKER_REGISTRATION_CHANGE",
            "REGISTER_CONTROLLER",
            "LeaderChange",
            "KRaftVersion",
            "KRaftVoters",
        )
        lines = [line for line in output.out.splitlines() if any(kind in line for kind in kinds)]
        rules = (*ASIDE, (r'"brokerEpoch":\d+', '"brokerEpoch":N'), (r'("name":"CONTROLLER".*?"port":)\d+', r"\1PORT"))
        return side.normalized("\n".join(sorted(map(_with_sorted_features, lines))), rules)

    compare.note("kafka-dump-log --cluster-metadata-decoder, of the cluster", *compare.both(first))
