"""What a listener does when the system gives it no connection."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import trio
import trio.testing

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
