"""Attempts to write dead letters (KIP-1191): which answers have another one made, and which end them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.cores.share_partitions.dead_letters import DeadLetterReason, DeadLetters, Source
from kbroker.errors import ApiError, ErrorCode
from kbroker.node.peers.peer_pool import NoAnswer, PeerPool
from kbroker.node.share.dead_letters import DeadLetterQueue
from kbroker.observe.metrics.traffic import Traffic
from kbroker.value_types import replace
from kbroker.wire.messages.produce import PartitionProduceResponse, ProduceRequest
from kbroker.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.node.node_harness import Client, Node, run, running_node
from tests.patience import until

DLQ = "dlq.jobs"
SOURCE = Source("workers", "jobs", 0)
LETTERS = [DeadLetters(at, at, 1, DeadLetterReason.REJECTED) for at in (3, 5)]


Ask = Callable[[], Awaitable[Any]]


class Pool:
    """Connections to leaders: a batch goes by `write`, which may have the real ones ask."""

    def __init__(self, real: PeerPool, write: Callable[[ProduceRequest, Ask], Awaitable[Any]]) -> None:
        self._real = real
        self._write = write

    async def ask(self, leader: int, request: ProduceRequest, *, timeout: float) -> Any:
        assert request.timeout_ms / 1000 < timeout, "the leader's limit is over before that of the request"
        return await self._write(request, partial(self._real.ask, leader, request, timeout=timeout))


class Queue:
    """The queue of a node, for a group without copies; its partition is never read then."""

    def __init__(
        self, node: Node, write: Callable[[ProduceRequest, Ask], Awaitable[Any]] | None, next_id: object | None
    ) -> None:
        broker: Any = node.broker
        self.traffic = Traffic()

        def of_group(group_id: str) -> Any:
            name = DLQ if group_id == SOURCE.group_id else f"dlq.{group_id}"
            return SimpleNamespace(dead_letter_topic=name, dead_letter_copy=False)

        def pool_for(purpose: str) -> Any:
            real = broker.pool_for(purpose)
            return real if write is None else Pool(real, write)

        services = broker.services
        if next_id is not None:
            services = replace(services, producer_ids=SimpleNamespace(next_id=next_id))
        self.queue = DeadLetterQueue(services, pool_for, of_group, self.traffic)

    async def put(
        self,
        letters: Sequence[DeadLetters] = LETTERS,
        is_ours: Callable[[], bool] = lambda: True,
        source: Source = SOURCE,
    ) -> tuple[list[DeadLetters], list[DeadLetters]]:
        partition: Any = None
        return await self.queue.put(source, partition, letters, is_ours)


@asynccontextmanager
async def queue_of_a_node(
    path: Path,
    write: Callable[[ProduceRequest, Ask], Awaitable[Any]] | None = None,
    next_id: Callable[[], Awaitable[int]] | None = None,
) -> AsyncIterator[tuple[Node, Queue]]:
    async with running_node(path, errors_deadletterqueue_auto_create_topics_enable="true") as node:
        node.allow(retry_pauses=0.001)
        yield node, Queue(node, write, next_id)


def answer_of(code: ErrorCode) -> Any:
    """A leader's answer to a batch."""
    parts = [PartitionProduceResponse(index=0, error_code=code)]
    return SimpleNamespace(responses=[SimpleNamespace(partition_responses=parts)])


def written(node: Node) -> int:
    """Letters in the topic's log."""
    return int(node.broker.replica_manager.get_leader(DLQ, 0).log.log_end_offset)


@pytest.mark.parametrize("passing", [ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT])
def test_a_change_of_the_controller_loses_no_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passing: ErrorCode
) -> None:
    async def scenario() -> None:
        async with queue_of_a_node(tmp_path) as (node, queue):
            metadata: Any = node.broker.services.metadata
            create, calls = metadata.create_topics, []

            async def fail_once(topics: Sequence[Any], requester: Any = None) -> Mapping[str, object]:
                calls.append(topics)
                if len(calls) == 1:
                    return {DLQ: ApiError(passing)}
                outcomes: Mapping[str, object] = await create(topics, requester)
                return outcomes

            monkeypatch.setattr(metadata, "create_topics", fail_once)
            assert await queue.put() == (LETTERS, [])
            assert len(calls) == 2 and written(node) == 2

    run(scenario)


def test_a_topic_that_is_deleted_before_the_write_is_created_anew(tmp_path: Path) -> None:
    async def scenario() -> None:
        clients: list[Client] = []

        async def write_late(request: ProduceRequest, ask: Ask) -> Any:
            if clients:
                topic = DeleteTopicState(name=DLQ)
                answer = await clients.pop().ask(DeleteTopicsRequest(topics=[topic], timeout_ms=5000))
                assert not answer.responses[0].error_code
            return await ask()

        async with queue_of_a_node(tmp_path, write_late) as (node, queue):
            clients.append(await node.connect())
            assert await queue.put() == (LETTERS, [])
            assert written(node) == 2 and not clients

    run(scenario)


@pytest.mark.parametrize(
    ("answer", "sent"), [(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 1), (ErrorCode.REQUEST_TIMED_OUT, 5)]
)
def test_what_the_replicas_in_sync_have_is_written_and_what_the_leader_alone_has_is_sent_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, answer: ErrorCode, sent: int
) -> None:
    calls: list[ProduceRequest] = []

    async def produce(request: ProduceRequest, ask: Ask) -> Any:
        calls.append(request)
        return answer_of(answer)

    async def scenario() -> None:
        async with queue_of_a_node(tmp_path, produce) as (_, queue):
            assert await queue.put() == (LETTERS, [])
            assert len(calls) == sent
            lost = [line for line in caplog.messages if "without a dead letter" in line]
            assert len(lost) == (sent > 1) and all("its leader has them" in line for line in lost)

    run(scenario)


@pytest.mark.parametrize("attempts", [0, 1, 5])
def test_letters_of_a_partition_that_another_broker_leads_are_its_to_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, attempts: int
) -> None:
    calls: list[ProduceRequest] = []

    async def write(request: ProduceRequest, ask: Ask) -> Any:
        calls.append(request)
        raise NoAnswer("no leader")

    async def scenario() -> None:
        async with queue_of_a_node(tmp_path, write) as (node, queue):
            await node.create_topic(DLQ, errors_deadletterqueue_group_enable="true")
            assert await queue.put(is_ours=lambda: len(calls) < attempts) == ([], LETTERS)
            assert len(calls) == attempts
            assert not any("without a dead letter" in line for line in caplog.messages)

    run(scenario)


def test_few_batches_are_written_at_once_and_the_others_wait(tmp_path: Path) -> None:
    at_work, most, done = 0, 0, []

    async def scenario() -> None:
        may_go_on = trio.Event()

        async def write(request: ProduceRequest, ask: Ask) -> Any:
            nonlocal at_work, most
            at_work += 1
            most = max(most, at_work)
            await may_go_on.wait()
            at_work -= 1
            return answer_of(ErrorCode.NONE)

        async with queue_of_a_node(tmp_path, write) as (node, queue):
            await node.create_topic(DLQ, errors_deadletterqueue_group_enable="true")

            async def put() -> None:
                done.append(await queue.put())

            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(put)
                await until(lambda: at_work == 2)
                await trio.testing.wait_all_tasks_blocked()
                may_go_on.set()
            assert most == 2 and done == [(LETTERS, [])] * 10

    run(scenario)


def test_a_topic_that_cannot_be_written_holds_up_its_own_letters_alone(tmp_path: Path) -> None:
    async def hang(request: ProduceRequest, ask: Ask) -> Any:
        return await ask() if request.topic_data[0].name == DLQ else await trio.sleep_forever()

    async def scenario() -> None:
        async with queue_of_a_node(tmp_path, hang) as (_, queue):
            async with trio.open_nursery() as nursery:
                for partition in range(10):
                    stuck = Source("other", "jobs", partition)
                    nursery.start_soon(partial(queue.put, source=stuck))
                await trio.testing.wait_all_tasks_blocked()
                assert await queue.put() == (LETTERS, [])
                nursery.cancel_scope.cancel()
            assert not queue.queue._senders_of

    run(scenario)


def test_a_batch_whose_answer_is_lost_is_in_the_topic_once(tmp_path: Path) -> None:
    """The leader knows the producer id and the sequence; the next batches go on with both."""
    lost: list[object] = []

    async def lose_first(request: ProduceRequest, ask: Ask) -> Any:
        answer = await ask()
        if not lost:
            lost.append(answer)
            raise NoAnswer("the connection was reset")
        return answer

    async def scenario() -> None:
        async with queue_of_a_node(tmp_path, lose_first) as (node, queue):
            assert await queue.put() == (LETTERS, [])
            assert lost and written(node) == 2
            assert await queue.put() == (LETTERS, [])
            log = node.broker.replica_manager.get_leader(DLQ, 0).log
            stored = [header for _, header in log.batches(log.read(0, 1 << 20))]
            assert [(each.base_sequence, each.records_count) for each in stored] == [(0, 2), (2, 2)]
            assert len({each.producer_id for each in stored}) == 1 and stored[0].has_producer_id
            shares = queue.traffic.shares
            assert (shares.letters, shares.letter_requests) == ({"workers": 4}, {"workers": 3})
            assert not shares.failed_letter_requests

    run(scenario)


def test_a_leader_that_has_lost_the_sequence_is_sent_another_producer_id(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with queue_of_a_node(tmp_path) as (node, queue):
            assert await queue.put() == (LETTERS, [])
            (producer,) = queue.queue._producers._idle.values()
            producer.written(7)  # as if the leader had lost seven letters
            assert await queue.put() == (LETTERS, [])
            assert written(node) == 4
            assert queue.traffic.shares.letter_requests == {"workers": 3}

    run(scenario)


def test_letters_are_written_without_a_producer_id_where_there_is_none(tmp_path: Path) -> None:
    async def refuse() -> int:
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async def scenario() -> None:
        async with queue_of_a_node(tmp_path, next_id=refuse) as (node, queue):
            assert await queue.put() == (LETTERS, [])
            assert written(node) == 2

    run(scenario)
