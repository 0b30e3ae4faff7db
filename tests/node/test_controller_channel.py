"""Connections to the active controller that are kept: used again, and never when they are dead."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from kbroker.node.controller.controller_channel import MAX_IDLE, ControllerChannel
from kbroker.node.peers.peer import Peer, PeerRefused
from kbroker.raft_metadata.raft.voters import VoterEndpoint
from kbroker.runtime.env import RealEnv
from kbroker.wire.messages.describe_cluster import DescribeClusterRequest
from tests.node.node_harness import run, running_node


def test_a_connection_is_used_again_until_the_other_end_closes_it(tmp_path: Path) -> None:
    async def test() -> None:
        network = RealEnv(seed=1).network
        channel = ControllerChannel(network, "test")
        async with running_node(tmp_path) as node:
            address = VoterEndpoint(*node.broker.ports["PLAINTEXT"])

            async def ask() -> int:
                answer = await channel.ask(address, DescribeClusterRequest(), None, 5)
                return len(answer.brokers)

            assert [await ask() for _ in range(3)] == [1, 1, 1]
            assert len(channel._idle) == 1
            kept = channel._idle[0]
            assert kept.is_open
            async with trio.open_nursery() as nursery:
                for _ in range(MAX_IDLE + 3):
                    nursery.start_soon(ask)
            assert len(channel._idle) == MAX_IDLE
        while kept.is_open:  # the other end's goodbye may be on its way
            await trio.sleep(0.001)
        assert not Peer(network, "127.0.0.1", 1, client_id="x").is_open
        with pytest.raises(PeerRefused):
            await ask()
        assert channel._idle == []

    run(test)


def test_who_waits_for_a_controller_that_is_none_any_more_waits_no_longer() -> None:
    """A controller that is cut off answers nothing, and its connections stay open."""

    async def test() -> None:
        network = RealEnv(seed=1).network
        channel = ControllerChannel(network, "test")
        silent = [await network.bind("127.0.0.1", 0) for _ in range(2)]
        for listener in silent:
            listener.listen()
        first, second = (VoterEndpoint(*listener.address[:2]) for listener in silent)
        answers: list[str] = []

        async def ask(address: VoterEndpoint, timeout: float) -> None:
            with pytest.raises(OSError) as refused:
                await channel.ask(address, DescribeClusterRequest(), None, timeout)
            answers.append(str(refused.value))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, first, 1000)
            accepted = await silent[0].accept()
            channel.turn_to(first)
            await trio.testing.wait_all_tasks_blocked()
            assert not answers
            channel.turn_to(second)
        assert answers == ["another is active now"]
        accepted.close()
        await ask(second, 0.01)
        assert answers[1:] == ["it does not answer in time"]
        for listener in silent:
            listener.close()

    run(test)
