"""A Produce request that leaves its round before it is over, and what is left of it while its answer waits."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.cores.replication.purgatory import Appended
from kbroker.node.replicas.produce_writer import write_produce
from kbroker.runtime.later import Later
from kbroker.runtime.round import Round
from kbroker.types import TopicPartition
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


class _Partition:
    """A partition that this node leads in epoch 5, with a log that ends at 100 and one follower."""

    def __init__(self) -> None:
        self.topic_partition = TopicPartition("t", 0)
        self.state = SimpleNamespace(leader_epoch=5, high_watermark=90)
        self.is_internal = self.must_flush = False
        self.on_write_failed: list[Any] = []

    def gather(self, records: memoryview, acks: int, now_ms: int, round: Round) -> tuple[int, int, int, int]:
        return 100, 100, -1, 0

    def append(self, records: memoryview, acks: int, now_ms: int, guard: None) -> Any:
        return SimpleNamespace(first_offset=101, last_offset=101, log_append_time_ms=-1, log_start_offset=0)


def context(
    partition: _Partition,
    round: Round | None,
    watch_produce: Callable[..., None],
    add: Callable[..., bool] | None = None,
    slice_seconds: float = 1.0,
) -> Any:
    """The context that a handler is given, of a node that has the partition."""
    services = SimpleNamespace(
        env=SimpleNamespace(now=lambda: 0.0, wall_clock_ms=lambda: 0),
        produce_queue=SimpleNamespace(waiting={}, add=add, slice_seconds=slice_seconds),
        replica_manager=SimpleNamespace(find=lambda *key: partition, watch_produce=watch_produce),
    )
    connection = SimpleNamespace(peer="127.0.0.1:1", refused_batches=None)
    header = SimpleNamespace(api_version=12, client_id="")
    return SimpleNamespace(connection=connection, services=services, round=round, header=header)


@pytest.mark.parametrize("gives_way", [False, True])
def test_a_gathered_batch_waits_for_its_replication_in_the_epoch_of_its_write(gives_way: bool) -> None:
    """A later leader may cut it off, whose high watermark is another's: the client must not be told success by that."""
    round, partition = Round(), _Partition()
    watched: list[Appended] = []
    queued: list[Any] = []

    def add(connection: Any, work: Any, *_: Any, **__: Any) -> bool:
        queued.append(work)
        return True

    ctx = context(
        partition,
        round,
        lambda appends, on_complete, timeout_ms: watched.extend(appends),
        add,
        0.0 if gives_way else 1.0,
    )
    data = [PartitionProduceData(index=0, records=memoryview(b""))] * 5
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data[: 5 if gives_way else 4])]
    )
    answer = write_produce(request, ctx, None, None)
    assert isinstance(answer, Later) and len(queued) == gives_way
    round.end()
    # Another leader came and went before a request that gave way is over.
    partition.state.leader_epoch, partition.state.high_watermark = 7, 150
    if gives_way:
        partition.gather = None  # type: ignore[method-assign, assignment]
        with pytest.raises(StopIteration):
            next(queued[0])
    assert not answer.done, "success, without the wait"
    assert watched == [Appended(partition, 5, 101)] * 4  # type: ignore[arg-type]


class _Buffer(bytearray):
    """The bytes of a frame."""


@pytest.mark.parametrize("is_flushed", [False, True])
def test_the_records_do_not_stay_in_memory_while_the_answer_waits(is_flushed: bool) -> None:
    """A connection may have 256 requests that wait for a slow follower or disk: a quarter of a gigabyte, or more."""
    partition = _Partition()
    partition.must_flush = is_flushed
    waiting: list[Callable[..., Any]] = []
    ctx = context(partition, None, lambda appends, on_complete, timeout_ms: waiting.append(on_complete))
    ctx.services.replica_manager.start_soon = waiting.append
    buffer = _Buffer(1000)
    data = PartitionProduceData(index=0, records=memoryview(buffer))
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=[data])])
    answer = write_produce(request, ctx, None, None)
    assert isinstance(answer, Later) and not answer.done and len(waiting) == 1
    held = weakref.ref(buffer)
    del buffer, data, request
    assert held() is None
    if not is_flushed:
        waiting[0]({partition.topic_partition: None})
        assert answer.value is not None
        assert [each.base_offset for each in answer.value.responses[0].partition_responses] == [101]
