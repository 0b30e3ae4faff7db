"""The world of a simulated node: its network, disk and clock behave as those of a machine do."""

from __future__ import annotations

import random
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from kbroker.errors import FatalError
from kbroker.log.fake_disk import PowerCut
from kbroker.sim.clock import Pauser, current_node, run_deterministically, sim_clock
from kbroker.sim.poller import SimPoller
from kbroker.sim.sim_env import EPOCH_MS, Machine
from kbroker.sim.tcp import WINDOW, LinkFaults, NodeNetwork, SimNet, SimStream
from kbroker.sim.world import Trace

QUIET = LinkFaults(min_latency=0.01, max_latency=0.01, short_reads=0.0)


def run(main: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    return run_deterministically(1, main, *args)


def make_net(faults: LinkFaults = QUIET) -> SimNet:
    return SimNet(sim_clock(), random.Random(1), Trace(sim_clock()), faults)


async def pair(net: SimNet) -> tuple[SimStream, SimStream]:
    """A connection from ``a`` to ``b``: both ends."""
    listener = await NodeNetwork(net, net.host("b")).bind("b", 9)
    listener.listen()
    near = await NodeNetwork(net, net.host("a")).connect("b", 9)
    return near, await listener.accept()


def test_a_bound_port_is_nobody_elses() -> None:
    async def main() -> None:
        net = make_net()
        host = net.host("b")
        first = await NodeNetwork(net, host).bind("b", 9)
        with pytest.raises(FatalError, match="cannot listen on b:9: the port is in use"):
            await NodeNetwork(net, host).bind("b", 9)
        with pytest.raises(ConnectionRefusedError):
            await NodeNetwork(net, net.host("a")).connect("b", 9)
        first.close()
        second = await NodeNetwork(net, host).bind("b", 9)
        second.listen()
        with pytest.raises(FatalError, match="the port is in use"):
            first.listen()

    run(main)


async def receive(stream: SimStream, size: int = 65536) -> bytes:
    buffer = bytearray(size)
    while True:
        try:
            return bytes(buffer[: stream.recv_into(buffer)])
        except BlockingIOError:
            await stream.wait_readable()


def test_bytes_arrive_in_order_after_the_latency() -> None:
    async def main() -> None:
        near, far = await pair(make_net())
        began = trio.current_time()
        near.send(b"one ")
        near.sendmsg([b"two", b"!"])
        with pytest.raises(BlockingIOError):
            far.recv_into(bytearray(9))
        await trio.sleep(0.02)
        assert await receive(far) == b"one two!"
        assert trio.current_time() - began == pytest.approx(0.02)
        near.close()
        assert await receive(far) == b""

    run(main)


def test_a_reader_who_does_not_read_stops_the_writer() -> None:
    async def main() -> None:
        near, far = await pair(make_net())
        assert near.send(bytes(WINDOW + 7)) == WINDOW
        with pytest.raises(BlockingIOError):
            near.send(b"more")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(near.wait_writable)
            await trio.sleep(1)
            assert len(nursery.child_tasks) == 1
            await receive(far)
        assert near.send(b"more") == 4

    run(main)


def test_what_a_cut_link_lost_comes_after_it_is_healed() -> None:
    async def main() -> None:
        net = make_net()
        near, far = await pair(net)
        near.send(b"on its way ")
        net.cut(["a"], ["b"])
        near.send(b"and later")
        far.send(b"back")  # the other direction works
        await trio.sleep(5)
        assert await receive(near) == b"back"
        with pytest.raises(BlockingIOError):
            far.recv_into(bytearray(99))
        net.heal()
        await trio.sleep(2)
        assert await receive(far) == b"on its way and later"

    run(main)


def test_a_dead_process_refuses_and_a_dead_machine_says_nothing() -> None:
    async def main() -> None:
        net = make_net()
        near, _ = await pair(net)
        net.stop_host(net.host("b"), silently=False)
        with pytest.raises(ConnectionResetError):
            await receive(near)
        with pytest.raises(ConnectionRefusedError):
            await net.connect(net.host("a"), "b", 9)
        near, _ = await pair(net)
        net.stop_host(net.host("b"), silently=True)
        near.send(b"hello?")
        with trio.move_on_after(60) as limit:
            await near.wait_readable()
        assert limit.cancelled_caught
        net.start_host(net.host("b"))  # it does not know the connection
        with pytest.raises(ConnectionResetError):
            await receive(near)

    run(main)


def test_a_poller_calls_as_long_as_there_is_something_to_read() -> None:
    async def main() -> None:
        near, far = await pair(make_net())
        poller, got = SimPoller(), []

        def read() -> None:
            buffer = bytearray(3)
            got.append(bytes(buffer[: far.recv_into(buffer)]))

        poller.register(far, read)
        near.send(b"abcdefgh")
        with trio.move_on_after(1):
            await poller.run()
        assert got == [b"abc", b"def", b"gh"]
        poller.unregister(far)
        near.send(b"x")
        with trio.move_on_after(1):
            await poller.run()
        assert len(got) == 3

    run(main)


def test_a_sleep_without_a_scope_ends_in_time_and_can_be_cancelled() -> None:
    async def main() -> None:
        clock = sim_clock()
        await clock.sleep(2)
        assert trio.current_time() == 2
        with trio.move_on_after(1) as limit:
            await clock.sleep(3)
        assert limit.cancelled_caught
        assert trio.current_time() == 3
        await clock.sleep(4)  # the other would have ended meanwhile
        assert trio.current_time() == 7

    run(main)


def test_a_poller_calls_when_it_is_time_unless_it_is_called_off() -> None:
    async def main() -> None:
        poller = SimPoller()
        called: list[tuple[str, float]] = []

        def note(name: str) -> Callable[[], None]:
            return lambda: called.append((name, trio.current_time()))

        def first() -> None:
            note("first")()
            poller.call_at(2.5, note("second"))

        poller.call_at(3, note("last"))
        poller.call_off(poller.call_at(1, note("called off")))
        poller.call_at(2, first)
        with trio.move_on_after(2.2):
            await poller.run()
        with trio.move_on_after(1.8):
            await poller.run()
        assert called == [("first", 2), ("second", 2.5), ("last", 3)]

    run(main)


def test_a_paused_node_stands_and_goes_on_late() -> None:
    async def main() -> list[tuple[int, float]]:
        seen: list[tuple[int, float]] = []

        async def tick(node_id: int) -> None:
            current_node.set(node_id)
            for _ in range(4):
                await trio.sleep(1)
                seen.append((node_id, trio.current_time()))

        pauser = Pauser()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick, 1)
            nursery.start_soon(tick, 2)
            await trio.sleep(1.5)
            pauser.pause(2)
            await trio.sleep(5)
            assert pauser.is_paused(2)
            pauser.resume(2)
        return seen

    seen = run(main)
    assert [when for node, when in seen if node == 1] == [1, 2, 3, 4]
    assert [when for node, when in seen if node == 2] == [1, 6.5, 7.5, 8.5]


def test_a_machine_keeps_what_was_flushed_and_a_dead_life_reaches_nothing() -> None:
    async def main() -> None:
        net = make_net()
        machine = Machine(1, net, random.Random(2))
        env = machine.start()
        file = env.disk.open("/data/f", create=True)
        env.disk.sync_dir("/data")
        file.write_at(0, [b"durable"])
        await env.run_blocking(file.sync)
        file.write_at(7, [b" and not"])
        assert env.wall_clock_ms() == EPOCH_MS + int(trio.current_time() * 1000)
        machine.end(env, power=True)
        again = machine.start()
        assert again.disk.read_bytes("/data/f").startswith(b"durable")
        with pytest.raises((PowerCut, OSError)):
            file.write_at(0, [b"from beyond"])
        with pytest.raises(OSError):
            await env.network.connect("node2", 9)
        machine.end(again, power=False)
        assert machine.start().disk.read_bytes("/data/f").startswith(b"durable")

    run(main)


def test_blocking_work_ends_though_its_caller_is_cancelled() -> None:
    async def main() -> None:
        machine = Machine(1, make_net(), random.Random(2))
        machine.disk_latency = 1.0
        done: list[int] = []
        env = machine.start()
        with trio.move_on_after(0.001):
            await env.run_blocking(done.append, 1)
        assert done == [1] and trio.current_time() > 0.001

    run(main)


def test_ctrl_c_ends_a_simulation_in_which_nothing_happens_any_more() -> None:
    async def main() -> None:
        sim_clock().call_at(1, signal.raise_signal, signal.SIGINT)
        await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        run(main)
    run(trio.sleep, 1)  # the next one is none the worse
