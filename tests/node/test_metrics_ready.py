"""`/ready` answers 503 with the reason as long as a node does not serve clients."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from kbroker.node.metrics.node_figures import broker_state
from kbroker.node.metrics.service import MetricsService
from kbroker.runtime.env import RealEnv
from kbroker.tools.cli.cluster_plan import free_ports
from tests.node.metrics_pages import ask
from tests.node.quorum_harness import quorum


def a_node(*, controller: int = 1, own: Any = None, is_broker: bool = True, listeners: int = 1) -> Any:
    image = SimpleNamespace(controller_id=controller, brokers={} if own is None else {1: own})
    config = SimpleNamespace(node_id=1, is_broker=is_broker, listeners=["PLAINTEXT"])
    return SimpleNamespace(
        metadata=SimpleNamespace(image=image), config=config, listeners=["open"] * listeners, opening=None
    )


def broker(*, fenced: bool = False, stopping: bool = False) -> Any:
    return SimpleNamespace(fenced=fenced, in_controlled_shutdown=stopping)


@pytest.mark.parametrize(
    ("node", "answer"),
    [
        (a_node(controller=-1, own=broker()), (503, "there is no active controller\n")),
        (a_node(), (503, "the broker is fenced\n")),
        (a_node(own=broker(fenced=True)), (503, "the broker is fenced\n")),
        (a_node(own=broker(stopping=True)), (503, "the broker is stopping\n")),
        (a_node(own=broker(), listeners=0), (503, "the broker is starting\n")),
        (a_node(own=broker()), (200, "ready\n")),
        (a_node(is_broker=False, listeners=0), (200, "ready\n")),
    ],
)
async def test_each_reason(node: Any, answer: tuple[int, str]) -> None:
    service = MetricsService(("127.0.0.1", 0), RealEnv(seed=1), node)
    await service.bind()
    server, port = service._server, service.port
    assert server is not None and port is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve)
        assert await trio.to_thread.run_sync(ask, port, "/ready") == answer
        nursery.cancel_scope.cancel()


async def test_a_node_of_three_waits_for_another(tmp_path: Path) -> None:
    [port] = free_ports(1)
    listener = {"prometheus.metrics.reporter.listener": f"http://127.0.0.1:{port}"}

    async def answer() -> tuple[int, str]:
        while True:
            try:
                return await trio.to_thread.run_sync(ask, port, "/ready")
            except ConnectionRefusedError:  # it does not listen yet
                await trio.sleep(0.02)

    async with quorum(tmp_path, properties_of={1: listener}) as cluster:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.start, 1)
            assert await answer() == (503, "there is no active controller\n")
            await cluster.start(2)
        while await answer() != (200, "ready\n"):
            await trio.sleep(0.02)


def test_a_brokers_state_never_goes_back() -> None:
    """Kafka's STARTING, RECOVERY, RUNNING; an image from the disk may have this broker's last life."""
    last, this = SimpleNamespace(incarnation_id=b"last"), SimpleNamespace(incarnation_id=b"this")

    def state(own: Any, *, opening: bool = False, was_unfenced: bool = False) -> int:
        node: Any = SimpleNamespace(
            metadata=SimpleNamespace(image=SimpleNamespace(brokers={1: own} if own else {}), incarnation_id=b"this"),
            config=SimpleNamespace(node_id=1),
            lifecycle=SimpleNamespace(was_unfenced=was_unfenced),
            opening="progress" if opening else None,
        )
        return broker_state(node)

    assert [state(None), state(last), state(this), state(this, was_unfenced=True)] == [1, 1, 2, 3]
    assert [state(last, opening=True), state(this, opening=True), state(this), state(this, was_unfenced=True)] == [
        2,
        2,
        2,
        3,
    ]
