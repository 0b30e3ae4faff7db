"""The world around a node: what the real poller promises to connections, and long work to the event loop."""

from __future__ import annotations

import os
import socket
import sys
from functools import partial

import pytest
import trio
import trio.testing

from kbroker.base.short_turns import SWITCH_SECONDS
from kbroker.errors import FatalError
from kbroker.node.peers.peer import nobody_listens
from kbroker.runtime.bound_ports import Address, addresses_of, bind_all, listen
from kbroker.runtime.env import RealEnv, RealNetwork, RealStream
from kbroker.runtime.epoll_poller import EpollPoller
from kbroker.tools.cli.cluster_plan import free_ports
from tests.patience import LONG, SHORT, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="epoll is Linux's")


def test_the_end_of_a_round_comes_after_all_that_were_readable_together() -> None:
    async def main() -> list[str]:
        poller = EpollPoller()
        pairs = [socket.socketpair() for _ in range(3)]
        streams = [RealStream(ours, use_sendfile=False) for ours, _ in pairs]
        events: list[str] = []

        def on_readable(index: int) -> None:
            streams[index].recv_into(bytearray(10))
            events.append("read")
            poller.round.at_end(written)

        def written() -> None:
            events.append("written")
            if events.count("written") == 3:
                pairs[0][1].send(b"again")  # another round, of one stream
            elif events.count("written") == 4:
                nursery.cancel_scope.cancel()

        for index, stream in enumerate(streams):
            poller.register(stream, lambda index=index: on_readable(index))  # type: ignore[misc]
            pairs[index][1].send(b"once")
        with trio.fail_after(LONG):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(poller.run)
        for ours, theirs in pairs:
            ours.close()
            theirs.close()
        return events

    assert trio.run(main) == ["read"] * 3 + ["written"] * 3 + ["read", "written"]


async def test_who_comes_or_goes_is_served_one_by_one_and_between_them_who_is_under_way() -> None:
    poller = EpollPoller()
    pairs = [socket.socketpair() for _ in range(9)]
    streams = [RealStream(ours, use_sendfile=False) for ours, _ in pairs]
    [_, busy], new, gone = pairs[0], pairs[1:5], pairs[5:]
    events: list[str] = []

    def serve(stream: RealStream, event: str) -> None:
        events.append(event)
        if not stream.recv_into(bytearray(10)):
            poller.unregister(stream)
            stream.close()
        if event == "step":
            busy.send(b"x")

    poller.register(streams[0], partial(serve, streams[0], "under way"))
    for stream in streams[1:]:
        poller.register(stream, partial(serve, stream, "step"), is_new=stream in streams[1:5])
    for _, theirs in new:
        theirs.send(b"first")
    for _, theirs in gone:
        theirs.close()
    with trio.fail_after(LONG):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            await until(lambda: len(events) >= 16)
            assert events == ["step", "under way"] * 8
            for _, theirs in new:
                theirs.send(b"next")
            await until(lambda: events.count("step") >= 12)
            nursery.cancel_scope.cancel()
    for ours, theirs in pairs:
        ours.close()
        theirs.close()


async def test_a_stream_that_another_s_callback_ends_is_left_alone_though_its_peer_has_gone() -> None:
    poller = EpollPoller()
    (ours, theirs), (other, gone) = socket.socketpair(), socket.socketpair()
    stream, ended = RealStream(ours, use_sendfile=False), RealStream(other, use_sendfile=False)
    read = trio.Event()

    def serve() -> None:
        stream.recv_into(bytearray(10))
        poller.unregister(ended)
        read.set()

    poller.register(stream, serve)
    poller.register(ended, lambda: None)
    theirs.send(b"x")
    gone.close()
    with trio.fail_after(LONG):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            await read.wait()
            nursery.cancel_scope.cancel()
    for each in (ours, theirs, other):
        each.close()


def test_a_poller_calls_when_it_is_time_unless_it_is_called_off() -> None:
    async def main() -> list[str]:
        poller = EpollPoller()
        ours, theirs = socket.socketpair()
        stream = RealStream(ours, use_sendfile=False)
        events: list[str] = []
        now = trio.current_time()

        def on_readable() -> None:
            stream.recv_into(bytearray(10))
            events.append("read")
            poller.call_at(trio.current_time() + 0.001, soon)  # before what it sleeps until

        def past() -> None:
            events.append("past")
            theirs.send(b"x")

        def soon() -> None:
            events.append("soon")
            poller.call_at(trio.current_time() + 0.001, last)

        def last() -> None:
            events.append("last")
            nursery.cancel_scope.cancel()

        poller.register(stream, on_readable)
        poller.call_at(now + 60, lambda: events.append("late"))
        poller.call_off(poller.call_at(now + 0.002, lambda: events.append("called off")))
        poller.call_at(now - 1, past)
        with trio.fail_after(LONG):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(poller.run)
        ours.close()
        theirs.close()
        return events

    assert trio.run(main) == ["past", "read", "soon", "last"]


NO_NAMES = pytest.mark.parametrize("host", ["a..b", "a" * 64, "b" * 64 + ".example"])


@NO_NAMES
def test_what_can_be_no_name_of_a_host_is_an_address_that_cannot_be_reached(host: str) -> None:
    """As any other: whoever connects is ready for an ``OSError`` and for nothing else."""
    with pytest.raises(OSError, match="cannot be the name of a host") as caught:
        trio.run(RealNetwork().connect, host, 9092)
    assert not nobody_listens(caught.value), "it says nothing of the node"


@NO_NAMES
def test_what_can_be_no_name_of_a_host_cannot_be_listened_on(host: str) -> None:
    with pytest.raises(FatalError, match=f"cannot listen on {host}:9092: '{host}' cannot be the name of a host"):
        trio.run(RealNetwork().bind, host, 9092)


async def test_a_port_that_is_bound_is_nobody_elses_though_nobody_listens_there() -> None:
    [port] = free_ports(1)
    network = RealNetwork()
    first = await network.bind("127.0.0.1", port)
    for host in ("127.0.0.1", "0.0.0.0"):
        with pytest.raises(FatalError, match=f"cannot listen on {host}:{port}: the port is in use"):
            await network.bind(host, port)
    first.listen()
    with pytest.raises(FatalError, match=rf"in use by process {os.getpid()} \(.*\); --port or listeners name another"):
        await network.bind("127.0.0.1", port)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
    first.listen()
    socket.create_connection(("127.0.0.1", port)).close()
    first.close()


async def test_a_port_can_be_had_at_once_though_connections_of_its_last_owner_are_not_over() -> None:
    """They are in TIME_WAIT for a minute where the owner has ended them, and open where a child still has them."""
    [port] = free_ports(1)
    network = RealNetwork()
    streams = []
    for is_open in (False, True):
        listener = await network.bind("127.0.0.1", port)
        with pytest.raises(FatalError, match="the port is in use"):
            await network.bind("127.0.0.1", port)
        listener.listen()
        with socket.create_connection(("127.0.0.1", port)) as client:
            stream = await listener.accept()
            streams.append(stream)
            if not is_open:
                stream.close()
                assert client.recv(1) == b""
        listener.close()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
    (await network.bind("127.0.0.1", port)).close()
    streams[-1].close()


def test_long_work_gives_the_interpreter_to_the_event_loop_often() -> None:
    usual = sys.getswitchinterval()

    async def main() -> float:
        return await RealEnv().run_long(sys.getswitchinterval)

    assert trio.run(main) == pytest.approx(SWITCH_SECONDS)
    assert sys.getswitchinterval() == usual
    assert usual > SWITCH_SECONDS


def has_ipv6() -> bool:
    """Whether this machine has the loopback address of IPv6."""
    try:
        for each in bind_all("::1", addresses_of("::1"), 0):
            each.close()
    except FatalError:
        return False
    return True


both_families = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


@both_families
@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
async def test_a_host_that_stands_for_all_addresses_is_listened_at_in_both_families(host: str) -> None:
    """Each of the three is as in Apache Kafka 4.4.0; port 0 is one port, and a client of IPv4 has its own address."""
    listener = await RealNetwork().bind(host, 0)
    listener.listen()
    for client_host in ("127.0.0.1", "::1", "127.0.0.1"):
        with socket.create_connection((client_host, listener.address[1])), trio.fail_after(SHORT):
            stream = await listener.accept()
            assert stream.peer[0] == client_host
            stream.close()
    listener.close()


@both_families
def test_a_name_is_listened_at_by_all_of_its_addresses_that_are_here() -> None:
    addresses: list[Address] = [
        (socket.AF_INET, ("127.0.0.1", 0)),
        (socket.AF_INET6, ("2001:db8::1", 0)),  # for documents: no machine's
        (socket.AF_INET6, ("::1", 0)),
    ]
    found = bind_all("a.name", addresses, 0)
    try:
        listen(found, 1)
        [port] = {each.getsockname()[1] for each in found}
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port)).close()
    finally:
        for each in found:
            each.close()
    with pytest.raises(FatalError, match=r"cannot listen on a\.name:0: Cannot assign requested address"):
        bind_all("a.name", addresses[1:2], 0)


@both_families
async def test_a_port_is_taken_at_all_addresses_or_at_none() -> None:
    with socket.socket(socket.AF_INET6) as other:
        other.bind(("::1", 0))
        port = other.getsockname()[1]
        with pytest.raises(FatalError, match=f"cannot listen on 0.0.0.0:{port}: the port is in use"):
            await RealNetwork().bind("0.0.0.0", port)
    (await RealNetwork().bind("0.0.0.0", port)).close()


@both_families
async def test_a_listener_at_several_addresses_ends_for_who_waits_there() -> None:
    listener = await RealNetwork().bind("", 0)
    listener.listen()
    with trio.fail_after(SHORT):
        async with trio.open_nursery() as nursery:

            async def accept() -> None:
                with pytest.raises(trio.ClosedResourceError):
                    await listener.accept()

            nursery.start_soon(accept)
            await trio.testing.wait_all_tasks_blocked()
            listener.close()


async def test_little_waits_in_the_system_for_a_peer_on_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as peer:
        stream = RealStream(server.accept()[0], use_sendfile=True)
        peers = RealStream(peer, use_sendfile=True)
        for each in (stream, peers):
            # Linux tells twice of what it was asked for, and gives no more than net.core.wmem_max.
            assert each.sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 512 * 1024
        default = socket.socket().getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        assert stream.sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > default
        stream.close()
