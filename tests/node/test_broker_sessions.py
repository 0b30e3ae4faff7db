"""A silent broker is fenced when its session is over, and heartbeats cost the controller no wake-ups."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from kbroker.node.controller import broker_sessions
from kbroker.node.controller.broker_sessions import FORGIVEN_MS, SessionKeeper
from kbroker.raft_metadata.controller import ControllerResult
from kbroker.raft_metadata.controller.sessions import Heartbeat
from kbroker.raft_metadata.controller.surviving_logs import LogEnds
from kbroker.runtime.budgets import DEFAULTS
from kbroker.runtime.env import RealNetwork
from kbroker.types import Uuid

SESSION = 9.0
INTERVAL = 2.0


class _Connection:
    def __init__(self) -> None:
        self.closed = False
        self.when_closed: list[Callable[[], None]] = []


class _World:
    """A controller, node 1, and the brokers 2 and 3, at whose addresses nobody answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: trio.testing.MockClock) -> None:
        monkeypatch.setattr(broker_sessions, "directory_records", lambda *_: [])
        monkeypatch.setattr(broker_sessions, "fence_broker", self._fence)
        self.clock = clock
        self.fenced: list[tuple[int, float]] = []
        self.brokers = {
            broker_id: SimpleNamespace(
                id=broker_id,
                epoch=5,
                incarnation_id=Uuid(bytes([broker_id] * 16)),
                fenced=False,
                in_controlled_shutdown=False,
                active=True,
                endpoints={},
            )
            for broker_id in (1, 2, 3)
        }
        image = SimpleNamespace(brokers=self.brokers)
        view = SimpleNamespace(image=image, next_offset=0)
        controller: Any = SimpleNamespace(node_id=1, image=image, view=lambda: view, log_ends=LogEnds())

        self.decides = trio.Event()
        """Not set while a long change is under way, for which all others wait."""
        self.decides.set()

        async def submit(operation: Callable[[Any], Any]) -> Any:
            await self.decides.wait()
            return operation(view).response

        log: Any = SimpleNamespace(
            controller=controller,
            is_active=True,
            check_active=lambda: None,
            on_active=lambda callback: None,
            submit=submit,
        )
        env: Any = SimpleNamespace(now=trio.current_time, budgets=DEFAULTS)
        self.keeper = SessionKeeper(log, env, 9000, self.brokers[1].incarnation_id)

    def _fence(self, view: Any, broker_id: int, epoch: int) -> ControllerResult[None]:
        self.brokers[broker_id].fenced = True
        self.fenced.append((broker_id, trio.current_time()))
        return ControllerResult(None)

    async def beat(self, broker_id: int, count: int) -> None:
        connection: Any = _Connection()
        for _ in range(count):
            await self.keeper.heartbeat(Heartbeat(broker_id, 5, 1), connection)
            await trio.sleep(INTERVAL)


@asynccontextmanager
async def sessions_kept(
    monkeypatch: pytest.MonkeyPatch, clock: MockClock
) -> AsyncIterator[tuple[_World, trio.Nursery]]:
    world = _World(monkeypatch, clock)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.keeper.run)
        await trio.testing.wait_all_tasks_blocked()
        world.keeper.on_active()
        yield world, nursery
        nursery.cancel_scope.cancel()


async def test_heartbeats_wake_nobody_and_silence_is_noticed_in_time(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[float] = []

    async with sessions_kept(monkeypatch, autojump_clock) as (world, nursery):
        expired = world.keeper._sessions.expired

        def counted(now_ms: int) -> Any:
            looked.append(now_ms)
            return expired(now_ms)

        monkeypatch.setattr(world.keeper._sessions, "expired", counted)
        begun = trio.current_time()
        nursery.start_soon(world.beat, 2, 50)
        nursery.start_soon(world.beat, 3, 31)  # the last at 60 s
        await trio.sleep(90)
        (fenced,) = world.fenced
        assert fenced[0] == 3
        assert abs(fenced[1] - begun - 60 - SESSION) < 0.01
        # Once in the time between a heartbeat and the end of a session that would have begun with it.
        assert len(looked) <= 2 + 90 / (SESSION - INTERVAL)


async def test_a_controller_that_has_stood_still_hears_the_brokers_first(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long after the last heartbeat it began to stand still."""

    async with sessions_kept(monkeypatch, autojump_clock) as (world, nursery):
        nursery.start_soon(world.beat, 2, 4)
        nursery.start_soon(world.beat, 3, 4)
        await trio.sleep(INTERVAL * 3.5)
        world.clock.jump(20)
        late = trio.current_time()
        await trio.sleep(FORGIVEN_MS / 1000 - 0.1)
        assert not world.fenced
        nursery.start_soon(world.beat, 2, 20)
        await trio.sleep(30)
        (fenced,) = world.fenced
        assert fenced[0] == 3
        assert late + FORGIVEN_MS / 1000 <= fenced[1] <= late + SESSION + FORGIVEN_MS / 1000


async def test_the_first_session_is_kept_too(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sessions_kept(monkeypatch, autojump_clock) as (world, _):
        world.keeper._sessions.end(2)
        world.keeper._sessions.end(3)
        await trio.sleep(60)
        begun = trio.current_time()
        await world.beat(2, 1)
        await trio.sleep(20)
        (fenced,) = world.fenced
        assert fenced[0] == 2
        assert abs(fenced[1] - begun - SESSION) < 0.01


async def test_a_broker_whose_address_can_be_none_keeps_its_session_and_the_controller_runs(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sessions_kept(monkeypatch, autojump_clock) as (world, nursery):
        world.keeper._env.network = RealNetwork()
        world.brokers[2].endpoints = {"PLAINTEXT": SimpleNamespace(host="broker..example", port=9092)}
        nursery.start_soon(world.beat, 3, 20)
        begun = trio.current_time()
        connection: Any = _Connection()
        await world.keeper.heartbeat(Heartbeat(2, 5, 1), connection)
        await trio.sleep(1)
        [closed] = connection.when_closed
        closed()
        await trio.sleep(SESSION - 2)
        assert not world.fenced
        await trio.sleep(5)
        (fenced,) = world.fenced
        assert fenced[0] == 2
        assert abs(fenced[1] - begun - SESSION) < 0.01


async def test_the_controllers_own_broker_may_be_silent(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs for as long as the controller does, and sends no heartbeats while it is alone."""

    async with sessions_kept(monkeypatch, autojump_clock) as (world, _):
        world.keeper._sessions.end(2)
        world.keeper._sessions.end(3)
        await world.beat(1, 1)
        await trio.sleep(10 * SESSION)
        assert not world.fenced


@pytest.mark.parametrize(("broker_id", "after"), [(2, 8), (2, 10), (3, 10)])
async def test_who_is_heard_of_while_a_long_change_is_under_way_is_not_fenced(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, broker_id: int, after: int
) -> None:
    """Neither before the session ends, nor while the fencing waits as well."""

    async with sessions_kept(monkeypatch, autojump_clock) as (world, nursery):
        world.decides = trio.Event()
        await trio.sleep(after)
        nursery.start_soon(world.beat, broker_id, 1)
        await trio.sleep(SESSION + 3 - after)
        world.decides.set()
        await trio.sleep(1)
        assert {fenced for fenced, _ in world.fenced} == {2, 3} - {broker_id}


async def test_that_a_change_takes_long_gives_no_broker_more_time(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that waited for it has heard all that the brokers said meanwhile."""

    async with sessions_kept(monkeypatch, autojump_clock) as (world, _):
        await world.beat(3, 2)  # the last one at 2 s
        world.decides = trio.Event()
        await trio.sleep(SESSION + INTERVAL * 2)
        assert not world.fenced
        world.decides.set()
        await trio.sleep(0.5)
        assert {fenced for fenced, _ in world.fenced} == {2, 3}


async def test_a_controller_that_stands_still_while_a_change_is_under_way_hears_the_brokers_first(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sessions_kept(monkeypatch, autojump_clock) as (world, nursery):
        await world.beat(3, 2)
        world.decides = trio.Event()
        await trio.sleep(SESSION - 3)  # the fencing of broker 2 waits
        world.clock.jump(20)
        await trio.sleep(FORGIVEN_MS / 2000)
        nursery.start_soon(world.beat, 3, 1)
        await trio.sleep(1)
        world.decides.set()
        await trio.sleep(1)
        assert [fenced for fenced, _ in world.fenced] == [2]
