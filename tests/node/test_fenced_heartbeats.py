"""Heartbeats of a broker that is fenced, as the active controller takes them: they keep its id, and may unfence it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.errors import ApiError, ErrorCode
from kbroker.node.controller.broker_sessions import SessionKeeper
from kbroker.raft_metadata.controller import ControllerResult, ControllerView
from kbroker.raft_metadata.controller.brokers import BrokerRegistration, register_broker
from kbroker.raft_metadata.controller.directories import ReplicaDirectory, assign_replicas
from kbroker.raft_metadata.controller.sessions import Heartbeat, HeartbeatState
from kbroker.runtime.budgets import DEFAULTS
from kbroker.types import Uuid
from kbroker.value_types import replace
from kbroker.wire.records.metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord
from tests.raft_metadata.controller_harness import FEATURES, Harness

SESSION = 9.0
DIRS, OTHERS = [Uuid(bytes([1] * 16)), Uuid(bytes([2] * 16))], [Uuid(bytes([3] * 16))]


def registration(broker_id: int, incarnation: int, log_dirs: Sequence[Uuid]) -> BrokerRegistration:
    return BrokerRegistration(broker_id, Uuid(bytes([incarnation] * 16)), [], FEATURES, log_dirs)


class World:
    """The active controller, node 1, and the sessions of its brokers."""

    def __init__(self) -> None:
        self.harness = Harness()
        self.written: list[object] = []
        log: Any = SimpleNamespace(
            controller=self.harness.controller,
            is_active=True,
            check_active=lambda: None,
            on_active=lambda callback: None,
            submit=self._submit,
        )
        env: Any = SimpleNamespace(now=trio.current_time, budgets=DEFAULTS)
        self.keeper = SessionKeeper(log, env, int(SESSION * 1000), Uuid(bytes([99] * 16)))

    async def _submit(self, operation: Callable[[ControllerView], ControllerResult[Any]]) -> Any:
        result = operation(self.harness.view)
        records = list(result.records)
        self.written += records
        return self.harness.apply(replace(result, records=records))

    def register(self, broker: BrokerRegistration) -> int:
        """Its epoch."""
        self.keeper.check_registration(broker)
        epoch = int(self.harness.apply(register_broker(self.harness.view, broker)))
        self.harness.epochs[broker.broker_id] = epoch
        return epoch

    async def beat(self, broker_id: int, epoch: int, **fields: Any) -> HeartbeatState:
        connection: Any = SimpleNamespace(closed=True)
        return await self.keeper.heartbeat(Heartbeat(broker_id, epoch, epoch, **fields), connection)

    def is_refused(self, broker: BrokerRegistration) -> bool:
        try:
            self.keeper.check_registration(broker)
        except ApiError as error:
            assert error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
            return True
        return False


@asynccontextmanager
async def _fenced_world() -> AsyncIterator[World]:
    yield World()


@pytest.fixture
def world(autojump_clock: trio.testing.MockClock) -> AbstractAsyncContextManager[World]:
    return _fenced_world()


async def test_the_id_of_a_broker_that_verifies_its_logs_is_not_taken(world: World) -> None:
    epoch = world.register(registration(2, 1, DIRS))
    again, impostor = registration(2, 2, DIRS[:1]), registration(2, 3, OTHERS)
    assert not world.is_refused(impostor), "it has never been heard of"
    for _ in range(10):
        assert (await world.beat(2, epoch, want_fence=True)).is_fenced
        await trio.sleep(SESSION - 0.1)
        assert world.is_refused(impostor)
        assert not world.is_refused(again), "a restart is known by its disks"
    await trio.sleep(0.2)
    assert not world.is_refused(impostor), "it has been silent for a session"
    await world.beat(2, epoch, want_fence=True)
    assert world.register(again) > epoch
    assert not world.is_refused(impostor), "nothing was heard of this life"


async def test_a_broker_that_stops_while_it_is_fenced_leaves_its_id(world: World) -> None:
    epoch = world.register(registration(2, 1, DIRS))
    await world.beat(2, epoch, want_fence=True)
    answer = await world.beat(2, epoch, want_fence=True, want_shut_down=True)
    assert answer.should_shut_down
    assert not world.is_refused(registration(2, 2, OTHERS))


async def test_a_log_dir_that_has_failed_is_told_of_before_the_broker_is_unfenced(world: World) -> None:
    """Else it would be elected for a moment for what it has just lost."""
    epoch = world.register(registration(2, 1, DIRS))
    await world.beat(2, epoch)
    world.harness.assign("t", 2)
    lost = DIRS[0]
    replica = ReplicaDirectory(world.harness.controller.image.topics.by_name["t"].id, 0, lost)
    world.harness.apply(assign_replicas(world.harness.view, 2, epoch, [replica]))
    world.harness.fence(2)
    world.written.clear()
    assert world.harness.partition().leader == -1
    first = await world.beat(2, epoch, offline_log_dirs=(lost,))
    assert first.is_fenced
    assert _elected(world.written) == [] and _unfenced(world.written) == 0
    assert lost not in world.harness.controller.image.brokers[2].log_dirs
    second = await world.beat(2, epoch, offline_log_dirs=(lost,))
    assert not second.is_fenced
    assert _elected(world.written) == [] and _unfenced(world.written) == 1
    assert world.harness.partition().leader == -1


def _elected(records: Sequence[object]) -> list[int]:
    """The leaders that records name."""
    changes = [record for record in records if isinstance(record, PartitionChangeRecord)]
    return [record.leader for record in changes if record.leader >= 0]


def _unfenced(records: Sequence[object]) -> int:
    return sum(isinstance(record, BrokerRegistrationChangeRecord) and record.fenced == -1 for record in records)


@pytest.mark.parametrize("failed", [(), (Uuid(bytes([7] * 16)),)])
async def test_a_broker_that_has_caught_up_is_unfenced_by_one_heartbeat_and_elected(
    world: World, failed: tuple[Uuid, ...]
) -> None:
    """Also one that tells of a directory which the controller knows to have failed, or never knew."""
    epoch = world.register(registration(2, 1, DIRS))
    await world.beat(2, epoch)
    world.harness.assign("t", 2)
    world.harness.fence(2)
    world.written.clear()
    assert not (await world.beat(2, epoch, offline_log_dirs=failed)).is_fenced
    assert _elected(world.written) == [2]
