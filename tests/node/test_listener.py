"""Which connections a listener takes, and what it does when the system gives it none."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import trio
import trio.testing
from node_harness import run, running_node

from kbroker.node.listener import ACCEPT_AGAIN_SECONDS, Listener
from kbroker.node.memory_budget import MemoryBudget


class _Failing:
    """A port where no connection can be had for a while, which is told at once."""

    address = ("127.0.0.1", 9092)

    def __init__(self, number: int, times: int) -> None:
        self.number = number
        self.left = times
        self.closed = False

    async def accept(self) -> NoReturn:
        if self.left:
            self.left -= 1
            raise OSError(self.number, os.strerror(self.number))
        await trio.sleep_forever()

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("number", "waits"),
    [
        (errno.ECONNABORTED, False),
        (errno.EMFILE, True),
        (errno.EPERM, True),  # a firewall's
        (errno.ENETUNREACH, True),
        (errno.EHOSTUNREACH, True),
    ],
)
def test_nothing_that_accept_says_ends_a_listener(number: int, waits: bool, caplog: pytest.LogCaptureFixture) -> None:
    port = _Failing(number, 20)
    services: Any = SimpleNamespace(env=SimpleNamespace(network=SimpleNamespace(poller=lambda: None)))
    quota: Any = None
    listener = Listener(
        "L", port, services=services, table={}, is_controller=False, quota=quota, budget=MemoryBudget(1)
    )

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.serve)
            await trio.sleep(ACCEPT_AGAIN_SECONDS * 5.5)
            assert port.left == (14 if waits else 0), "others get their turn meanwhile"
            await trio.sleep(ACCEPT_AGAIN_SECONDS * 20)
            assert not port.left
            assert not port.closed
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert len(caplog.records) == waits


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_ip"])
def test_connections_that_come_at_once_are_counted_one_by_one(tmp_path: Path, limit: str) -> None:
    """They wait to be accepted while the node is at something else."""

    async def test() -> None:
        async with running_node(tmp_path, **{limit: "5"}) as node:
            address = node.broker.ports["PLAINTEXT"]
            # Without a turn for the node's tasks.
            sockets = [socket.create_connection(address) for _ in range(20)]
            try:
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert sum(listener.connection_count for listener in node.broker.listeners) == 5
                for sock in sockets[:5]:
                    sock.close()
                while any(listener.connection_count for listener in node.broker.listeners):
                    await trio.sleep(0.01)
                with socket.create_connection(address):
                    await trio.testing.wait_all_tasks_blocked(0.01)
                    assert sum(listener.connection_count for listener in node.broker.listeners) == 1
            finally:
                for sock in sockets:
                    sock.close()

    run(test)
