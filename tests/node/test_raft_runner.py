"""The runner of the Raft core, around a core that a test plays."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.errors import ApiError, ErrorCode, FatalError
from kbroker.node.controller.raft_runner import RaftRunner
from kbroker.raft_metadata.raft.messages import OutboundRequest
from kbroker.raft_metadata.raft.types import Ready


async def test_a_question_that_comes_after_the_tasks_have_ended_is_no_failure() -> None:
    """A listener closes a little later than the runner, and what the core then sends has nobody to send it."""
    sent: list[OutboundRequest] = []

    async def send(request: OutboundRequest) -> Any:
        sent.append(request)
        await trio.sleep_forever()

    core: Any = SimpleNamespace(next_deadline=lambda: math.inf)
    env: Any = SimpleNamespace(now=trio.current_time)
    unused: Any = None
    runner = RaftRunner(core, unused, unused, env, unused, send)
    request: Any = object()

    def ready(now_ms: int) -> Ready:
        result = Ready()
        result.send = [request]
        return result

    async with trio.open_nursery() as nursery:
        nursery.start_soon(runner.run)
        await trio.testing.wait_all_tasks_blocked()
        await runner.step(ready)
        await trio.testing.wait_all_tasks_blocked()
        assert sent == [request]
        nursery.cancel_scope.cancel()
    await runner.step(ready)
    assert runner.failure is None
    assert sent == [request]


@pytest.mark.parametrize("is_disk", [False, True])
async def test_who_asks_a_replica_that_ends_is_told_that_nobody_is_here(is_disk: bool) -> None:
    """A request that waits, a later one, and that at which the disk failed: none is answered with an error of ours."""

    def receive(message: Any, now_ms: int) -> Ready:
        if message.request == "to the disk":
            raise FatalError("the disk is gone")
        return Ready()

    core: Any = SimpleNamespace(next_deadline=lambda: math.inf, receive=receive)
    env: Any = SimpleNamespace(now=trio.current_time)
    unused: Any = None
    runner = RaftRunner(core, unused, unused, env, unused)
    codes: list[ErrorCode] = []

    async def ask(request: Any) -> None:
        with pytest.raises(ApiError) as refused:
            await runner.ask(request)
        codes.append(refused.value.code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "a fetch that waits")
        await trio.testing.wait_all_tasks_blocked()
        assert codes == []
        if is_disk:
            await ask("to the disk")
            assert isinstance(runner.failure, FatalError), "whoever runs the replica has the reason"
        else:
            runner.fail(trio.ClosedResourceError())
    await ask("too late")
    assert codes == [ErrorCode.BROKER_NOT_AVAILABLE] * (3 if is_disk else 2)
    assert not runner._asked
