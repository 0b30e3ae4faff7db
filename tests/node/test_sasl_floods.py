"""Clients that send what they like before they have authenticated: others keep their turn, and memory its bounds."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.node.security.sasl.admission import MAX_ILLEGAL_FRAME, MAX_VERSIONS_REQUESTS, SaslAdmission
from kbroker.node.serving.admission import AdmissionRefused, Admitted
from kbroker.security.sasl.conversation import OfferedMechanism
from kbroker.security.sasl.oauthbearer.messages import OAuthBearerServer, initial_response
from kbroker.security.sasl.oauthbearer.token import BearerToken
from kbroker.wire.headers import encode_request_header
from kbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kbroker.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.node.test_sasl_hostile import admission, request
from tests.patience import LONG


class FakeStream:
    """A client that has sent all this at once, and takes all answers."""

    def __init__(self, data: bytes, *, ends: bool = True, step: int = 1 << 20) -> None:
        self.peer = ("127.0.0.1", 1)
        self.sent: list[tuple[float, bytes]] = []
        self.waits = trio.Event()
        self._data = memoryview(data)
        self._ends = ends
        self._step = step

    def recv_into(self, buffer: Any) -> int:
        if not self._data and not self._ends:
            raise BlockingIOError
        count = min(len(buffer), len(self._data), self._step)
        buffer[:count] = self._data[:count]
        self._data = self._data[count:]
        return count

    def send(self, data: Any) -> int:
        self.sent.append((trio.current_time(), bytes(data)))
        return len(data)

    async def wait_readable(self) -> None:
        if self._data or self._ends:
            await trio.lowlevel.checkpoint()
        else:
            self.waits.set()
            await trio.sleep_forever()


def sized(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def handshake(version: int = 1) -> bytes:
    return request(SaslHandshakeRequest(mechanism="PLAIN"), version)


async def refused(listener: SaslAdmission, stream: Any) -> str:
    with pytest.raises(AdmissionRefused) as info:
        await listener.admit(Admitted(stream))
    return str(info.value)


async def turns_during(action: Callable[[], Any]) -> int:
    """Count the turns that another task had during an action."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await action()
        nursery.cancel_scope.cancel()
    return turns


def test_requests_that_never_end_take_nobodys_turn(tmp_path: Any) -> None:
    listener = admission(tmp_path)

    async def main() -> None:
        stream = FakeStream(sized(encode_request_header(18, 99, 5, None)) * 1000)

        async def action() -> None:
            assert "more than 10 ApiVersions" in await refused(listener, stream)

        assert await turns_during(action) >= MAX_VERSIONS_REQUESTS
        assert len(stream.sent) == MAX_VERSIONS_REQUESTS
        slow = FakeStream(sized(bytes(1000)), step=1)  # one frame, which is always there a byte at a time

        async def read() -> None:
            exchange: Any = SimpleNamespace(max_bytes=1000, held_bytes=0)
            assert await listener._frame(slow, exchange) == bytes(1000)  # type: ignore[arg-type]

        assert await turns_during(read) >= 900

    trio.run(main)


def test_a_large_request_of_another_api_is_not_even_read(tmp_path: Any) -> None:
    listener = admission(tmp_path)

    def metadata(topics: int) -> bytes:
        names = [MetadataRequestTopic(name=f"t{number}") for number in range(topics)]
        return request(MetadataRequest(topics=names), 12)

    async def main() -> None:
        small, large = metadata(10), metadata(1000)
        assert len(small) <= MAX_ILLEGAL_FRAME < len(large)
        for frame, answers in ((small, 2), (large, 1)):
            stream = FakeStream(sized(handshake(), frame))
            assert "Unexpected Kafka request of API key 3" in await refused(listener, stream)
            assert len(stream.sent) == answers, "the handshake's, and that of ILLEGAL_SASL_STATE"

    trio.run(main)


def test_every_failure_waits(tmp_path: Any) -> None:
    listener = admission(tmp_path, failure_delay=7)
    wrong = b"\0alice\0wrong"

    async def main() -> None:
        for frames, answers in (
            ((handshake(0), wrong), 1),
            ((handshake(), request(SaslAuthenticateRequest(auth_bytes=wrong), 1)), 2),
            ((request(MetadataRequest(topics=[]), 12),), 0),
            ((bytes(100_000),), 0),
        ):
            began = trio.current_time()
            stream = FakeStream(sized(*frames))
            with trio.move_on_after(1) as limit, pytest.raises(AdmissionRefused):
                await listener.admit(Admitted(stream, limit))  # type: ignore[arg-type]
            assert not limit.cancelled_caught, "the client is not at fault for the wait"
            assert trio.current_time() == began + 7
            assert len(stream.sent) == answers
            assert answers < 2 or stream.sent[-1][0] == began + 7, "and is told after it"

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_frames_of_strangers_take_bounded_memory(tmp_path: Any) -> None:
    listener = admission(tmp_path, unauthenticated_bytes=300_000)

    async def main() -> None:
        early = FakeStream((200_000).to_bytes(4, "big"))
        assert "at most 65536 are due" in await refused(listener, early)
        part = sized(handshake()) + (500_000).to_bytes(4, "big") + bytes(100_000)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    holder = FakeStream(part, ends=False)
                    nursery.start_soon(listener.admit, Admitted(holder))  # type: ignore[arg-type]
                    await holder.waits.wait()
                assert 200_000 < listener._held_bytes <= 300_000
                assert "holds too many bytes" in await refused(listener, FakeStream(part))
                token = request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 1)
                client: Any = Admitted(FakeStream(sized(handshake(), token)))  # type: ignore[arg-type]
                await listener.admit(client)
                assert client.principal.name == "alice", "ordinary clients get in nevertheless"
                scope.cancel()
        assert listener._held_bytes == 0

    trio.run(main)


def test_frames_of_strangers_count_until_they_are_answered(tmp_path: Any) -> None:
    """Tokens wait for a provider, and passwords for a rule: that is no way to fill the memory."""
    listener = admission(tmp_path, unauthenticated_bytes=300_000)
    answered, asked = trio.Event(), 0

    async def judge(token: str) -> BearerToken:
        nonlocal asked
        asked += 1
        await answered.wait()
        return BearerToken("alice", None)

    listener.mechanisms = {"OAUTHBEARER": OfferedMechanism(lambda: OAuthBearerServer(judge), 0)}
    choice = request(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    message = initial_response("A" * 140_000, {})
    frames = sized(choice, request(SaslAuthenticateRequest(auth_bytes=message), 1))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            clients: list[Any] = [Admitted(FakeStream(frames)) for _ in range(2)]  # type: ignore[arg-type]
            for client in clients:
                nursery.start_soon(listener.admit, client)
            await trio.testing.wait_all_tasks_blocked()
            assert asked == 2
            with trio.fail_after(LONG):
                assert "holds too many bytes" in await refused(listener, FakeStream(frames))
            answered.set()
        assert [client.principal.name for client in clients] == ["alice", "alice"]
        assert listener._held_bytes == 0
        await listener.admit(Admitted(FakeStream(frames)))  # type: ignore[arg-type]
        assert asked == 3

    trio.run(main)
