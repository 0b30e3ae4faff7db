"""The replica manager's tasks: begun before it runs, while it does, and after."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import trio
import trio.testing

from kbroker.node.replicas.replica_manager import ReplicaManager
from kbroker.runtime.env import RealEnv
from tests.node.node_harness import configuration


async def test_a_task_that_is_begun_before_the_manager_runs_is_started_with_it_and_one_afterwards_is_not(
    tmp_path: Path,
) -> None:
    """An image that comes first has the parts of share groups made, which end locks for as long as the node runs."""
    logs: Any = SimpleNamespace(high_watermarks=None, log_dirs=[], moves=SimpleNamespace(interrupted={}))
    config: Any = configuration(tmp_path)
    topic_log_config: Any = None
    manager = ReplicaManager(
        node_id=1, env=RealEnv(seed=1), config=config, log_manager=logs, topic_log_config=topic_log_config
    )
    started: list[str] = []

    async def task(name: str) -> None:
        started.append(name)

    manager.start_soon(task, "early")
    assert not started
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.run)
        await trio.testing.wait_all_tasks_blocked()
        manager.start_soon(task, "meanwhile")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    manager.start_soon(task, "late")
    await trio.testing.wait_all_tasks_blocked()
    assert started == ["early", "meanwhile"]
