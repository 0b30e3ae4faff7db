"""The appends of a Produce request that leaves its round before it is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.cores.replication.offset_waiter import Appended
from kbroker.handlers.produce_appends import Appends
from kbroker.runtime.later import Later
from kbroker.runtime.round import Round
from kbroker.wire.messages.produce import ProduceRequest, TopicProduceResponse


class _Partition:
    """A partition that this node leads in epoch 5, with a log that ends at 100 and one follower."""

    def __init__(self) -> None:
        self.state = SimpleNamespace(leader_epoch=5, high_watermark=90)
        self.must_flush = False
        self.on_write_failed: list[Any] = []

    def gather(self, records: memoryview, acks: int, now_ms: int, round: Round) -> tuple[int, int, int, int]:
        return 100, 100, -1, 0


class _Manager:
    """Keeps what is waited for."""

    def __init__(self) -> None:
        self.watched: list[Appended] = []

    def watch_produce(self, appends: list[Appended], on_complete: Any, timeout_ms: int) -> None:
        self.watched.extend(appends)


def _appends(round: Round) -> tuple[Appends, _Manager]:
    manager = _Manager()
    ctx: Any = SimpleNamespace(services=SimpleNamespace(replica_manager=manager), api_version=12)
    return Appends(ProduceRequest(acks=-1, timeout_ms=1000), ctx, None, round), manager


@pytest.mark.parametrize("gives_way", [False, True])
def test_a_gathered_batch_waits_for_its_replication_in_the_epoch_of_its_write(gives_way: bool) -> None:
    """A later leader may cut it off, whose high watermark is another's: the client must not be told success by that."""
    round = Round()
    appends, manager = _appends(round)
    partition: Any = _Partition()
    answer = appends.gather(0, partition, memoryview(b""), 0, round)
    assert answer is not None
    topics = [TopicProduceResponse(name="t", partition_responses=[answer])]
    if gives_way:
        appends.leave_round()
    else:
        assert isinstance(appends.response(topics), Later)
    round.end()
    # Another leader came and went before a request that gave way is over.
    partition.state.leader_epoch, partition.state.high_watermark = 7, 150
    if gives_way:
        assert isinstance(appends.response(topics), Later), "success, without the wait"
    assert manager.watched == [Appended(partition, 5, 101)]
