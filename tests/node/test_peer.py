"""Requests to another node that is far away, or that cannot be reached for a while. The network is a simulated one."""

from __future__ import annotations

import random
import struct
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from kbroker.node.peers.client_stream import ClientStream, ConnectionEnded
from kbroker.node.peers.peer import PATIENCE, GivenUp, Peer
from kbroker.sim.clock import run_deterministically, sim_clock
from kbroker.sim.tcp import LinkFaults, NodeNetwork, SimNet, SimStream
from kbroker.sim.world import Trace
from kbroker.wire.framing import FrameReader, response_parts
from kbroker.wire.headers import decode_request_header
from kbroker.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kbroker.wire.messages.classic_groups import HeartbeatRequest, HeartbeatResponse
from kbroker.wire.registry import API_KEYS

PORT = 9
REQUEST_TIMEOUT = 2.0
SETUP_TIMEOUT = 10.0


class _Server:
    """Answers ApiVersions and Heartbeat at once."""

    def __init__(self) -> None:
        self.accepted = 0
        self.heartbeats = 0

    async def serve(self, network: NodeNetwork) -> None:
        listener = await network.bind("server", PORT)
        listener.listen()
        async with trio.open_nursery() as nursery:
            while True:
                stream = await listener.accept()
                self.accepted += 1
                nursery.start_soon(self._answer, stream)

    async def _answer(self, stream: SimStream) -> None:
        reader = FrameReader(api_keys=None)
        while True:
            while (frame := reader.next_frame()) is not None:
                header, _ = decode_request_header(frame)
                response: ApiVersionsResponse | HeartbeatResponse = HeartbeatResponse()
                if header.api_key == 18:
                    served = [
                        ApiVersion(api_key=key, max_version=API_KEYS[key].stable_versions.highest) for key in (12, 18)
                    ]
                    response = ApiVersionsResponse(api_keys=served)
                else:
                    self.heartbeats += 1
                parts = response_parts(header.api_key, header.api_version, header.correlation_id, response)
                stream.send(b"".join(bytes(part) for part in parts if not hasattr(part, "fd")))
            try:
                received = stream.recv_into(reader.get_buffer())
            except BlockingIOError:
                await stream.wait_readable()
                continue
            except OSError:
                return
            if not received:
                stream.close()
                return
            reader.buffer_updated(received)


def run(round_trip: float, main: Callable[[SimNet, Peer, _Server], Awaitable[None]]) -> None:
    """A server and a peer of it, so far away."""

    async def test() -> None:
        faults = LinkFaults(min_latency=round_trip / 2, max_latency=round_trip / 2, short_reads=0.0)
        net = SimNet(sim_clock(), random.Random(1), Trace(sim_clock()), faults)
        server = _Server()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve, NodeNetwork(net, net.host("server")))
            await trio.sleep(0.001)
            network = NodeNetwork(net, net.host("client"))
            peer = Peer(network, "server", PORT, client_id="test", setup_timeout=SETUP_TIMEOUT)
            await main(net, peer, server)
            nursery.cancel_scope.cancel()

    run_deterministically(1, test)


async def ask(peer: Peer) -> None:
    request = HeartbeatRequest(group_id="group", generation_id=1, member_id="member")
    response, _ = await peer.ask_versioned(HeartbeatRequest, lambda _: request, within=REQUEST_TIMEOUT)
    assert response.error_code == 0


@pytest.mark.parametrize("round_trip", [0.7, 0.95, 1.9])
def test_connecting_does_not_take_the_time_of_the_request(round_trip: float) -> None:
    """Three round trips take longer than a request may: the first request is in vain, but not its connection."""

    async def main(net: SimNet, peer: Peer, server: _Server) -> None:
        began = trio.current_time()
        with pytest.raises(GivenUp):
            await ask(peer)
        assert trio.current_time() - began == pytest.approx(2 * round_trip)
        for _ in range(3):
            await ask(peer)
        assert trio.current_time() - began == pytest.approx(5 * round_trip)
        assert (server.accepted, server.heartbeats) == (1, 3)

    run(round_trip, main)


def test_near_by_the_first_request_is_answered() -> None:
    async def main(net: SimNet, peer: Peer, server: _Server) -> None:
        await ask(peer)
        assert (server.accepted, server.heartbeats) == (1, 1)

    run(0.3, main)


async def ask_in_vain(peer: Peer) -> None:
    with pytest.raises(GivenUp):
        await ask(peer)


def test_requests_share_an_attempt_to_connect_and_the_latest_is_sent() -> None:
    async def main(net: SimNet, peer: Peer, server: _Server) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask_in_vain, peer)
                await trio.sleep(0.1)
            await ask(peer)
            assert trio.current_time() == pytest.approx(3 * 0.5, abs=0.01)
        assert (server.accepted, server.heartbeats) == (1, 1)

    run(0.5, main)


def test_an_attempt_that_a_cut_link_has_swallowed_does_not_hold_the_next_one_up() -> None:
    """TCP tries again after 1, 3 and 7 seconds, and the link works again after 3.5."""

    async def main(net: SimNet, peer: Peer, server: _Server) -> None:
        net.cut_both_ways(["client"], ["server"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_in_vain, peer)
            await trio.sleep(3.5)
            net.heal()
            began = trio.current_time()
            assert began > PATIENCE
            await ask(peer)
            assert trio.current_time() - began == pytest.approx(0.03, abs=0.001)
        assert trio.current_time() - began == pytest.approx(0.03, abs=0.001)
        assert (server.accepted, server.heartbeats) == (1, 1)

    run(0.01, main)


def test_connecting_has_a_time_of_its_own_too() -> None:
    async def main(net: SimNet, peer: Peer, server: _Server) -> None:
        net.cut_both_ways(["client"], ["server"])
        began = trio.current_time()
        with pytest.raises(TimeoutError, match="does not answer in time"):
            await ask(peer)
        assert trio.current_time() - began == pytest.approx(SETUP_TIMEOUT)

    run(0.01, main)


def test_an_answer_has_to_come_in_time() -> None:
    async def main(net: SimNet, peer: Peer, server: _Server) -> None:
        await ask(peer)
        net.cut_both_ways(["client"], ["server"])
        began = trio.current_time()
        with pytest.raises(trio.TooSlowError):
            await ask(peer)
        assert trio.current_time() - began == pytest.approx(REQUEST_TIMEOUT)
        assert not peer.is_open

    run(0.01, main)


async def test_an_answer_may_be_larger_than_a_request() -> None:
    """A batch that an administrator lets pass comes to its followers whole, with the news of other partitions."""
    received = [struct.pack(">ii", 150 << 20, 1), b""]

    def recv_into(buffer: memoryview) -> int:
        data = received.pop(0)
        buffer[: len(data)] = data
        return len(data)

    stream: Any = SimpleNamespace(recv_into=recv_into)
    with pytest.raises(ConnectionEnded):
        await ClientStream(stream, "c").receive()
