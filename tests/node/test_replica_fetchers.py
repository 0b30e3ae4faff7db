"""Leaders that seem to be dead: who asks who leads is made to wait. (How partitions are followed: test_replication.)"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from kbroker.errors import ErrorCode
from kbroker.log.leader_epochs import LeaderEpochs
from kbroker.node.replicas.replica_fetcher import FIRST_BACKOFF, LeaderFetcher
from kbroker.node.replicas.replica_fetchers import SUSPICION_SECONDS, ReplicaFetchers
from kbroker.types import TopicPartition, Uuid
from kbroker.wire.messages.fetch import EpochEndOffset, FetchRequest, PartitionData
from kbroker.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.patience import SHORT


@asynccontextmanager
async def fetching() -> AsyncIterator[tuple[ReplicaFetchers, dict[int, SimpleNamespace]]]:
    brokers = {2: SimpleNamespace(fenced=False), 3: SimpleNamespace(fenced=False)}
    fetchers = ReplicaFetchers(
        env=SimpleNamespace(now=trio.current_time),
        network=SimpleNamespace(),
        config=SimpleNamespace(),  # type: ignore[arg-type]
        table=SimpleNamespace(image=SimpleNamespace(brokers=brokers)),  # type: ignore[arg-type]
        **dict.fromkeys(("progress", "log_dirs", "checkpoints", "throttles", "start_soon")),  # type: ignore[arg-type]
        broker_epoch=lambda: 1,
        address=lambda broker_id: None,
    )
    yield fetchers, brokers


async def test_nobody_waits_while_no_leader_is_suspected(autojump_clock: MockClock) -> None:
    async with fetching() as (fetchers, _):
        began = trio.current_time()
        await fetchers.until_clear()
        fetchers.suspect(2)
        fetchers.clear(2)
        await fetchers.until_clear()
        assert trio.current_time() == began


async def test_who_asks_waits_until_the_suspect_is_fenced(autojump_clock: MockClock) -> None:
    async with fetching() as (fetchers, brokers):
        began = trio.current_time()
        fetchers.suspect(2)
        waited_for = []

        async def ask() -> None:
            waited_for.append(await fetchers.until_clear())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            nursery.start_soon(ask)
            await trio.sleep(0.1)
            fetchers.brokers_changed()  # another one's registration
            await trio.sleep(0.1)
            brokers[2].fenced = True
            fetchers.brokers_changed()
        assert abs(trio.current_time() - began - 0.2) < 1e-6
        assert waited_for == [{2}, {2}]
        assert await fetchers.until_clear() == frozenset()


async def test_a_suspicion_that_does_not_come_true_is_forgotten(autojump_clock: MockClock) -> None:
    async with fetching() as (fetchers, _):
        began = trio.current_time()
        fetchers.suspect(2)
        await trio.sleep(0.1)
        fetchers.suspect(3)
        await fetchers.until_clear()
        assert abs(trio.current_time() - began - SUSPICION_SECONDS - 0.1) < 1e-6
        await fetchers.until_clear()
        assert abs(trio.current_time() - began - SUSPICION_SECONDS - 0.1) < 1e-6


@pytest.mark.parametrize("known", [True, False])
async def test_a_leader_has_to_answer_in_time(autojump_clock: MockClock, known: bool) -> None:
    """Also one that has moved to another address: whoever asks the old one has to come to an end."""

    fetcher: LeaderFetcher
    began = 0.0

    class SlowPeer:
        def __init__(self) -> None:
            self.asked: list[float] = []

        async def ask_versioned(self, *_: Any) -> Any:
            self.asked.append(trio.current_time() - began)
            if len(self.asked) == 1:
                await trio.sleep(10)
                raise OSError("lost")
            if len(self.asked) == 3:
                del fetcher._partitions[("t", 0)]
            await trio.sleep_forever()

        def close(self) -> None: ...

    async with fetching() as (fetchers, _):
        began = trio.current_time()
        fetchers.config.replica_socket_timeout_ms = 30_000
        fetchers.config.replica_fetch_backoff_ms = 1000
        fetchers.table.node_id = 1
        fetchers.throttles = SimpleNamespace(follower=SimpleNamespace(is_active=False))  # type: ignore[assignment]
        peer = SlowPeer()
        fetcher = LeaderFetcher(fetchers, 2, "host", 9, peer=cast(Any, peer))
        tp = TopicPartition("t", 0)
        fetcher.add(SimpleNamespace(topic_partition=tp, state=SimpleNamespace(leader_epoch=1)))  # type: ignore[arg-type]
        fetchers._to_start.append(fetcher)
        if known:
            fetchers._fetchers[2] = fetcher
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetchers.run)
            await trio.testing.wait_all_tasks_blocked()
            while fetchers._running:
                await trio.sleep(1)
            nursery.cancel_scope.cancel()
        first, second = 10 + FIRST_BACKOFF, 10 + FIRST_BACKOFF + 30 + 2 * FIRST_BACKOFF
        assert peer.asked == pytest.approx([0, first, second])
        assert second + 30 < trio.current_time() - began < second + 32


def with_one_out_of_range(
    fetchers: ReplicaFetchers, ask: Any, backoff_ms: int = 1000, writer: Any = None, log_dirs: Any = None
) -> LeaderFetcher:
    """A fetcher that follows nothing but what OFFSET_OUT_OF_RANGE has set aside; ``ask`` stands for its leader."""
    owner: Any = SimpleNamespace(
        env=SimpleNamespace(now=trio.current_time),
        network=None,
        config=SimpleNamespace(
            replica_socket_timeout_ms=30_000,
            replica_fetch_backoff_ms=backoff_ms,
            replica_fetch_max_bytes=1 << 20,
            replica_fetch_response_max_bytes=1 << 20,
            replica_fetch_min_bytes=1,
            replica_fetch_wait_max_ms=500,
        ),
        table=SimpleNamespace(node_id=1, behind={}, partitions={}),
        log_dirs=log_dirs,
        start_soon=None,
        throttles=SimpleNamespace(follower=SimpleNamespace(is_active=False)),
        **dict.fromkeys(("progress", "checkpoints")),
        suspect=fetchers.suspect,
        clear=fetchers.clear,
        ended=lambda fetcher: None,
        broker_epoch=lambda: 1,
    )
    peer: Any = SimpleNamespace(ask_versioned=ask, close=lambda: None)
    fetcher = LeaderFetcher(owner, 2, "host", 9, peer=peer, writer=writer)
    partition: Any = SimpleNamespace(topic_partition=TopicPartition("t", 0), state=SimpleNamespace(leader_epoch=1))
    fetcher.add(partition)
    followed = fetcher._partitions["t", 0]
    followed.retry_at = inf
    fetcher._out_of_range["t", 0] = fetcher._aside["t", 0] = followed
    return fetcher


@pytest.mark.parametrize("backoff_ms", [1000, 0])
async def test_bounds_that_could_not_be_looked_up_are_looked_up_again(
    autojump_clock: MockClock, backoff_ms: int
) -> None:
    """With nothing else to follow, an offset out of range is asked about until the leader tells its bounds."""
    asked: list[float] = []
    fetcher: LeaderFetcher

    async def fail(request_class: type[Any], make: Any) -> Any:
        asked.append(trio.current_time())
        if len(asked) > most:
            fetcher.remove(("t", 0))
        raise OSError("the connection broke")

    most = 60 / FIRST_BACKOFF + 1
    async with fetching() as (fetchers, _):
        fetcher = with_one_out_of_range(fetchers, fail, backoff_ms)
        with trio.move_on_after(60):
            await fetcher.run()
        assert 20 < len(asked) <= most, "but not all the time"


@pytest.mark.parametrize("answers", [True, False])
async def test_what_is_given_up_while_its_bounds_are_looked_up_is_all_that_ends(
    autojump_clock: MockClock, answers: bool
) -> None:
    """As when another becomes the leader, or the topic is deleted."""
    asked: list[Any] = []

    async with fetching() as (fetchers, _):

        async def ask(request_class: type[Any], make: Any) -> Any:
            asked.append(request_class)
            fetcher.remove(("t", 0))
            if not answers:
                raise OSError("the connection broke")
            return ListOffsetsResponse(), 7

        fetcher = with_one_out_of_range(fetchers, ask)
        with trio.fail_after(SHORT):
            await fetcher.run()
        assert set(asked) == {ListOffsetsRequest}


async def test_a_mistake_in_one_log_that_was_out_of_range_ends_no_fetcher(autojump_clock: MockClock) -> None:
    """Others are followed by the same task."""
    asked: list[Any] = []
    fetcher: LeaderFetcher

    async def ask(request_class: type[Any], make: Any) -> Any:
        asked.append(request_class)
        if request_class is FetchRequest:
            fetcher.remove(("t", 0))
            raise OSError("the connection broke")
        bounds = ListOffsetsPartitionResponse(partition_index=0, offset=5)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[bounds])]), 7

    async with fetching() as (fetchers, _):
        fetcher = with_one_out_of_range(fetchers, ask)
        fetcher.followed[0].read_only = False  # a partition as this one has no log
        with trio.fail_after(SHORT):
            await fetcher.run()
        assert asked == [ListOffsetsRequest, ListOffsetsRequest, FetchRequest]


async def test_a_mistake_in_one_log_keeps_no_other_from_being_fetched(autojump_clock: MockClock) -> None:
    async with fetching() as (fetchers, _):
        fetcher = with_one_out_of_range(fetchers, None)
        fetcher._forget(("t", 0))
        (broken,) = fetcher.followed
        broken.read_only, broken.topic_id = False, Uuid(bytes(16))  # and it has no log
        log = SimpleNamespace(log_end_offset=7, log_start_offset=0, leader_epochs=SimpleNamespace(latest=1))
        sound: Any = SimpleNamespace(
            topic_partition=TopicPartition("t", 1), topic_id=broken.topic_id, state=broken.state, log=log
        )
        fetcher.add(sound)
        fetcher._partitions["t", 1].begun = True
        request = fetcher._request(17)
        assert [(each.partition, each.fetch_offset) for each in request.topics[0].partitions] == [(1, 7)]
        assert ("t", 0) in fetcher._aside, "it is tried again later"


async def test_a_leader_that_denies_is_asked_at_the_longest_interval_and_named_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("ERROR", "kbroker.node.replicas.replica_fetcher")
    async with fetching() as (fetchers, _):
        fetcher = with_one_out_of_range(fetchers, None)
        (first,) = fetcher._partitions.values()
        fetcher.add(SimpleNamespace(topic_partition=TopicPartition("t", 1), state=first.partition.state))  # type: ignore[arg-type]
        for _ in range(2):
            for followed in fetcher._partitions.values():
                fetcher._back_off(followed, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                assert followed.retry_at == pytest.approx(trio.current_time() + 1)
        assert len(caplog.records) == 1
        fetcher._back_off(first, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        assert len(caplog.records) == 2
        for index in range(2):  # followed no more: what comes then is news
            fetcher.remove(("t", index))
        fetcher._back_off(first, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        assert len(caplog.records) == 3
    assert caplog.messages[0] == "broker 2 denies this broker what it follows: TOPIC_AUTHORIZATION_FAILED"


async def test_a_leader_that_has_a_log_cut_back_again_and_again_is_asked_at_the_longest_interval(
    autojump_clock: MockClock,
) -> None:
    """It gives records, and says then that its own log has others: it is wrong about its leader epochs."""

    cuts: list[tuple[int, int]] = []

    def cut(partition: object, offset: int) -> None:
        cuts.append((round(trio.current_time() - began), offset))
        log.log_end_offset = offset

    def grow(*_: object) -> bool:
        log.log_end_offset = 33
        return True

    async with fetching() as (fetchers, _):
        fetcher = with_one_out_of_range(fetchers, None, writer=SimpleNamespace(truncate=cut, append=grow))
        fetcher.remove(("t", 0))
        log = SimpleNamespace(log_end_offset=33, log_start_offset=0, leader_epochs=LeaderEpochs([(0, 0)]))
        partition: Any = SimpleNamespace(
            topic_partition=TopicPartition("t", 1),
            topic_id=Uuid(bytes(16)),
            state=SimpleNamespace(leader_epoch=1, high_watermark=33),
            log=log,
        )
        fetcher.add(partition)
        fetcher._partitions["t", 1].begun = True
        began = trio.current_time()
        ends = [20, 10]
        while trio.current_time() - began < 10:
            fetcher._take_up()
            if fetcher._aside:
                await trio.sleep(0.125)
                continue
            data = PartitionData(partition_index=1, high_watermark=33)
            if log.log_end_offset == 33 or len(ends) == 1:
                data.diverging_epoch = EpochEndOffset(epoch=0, end_offset=ends.pop(0) if ends else 10)
            fetcher._request(17)
            fetcher._take(("t", 1), data)
        assert cuts == [(0, 20), (0, 10), *((second, 10) for second in range(10))]
