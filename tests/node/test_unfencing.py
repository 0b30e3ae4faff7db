"""A node that waits to be unfenced before it serves clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.node.broker import Broker
from kbroker.node.controller.broker_sessions import SessionKeeper
from kbroker.raft_metadata.controller.sessions import Heartbeat, HeartbeatState
from kbroker.raft_metadata.storage import format_log_dirs
from kbroker.runtime.env import RealEnv
from kbroker.tools.cli.cluster_plan import free_ports
from tests.node.node_harness import CLUSTER_ID
from tests.node.quorum_harness import LISTENER, quorum
from tests.patience import SHORT, until


@pytest.mark.parametrize("answered", [True, False])
async def test_one_that_waits_to_be_unfenced_stops_in_good_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    heartbeat = SessionKeeper.heartbeat
    waits = trio.Event()

    async def keep_fenced(keeper: SessionKeeper, beat: Heartbeat, connection: Any) -> HeartbeatState:
        if beat.broker_id != 3 or (beat.want_shut_down and answered):
            return await heartbeat(keeper, beat, connection)
        waits.set()
        if not answered:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        return HeartbeatState(is_caught_up=False, is_fenced=True, should_shut_down=False)

    async with quorum(tmp_path) as cluster, trio.open_nursery() as nursery:
        await cluster.start(1, 2)
        await cluster.await_leader()
        monkeypatch.setattr(SessionKeeper, "heartbeat", keep_fenced)
        config, env = cluster.config(3), RealEnv()
        format_log_dirs(
            env.disk,
            config.log_dirs,
            config.metadata_log_dir,
            node_id=3,
            cluster_id=CLUSTER_ID,
            rng=env.rng,
            now_ms=1_700_000_000_000,
        )
        scope = trio.CancelScope()
        stopped = trio.Event()

        async def node() -> None:
            with scope:
                await Broker(config, env).run()
            stopped.set()

        nursery.start_soon(node)
        await waits.wait()
        scope.cancel()
        with trio.fail_after(SHORT):
            await stopped.wait()


async def test_a_node_without_a_quorum_refuses_clients_and_takes_them_once_it_has_one(tmp_path: Path) -> None:
    """They go on to another node; other controllers must reach it, or there would never be a quorum."""
    own: dict[str, str] = {}
    async with quorum(tmp_path, properties_of={1: own}) as cluster, trio.open_nursery() as nursery:
        [port] = free_ports(1)
        own["listeners"] = f"PLAINTEXT://127.0.0.1:{port},{LISTENER}://127.0.0.1:{cluster.ports[0]}"
        nursery.start_soon(cluster.start, 1)
        while not await is_reached(cluster.ports[0]):
            await trio.sleep(0.02)
        assert not await is_reached(port)
        await cluster.start(2)
        await until(lambda: 1 in cluster.nodes)
        assert await is_reached(port)


async def is_reached(port: int) -> bool:
    try:
        await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
    except OSError:
        return False
    return True
