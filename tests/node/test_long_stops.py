"""A clean stop lasts for as long as it gets on: thousands of logs may wait for their disk."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.node.logs.log_care import STOP_SECONDS, LogCare


async def seconds_of_a_stop(between_logs: list[float]) -> float:
    """Close logs, each of which takes so long; the time that this takes."""
    logs = SimpleNamespace(closed=0, on_offline=[])

    async def run_blocking(_: object) -> None:
        for seconds in between_logs:
            await trio.sleep(seconds)
            logs.closed += 1

    env, replicas = SimpleNamespace(run_blocking=run_blocking), SimpleNamespace(high_watermarks=dict)
    nothing: Any = None
    care = LogCare(env, logs, replicas, nothing)  # type: ignore[arg-type]
    began = trio.current_time()
    with trio.CancelScope() as scope:
        scope.cancel()  # as the node's tasks are by then
        await care.close(1)
    return trio.current_time() - began


async def test_a_stop_goes_on_while_logs_become_durable(autojump_clock: trio.testing.MockClock) -> None:
    each = STOP_SECONDS * 0.9
    assert await seconds_of_a_stop([each] * 20) == pytest.approx(20 * each)


async def test_a_stop_ends_that_gets_no_further(autojump_clock: trio.testing.MockClock) -> None:
    assert await seconds_of_a_stop([1.0, 1e6]) == 2 * STOP_SECONDS
    assert await seconds_of_a_stop([1e6]) == STOP_SECONDS
