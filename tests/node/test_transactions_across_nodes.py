"""Transactions whose coordinator and partitions are on different nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.cores.transactions.coordinator import TransactionCoordinator
from kbroker.cores.transactions.transaction import TransactionMarker
from kbroker.errors import ErrorCode
from kbroker.node.coordinators.broker_requests import MARKERS, MOST_UNDER_WAY, BrokerRequests, MarkerQuestion
from kbroker.node.peers.peer_pool import PeerPool
from kbroker.types import TopicPartition
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kbroker.wire.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from kbroker.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from tests.node.node_harness import Client, batch, fetch_request, values
from tests.node.quorum_harness import LATE_NEWS, Quorum, quorum, three_nodes
from tests.patience import SHORT

ID = "transactional-id"
TOPIC = "t"


async def create_topic(cluster: Quorum, partitions: int = 3) -> None:
    """A topic with as many partitions led by each node."""
    client = await cluster.node(1).connect()
    topic = CreatableTopic(name=TOPIC, num_partitions=partitions, replication_factor=3)
    response = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
    assert response.topics[0].error_code == 0
    await cluster.topics_everywhere([TOPIC])


def leaders(cluster: Quorum, topic: str = TOPIC) -> dict[int, int]:
    """Leader by partition."""
    image = cluster.newest_image()
    return {index: each.leader for index, each in image.topics.by_name[topic].partitions.items()}


async def coordinator(cluster: Quorum, but_for: int = 0) -> Client:
    """A connection to the transaction's coordinator."""
    with trio.fail_after(SHORT):
        while True:
            some = await cluster.node(next(each for each in cluster.nodes if each != but_for)).connect()
            found = (await some.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[ID]), 4)).coordinators[0]
            if not found.error_code and found.node_id in cluster.nodes:
                return await cluster.node(found.node_id).connect()
            await trio.sleep(0.02)


async def ask_until(ask: Callable[[], Any], accepted: Callable[[Any], bool]) -> Any:
    """Ask until the answer is one to go on with."""
    with trio.fail_after(SHORT):
        while not accepted(answer := await ask()):
            await trio.sleep(0.02)
    return answer


def in_transaction(producer: Any, *sequences: tuple[int, int]) -> ProduceRequest:
    """A batch of one record for each (partition, sequence)."""
    data = []
    for index, sequence in sequences:
        records = batch(
            b"%d" % sequence,
            timestamp=int(time.time() * 1000),
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data.append(PartitionProduceData(index=index, records=memoryview(bytearray(records))))
    topics = [TopicProduceData(name=TOPIC, partition_data=data)]
    return ProduceRequest(transactional_id=ID, acks=-1, timeout_ms=5000, topic_data=topics)


@pytest.mark.parametrize("killed", ["nobody", "coordinator", "leader"])
@pytest.mark.parametrize("commit", [True, False])
async def test_a_transaction_over_partitions_of_all_nodes(tmp_path: Path, killed: str, commit: bool) -> None:
    """Version 2: each leader has its partition added by the coordinator, which sends each its marker. Whoever dies
    before the markers are written, they are written in the end, by the next coordinator or to the next leader."""
    async with three_nodes(
        tmp_path, transaction_state_log_num_partitions="1", offsets_topic_num_partitions="1"
    ) as cluster:
        await create_topic(cluster)
        assert sorted(leaders(cluster).values()) == [1, 2, 3]
        client = await coordinator(cluster)
        producer = await ask_until(
            lambda: client.ask(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000), 4),
            lambda answer: answer.error_code == 0,
        )
        for index, leader in leaders(cluster).items():
            connection = await cluster.node(leader).connect()
            answer = (await connection.ask(in_transaction(producer, (index, 0)), 12)).responses[0]
            answer = answer.partition_responses[0]
            assert answer.error_code == 0

        by_coordinator = leaders(cluster, "__transaction_state")[0]
        victim = by_coordinator
        if killed == "leader":
            victim = next(each for each in leaders(cluster).values() if each != by_coordinator)
        if killed != "nobody":
            await cluster.kill(victim)
        end = EndTxnRequest(
            transactional_id=ID,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=commit,
        )

        async def ask_to_end() -> Any:
            return await (await coordinator(cluster, victim if killed != "nobody" else 0)).ask(end, 5)

        await ask_until(ask_to_end, lambda answer: answer.error_code == 0)
        await cluster.until(lambda: set(leaders(cluster).values()) <= cluster.nodes.keys())
        for index in leaders(cluster):

            async def read(index: int = index) -> Any:
                connection = await cluster.node(leaders(cluster)[index]).connect()
                request = fetch_request(TOPIC, [(index, 0)], isolation_level=1)
                return (await connection.ask(request, 11)).responses[0].partitions[0]

            found = await ask_until(read, lambda found: found.last_stable_offset == 2)
            aborted = [each.producer_id for each in found.aborted_transactions]
            assert aborted == ([] if commit else [producer.producer_id])
            assert values(found.records)[0] == (0, b"0")


@pytest.mark.parametrize("version", [11, 12])
async def test_a_producers_batches_keep_their_order_while_the_coordinator_is_asked(
    tmp_path: Path, version: int
) -> None:
    """A request to a partition that is new to the transaction waits; the ones behind it, to known ones, wait too."""
    async with three_nodes(
        tmp_path, transaction_state_log_num_partitions="1", offsets_topic_num_partitions="1"
    ) as cluster:
        client = await coordinator(cluster)
        by_coordinator = leaders(cluster, "__transaction_state")[0]
        leader = next(each for each in cluster.nodes if each != by_coordinator)
        new = [1, 2, 3]
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=index, broker_ids=[leader]) for index in (0, *new)],
        )
        assert (await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000))).topics[0].error_code == 0
        await cluster.topics_everywhere([TOPIC])
        producer = await ask_until(
            lambda: client.ask(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000), 4),
            lambda answer: answer.error_code == 0,
        )
        if version < 12:
            add = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=ID,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0, *new])],
            )
            added = (await client.ask(add, 3)).results_by_topic_v3_and_below[0].results_by_partition
            assert not any(each.partition_error_code for each in added)

        connection = await cluster.node(leader).connect()

        def errors(response: Any) -> set[int]:
            return {each.error_code for each in response.responses[0].partition_responses}

        await ask_until(
            lambda: connection.ask(in_transaction(producer, (0, 0)), version), lambda found: errors(found) == {0}
        )
        sent = [
            await connection.send(each, version)
            for each in (
                in_transaction(producer, (1, 0), (0, 1)),
                in_transaction(producer, (0, 2)),
                in_transaction(producer, (0, 3), (2, 0), (1, 1)),
                in_transaction(producer, (1, 2)),
                in_transaction(producer, (3, 0), (0, 4)),
            )
        ]
        received = [await connection.receive() for _ in sent]
        assert [correlation_id for correlation_id, _ in received] == sent
        assert [errors(response) for _, response in received] == [{0}] * len(sent)
        fetched = (await connection.ask(fetch_request(TOPIC, [(0, 0)]), 11)).responses[0].partitions[0]
        assert values(fetched.records) == [(index, b"%d" % index) for index in range(5)]


def marker_requests(
    nursery: trio.Nursery, peers: FakePeers | SilentPeers, address: tuple[str, int] | None
) -> BrokerRequests[MarkerQuestion]:
    """Requests for markers to brokers that are all at one address."""
    return BrokerRequests(
        MARKERS,
        lambda purpose: PeerPool(peers, purpose, lambda broker_id: address, 30.0),  # type: ignore[arg-type]
        nursery.start_soon,
    )


class FakePeers:
    """Addresses of brokers of which none can be reached."""

    def __init__(self) -> None:
        self.tried: list[tuple[str, int]] = []

    async def connect(self, host: str, port: int) -> Any:
        self.tried.append((host, port))
        await trio.lowlevel.checkpoint()
        raise ConnectionRefusedError


@pytest.mark.parametrize("address", [("there", 1), None])
async def test_who_cannot_be_asked_is_answered_for(
    autojump_clock: trio.testing.MockClock, address: tuple[str, int] | None
) -> None:
    """With an error after which the coordinator tries again."""
    peers = FakePeers()
    answers: list[dict[TopicPartition, ErrorCode]] = []
    marker = TransactionMarker(7, 0, True, 0, 2)
    partitions: Sequence[TopicPartition] = [TopicPartition("t", 0), TopicPartition("t", 1)]
    async with trio.open_nursery() as nursery:
        requests = marker_requests(nursery, peers, address)
        # Two for the same producer: they cannot be in one request, whose answers could not be told apart.
        requests.ask(2, MarkerQuestion(marker, partitions, answers.append))
        requests.ask(2, MarkerQuestion(marker, partitions[:1], answers.append))
    wrong = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert sorted(answers, key=len) == [dict.fromkeys(partitions[:1], wrong), dict.fromkeys(partitions, wrong)]
    assert len(peers.tried) == (0 if address is None else 2)


class SilentPeers:
    """Brokers that accept connections and then say nothing."""

    def __init__(self) -> None:
        self.connected = trio.Event()
        self.count = 0

    async def connect(self, host: str, port: int) -> Any:
        self.connected.set()
        self.count += 1
        await trio.lowlevel.checkpoint()
        return _Silent()


class _Silent:
    peer = ("there", 1)

    def send(self, data: bytes) -> int:
        return len(data)

    def recv_into(self, buffer: Any) -> int:
        raise BlockingIOError

    async def wait_readable(self) -> None:
        await trio.sleep_forever()

    def close(self) -> None: ...


async def test_who_is_fenced_is_not_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    """It may be cut off, and would be waited for until ``request.timeout.ms`` is over while others lead."""
    peers = SilentPeers()
    answers: list[float] = []
    marker = TransactionMarker(7, 0, True, 0, 2)
    async with trio.open_nursery() as nursery:
        requests = marker_requests(nursery, peers, ("there", 1))
        begun = trio.current_time()
        question = MarkerQuestion(
            marker, [TopicPartition("t", 0)], lambda errors: answers.append(trio.current_time() - begun)
        )
        requests.ask(2, question)
        await peers.connected.wait()
        await trio.sleep(5)
        requests.give_up(3)  # nothing is asked of it
        await trio.sleep(1)
        requests.give_up(2)
        requests.ask(2, question)  # what comes after is asked as ever
    assert answers == [pytest.approx(6), pytest.approx(36)]


def test_a_question_does_not_wait_for_the_answer_to_another() -> None:
    """A marker may wait for replication, and a partition for the end of a transaction; other producers' do not."""
    peers = SilentPeers()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            requests = marker_requests(nursery, peers, ("there", 1))
            for producer_id in range(2 * MOST_UNDER_WAY):
                marker = TransactionMarker(producer_id, 0, True, 0, 2)
                requests.ask(2, MarkerQuestion(marker, [TopicPartition("t", 0)], lambda errors: None))
                await trio.testing.wait_all_tasks_blocked()
                assert peers.count == min(producer_id + 1, MOST_UNDER_WAY)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock())


async def test_partitions_that_several_leaders_ask_for_are_added_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change of a transaction takes as long as replication: requests that come meanwhile share the next one."""
    changes = 0
    add = TransactionCoordinator.add_partitions

    def counted(*arguments: Any) -> Any:
        nonlocal changes
        result = add(*arguments)
        changes += bool(result.records)
        return result

    monkeypatch.setattr(TransactionCoordinator, "add_partitions", counted)
    async with quorum(
        tmp_path,
        transaction_state_log_num_partitions="1",
        offsets_topic_num_partitions="1",
        add_partitions_to_txn_retry_backoff_max_ms="10000",  # no Produce gives up waiting on a slow machine
    ) as cluster:
        await cluster.start(1, 2, 3)
        await cluster.await_leader()
        await create_topic(cluster, partitions=30)
        client = await coordinator(cluster)
        producer = await ask_until(
            lambda: client.ask(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000), 4),
            lambda answer: answer.error_code == 0,
        )
        connections = {leader: await cluster.node(leader).connect() for leader in cluster.nodes}
        led = leaders(cluster)
        for leader, connection in connections.items():
            mine = [index for index in led if led[index] == leader]
            await connection.send_together([in_transaction(producer, (index, 0)) for index in mine], 12)
        for leader in led.values():
            _, response = await connections[leader].receive()
            assert response.responses[0].partition_responses[0].error_code == 0
    assert 0 < changes <= 10, f"{changes} for thirty requests"


async def test_what_a_followers_fetch_leads_to_is_fetched_at_once(tmp_path: Path) -> None:
    """The fetch that commits a coordinator's record has its next one appended, before that fetch itself waits."""
    async with quorum(
        tmp_path,
        budgets=LATE_NEWS,
        transaction_state_log_num_partitions="1",
        offsets_topic_num_partitions="1",
        replica_fetch_wait_max_ms="20000",
        replica_lag_time_max_ms="60000",
    ) as cluster:
        await cluster.start(1, 2, 3)
        await cluster.await_leader()
        await create_topic(cluster)
        client = await coordinator(cluster)
        producer = await ask_until(
            lambda: client.ask(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000), 4),
            lambda answer: answer.error_code == 0,
        )
        topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=[0, 1, 2])]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=topics,
        )
        end = EndTxnRequest(
            transactional_id=ID,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=True,
        )

        def added(answer: Any) -> bool:
            return not answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

        with trio.fail_after(SHORT):
            for _ in range(5):
                await ask_until(lambda: client.ask(request, 3), added)
                assert (await client.ask(end, 4)).error_code == 0
