"""A replica selector of one's own (KIP-392): three nodes, one of which is asked by consumers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.config import BrokerConfig
from kbroker.cores.replication.fetch_session import TRACKED_PARTITIONS
from kbroker.cores.replication.replica_selector import ReplicaSelector, ReplicaView
from kbroker.errors import FatalError
from kbroker.node.replicas.partition import Partition
from kbroker.raft_metadata.image import BrokerImage
from kbroker.rules import Reading
from kbroker.rules.loading import load
from kbroker.types import ZERO_UUID, TopicPartition
from tests.handlers.metadata_plane import properties
from tests.node.node_harness import batch, fetch_request, produce_request, running_node
from tests.node.quorum_harness import three_nodes
from tests.node.test_replication import TOPIC, create, leader_of, produce, replica

SELECTOR = '''
from kbroker.rules import Reading, settings

asked = []

@settings(timeout_seconds=5, keep_seconds=1000)
def by_client(reading: Reading):
    """A follower with all records; what other clients get is in their names."""
    asked.append(reading)
    if reading.client_id == "raises":
        raise RuntimeError("told to fail")
    answers = {"none": None, "stranger": 99, "text": "1", "leader": reading.leader.node_id}
    farthest = max(reading.followers, key=lambda each: (each.log_end_offset, each.node_id), default=reading.leader)
    return answers.get(reading.client_id, farthest.node_id)
'''


async def test_a_consumer_reads_where_the_selector_says(tmp_path: Path) -> None:
    file = tmp_path / "selector.py"
    file.write_text(SELECTOR)
    name = f"python:{file}:by_client"
    racks = {1: "a", 2: "b", 3: "c"}
    async with three_nodes(tmp_path, racks=racks, replica_selector_class=name) as cluster:
        topic_id = await create(cluster)
        leader = leader_of(cluster)
        followers = sorted(set(cluster.nodes) - {leader})
        assert (await produce(cluster, leader, b"x", topic_id=topic_id)).error_code == 0
        progress = replica(cluster, leader).state.progress
        await cluster.until(lambda: all(progress[each].log_end_offset == 1 for each in followers))
        asked: list[Reading] = load("replica.selector.class", name, "select").__globals__["asked"]
        asker = await cluster.node(leader).connect()

        async def preferred(client_id: str, version: int = 18, rack: str = "c") -> Any:
            request = fetch_request(TOPIC if version < 13 else "", topic_id=topic_id, rack_id=rack)
            answer = (await asker.ask(request, version, client_id)).responses[0].partitions[0]
            assert (len(answer.records) == 0) == (answer.preferred_read_replica >= 0)
            return answer.preferred_read_replica

        assert await preferred("any") == followers[-1]
        [reading] = asked
        assert (reading.topic, reading.partition, reading.rack, reading.listener) == (TOPIC, 0, "c", "PLAINTEXT")
        assert (reading.leader.node_id, reading.leader.rack) == (leader, racks[leader])
        assert {each.node_id: each.rack for each in reading.followers} == {each: racks[each] for each in followers}
        assert await preferred("any") == followers[-1] and len(asked) == 1
        assert await preferred("any", rack="") == followers[-1] and asked[-1].rack == ""
        # A client that knows of no replicas is not asked about, and the leader has no need to name itself.
        assert await preferred("any", 10) == -1 and len(asked) == 2
        assert [await preferred("leader"), await preferred("leader")] == [-1, -1] and len(asked) == 3
        for wrong in ("none", "stranger", "text", "raises"):
            assert await preferred(wrong) == -1
        assert len(asked) == 7
        await preferred("raises")  # nothing is kept of what was no answer
        assert len(asked) == 8


def test_followers_that_the_consumer_cannot_reach_are_not_offered() -> None:
    """Their brokers are gone, fenced, or without the consumer's listener: as by ``ReplicaManager`` of Apache Kafka."""

    def broker(number: int, *listeners: str, fenced: bool = False) -> BrokerImage:
        endpoints: Any = dict.fromkeys(listeners)
        return BrokerImage(number, 1, ZERO_UUID, endpoints, rack="b", fenced=fenced)

    brokers = [broker(1, "C"), broker(2, "C", "D"), broker(3, "D"), broker(4, "C", fenced=True)]
    caught_up = SimpleNamespace(log_start_offset=0, log_end_offset=5, last_caught_up_ms=0)
    partition: Any = SimpleNamespace(
        topic_partition=TopicPartition("t", 0),
        state=SimpleNamespace(local_id=1, isr={1, 2, 3, 4, 5}, progress=dict.fromkeys((2, 3, 4, 5), caught_up)),
        log=SimpleNamespace(log_end_offset=5),
        _progress=SimpleNamespace(
            image=lambda: SimpleNamespace(brokers={each.id: each for each in brokers}),
            env=SimpleNamespace(now=lambda: 0.0),
        ),
    )
    offered: list[int] = []

    def select(partition: TopicPartition, leader: ReplicaView, followers: Sequence[ReplicaView]) -> int:
        offered.extend(each.broker_id for each in followers)
        return leader.broker_id

    assert Partition.preferred_read_replica(partition, 5, select, "C") == -1
    assert offered == [2]


async def test_partitions_without_news_are_left_out_of_a_session_as_long_as_answers_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "selector.py"
    file.write_text(SELECTOR)
    name, count = f"python:{file}:by_client", TRACKED_PARTITIONS
    read: list[int] = []
    preferred = Partition.preferred_read_replica

    def counted(partition: Partition, fetch_offset: int, select: ReplicaSelector, listener: str) -> int:
        read.append(partition.topic_partition.partition)
        return preferred(partition, fetch_offset, select, listener)

    monkeypatch.setattr(Partition, "preferred_read_replica", counted)
    async with running_node(tmp_path, replica_selector_class=name) as node:
        topic_id = await node.create_topic("t", count)
        client = await node.connect()
        session = 0

        async def fetched(epoch: int, offsets: Sequence[tuple[int, int]] = (), rack: str = "a") -> list[int]:
            """The partitions that a Fetch has read."""
            nonlocal session
            read.clear()
            request = fetch_request(
                "", offsets, topic_id=topic_id, rack_id=rack, session_id=session, session_epoch=epoch
            )
            request.topics = request.topics if offsets else []
            answer = await client.ask(request, 18)
            assert answer.error_code == 0
            session = answer.session_id
            return sorted(read)

        every = list(range(count))
        assert await fetched(0, [(index, 0) for index in every]) == every
        assert await fetched(1) == every  # only now they are known to have no news
        assert await fetched(2) == []
        produced = await client.ask(produce_request("t", batch(b"x"), partition=3), 12)
        assert produced.responses[0].partition_responses[0].error_code == 0
        assert await fetched(3) == [3]
        assert await fetched(4, [(3, 1)]) == [3]
        assert await fetched(5) == []
        assert await fetched(6, rack="b") == every
        assert await fetched(7, rack="b") == []
        load("replica.selector.class", name, "select").changes = 1
        assert await fetched(8, rack="b") == every


@pytest.mark.parametrize("value", ["com.example.Selector", "python:nowhere", "python:selectors.py"])
def test_a_selector_that_cannot_be_had(tmp_path: Path, value: str) -> None:
    with pytest.raises(FatalError, match=r"replica\.selector\.class"):
        BrokerConfig.from_properties(properties(tmp_path) | {"replica.selector.class": value})
