"""Clients who come at once take turns, and those who are connected are served between any two of them."""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing

from kbroker.node.security.handshake_thread import LOWEST_PRIORITY, ROOM, HandshakeThread
from kbroker.node.serving.connection import Connection
from kbroker.node.serving.reply_queue import ReplyQueue
from kbroker.runtime.turns import StepTurns
from kbroker.security.sasl.conversation import SaslConversation
from kbroker.wire.conversation import Conversation
from kbroker.wire.messages.api_versions import ApiVersionsRequest
from kbroker.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.node.node_harness import Client, run, running_node
from tests.node.quorum_harness import three_nodes
from tests.patience import LONG

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
LINE = f'{MODULE} required username="alice" password="secret" user_alice="secret";'
SASL = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": LINE,
}
STORM = 30


class Turn(trio.abc.Instrument):
    """Notes each turn of the loop."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def before_io_wait(self, timeout: float) -> None:
        self._note("turn")


def handshake_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "handshakes"}


async def connected(node: Any) -> Client:
    """A client that has authenticated."""
    client: Client = await node.connect()
    await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = await client.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2)
    assert answer.error_code == 0
    return client


def connections_of(node: Any) -> list[Connection]:
    """All that are served on the clients' listener."""
    [listener] = [each for each in node.broker.listeners if each.name == "PLAINTEXT"]
    return list(listener.connections)


def sent(request: Any, version: int) -> bytes:
    return b"".join(Conversation("me").send(request, version))


VERSIONS = ApiVersionsRequest(client_software_name="a", client_software_version="1")


async def storm(node: Any, port: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Many who come in the same moment as a request of one who is there."""
    seen: list[str] = []
    shake, answer = SaslConversation.handshake, ReplyQueue.answer

    def handshake(self: Any, mechanism: str) -> Any:
        seen.append("step")
        return shake(self, mechanism)

    def answered(self: Any, *arguments: Any) -> None:
        seen.append("served")
        answer(self, *arguments)

    client = await connected(node)
    comers = [socket.create_connection(port) for _ in range(STORM)]
    for comer in comers:
        comer.settimeout(LONG)
    try:
        await trio.testing.wait_all_tasks_blocked()
        monkeypatch.setattr(SaslConversation, "handshake", handshake)
        monkeypatch.setattr(ReplyQueue, "answer", answered)
        trio.lowlevel.add_instrument(instrument := Turn(seen.append))
        # Nothing else runs until the next await: the node finds all of this at once.
        for comer in comers:
            comer.sendall(sent(SaslHandshakeRequest(mechanism="PLAIN"), 1))
        port_of_client = client.stream.socket.getsockname()[1]
        [served] = [each for each in connections_of(node) if each.peer.endswith(f":{port_of_client}")]
        os.write(client.stream.socket.fileno(), b"".join(client._conversation.send(VERSIONS, 3)))
        assert select.select([cast(Any, served.stream).fileno()], [], [], LONG)[0], "it has arrived"
        assert (await client.receive())[1].api_keys
        while seen.count("step") < STORM:
            await trio.lowlevel.checkpoint()
        trio.lowlevel.remove_instrument(instrument)
        assert all(comer.recv(4) for comer in comers), "each has its answer"
    finally:
        for comer in comers:
            comer.close()
    assert "served" in seen[: seen.index("step") + 8], f"after the first turns, not after the last: {seen}"
    turns = " ".join(seen).split("turn")
    assert all(turn.count("step") <= 1 for turn in turns), "one step between two turns of all others"


def test_who_is_connected_is_served_between_two_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with running_node(tmp_path, None, **SASL) as node:
            await storm(node, node.broker.ports["PLAINTEXT"], monkeypatch)

    trio.run(test)


def test_so_it_is_on_a_node_of_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with three_nodes(tmp_path, **SASL) as cluster:
            node = cluster.node(2)
            await storm(node, node.broker.ports["PLAINTEXT"], monkeypatch)

    run(test)


def test_who_gives_up_leaves_the_others_their_turns() -> None:
    async def test() -> None:
        turns = StepTurns()
        went: list[str] = []
        scope = trio.CancelScope()

        async def come(name: str, cancelled: trio.CancelScope | None = None) -> None:
            with cancelled or trio.CancelScope():
                await turns.take()
                went.append(name)

        others = [f"{number}" for number in range(10)]
        async with trio.open_nursery() as nursery:
            for name in others:
                nursery.start_soon(come, name)
            await trio.lowlevel.checkpoint()
            nursery.start_soon(come, "gone", scope)
            await trio.lowlevel.checkpoint()
            assert len(went) < 5, "it waits behind others"
            scope.cancel()
        assert sorted(went) == others
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        await come("last")
        assert went[-1] == "last"

    trio.run(test)


def test_the_loop_goes_on_while_a_step_of_a_handshake_is_taken() -> None:
    async def test() -> None:
        thread, gate = HandshakeThread(late=10 * LONG), threading.Event()  # no step gets help
        results: list[bool] = []

        async def shake(step: Callable[[], bool]) -> None:
            results.append(await thread.run(step))

        async with trio.open_nursery() as nursery:
            try:
                nursery.start_soon(shake, gate.wait)
                await trio.testing.wait_all_tasks_blocked()
                for _ in range(ROOM - 1):
                    nursery.start_soon(shake, lambda: False)
                await trio.testing.wait_all_tasks_blocked()
                assert results == [], "one step after the other"
                with trio.move_on_after(0.01) as full:
                    await thread.wait_for_room()
                assert full.cancelled_caught, "no more are accepted meanwhile"
            finally:
                gate.set()
            with trio.fail_after(LONG):
                await thread.wait_for_room()
        assert sorted(results) == (ROOM - 1) * [False] + [True]
        with pytest.raises(OSError, match="gone"):
            await thread.run(gone)

    def gone() -> bool:
        raise OSError("gone")

    trio.run(test)


def test_all_listeners_that_wait_for_room_go_on_at_once() -> None:
    """None of them has to wait for its next look."""

    async def test() -> None:
        thread, gate = HandshakeThread(late=10 * LONG), threading.Event()
        with trio.fail_after(LONG):
            async with trio.open_nursery() as nursery:
                try:
                    nursery.start_soon(thread.run, gate.wait)
                    for _ in range(ROOM - 1):
                        nursery.start_soon(thread.run, lambda: True)
                    await trio.testing.wait_all_tasks_blocked()
                    for _ in range(3):
                        nursery.start_soon(thread.wait_for_room)
                        await trio.testing.wait_all_tasks_blocked()
                finally:
                    gate.set()

    trio.run(test)


def test_steps_that_the_system_leaves_no_time_for_get_help() -> None:
    """The thread's low priority may mean that it does not go on at all."""

    async def test() -> None:
        before, thread = handshake_threads(), HandshakeThread()
        begun, gate = threading.Event(), threading.Event()

        def stuck() -> bool:
            begun.set()
            return gate.wait()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(thread.run, stuck)
            try:
                with trio.fail_after(LONG):
                    while not begun.is_set():
                        await trio.sleep(0.001)
                    thread.late = 0.0
                    for _ in range(3):
                        assert await thread.run(lambda: True), "by the second thread"
                    while len(handshake_threads() - before) > 1:
                        await trio.lowlevel.checkpoint()
            finally:
                gate.set()
        assert thread.waiting == 0

    trio.run(test)


def test_a_step_gets_help_though_nobody_comes_after_it() -> None:
    async def test() -> None:
        thread, gate = HandshakeThread(), threading.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(thread.run, lambda: gate.wait(LONG / 2))
            try:
                await trio.testing.wait_all_tasks_blocked()
                assert await thread.run(lambda: True)
                assert thread.waiting == 1, "the first step is still being taken"
            finally:
                gate.set()

    trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0))


def test_without_another_thread_the_first_one_goes_on_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container limits threads: the event loop must not end for that."""

    async def test() -> None:
        thread, gate = HandshakeThread(), threading.Event()
        asked: list[object] = []

        def refuse(thread: threading.Thread) -> None:
            asked.append(thread)
            raise RuntimeError("can't start new thread")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(thread.run, lambda: gate.wait(LONG / 2))
            await trio.testing.wait_all_tasks_blocked()
            monkeypatch.setattr(threading.Thread, "start", refuse)
            nursery.start_soon(thread.run, lambda: True)
            try:
                await trio.sleep(10 * thread.late)
                assert asked and thread.waiting == 2
            finally:
                gate.set()
        assert thread.waiting == 0

    trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
def test_the_thread_comes_after_the_loop() -> None:
    async def test() -> None:
        niceness: list[int] = []

        def note() -> bool:
            niceness.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
            return True

        before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        await HandshakeThread().run(note)
        assert niceness == [LOWEST_PRIORITY]
        assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before

    trio.run(test)


def test_a_step_that_has_begun_is_waited_for() -> None:
    async def test() -> None:
        thread, gate = HandshakeThread(), threading.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(thread.run, gate.wait)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            trio.lowlevel.spawn_system_task(trio.to_thread.run_sync, gate.set)
        assert gate.is_set()

    trio.run(test)


def test_the_thread_ends_when_there_is_nothing_to_do() -> None:
    async def test() -> None:
        before, thread = handshake_threads(), HandshakeThread(idle=0.01)
        for _ in range(3):
            assert await thread.run(lambda: True)
            with trio.fail_after(LONG):
                while handshake_threads() - before:
                    await trio.sleep(0.01)

    trio.run(test)
