"""Limits on the rate of new connections: from one address, to a listener, to the node."""

from __future__ import annotations

import time
from pathlib import Path

import trio
from trio.testing import MockClock

from kbroker.node.serving.connection_rates import KEPT_ADDRESSES, ConnectionRates
from kbroker.security.quotas.entities import QuotaTable
from kbroker.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kbroker.wire.messages.metadata import MetadataRequest
from tests.node.node_harness import Client, Node, configuration
from tests.node.test_client_quotas import node, set_quota, settled
from tests.patience import LONG

TWO_LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
}
"""Brokers have one of their own."""


class Rates:
    """Those of a node with two listeners besides the controller's, and their clock."""

    def __init__(self, path: Path, **addresses: float) -> None:
        self.now_s = 0.0
        self.rates = ConnectionRates(configuration(path, **TWO_LISTENERS), lambda: self.now_s)
        self.rates.table = QuotaTable(
            {
                (("ip", None if name == "default" else name),): {"connection_creation_rate": bound}
                for name, bound in addresses.items()
            }
        )


def test_an_address_has_its_own_rate_or_that_of_all_others(tmp_path: Path) -> None:
    case = Rates(tmp_path, **{"default": 1, "10.0.0.1": 2})
    rates = case.rates
    assert rates.is_limited
    for address, most in (("10.0.0.1", 20), ("::ffff:10.0.0.2", 10), ("10.0.0.3", 10)):
        for _ in range(most):
            assert rates.refusal_ms("L", address) == 0
        for _ in range(5):  # what is refused does not count
            assert 0 < rates.refusal_ms("L", address) <= 1000
    assert rates.refusal_ms("L", "10.0.0.2") > 0
    case.now_s = 30
    assert rates.refusal_ms("L", "10.0.0.1") == 0


def test_a_refused_connection_counts_nowhere(tmp_path: Path) -> None:
    rates = Rates(tmp_path, default=1).rates
    rates.node_bound = 2
    for _ in range(10):
        assert rates.wait_ms("OTHER") == 0
        assert rates.refusal_ms("OTHER", "10.0.0.1") == 0
    for _ in range(50):
        assert rates.wait_ms("OTHER") == 0
        assert rates.refusal_ms("OTHER", "10.0.0.1") > 0


def test_a_listener_waits_for_its_own_rate_and_the_nodes(tmp_path: Path) -> None:
    rates = Rates(tmp_path).rates
    assert not rates.is_limited
    rates.node_bound, rates.listener_bounds = 5, {"OTHER": 1}
    assert rates.is_limited
    assert [rates.wait_ms("OTHER") > 0 for _ in range(12)] == [False] * 10 + [True] * 2
    for _ in range(50):
        rates.wait_ms("CONTROLLER")
    assert rates.wait_ms("CONTROLLER") > 0
    # Brokers among themselves do not suffer from it.
    assert [rates.wait_ms("PLAINTEXT") for _ in range(100)] == [0] * 100


def test_the_only_listener_of_brokers_and_clients_has_the_nodes_rate(tmp_path: Path) -> None:
    """A controller's listener beside it is no other one for clients."""
    rates = ConnectionRates(configuration(tmp_path), lambda: 0.0)
    rates.node_bound = 5
    assert any(rates.wait_ms("PLAINTEXT") for _ in range(100))


def test_many_addresses_are_forgotten_again(tmp_path: Path) -> None:
    case = Rates(tmp_path, default=1)
    for number in range(3 * KEPT_ADDRESSES):
        case.now_s = number / 10
        assert case.rates.refusal_ms("L", f"2001:db8::{number:x}") == 0
    assert len(case.rates._addresses) <= KEPT_ADDRESSES + 1


def counted(running: Node, question: str) -> list[int]:
    """The answers in milliseconds that the node's listeners get from now on when they ask its rates."""
    rates, told = running.broker.services.quotas.connections, list[int]()
    asked = getattr(rates, question)

    def ask(*about: str) -> int:
        told.append(asked(*about))
        return told[-1]

    setattr(rates, question, ask)
    return told


async def until_counted(told: list[int]) -> None:
    """The node has seen a connection that comes too early, and keeps it waiting."""
    # The clock stands still: only real time can limit this.
    ends = time.monotonic() + LONG
    while not told:
        assert time.monotonic() < ends, "the node does not see the connection"
        await settled()
    assert told[-1] > 0
    await settled()


async def test_too_many_connections_of_an_address_are_kept_waiting_and_closed(clock: MockClock, tmp_path: Path) -> None:
    async with node(tmp_path, clock) as running:
        await set_quota(running, {"ip": "127.0.0.1"}, connection_creation_rate=1)
        clients = [await running.connect() for _ in range(10)]
        for client in clients:
            await client.ask(MetadataRequest(topics=[]))
        told = counted(running, "refusal_ms")
        refused = await running.connect()
        ended: list[bool] = []

        async def ends() -> None:
            ended.append(await refused.closed())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ends)
            await until_counted(told)
            assert not ended
            clock.jump(1)
        assert ended == [True]
        await set_quota_over(clients[0], None)
        for _ in range(5):
            await (await running.connect()).ask(MetadataRequest(topics=[]))


async def set_quota_over(client: Client, rate: float | None) -> None:
    from kbroker.wire.messages.client_quotas import AlterClientQuotasRequest
    from tests.node.test_client_quotas import alteration

    entry = alteration({"ip": "127.0.0.1"}, connection_creation_rate=rate)
    answer = await client.ask(AlterClientQuotasRequest(entries=[entry]))
    assert answer.entries[0].error_code == 0, answer


async def test_a_node_waits_before_it_takes_more(clock: MockClock, tmp_path: Path) -> None:
    async with node(tmp_path, clock, **TWO_LISTENERS) as running:
        admin = await running.connect()
        change = IncrementalAlterableConfig(name="max.connection.creation.rate", value="1")
        resource = IncrementalAlterConfigsResource(resource_type=4, resource_name="", configs=[change])
        answer = await admin.ask(IncrementalAlterConfigsRequest(resources=[resource]))
        assert answer.responses[0].error_code == 0, answer
        for _ in range(10):
            await (await running.connect("CLIENTS")).ask(MetadataRequest(topics=[]))
        told = counted(running, "wait_ms")
        late = await running.connect("CLIENTS")
        answers: list[object] = []

        async def ask() -> None:
            answers.append(await late.ask(MetadataRequest(topics=[])))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await until_counted(told)
            assert not answers
            clock.jump(1)
        await (await running.connect()).ask(MetadataRequest(topics=[]))


async def test_a_listener_has_a_rate_of_its_own(clock: MockClock, tmp_path: Path) -> None:
    rate = {"listener.name.plaintext.max.connection.creation.rate": "3"}
    async with node(tmp_path, clock, **rate) as running:
        rates = running.broker.services.quotas.connections
        assert isinstance(rates, ConnectionRates)
        assert rates.listener_bounds == {"PLAINTEXT": 3}
