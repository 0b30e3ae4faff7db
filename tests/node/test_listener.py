"""The connections that a listener takes, and its way on when the system gives it none."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest
import trio
import trio.testing

from kbroker.node.serving.admission import Admission, Admitted
from kbroker.node.serving.listener import ACCEPT_AGAIN_SECONDS, ConnectionLimits, ConnectionQuota, Listener
from kbroker.node.serving.memory_budget import MemoryBudget
from kbroker.runtime.budgets import DEFAULTS
from kbroker.runtime.epoll_poller import EpollPoller
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from kbroker.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.node.node_harness import Client, running_node
from tests.patience import LONG, SHORT, until

API_VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")


class _Failing:
    """A port where no connection can be had for a while, which is told at once."""

    address = ("127.0.0.1", 9092)

    def __init__(self, number: int, times: int) -> None:
        self.number = number
        self.left = times
        self.closed = False

    def listen(self) -> None:
        """It does from the start."""

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
async def test_nothing_that_accept_says_ends_a_listener(
    autojump_clock: trio.testing.MockClock, number: int, waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    port = _Failing(number, 20)
    services: Any = SimpleNamespace(env=SimpleNamespace(network=SimpleNamespace(poller=lambda: None), budgets=DEFAULTS))
    quota: Any = None
    listener = Listener(
        "L", port, services=services, table={}, is_controller=False, quota=quota, budget=MemoryBudget(1)
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.serve)
        await trio.sleep(ACCEPT_AGAIN_SECONDS * 5.5)
        assert port.left == (14 if waits else 0), "others get their turn meanwhile"
        await trio.sleep(ACCEPT_AGAIN_SECONDS * 20)
        assert not port.left
        assert not port.closed
        nursery.cancel_scope.cancel()
    assert len(caplog.records) == waits


async def test_clients_that_come_and_go_together_leave_the_turns_between_them_to_others(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        [listener] = (each for each in node.broker.listeners if each.address == node.broker.ports["PLAINTEXT"])

        async def most_in_a_turn(wanted: int) -> int:
            """The most that the connections have changed by between two turns of a task, until there are so many.

            The loop may run the others twice between them, since it has its tasks in no order.
            """
            most, before = 0, listener.connection_count
            with trio.fail_after(LONG):
                while before != wanted:
                    await trio.lowlevel.checkpoint()
                    most = max(most, abs(listener.connection_count - before))
                    before = listener.connection_count
            return most

        sockets = [socket.create_connection(listener.address) for _ in range(40)]
        assert await most_in_a_turn(40) <= 2
        await trio.testing.wait_all_tasks_blocked(0.01)
        for sock in sockets:
            sock.close()
        assert await most_in_a_turn(0) <= 2 * EpollPoller.STEPS


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_ip"])
async def test_connections_that_come_at_once_are_counted_one_by_one(tmp_path: Path, limit: str) -> None:
    """They wait to be accepted while the node is at something else; those beyond ``max.connections`` wait on."""
    async with running_node(tmp_path, **{limit: "5"}) as node:
        address = node.broker.ports["PLAINTEXT"]
        # Without a turn for the node's tasks.
        sockets = [socket.create_connection(address) for _ in range(20)]

        def connections() -> int:
            return sum(listener.connection_count for listener in node.broker.listeners)

        async def at_least(number: int) -> None:
            """The system may take a while to hand them over."""
            await until(lambda: connections() >= number)
            await trio.testing.wait_all_tasks_blocked(0.01)

        try:
            await at_least(5)
            assert connections() == 5
            for sock in sockets[:5]:
                sock.close()
            if limit == "max_connections":
                while sum(listener.admitted for listener in node.broker.listeners) < 10:
                    await trio.sleep(0.01)
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert connections() == 5
                return
            while connections():
                await trio.sleep(0.01)
            with socket.create_connection(address):
                await at_least(1)
                assert connections() == 1
        finally:
            for sock in sockets:
                sock.close()


async def test_connections_are_bounded_by_listener_and_at_run_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-402, and KIP-226 for the limits."""
    listeners = "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
    properties = {
        "listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.clients.max.connections": "2",
    }
    async with running_node(tmp_path, **properties) as node, trio.open_nursery() as nursery:
        admin = await node.connect()
        taken: list[Client] = []

        async def come(listener: str) -> Client:
            """A client that is served as soon as it is let in."""
            client = await node.connect(listener)

            async def be_served() -> None:
                try:
                    assert (await client.ask(API_VERSIONS)).error_code == 0
                except (EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
                    return
                taken.append(client)

            nursery.start_soon(be_served)
            return client

        async def until_waits(listener: str, reason: str) -> None:
            while not any(f"{listener}: clients wait to be accepted: {reason}" in text for text in caplog.messages):
                await trio.sleep(0.01)
            caplog.clear()
            for server in node.broker.listeners:
                server.refusals.clear()

        async def until_taken(*clients: Client) -> None:
            while not set(clients) <= set(taken):
                await trio.sleep(0.01)

        async def limit(name: str, broker: str, value: str | None) -> None:
            change = IncrementalAlterableConfig(name=name, value=value, config_operation=int(value is None))
            resource = IncrementalAlterConfigsResource(resource_type=4, resource_name=broker, configs=[change])
            answer = await admin.ask(IncrementalAlterConfigsRequest(resources=[resource]))
            assert answer.responses[0].error_code == 0, answer

        first, second, third = [await come("CLIENTS") for _ in range(3)]
        await until_taken(first, second)
        await until_waits("CLIENTS", "max.connections of listener CLIENTS (2) is reached")
        assert third not in taken
        await until_taken(await come("PLAINTEXT"))
        await limit("listener.name.clients.max.connections", "1", "3")
        await until_taken(third)
        fourth = await come("CLIENTS")
        await until_waits("CLIENTS", "max.connections of listener CLIENTS (3) is reached")
        await first.stream.aclose()
        await until_taken(fourth)
        await limit("listener.name.clients.max.connections", "1", "9")
        await limit("max.connections", "", "6")  # five are open, with the administrator's
        fifth, sixth = await come("CLIENTS"), await come("CLIENTS")
        await until_waits("CLIENTS", "max.connections (6) is reached")
        await until_taken(fifth)
        await limit("max.connections", "", None)
        await until_taken(sixth)
        await limit("max.connections.per.ip", "", "1")
        assert await (await node.connect("PLAINTEXT")).closed()
        for client in (second, third, fourth, fifth, sixth):
            assert (await client.ask(API_VERSIONS)).error_code == 0
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("name", ["max.connections", "listener.name.clients.max.connections"])
async def test_connections_are_bounded_after_a_restart_by_what_was_set_at_run_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        name: "9",
    }
    limit = "max.connections" if name == "max.connections" else "max.connections of listener CLIENTS"
    async with running_node(tmp_path, **properties) as node:
        change = IncrementalAlterableConfig(name=name, value="1", config_operation=0)
        resource = IncrementalAlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
        answer = await (await node.connect()).ask(IncrementalAlterConfigsRequest(resources=[resource]))
        assert answer.responses[0].error_code == 0, answer
    async with running_node(tmp_path, **properties) as node:
        first = await node.connect("CLIENTS")
        assert (await first.ask(API_VERSIONS)).error_code == 0
        second = await node.connect("CLIENTS")
        while f"CLIENTS: clients wait to be accepted: {limit} (1) is reached" not in caplog.text:
            assert sum(listener.admitted for listener in node.broker.listeners) == 1
            await trio.sleep(0.01)
        await first.stream.aclose()
        assert (await second.ask(API_VERSIONS)).error_code == 0


class _One(_Failing):
    """A port to which one client comes; what becomes of its connection can be seen."""

    def __init__(self) -> None:
        super().__init__(0, 0)
        self.peer = ("127.0.0.1", 1)
        self.came = False
        self.stream = SimpleNamespace(peer=self.peer, close=self._close_stream)
        self.stream_closed = trio.Event()

    def _close_stream(self) -> None:
        self.stream_closed.set()

    async def accept(self) -> Any:
        if self.came:
            await trio.sleep_forever()
        self.came = True
        return self.stream


async def test_who_is_to_make_room_just_as_it_is_let_in_is_closed(autojump_clock: trio.testing.MockClock) -> None:
    port = _One()
    services: Any = SimpleNamespace(
        env=SimpleNamespace(network=SimpleNamespace(poller=lambda: None), budgets=DEFAULTS),
        quotas=SimpleNamespace(connections=None),
    )
    wide = ConnectionLimits(max_connections=1, max_connections_per_ip=9, per_ip_overrides={}, max_idle=60)
    quota = ConnectionQuota(wide)

    class LastStep:
        async def admit(self, client: Admitted) -> None:
            quota.limits = wide._replace(max_connections=0)

    listener = Listener(
        "L",
        cast(Any, port),
        services=services,
        table={},
        is_controller=False,
        quota=quota,
        budget=MemoryBudget(1),
        admission=Admission([LastStep()]),
    )
    quota.listeners.append(listener)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.serve)
        with trio.fail_after(SHORT):
            await port.stream_closed.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert not listener.admitted and not quota.total
        nursery.cancel_scope.cancel()


async def test_brokers_come_in_place_of_clients_that_are_silent(tmp_path: Path) -> None:
    """(KIP-402) Others are closed to make room, also where the limit becomes narrower."""
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "max.connections": "3",
    }
    async with running_node(tmp_path, **properties) as node:

        async def come(listener: str) -> Client:
            client = await node.connect(listener)
            await greet(client)
            return client

        async def greet(client: Client) -> None:
            assert (await client.ask(API_VERSIONS)).error_code == 0

        busy, silent = await come("CLIENTS"), await come("CLIENTS")
        [clients] = [listener for listener in node.broker.listeners if listener.name == "CLIENTS"]
        clients.sweep(trio.current_time())
        await greet(busy)
        brokers = [await come("PLAINTEXT") for _ in range(2)]
        assert await silent.closed()
        await greet(busy)
        change = IncrementalAlterableConfig(name="max.connections", value="2", config_operation=0)
        resource = IncrementalAlterConfigsResource(resource_type=4, resource_name="", configs=[change])
        answer = await brokers[0].ask(IncrementalAlterConfigsRequest(resources=[resource]))
        assert answer.responses[0].error_code == 0, answer
        assert await busy.closed()
        brokers.append(await come("PLAINTEXT"))
        # The controller's listener is not theirs, whatever they have.
        for each in (*brokers, *[await come("CONTROLLER") for _ in range(2)]):
            await greet(each)
