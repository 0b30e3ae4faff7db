"""The client's side of a connection, against brokers that answer well, late, wrongly and not whole."""

from __future__ import annotations

import itertools
import random

import pytest

from kbroker.errors import ErrorCode
from kbroker.wire.conversation import Conversation
from kbroker.wire.errors import WireError
from kbroker.wire.framing import FrameReader, request_bytes, response_parts
from kbroker.wire.headers import decode_request_header
from kbroker.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kbroker.wire.messages.classic_groups import HeartbeatRequest, HeartbeatResponse
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kbroker.wire.messages.produce import ProduceRequest
from kbroker.wire.registry import API_KEYS
from kbroker.wire.schema import NO_VERSIONS
from tests.with_each import with_each

API_VERSIONS, HEARTBEAT = 18, 12


def frame_of(data: bytes) -> memoryview:
    """A frame as a FrameReader gives it, of a response that is a whole one."""
    reader = FrameReader(api_keys=None)
    reader.receive(data)
    (frame,) = reader
    return frame


def answer(request: bytes, response: object, version: int | None = None) -> memoryview:
    """The frame that answers a request; ``version`` of the response, if it is another than the request's."""
    header, _ = decode_request_header(memoryview(request)[4:])
    as_version = header.api_version if version is None else version
    parts = response_parts(header.api_key, as_version, header.correlation_id, response)
    return frame_of(b"".join(part for part in parts if isinstance(part, bytes)))


def heartbeat(talk: Conversation, version: int = 4) -> bytes:
    return b"".join(talk.send(HeartbeatRequest(group_id="g", member_id="m"), version))


def test_a_request_is_what_framing_makes_of_it() -> None:
    talk = Conversation("me")
    request = HeartbeatRequest(group_id="g")
    assert b"".join(talk.send(request, 3)) == request_bytes(3, 1, "me", request)
    assert b"".join(talk.send(request, 4)) == request_bytes(4, 2, "me", request)
    assert [(one.correlation_id, one.api_key, one.api_version) for one in talk.pending] == [(1, 12, 3), (2, 12, 4)]


@pytest.mark.parametrize("seed", range(20))
def test_responses_belong_to_the_oldest_requests(seed: int) -> None:
    """Any number under way, of any API in any version; a response may come at any time, but in its turn."""
    rng = random.Random(seed)
    talk = Conversation("me")
    frames: list[tuple[memoryview, object]] = []
    for number in range(200):
        if frames and rng.random() < 0.5:
            frame, expected = frames.pop(0)
            assert talk.receive(frame) == expected
            assert len(talk.pending) == len(frames)
        elif rng.random() < 0.5:
            version = rng.randint(0, 4)
            expected = HeartbeatResponse(error_code=number)
            frames.append((answer(heartbeat(talk, version), expected), expected))
        else:
            version = rng.randint(0, 2)
            expected = FindCoordinatorResponse(node_id=number, host="h", port=9)
            data = b"".join(talk.send(FindCoordinatorRequest(key="g"), version))
            frames.append((answer(data, expected), expected))


def test_a_response_out_of_turn_is_an_error() -> None:
    talk = Conversation("me")
    heartbeat(talk)
    second = heartbeat(talk)
    with pytest.raises(WireError, match="response 2 where 1 was due"):
        talk.receive(answer(second, HeartbeatResponse()))


def test_a_response_to_no_request_is_an_error() -> None:
    talk = Conversation("me")
    frame = answer(heartbeat(Conversation("another")), HeartbeatResponse())
    with pytest.raises(WireError, match="no request"):
        talk.receive(frame)
    heartbeat(talk)
    talk.receive(frame)
    with pytest.raises(WireError, match="no request"):
        talk.receive(frame)


def test_a_request_without_a_response_is_not_waited_for() -> None:
    talk = Conversation("me")
    talk.send(ProduceRequest(acks=0, timeout_ms=1, topic_data=[]), 9, expect_response=False)
    second = heartbeat(talk)
    assert talk.receive(answer(second, HeartbeatResponse(error_code=5))).error_code == 5


def test_every_truncation_is_an_error() -> None:
    expected = FindCoordinatorResponse(node_id=3, host="a host", port=9)
    for version in (0, 3):
        data = b"".join(Conversation("me").send(FindCoordinatorRequest(key="g"), version))
        whole = answer(data, expected)
        for length in range(len(whole)):
            talk = Conversation("me")
            talk.send(FindCoordinatorRequest(key="g"), version)
            with pytest.raises(WireError):
                talk.receive(whole[:length])


@with_each(range(50))
def test_any_bytes_are_a_response_or_a_wire_error(seed: int) -> None:
    rng = random.Random(seed)
    for version in range(5):
        talk = Conversation("me")
        frame = bytearray(answer(heartbeat(talk, version), HeartbeatResponse()))
        for _ in range(rng.randint(1, 4)):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        try:
            assert isinstance(talk.receive(memoryview(frame)), HeartbeatResponse)
        except WireError:
            pass


def test_bytes_left_over_are_an_error_where_answers_must_be_exact() -> None:
    for is_exact in (False, True):
        talk = Conversation("me", is_exact=is_exact)
        frame = bytes(answer(heartbeat(talk), HeartbeatResponse())) + b"\0"
        if is_exact:
            with pytest.raises(WireError, match="1 bytes left over"):
                talk.receive(frame)
        else:
            assert talk.receive(frame) == HeartbeatResponse()


def test_correlation_ids_stay_positive() -> None:
    talk = Conversation("me", correlation_ids=itertools.count(0x7FFFFFFF))
    first, second = heartbeat(talk), heartbeat(talk)
    assert [one.correlation_id for one in talk.pending] == [0x7FFFFFFF, 0]
    talk.receive(answer(first, HeartbeatResponse()))
    talk.receive(answer(second, HeartbeatResponse()))


def test_several_conversations_may_number_their_requests_together() -> None:
    ids = itertools.count(1)
    one, other = Conversation("me", correlation_ids=ids), Conversation("me", correlation_ids=ids)
    heartbeat(one)
    heartbeat(other)
    heartbeat(one)
    assert [[each.correlation_id for each in talk.pending] for talk in (one, other)] == [[1, 3], [2]]


# Versions


def negotiate(talk: Conversation, highest: int, *, tells_range: bool = True, error: int = 0) -> list[int]:
    """Play a broker that has ApiVersions up to ``highest``; the versions that it was asked in."""
    served = [ApiVersion(api_key=API_VERSIONS, max_version=highest), ApiVersion(api_key=HEARTBEAT, max_version=2)]
    asked = []
    request: list[bytes] | None = [b"".join(talk.negotiate("software", "1.0"))]
    while request is not None:
        (data,) = request
        header, _ = decode_request_header(memoryview(data)[4:])
        asked.append(header.api_version)
        if header.api_version > highest:
            response = ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=served[:1] if tells_range else []
            )
            frame = answer(data, response, version=0)
        else:
            frame = answer(data, ApiVersionsResponse(error_code=error, api_keys=served))
        again = talk.negotiated(frame)
        request = None if again is None else [b"".join(again)]
    return asked


LATEST = API_KEYS[API_VERSIONS].stable_versions.highest


@pytest.mark.parametrize("highest", range(LATEST + 1))
def test_versions_are_negotiated_in_what_the_broker_has(highest: int) -> None:
    talk = Conversation("me")
    asked = negotiate(talk, highest)
    assert asked == ([LATEST] if highest == LATEST else [LATEST, highest])
    assert talk.api_versions is not None and talk.api_versions.error_code == 0
    assert talk.versions == {API_VERSIONS: (0, highest), HEARTBEAT: (0, 2)}
    assert not talk.pending


def test_a_broker_that_does_not_tell_its_range_is_asked_in_version_0() -> None:
    talk = Conversation("me")
    assert negotiate(talk, 0, tells_range=False) == [LATEST, 0]
    assert talk.versions[HEARTBEAT] == (0, 2)


def test_a_broker_without_any_version_ends_the_negotiation() -> None:
    talk = Conversation("me")
    assert negotiate(talk, -1) == [LATEST]
    assert talk.api_versions is not None and talk.api_versions.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_refusal_is_kept() -> None:
    talk = Conversation("me")
    assert negotiate(talk, LATEST, error=ErrorCode.INVALID_REQUEST) == [LATEST]
    assert talk.api_versions is not None and talk.api_versions.error_code == ErrorCode.INVALID_REQUEST


def test_an_unsupported_version_is_read_as_version_0_at_any_time() -> None:
    """KIP-511 holds also for an ApiVersions that is sent later, in whatever version."""
    talk = Conversation("me")
    request = ApiVersionsRequest(client_software_name="s", client_software_version="1")
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(api_key=18)])
    assert talk.receive(answer(b"".join(talk.send(request, 3)), response, version=0)) == response


def test_common_versions() -> None:
    talk = Conversation("me")
    assert talk.common_versions(HEARTBEAT) == NO_VERSIONS
    negotiate(talk, LATEST)
    assert talk.common_versions(HEARTBEAT) == (0, 2)
    assert talk.common_versions(0) == NO_VERSIONS
    assert 0 not in talk.common_versions(0) and NO_VERSIONS.highest not in talk.common_versions(0)
