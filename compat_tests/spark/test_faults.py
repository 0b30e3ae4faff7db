"""Spark under each fault that ``broker.faults`` can make. kbroker only, in this process.

docs/testing.md tells of these. A broker for each test: it takes a quarter of a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.spark.records import (
    IMPATIENT,
    Collected,
    create,
    numbers,
    produce,
    read,
    read_stream,
    run_available,
    running,
    set_retention,
    with_options,
)
from kbroker.testing import RunningBroker, running_broker, running_cluster
from tests.patience import LONG

WENT_BACK = r"(?s)Some data may have been lost.*Reason: Partition \S+ offset was changed from 50 to \d+"


@pytest.fixture(autouse=True)
def kbroker_only(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--broker") == "apache" or request.config.getoption("--bootstrap"):
        pytest.skip("faults are made in kbroker")


@pytest.fixture
def mine() -> Iterator[RunningBroker]:
    with running_broker() as broker:
        yield broker


@pytest.fixture
def topic(mine: RunningBroker) -> str:
    """Two partitions with 50 records each."""
    name = create(mine.bootstrap_servers, "source", 2)
    produce(mine.bootstrap_servers, name, 2, 100)
    return name


def copy(spark: Any, mine: RunningBroker, tmp_path: Path, **options: object) -> list[int]:
    """From "source" to a topic "target", by a stream; what is in "target" then."""
    address = mine.bootstrap_servers
    create(address, "target", 1)
    frame = read_stream(spark, address, subscribe="source").select("key", "value")
    writer = with_options(frame.writeStream.format("kafka"), address, {"topic": "target", **options})
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    assert query.awaitTermination(int(LONG))
    return numbers(read(spark, address, subscribe="target"))


# --- the sink


@pytest.mark.parametrize("when", ["before", "after"])
def test_connections_of_the_sink_drop(spark: Any, mine: RunningBroker, topic: str, tmp_path: Path, when: Any) -> None:
    """The idempotent producer sends again, and nothing comes twice."""
    with mine.faults.drop("Produce", when=when, topic="target", times=3) as fault:
        assert copy(spark, mine, tmp_path) == list(range(100))
        assert fault.hits == 3


def test_without_idempotence_a_lost_reply_is_a_record_twice(
    spark: Any, mine: RunningBroker, topic: str, tmp_path: Path
) -> None:
    with mine.faults.drop("Produce", when="after", topic="target", nth=1):
        found = copy(spark, mine, tmp_path, kafka__enable__idempotence="false")
    assert sorted(set(found)) == list(range(100)) and len(found) > 100


def test_a_sink_that_is_refused(spark: Any, mine: RunningBroker, topic: str, tmp_path: Path) -> None:
    """A passing error is tried again; a lasting one ends the query under its own name."""
    with mine.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", topic="target", times=3) as fault:
        assert copy(spark, mine, tmp_path) == list(range(100))
        assert fault.hits == 3
    frame = spark.range(0, 3).selectExpr("concat('v', id) AS value")
    with (
        mine.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED", topic="target"),
        pytest.raises(Exception, match=r"TopicAuthorizationException: Not authorized to access topics: \[target\]"),
    ):
        with_options(frame.write.format("kafka"), mine.bootstrap_servers, {"topic": "target"}).save()


def test_a_leader_that_dies_before_it_answers_the_sink(spark: Any, tmp_path: Path) -> None:
    """Of three nodes: what it had stored is on the others, and is not written once more by the next leader."""
    with running_cluster(3) as cluster:
        address = cluster.bootstrap_servers
        for name in ("source", "target"):
            create(address, name, 1, replicas=3)
        produce(address, "source", 1, 100)
        leader = cluster.leader_of("target")
        frame = read_stream(spark, address, subscribe="source", maxOffsetsPerTrigger=40).select("key", "value")
        writer = with_options(frame.writeStream.format("kafka"), address, {"topic": "target"})
        with leader.faults.drop("Produce", when="after", topic="target") as lost:
            query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
            lost.wait(2, timeout=LONG)  # the second is the first once more, which is already there
            leader.kill()
            assert query.awaitTermination(int(LONG))
        assert numbers(read(spark, address, subscribe="target")) == list(range(100))


# --- the source


@pytest.mark.parametrize("api", ["Fetch", "ListOffsets", "Metadata"])
def test_connections_of_the_source_drop_by_chance(
    spark: Any, mine: RunningBroker, topic: str, tmp_path: Path, api: str
) -> None:
    stream = read_stream(spark, mine.bootstrap_servers, subscribe=topic, maxOffsetsPerTrigger=40)
    with mine.faults.drop(api, probability=0.3, seed=4) as fault:
        assert run_available(stream, tmp_path / "c").numbers == list(range(100))
        assert fault.hits > 0


@pytest.mark.parametrize("code", ["NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION", "KAFKA_STORAGE_ERROR"])
def test_fetches_fail_for_a_while(spark: Any, mine: RunningBroker, topic: str, tmp_path: Path, code: str) -> None:
    stream = read_stream(spark, mine.bootstrap_servers, subscribe=topic)
    with mine.faults.error("Fetch", code, topic=topic, partition=1, times=2) as fault:
        assert run_available(stream, tmp_path / "c").numbers == list(range(100))
        assert fault.hits == 2


def test_fetches_that_are_not_allowed(spark: Any, mine: RunningBroker, topic: str) -> None:
    with (
        mine.faults.error("Fetch", "TOPIC_AUTHORIZATION_FAILED", topic=topic),
        pytest.raises(Exception, match=r"TopicAuthorizationException: Not authorized to access topics: \[source\]"),
    ):
        read(spark, mine.bootstrap_servers, subscribe=topic).count()


def test_a_slow_broker(spark: Any, mine: RunningBroker, topic: str, tmp_path: Path) -> None:
    """Slow but within the client's limits: only late. Beyond them: asked again, over a new connection."""
    stream = read_stream(
        spark,
        mine.bootstrap_servers,
        subscribe=topic,
        kafka__request__timeout__ms=1000,
        kafka__default__api__timeout__ms=90000,
        kafka__fetch__max__wait__ms=100,
    )
    with mine.faults as faults:
        slow = faults.delay("Fetch", 0.2, times=5)
        stuck = faults.delay("ListOffsets", 3, times=1)
        assert run_available(stream, tmp_path / "c").numbers == list(range(100))
        assert slow.hits and stuck.hits == 1


def test_a_batch_waits_for_a_fetch_that_is_held(spark: Any, mine: RunningBroker, topic: str, tmp_path: Path) -> None:
    """A held Fetch lets a test act in the middle of a batch."""
    collected = Collected()
    with mine.faults.hold("Fetch", partition=0, nth=1) as held:
        stream = read_stream(spark, mine.bootstrap_servers, subscribe=topic)
        with running(stream, tmp_path / "c", collected) as query:
            held.wait(timeout=LONG)
            produce(mine.bootstrap_servers, topic, 2, 10, first=100)
            assert collected.batches == {}
            held.undo()
            query.processAllAvailable()
    # The batch's end had been fixed before: what came meanwhile is in the next.
    assert collected.sizes == [100, 10] and collected.numbers == list(range(110))


@pytest.mark.parametrize("deprecated", [False, True], ids=["by admin", "by consumer"])
def test_a_latest_offset_that_is_too_old(
    spark: Any, mine: RunningBroker, topic: str, tmp_path: Path, deprecated: bool
) -> None:
    """An end below what was read already (KAFKA-7703): Spark asks again before it believes that records were lost."""
    spark.conf.set("spark.sql.streaming.kafka.useDeprecatedOffsetFetching", str(deprecated).lower())
    try:
        stream = read_stream(spark, mine.bootstrap_servers, subscribe=topic)
        collected = Collected()
        with running(stream, tmp_path / "c", collected) as query:
            query.processAllAvailable()
            fault = mine.faults.stale_latest(topic, 0, behind=30, times=2)
            fault.wait(2, timeout=LONG)
            produce(mine.bootstrap_servers, topic, 2, 10, first=100)
            query.processAllAvailable()
            assert query.isActive
        assert collected.numbers == list(range(110))
    finally:
        spark.conf.unset("spark.sql.streaming.kafka.useDeprecatedOffsetFetching")


def test_a_latest_offset_that_stays_too_old(spark: Any, mine: RunningBroker, topic: str, tmp_path: Path) -> None:
    """Then the query ends, and says that the end went back."""
    with (
        mine.faults as faults,
        running(read_stream(spark, mine.bootstrap_servers, subscribe=topic), tmp_path / "c", Collected()) as query,
    ):
        query.processAllAvailable()
        faults.stale_latest(topic, 0, behind=30, times=None)
        with pytest.raises(Exception, match=WENT_BACK):
            query.awaitTermination(int(LONG))


def test_a_latest_offset_that_is_asked_for_more_often(
    spark: Any, mine: RunningBroker, topic: str, tmp_path: Path
) -> None:
    """``fetchOffset.numRetries`` and ``fetchOffset.retryIntervalMs``: sixty ends that are too old are too many for the
    usual 3."""
    options = {"fetchOffset__numRetries": 100, "fetchOffset__retryIntervalMs": 10}
    collected = Collected()
    stream = read_stream(spark, mine.bootstrap_servers, subscribe=topic, **options)
    with running(stream, tmp_path / "c", collected) as query:
        query.processAllAvailable()
        mine.faults.stale_latest(topic, 0, behind=30, times=60).wait(60, timeout=LONG)
        produce(mine.bootstrap_servers, topic, 2, 10, first=100)
        query.processAllAvailable()
        assert query.isActive
    assert collected.numbers == list(range(110))


def test_a_latest_offset_that_is_asked_for_once(spark: Any, mine: RunningBroker, topic: str, tmp_path: Path) -> None:
    """With ``fetchOffset.numRetries`` 1 the first end that is too old is believed."""
    stream = read_stream(spark, mine.bootstrap_servers, subscribe=topic, fetchOffset__numRetries=1)
    with running(stream, tmp_path / "c", Collected()) as query:
        query.processAllAvailable()
        mine.faults.stale_latest(topic, 0, behind=30)
        with pytest.raises(Exception, match=WENT_BACK):
            query.awaitTermination(int(LONG))


# --- records


@pytest.mark.parametrize("how", ["expire", "apply_retention", "delete_records"])
def test_records_that_go_before_they_are_read(
    spark: Any, mine: RunningBroker, topic: str, tmp_path: Path, how: str
) -> None:
    """Between a batch's plan and its first fetch. A strict query ends and says so; a lenient one reads the rest."""
    address = mine.bootstrap_servers

    def start(collected: Collected, **options: object) -> Any:
        stream = read_stream(spark, address, subscribe=topic, **IMPATIENT, **options)
        writer = stream.writeStream.foreachBatch(collected.take).option("checkpointLocation", str(tmp_path / "c"))
        return writer.trigger(availableNow=True).start()

    with mine.faults.hold("Fetch", topic=topic) as held:
        query = start(Collected())
        held.wait(timeout=LONG)
        if how == "apply_retention":  # which takes what is older than the topic's own limit, as these records are
            set_retention(address, topic, 1000)
        getattr(mine.faults, how)(topic, 0)
        held.undo()
        with pytest.raises(Exception, match=r"Some data may have been lost because they are not available"):
            query.awaitTermination(int(LONG))
    lenient = Collected()
    assert start(lenient, failOnDataLoss="false").awaitTermination(int(LONG))
    assert lenient.numbers == list(range(1, 100, 2)), "partition 1 was not touched"


@pytest.mark.parametrize("where", ["in between", "at the end"])
def test_a_gap_in_the_offsets(spark: Any, mine: RunningBroker, topic: str, tmp_path: Path, where: str) -> None:
    limit = 900.0  # far more than a slow machine needs, and less than it takes to wait for what does not come
    patient = {"kafkaConsumer__pollTimeoutMs": 1_000_000}
    stream = read_stream(spark, mine.bootstrap_servers, subscribe=topic, maxOffsetsPerTrigger=30, **patient)
    mine.faults.offset_gap(topic, size=25)
    expected = list(range(100))
    if where == "in between":
        produce(mine.bootstrap_servers, topic, 2, 20, first=100)
        expected = list(range(120))
    began = time.monotonic()
    assert run_available(stream, tmp_path / "c").numbers == expected
    assert numbers(read(spark, mine.bootstrap_servers, subscribe=topic, minPartitions=8, **patient)) == expected
    assert time.monotonic() - began < limit, "a gap is passed, not waited for"


def test_compaction_under_a_query(spark: Any, mine: RunningBroker, tmp_path: Path) -> None:
    """Records that were compacted away before they were read are not data loss: their offsets have no rows."""
    address = mine.bootstrap_servers
    name = create(address, "compacted", 1, cleanup_policy="compact")
    for _ in range(3):
        produce(address, name, 1, 20)
    collected = Collected()
    stream = read_stream(spark, address, subscribe=name, maxOffsetsPerTrigger=25)
    with (
        mine.faults.hold("Fetch", topic=name) as held,
        running(stream, tmp_path / "c", collected, availableNow=True) as query,
    ):
        held.wait(timeout=LONG)
        mine.faults.compact(name)
        held.undo()
        assert query.awaitTermination(int(LONG))
    assert [len(batch) for _, batch in sorted(collected.batches.items())] == [0, 10, 10]
    assert collected.numbers == list(range(20))


def test_a_topic_that_is_made_anew(spark: Any, mine: RunningBroker, topic: str, tmp_path: Path) -> None:
    collected = Collected()
    stream = read_stream(spark, mine.bootstrap_servers, subscribe=topic)
    with running(stream, tmp_path / "c", collected) as query:
        query.processAllAvailable()
        mine.faults.recreate_topic(topic)
        produce(mine.bootstrap_servers, topic, 2, 10, first=500)
        with pytest.raises(Exception, match=WENT_BACK):
            query.awaitTermination(int(LONG))
    assert collected.numbers == list(range(100))


def test_a_topic_that_is_made_anew_and_soon_as_long_as_before(
    spark: Any, mine: RunningBroker, topic: str, tmp_path: Path
) -> None:
    """Nobody notices: offsets are all that a checkpoint holds. The records below the old end are never read."""
    stream = read_stream(spark, mine.bootstrap_servers, subscribe=topic)
    assert run_available(stream, tmp_path / "c").numbers == list(range(100))
    mine.faults.recreate_topic(topic)
    produce(mine.bootstrap_servers, topic, 2, 120, first=500)
    assert run_available(stream, tmp_path / "c").numbers == list(range(600, 620))


def test_a_topic_that_is_deleted(spark: Any, mine: RunningBroker, topic: str, tmp_path: Path) -> None:
    with running(read_stream(spark, mine.bootstrap_servers, subscribe=topic), tmp_path / "c", Collected()) as query:
        query.processAllAvailable()
        mine.faults.delete_topic(topic)
        with pytest.raises(Exception, match=r"UnknownTopicOrPartitionException"):
            query.awaitTermination(int(LONG))


def test_a_broker_that_restarts(spark: Any, mine: RunningBroker, topic: str, tmp_path: Path) -> None:
    collected = Collected()
    stream = read_stream(spark, mine.bootstrap_servers, subscribe=topic)
    with running(stream, tmp_path / "c", collected) as query:
        query.processAllAvailable()
        mine.restart()
        produce(mine.bootstrap_servers, topic, 2, 20, first=100)
        query.processAllAvailable()
    assert collected.numbers == list(range(120))


def test_the_same_seed_does_the_same_to_a_pipeline(spark: Any, new_name: Callable[[], str], tmp_path: Path) -> None:
    """It holds as far as Spark asks the same in the same order, which a single partition and its driver do."""
    seen = []
    for run in ("one", "two"):
        with running_broker() as broker, broker.faults as faults:
            create(broker.bootstrap_servers, "source", 1)
            produce(broker.bootstrap_servers, "source", 1, 60)
            faults.error("ListOffsets", "LEADER_NOT_AVAILABLE", client_id="^adminclient", probability=0.7, seed=11)
            stream = read_stream(spark, broker.bootstrap_servers, subscribe="source", maxOffsetsPerTrigger=20)
            assert run_available(stream, tmp_path / run).numbers == list(range(60))
            seen.append([(done.action, done.api, done.partitions) for done in faults.record])
    assert seen[0] == seen[1] and seen[0]
