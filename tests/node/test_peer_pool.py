"""Connections to other nodes that are kept: used again, and never when they are dead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.node.peers.peer import Peer, PeerRefused
from kbroker.node.peers.peer_pool import MOST_IDLE, NoAnswer, NoAnswerInTime, PeerPool
from kbroker.runtime.env import RealEnv
from kbroker.wire.messages.describe_cluster import DescribeClusterRequest
from kbroker.wire.messages.metadata import MetadataRequest
from tests.node.node_harness import running_node


class Counted:
    """A network that counts the connections it makes."""

    def __init__(self) -> None:
        self._network = RealEnv(seed=1).network
        self.streams: list[Any] = []

    async def connect(self, host: str, port: int) -> Any:
        stream = await self._network.connect(host, port)
        self.streams.append(stream)
        return stream


async def test_a_connection_is_used_again_until_the_other_end_closes_it(tmp_path: Path) -> None:
    network = Counted()
    async with running_node(tmp_path) as node:
        address: tuple[str, int] = node.broker.ports["PLAINTEXT"]
        pool = PeerPool(network, "test", lambda _: address, 5)  # type: ignore[arg-type]

        async def ask() -> int:
            return len((await pool.ask(1, DescribeClusterRequest())).brokers)

        assert [await ask() for _ in range(3)] == [1, 1, 1]
        assert len(network.streams) == 1

        async def ask_together() -> int:
            """Returns the number of new connections for more requests at once than are kept."""
            before = len(network.streams)
            async with trio.open_nursery() as nursery:
                for _ in range(MOST_IDLE + 3):
                    nursery.start_soon(ask)
            return len(network.streams) - before

        assert await ask_together() == MOST_IDLE + 2
        assert await ask_together() == 3
    with pytest.raises(NoAnswer) as refused:
        await ask()
    assert isinstance(refused.value.__cause__, PeerRefused)
    assert str(refused.value) == f"node 1 at {address[0]}:{address[1]}: nobody listens there"
    assert not Peer(network, "127.0.0.1", 1, client_id="x").is_open  # type: ignore[arg-type]


async def test_connections_to_others_end_with_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Counted()
    async with running_node(tmp_path) as node:
        monkeypatch.setattr(node.broker.security, "to_brokers", network)
        pool = node.broker.pool_for("test")
        await pool.ask(1, DescribeClusterRequest())
        (stream,) = network.streams
    with pytest.raises(OSError, match=r"closed|Bad file"):
        stream.send(b"x")


async def test_a_node_that_has_no_address_or_no_version_gives_no_answer(tmp_path: Path) -> None:
    network = RealEnv(seed=1).network
    async with running_node(tmp_path) as node:
        addresses: dict[int, tuple[str, int]] = {1: node.broker.ports["PLAINTEXT"]}
        pool = PeerPool(network, "test", addresses.get, 5)
        with pytest.raises(NoAnswer, match="node 2 has no address"):
            await pool.ask(2, MetadataRequest())
        with pytest.raises(NoAnswer, match="too old"):
            await pool.ask(1, MetadataRequest(), least_version=1000)
        with pytest.raises(NoAnswer, match="does not serve API key 3"):
            await pool.ask(1, MetadataRequest(), 1000)
        fitted: list[int] = []

        def fit(request: MetadataRequest, version: int) -> MetadataRequest:
            fitted.append(version)
            return request

        await pool.ask(1, MetadataRequest(), 12, fit=fit)  # type: ignore[arg-type]
        assert fitted == [12]


async def test_who_waits_for_a_node_that_is_asked_no_more_waits_no_longer() -> None:
    """A node that is cut off answers nothing, and its connections stay open."""
    network = RealEnv(seed=1).network
    silent = {number: await network.bind("127.0.0.1", 0) for number in (1, 2)}
    for listener in silent.values():
        listener.listen()
    pool = PeerPool(network, "test", lambda node_id: silent[node_id].address[:2], 0.01)
    answers: list[str] = []

    async def ask() -> None:
        with pytest.raises(NoAnswer) as given_up:
            await pool.ask(1, DescribeClusterRequest(), timeout=1000)
        answers.append(str(given_up.value))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        accepted = await silent[1].accept()
        pool.give_up(2)
        await trio.testing.wait_all_tasks_blocked()
        assert not answers
        pool.give_up(1)
    assert len(answers) == 1 and answers[0].endswith("is asked no more")
    accepted.close()
    with pytest.raises(NoAnswerInTime, match="does not answer in time"):
        await pool.ask(2, DescribeClusterRequest())
    for listener in silent.values():
        listener.close()
