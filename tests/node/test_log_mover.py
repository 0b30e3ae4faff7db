"""The rate at which a log moves from one log dir to another. (That it arrives: test_log_dirs.)"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.log.dirs.log_move import MoveInterrupted
from kbroker.node.replicas.log_mover import catch_up
from kbroker.node.replicas.replication_throttles import ReplicationThrottles
from kbroker.raft_metadata.image import MetadataDelta, MetadataImage, ResourceType
from kbroker.types import OffsetAndEpoch
from kbroker.wire.records.metadata import ConfigRecord
from tests.node.node_harness import configuration

SIZE = 4_000_000
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


class Move:
    """A log of ``SIZE`` bytes on its way."""

    def __init__(self) -> None:
        self.copied = 0
        self.over = False

    @property
    def lag(self) -> int:
        return SIZE - self.copied

    def copy(self, max_bytes: int, now_ms: int) -> int:
        size = min(max_bytes, self.lag)
        self.copied += size
        return size

    def check(self) -> None:
        if self.over:
            raise MoveInterrupted


def seconds_of_move(rates: list[tuple[float, str | None]], call_off_at: float | None = None) -> float:
    """The seconds that a move takes, by the test's clock, when the throttle is set to each rate at its second."""
    move = Move()
    env: Any = SimpleNamespace(now=trio.current_time, wall_clock_ms=lambda: 0)
    throttles = ReplicationThrottles(env, configuration(Path("unused")))

    async def set_rates() -> None:
        began, image = trio.current_time(), MetadataImage()
        for second, rate in rates:
            await trio.sleep(began + second - trio.current_time())
            delta = MetadataDelta(image)
            delta.replay(ConfigRecord(resource_type=ResourceType.BROKER, name=RATE, value=rate))
            image = delta.apply(OffsetAndEpoch(image.offset + 1, 1))
            throttles.on_image(delta, image)
        if call_off_at is not None:
            await trio.sleep(began + call_off_at - trio.current_time())
            move.over = True

    async def main() -> float:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(set_rates)
            await trio.testing.wait_all_tasks_blocked()
            try:
                await catch_up(env, throttles, move)  # type: ignore[arg-type]
            except MoveInterrupted:
                assert move.over
            else:
                assert move.lag == 0
            nursery.cancel_scope.cancel()
        return trio.current_time() - began

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_without_a_throttle_it_takes_no_time() -> None:
    assert seconds_of_move([]) < 1


def test_a_move_takes_the_time_that_its_throttle_says() -> None:
    assert 36 <= seconds_of_move([(0, "100000")]) <= 44
    assert 18 <= seconds_of_move([(0, "200000")]) <= 22


def test_another_throttle_counts_within_a_second() -> None:
    assert 10 <= seconds_of_move([(0, "1"), (10, None)]) <= 11.1


def test_a_move_that_waits_can_be_called_off() -> None:
    assert 10 <= seconds_of_move([(0, "1")], call_off_at=10) <= 11.1


@pytest.mark.parametrize("nonsense", ["-1", "fast"])
def test_a_rate_that_an_earlier_release_let_pass_is_none(nonsense: str) -> None:
    assert seconds_of_move([(0, nonsense)]) < 1
