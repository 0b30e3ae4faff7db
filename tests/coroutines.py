"""Tests that are coroutines: this plugin runs them on Trio, in one place for all.

Such a test runs by a patient clock and has two minutes of it (`run` of `tests/node/node_harness.py`); with a
clock among its fixtures it runs by that one. A fixture whose value is an asynchronous context manager is entered
before the test, in the same event loop, and left after it; the test gets what was entered.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
import trio
import trio.testing

from tests.node.node_harness import Client, Node, run, running_node


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    fixtures: dict[str, Any] = pyfuncitem.funcargs
    if not inspect.iscoroutinefunction(test):
        return None

    async def entered() -> None:
        async with AsyncExitStack() as stack:
            given: dict[str, Any] = {}
            for name in inspect.signature(test).parameters:
                value = fixtures[name]
                is_entered = isinstance(value, AbstractAsyncContextManager)
                given[name] = await stack.enter_async_context(value) if is_entered else value
            await test(**given)

    clocks = [value for value in fixtures.values() if isinstance(value, trio.abc.Clock)]
    if clocks:
        trio.run(entered, clock=clocks[0])
    else:
        run(entered)
    return True


@pytest.fixture
def clock() -> trio.testing.MockClock:
    """The clock of an asynchronous test: it stands still until the test moves it."""
    return trio.testing.MockClock()


@pytest.fixture
def autojump_clock() -> trio.testing.MockClock:
    """The clock of an asynchronous test: it jumps to the next deadline whenever every task waits."""
    return trio.testing.MockClock(autojump_threshold=0)


class StartingNode(AbstractAsyncContextManager[Node]):
    """A node that starts when it is entered."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stack = AsyncExitStack()
        self._node: Node | None = None

    async def __aenter__(self) -> Node:
        if self._node is None:
            self._node = await self._stack.enter_async_context(running_node(self._path))
        return self._node

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, traceback)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Client]:
        """A connection to the node, which is entered before if the test does not ask for it."""
        async with self as node:
            yield await node.connect()


@pytest.fixture
def node(tmp_path: Path) -> StartingNode:
    """A node with nothing but the harness's properties, for an asynchronous test: it gets a `Node`."""
    return StartingNode(tmp_path)


@pytest.fixture
def client(node: StartingNode) -> AbstractAsyncContextManager[Client]:
    """A connection to `node`, for an asynchronous test: it gets a `Client`."""
    return node.connection()
