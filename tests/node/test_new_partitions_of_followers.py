"""A partition whose leader hears of it later than its followers is followed at once, whatever else the leader holds.

Which of two nodes hears of a new topic first is a matter of chance: one that leads a partition of it or a follower.
"""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from kbroker.cores.replication.fetch_params import FetchParams
from kbroker.errors import ErrorCode
from kbroker.log.leader_epochs import UNDEFINED_EPOCH
from kbroker.node.peers.peer import GivenUp
from kbroker.node.replicas.fetch_reader import FetchReader
from kbroker.node.replicas.replica_fetcher import LeaderFetcher
from kbroker.node.replicas.replica_manager import ReplicaManager
from kbroker.types import TopicPartition, Uuid
from kbroker.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.node.node_harness import batch, produce_request
from tests.node.quorum_harness import LATE_NEWS, quorum

HOLD_SECONDS = 20.0
OLD, NEW = TopicPartition("old", 0), TopicPartition("new", 0)
TOPIC_IDS = {"old": Uuid(bytes(15) + b"\1"), "new": Uuid(bytes(15) + b"\2")}
NAMES = {topic_id: name for name, topic_id in TOPIC_IDS.items()}


class IdleLeader:
    """A leader of partitions without records, which hears of the new topic ``late`` seconds after the first request for
    it. It holds a request as long as it may; for an unknown topic it does so as well, unless ``tells_errors``."""

    def __init__(self, *, late: float, tells_errors: bool) -> None:
        self.late = late
        self.tells_errors = tells_errors
        self.requests: list[FetchRequest] = []
        self.waits = trio.Event()
        """A request is held for the first time."""
        self._known_from: float | None = None
        self._session: set[Uuid] = set()
        self._closed = trio.CancelScope()

    async def ask_versioned(self, request_class: type[Any], make: Any) -> Any:
        assert request_class is FetchRequest
        request: FetchRequest = make(18)
        self.requests.append(request)
        if not request.session_epoch:
            self._session.clear()
        self._session |= {topic.topic_id for topic in request.topics}
        self._session -= {topic.topic_id for topic in request.forgotten_topics_data}
        named = {Uuid(topic.topic_id) for topic in request.topics}
        if TOPIC_IDS["new"] in named and self._known_from is None:
            self._known_from = trio.current_time() + self.late
        knows_new = self._known_from is not None and trio.current_time() >= self._known_from
        unknown = self._session & ({TOPIC_IDS["new"]} if not knows_new else set())
        with trio.CancelScope() as self._closed:
            if self._session - unknown and not (unknown and self.tells_errors):
                if request.max_wait_ms == HOLD_SECONDS * 1000:
                    self.waits.set()
                await trio.sleep(request.max_wait_ms / 1000)
        if self._closed.cancelled_caught:
            raise GivenUp
        topics = [
            FetchableTopicResponse(topic_id=topic_id, partitions=[_nothing(topic_id in unknown)])
            for topic_id in sorted(named | unknown)
        ]
        return FetchResponse(session_id=1, responses=topics), 18

    def close(self) -> None:
        self._closed.cancel()


def _nothing(unknown: bool) -> PartitionData:
    if unknown:
        return PartitionData(error_code=ErrorCode.UNKNOWN_TOPIC_ID, high_watermark=-1, log_start_offset=-1, records=b"")
    return PartitionData(high_watermark=0, log_start_offset=0, records=b"")


def empty_partition(tp: TopicPartition) -> Any:
    epochs = SimpleNamespace(latest=UNDEFINED_EPOCH)
    return SimpleNamespace(
        topic_partition=tp,
        topic_id=TOPIC_IDS[tp.topic],
        state=SimpleNamespace(leader_epoch=0, high_watermark=0),
        log=SimpleNamespace(log_end_offset=0, log_start_offset=0, leader_epochs=epochs, is_damaged=False),
        must_flush=False,
        offline=False,
    )


@pytest.mark.parametrize("tells_errors", [True, False])
@pytest.mark.parametrize("late", [0.0, 0.1])
async def test_what_the_leader_hears_of_last_waits_for_no_held_fetch(
    autojump_clock: trio.testing.MockClock, late: float, tells_errors: bool
) -> None:
    taken: dict[TopicPartition, float] = {}

    def append(partition: Any, *_: Any) -> bool:
        taken.setdefault(partition.topic_partition, trio.current_time())
        return True

    leader = IdleLeader(late=late, tells_errors=tells_errors)
    config = SimpleNamespace(
        replica_fetch_wait_max_ms=int(HOLD_SECONDS * 1000),
        replica_socket_timeout_ms=60_000,
        replica_fetch_backoff_ms=1000,
        replica_fetch_min_bytes=1,
        replica_fetch_max_bytes=1 << 20,
        replica_fetch_response_max_bytes=1 << 20,
    )
    owner = SimpleNamespace(
        env=SimpleNamespace(now=trio.current_time),
        network=None,
        config=config,
        table=SimpleNamespace(node_id=1, topic_name=NAMES.get, behind={}, partitions={}),
        throttles=SimpleNamespace(follower=SimpleNamespace(is_active=False)),
        **dict.fromkeys(("progress", "log_dirs", "checkpoints")),
        broker_epoch=lambda: 1,
        clear=lambda leader: None,
        ended=lambda fetcher: None,
    )
    writer: Any = SimpleNamespace(append=append)
    fetcher = LeaderFetcher(owner, 2, "host", 9, peer=cast(Any, leader), writer=writer)
    fetcher.add(empty_partition(OLD))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetcher.run)
        await leader.waits.wait()
        added = trio.current_time()
        fetcher.add(empty_partition(NEW))
        leader.waits = trio.Event()
        await leader.waits.wait()
        # All that is followed is in the request that is held, soon after the leader knows of it.
        assert trio.current_time() - added <= 2 * late + 0.05
        assert set(taken) == {OLD, NEW}
        assert len(leader.requests) <= 14, "nobody asks all the time"
        nursery.cancel_scope.cancel()


async def test_a_topic_that_its_leader_hears_of_last_is_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a coordinator does whose topic has only just been created."""
    fetch, topic_name = FetchReader.fetch, ReplicaManager.topic_name
    asks: ContextVar[tuple[int, object]] = ContextVar("asks")
    refused: dict[tuple[int, int], object] = {}

    async def noted(reader: FetchReader, params: FetchParams, *more: Any) -> Any:
        asks.set((params.replica_id, object()))
        return await fetch(reader, params, *more)

    def none_at_first(manager: ReplicaManager, topic_id: Uuid) -> str | None:
        """The leader has not heard of the topic when a follower first asks for it."""
        name, (replica, request) = topic_name(manager, topic_id), asks.get((-1, None))
        is_first = name == "new" and replica >= 0 and refused.setdefault((manager.node_id, replica), request) is request
        return None if is_first else name

    async with quorum(
        tmp_path,
        budgets=LATE_NEWS,
        replica_fetch_wait_max_ms=str(int(HOLD_SECONDS * 1000)),
        replica_lag_time_max_ms="60000",
        replica_socket_timeout_ms="60000",
    ) as cluster:
        await cluster.start(1, 2, 3)
        await cluster.await_leader()
        client = await cluster.node(1).connect()
        for name in ("old", "new"):
            if name == "new":
                monkeypatch.setattr(FetchReader, "fetch", noted)
                monkeypatch.setattr(ReplicaManager, "topic_name", none_at_first)
            topic = CreatableTopic(name=name, num_partitions=3, replication_factor=3)
            created = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
            assert created.topics[0].error_code == 0
            await cluster.topics_everywhere([name])
        leader = cluster.newest_image().topics.by_name["new"].partitions[0].leader
        producer = await cluster.node(leader).connect()
        with trio.fail_after(HOLD_SECONDS / 2):
            answer = await producer.ask(produce_request("new", batch(b"first"), acks=-1, timeout_ms=60_000), 12)
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert {(leader, replica) for replica in cluster.nodes if replica != leader} <= refused.keys()
