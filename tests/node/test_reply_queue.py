"""Replies leave in the order of the requests, whole, whatever the socket takes at a time."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from typing import Any, cast

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.errors import ErrorCode
from kbroker.handlers.common.context import CloseConnection
from kbroker.node.serving.reply_queue import LARGE_REPLY, MAX_COPIED, MAX_DELAYED_REPLIES, SMALL_REGION, ReplyQueue
from kbroker.node.serving.request_wait import ConnectionLost
from kbroker.runtime.env import RealEnv
from kbroker.runtime.later import Later
from kbroker.types import FileRegion
from kbroker.wire.framing import response_parts
from kbroker.wire.messages.classic_groups import HeartbeatResponse
from kbroker.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.node.node_harness import run

HEARTBEAT = 12
FRAME = 10
"""Bytes of a HeartbeatResponse v0 with its length and header."""


class Socket:
    """Takes as many bytes at a time as it is told; after each zero a writer has to wait."""

    def __init__(self, takes: list[int] | None = None) -> None:
        self.sent = bytearray()
        self.takes = takes
        self.waits = 0

    def send(self, data: Any) -> int:
        size = len(data)
        if self.takes is not None:
            size = min(size, self.takes.pop(0)) if self.takes else size
            if not size:
                raise BlockingIOError
        self.sent += bytes(data)[:size]
        return size

    def sendmsg(self, buffers: list[Any]) -> int:
        return self.send(b"".join(bytes(buffer) for buffer in buffers))

    send_more = sendmsg

    def sendfile(self, fd: int, position: int, count: int) -> int:
        return self.send(os.pread(fd, count, position))

    async def wait_writable(self) -> None:
        self.waits += 1
        await trio.lowlevel.checkpoint()

    def ids(self) -> list[int]:
        """The correlation ids of the heartbeats' replies, in the order in which they came."""
        assert not len(self.sent) % FRAME
        return [self.sent[at + 7] for at in range(0, len(self.sent), FRAME)]


class Ending:
    """Takes the place of a connection, which is told to end."""

    is_ending = False

    def end(self) -> None:
        self.is_ending = True


def queue_on(
    socket: Socket,
    nursery: trio.Nursery | None = None,
    progress: list[None] | None = None,
    connection: Ending | None = None,
) -> ReplyQueue:
    def start_soon(task: Any) -> None:
        assert nursery is not None, "nothing was to be waited for"
        nursery.start_soon(task)

    on_progress = (lambda: None) if progress is None else partial(progress.append, None)
    return ReplyQueue(socket, RealEnv(), connection or Ending(), start_soon, on_progress)  # type: ignore[arg-type]


def whole(correlation_id: int) -> bytes:
    """The bytes of an answer to a heartbeat."""
    return b"".join(cast("list[bytes]", response_parts(HEARTBEAT, 0, correlation_id, HeartbeatResponse())))


def test_a_delayed_reply_holds_back_the_later_ones_and_completing_it_releases_them_together() -> None:
    socket = Socket()
    replies = queue_on(socket)
    delayed: list[Later[Any]] = [Later(), Later()]
    replies.delay(delayed[0], HEARTBEAT, 0, 1)
    replies.answer(HeartbeatResponse(), HEARTBEAT, 0, 2)
    replies.answer(delayed[1], HEARTBEAT, 0, 3)
    replies.answer(HeartbeatResponse(), HEARTBEAT, 0, 4)
    replies.answer(None, HEARTBEAT, 0, 5)  # the client expects none
    delayed[1].set(HeartbeatResponse())
    assert not socket.sent
    delayed[0].set(HeartbeatResponse())
    assert socket.ids() == [1, 2, 3, 4]
    assert not replies.slots and not replies.parts


def test_a_delayed_reply_is_out_before_whoever_completes_it_goes_on() -> None:
    socket = Socket()

    def begin(response: Later[Any]) -> None:
        response.set(HeartbeatResponse())
        assert socket.ids() == [7]

    queue_on(socket).delay(Later(begin), HEARTBEAT, 0, 7)
    assert socket.ids() == [7]


def test_until_the_round_ends_nothing_goes_out_and_replies_may_be_replaced() -> None:
    """As when gathered batches are written at its end, and a delayed reply is complete before."""
    socket = Socket()
    replies = queue_on(socket)
    held = [whole(correlation_id) for correlation_id in (1, 2)]
    replies.round_open = True
    for reply in held:
        replies.add([reply])
    delayed: Later[Any] = Later()
    replies.delay(delayed, HEARTBEAT, 0, 3)
    delayed.set(HeartbeatResponse())
    assert not socket.sent and not replies.slots
    replies.replace_unsent(held[1], HeartbeatResponse(error_code=56), HEARTBEAT, 0)
    replies.round_open = False
    assert replies.try_write()
    assert socket.ids() == [1, 2, 3]
    assert [socket.sent[at + 9] for at in (0, FRAME, 2 * FRAME)] == [0, 56, 0]


def test_a_reply_behind_a_delayed_one_may_be_replaced() -> None:
    socket = Socket()
    replies = queue_on(socket)
    replies.round_open = True
    delayed: Later[Any] = Later()
    replies.delay(delayed, HEARTBEAT, 0, 1)
    behind = whole(2)
    replies.add([behind])
    replies.replace_unsent(behind, HeartbeatResponse(error_code=56), HEARTBEAT, 0)
    delayed.set(HeartbeatResponse())
    replies.round_open = False
    assert not socket.sent and replies.try_write()
    assert socket.ids() == [1, 2]
    assert [socket.sent[at + 9] for at in (0, FRAME)] == [0, 56]


@settings(deadline=None)
@given(
    delayed=st.lists(st.booleans(), max_size=40),
    order=st.randoms(use_true_random=False),
    takes=st.lists(st.integers(0, 25), max_size=60),
)
def test_whatever_is_delayed_and_however_little_the_socket_takes_the_order_is_kept(
    delayed: list[bool], order: Any, takes: list[int]
) -> None:
    async def test() -> None:
        socket = Socket(takes)
        async with trio.open_nursery() as nursery:
            replies = queue_on(socket, nursery)
            waiting = []
            for number, is_delayed in enumerate(delayed):
                if is_delayed:
                    response: Later[Any] = Later()
                    replies.delay(response, HEARTBEAT, 0, number)
                    waiting.append(response)
                else:
                    replies.answer(HeartbeatResponse(), HEARTBEAT, 0, number)
                    if replies.parts:
                        replies.try_write()
            order.shuffle(waiting)
            for response in waiting:
                response.set(HeartbeatResponse())
                if order.random() < 0.3:
                    await trio.lowlevel.checkpoint()
            await replies.flush()
        assert socket.ids() == list(range(len(delayed)))

    trio.run(test)


@pytest.mark.parametrize("size", [SMALL_REGION + 1, 6], ids=["sendfile", "copied"])
def test_records_of_a_file_go_out_in_their_place(size: int) -> None:
    async def test() -> None:
        records = b"0123456789" * SMALL_REGION
        with tempfile.TemporaryFile() as file:
            file.write(records)
            file.flush()
            progress: list[None] = []
            socket = Socket([2, 0, 0, 5, 0, 3, 0])
            replies = queue_on(socket, progress=progress)
            replies.add([b"before ", FileRegion(file.fileno(), 2, size), b" after"])
            assert not replies.try_write()
            await replies.flush()
            assert bytes(socket.sent) == b"before " + records[2 : size + 2] + b" after"
            assert socket.waits == len(progress) == 3

    run(test)


def test_few_records_are_copied_and_many_are_left_to_sendfile() -> None:
    """One call takes header and records of each reply; what is copied at a time is bounded."""
    calls: list[int] = []

    class Counted(Socket):
        def sendmsg(self, buffers: list[Any]) -> int:
            calls.append(len(buffers))
            return super().sendmsg(buffers)

        send_more = sendmsg

    async def test() -> None:
        copied = MAX_COPIED // SMALL_REGION
        with tempfile.TemporaryFile() as file:
            file.write(bytes(range(256)) * SMALL_REGION)
            file.flush()
            socket = Counted()
            replies = queue_on(socket)
            for number in range(copied + 2):
                replies.add([b"reply%d " % number, FileRegion(file.fileno(), number, SMALL_REGION)])
            assert replies.try_write()
            file.seek(0)
            records = file.read()
            assert bytes(socket.sent) == b"".join(
                b"reply%d " % number + records[number : number + SMALL_REGION] for number in range(copied + 2)
            )
            assert calls == [2 * copied + 1, 3]

    run(test)


def test_a_file_that_ends_early_ends_the_connection() -> None:
    async def test() -> None:
        with tempfile.TemporaryFile() as file:
            file.write(b"0123")
            file.flush()
            replies = queue_on(Socket())
            replies.add([FileRegion(file.fileno(), 2, 6)])
            with pytest.raises(ConnectionLost, match="ended before the records"):
                await replies.flush()

    run(test)


def test_waiting_for_slots_ends_when_enough_delayed_replies_are_out() -> None:
    async def test() -> None:
        socket = Socket()
        replies = queue_on(socket)
        delayed: list[Later[Any]] = [Later() for _ in range(MAX_DELAYED_REPLIES)]
        for number, response in enumerate(delayed):
            replies.delay(response, HEARTBEAT, 0, number)
        done = False

        async def wait() -> None:
            nonlocal done
            await replies.wait_for_slots()
            done = True

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            assert not done
            delayed[0].set(HeartbeatResponse())
        assert done
        assert socket.ids() == [0]

    run(test)


def test_what_completes_after_the_connection_has_ended_is_forgotten() -> None:
    socket = Socket()
    replies = queue_on(socket)
    response: Later[Any] = Later()
    replies.delay(response, HEARTBEAT, 0, 1)
    replies.close()
    response.set(HeartbeatResponse())
    assert not socket.sent and not replies.parts


def test_a_large_last_reply_is_told() -> None:
    replies = queue_on(Socket())
    assert not replies.ends_large
    replies.add([b"x" * LARGE_REPLY])
    assert replies.ends_large
    replies.delay(Later(), HEARTBEAT, 0, 1)
    assert not replies.ends_large
    replies.add([b"x" * LARGE_REPLY])
    assert replies.ends_large


def test_a_delayed_answer_that_cannot_be_encoded_is_an_error_in_its_place() -> None:
    """The completer, another request or the node itself, gets no exception."""
    socket = Socket()
    replies = queue_on(socket)
    delayed: Later[Any] = Later()
    replies.delay(delayed, HEARTBEAT, 0, 1)
    replies.answer(HeartbeatResponse(), HEARTBEAT, 0, 2)
    delayed.set(HeartbeatResponse(error_code=1 << 40))
    assert socket.ids() == [1, 2]
    code = int.from_bytes(socket.sent[FRAME - 2 : FRAME], "big", signed=True)
    assert code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_delayed_answer_without_a_place_for_an_error_ends_its_connection_alone() -> None:
    socket = Socket()
    connection = Ending()
    replies = queue_on(socket, connection=connection)
    delayed: Later[Any] = Later()
    replies.delay(delayed, 3, 0, 1)
    delayed.set(MetadataResponse(brokers=[MetadataResponseBroker(port=1 << 40)]))
    assert connection.is_ending and not socket.sent and not replies.slots
    with pytest.raises(CloseConnection):
        queue_on(socket).answer(MetadataResponse(brokers=[MetadataResponseBroker(port=1 << 40)]), 3, 0, 1)
