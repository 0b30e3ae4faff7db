"""Frames out of bytes that come whole, byte by byte, several at once, or in bad faith."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from kbroker.types import FileRegion
from kbroker.wire.compiler import decode
from kbroker.wire.errors import FrameTooLarge, NotKafka, UnknownApi, WireError
from kbroker.wire.framing import FrameReader, request_parts, response_parts
from kbroker.wire.headers import decode_request_header, decode_response_header
from kbroker.wire.messages.classic_groups import HeartbeatRequest, HeartbeatResponse
from kbroker.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData


def frame_of(size: int, fill: int = 7) -> bytes:
    """A request frame with its size field; Heartbeat's key, then a body that tells it from others."""
    body = b"\0\x0c\0\4" + bytes([fill]) * (size - 4)
    return size.to_bytes(4, "big") + body


def feed(reader: FrameReader, data: bytes, most: int) -> list[memoryview]:
    """Play the socket: at most ``most`` bytes a read, straight into the reader's buffer."""
    frames = []
    while data:
        room = reader.get_buffer()
        count = min(len(room), len(data), most)
        assert count
        room[:count] = data[:count]
        reader.buffer_updated(count)
        data = data[count:]
        frames += list(reader)
    return frames


SIZES = [8, 9, 100, 4000, 4092, 4093, 5000, 16_380, 16_381, 65_535, 65_536, 65_537, 200_000, 1_000_000, 8, 70_000, 30]


@pytest.mark.parametrize("most", [1000, 4096, 65_536, 1 << 30])
def test_frames_of_all_sizes(most: int) -> None:
    frames = [frame_of(size, number) for number, size in enumerate(SIZES)]
    got = feed(FrameReader(), b"".join(frames), most)
    assert got == [frame[4:] for frame in frames]


def test_byte_by_byte() -> None:
    frames = [frame_of(size, number) for number, size in enumerate((8, 300, 9, 5000, 12))]
    assert feed(FrameReader(), b"".join(frames), 1) == [frame[4:] for frame in frames]


def test_random_reads() -> None:
    rng = random.Random(4)
    for _ in range(50):
        sizes = [rng.choice((8, 50, 700, 5000, 40_000, 150_000)) for _ in range(rng.randint(1, 12))]
        frames = [frame_of(size, number) for number, size in enumerate(sizes)]
        stream = b"".join(frames)
        reader = FrameReader()
        got: list[memoryview] = []
        while stream:
            room = reader.get_buffer()
            count = min(len(room), len(stream), rng.choice((1, 3, 50, 3000, 100_000)))
            room[:count] = stream[:count]
            reader.buffer_updated(count)
            stream = stream[count:]
            got += list(reader)
            if rng.random() < 0.2:
                reader.trim()
        assert got == [frame[4:] for frame in frames]


def test_one_frame_a_read_comes_out_as_it_would_by_steps() -> None:
    """All frames are kept until the end: what is read later leaves them as they are."""
    rng = random.Random(5)
    taken = 0
    for _ in range(50):
        sizes = [rng.choice((8, 9, 50, 700, 4000, 70_000)) for _ in range(40)]
        frames = [frame_of(size, number) for number, size in enumerate(sizes)]
        reader = FrameReader()
        got: list[memoryview] = []
        for at, frame in enumerate(frames):
            behind = frames[at + 1][:5] if at + 1 < len(frames) and rng.random() < 0.2 else b""
            frames[at + 1 : at + 2] = [frames[at + 1][len(behind) :]] if at + 1 < len(frames) else []
            data = frame + behind
            while data:
                room = reader.get_buffer()
                count = min(len(room), len(data), rng.choice((7, 1 << 20, 1 << 20)))
                room[:count] = data[:count]
                data = data[count:]
                only = reader.only_frame(count)
                if only is None:
                    reader.buffer_updated(count)
                    got += list(reader)
                else:
                    assert not reader.partial and reader.next_frame() is None
                    taken += 1
                    got.append(only)
        assert got == [frame_of(size, number)[4:] for number, size in enumerate(sizes)]
    assert taken > 500


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\x08\x7f\x7f\0\0\0\0\0\0",
        b"\0\0\0\x09" + frame_of(8)[4:],
        b"\0\0\0\x07" + frame_of(8)[4:],
        frame_of(101),
        b"GET / HTTP/1",
        b"\0\0\0\x04\0\x0c\0\4",
    ],
)
def test_what_is_not_one_good_frame_is_left_to_the_steps(data: bytes) -> None:
    reader = FrameReader(limit=100)
    reader.get_buffer()[: len(data)] = data
    assert reader.only_frame(len(data)) is None
    reader.buffer_updated(len(data))
    if data[3] == 9:
        assert reader.next_frame() is None
    elif data[3] == 7:
        with pytest.raises(WireError, match="too short"):
            reader.next_frame()
    else:
        with pytest.raises(WireError):
            reader.next_frame()


def test_receive() -> None:
    frames = [frame_of(size, number) for number, size in enumerate(SIZES)]
    reader = FrameReader()
    reader.receive(b"".join(frames))
    assert list(reader) == [frame[4:] for frame in frames]
    reader = FrameReader()
    got = []
    for frame in frames:
        reader.receive(frame[:7])
        assert reader.next_frame() is None
        assert reader.partial
        reader.receive(frame[7:])
        got += list(reader)
        assert not reader.partial
    assert got == [frame[4:] for frame in frames]


def test_a_frame_is_writable_and_its_handlers_own() -> None:
    reader = FrameReader()
    kept = []
    for number in range(200):
        frame = frame_of(50 + 37 * number, number)
        (view,) = feed(reader, frame, 1 << 30)
        assert not view.readonly
        view[8:12] = b"mine"
        kept.append((view, bytes(view)))
    assert all(bytes(view) == copy for view, copy in kept)


def test_a_large_body_goes_to_its_place_at_once() -> None:
    """After one large frame, only the head of the next is moved."""
    reader = FrameReader()
    feed(reader, frame_of(1_000_000), 1 << 30)
    rooms = []
    frame = frame_of(1_000_000)
    while frame:
        room = reader.get_buffer()
        rooms.append(len(room))
        count = min(len(room), len(frame))
        room[:count] = frame[:count]
        reader.buffer_updated(count)
        frame = frame[count:]
        got = reader.next_frame()
    assert got is not None
    assert rooms == [4096, 1_000_004 - 4096]


def test_memory_follows_what_was_received() -> None:
    tracemalloc.start()
    try:
        readers = []
        for _ in range(100):
            reader = FrameReader()
            feed(reader, (100 << 20).to_bytes(4, "big") + b"\0\x0c\0\4", 1 << 30)
            reader.get_buffer()
            readers.append(reader)
        current, _ = tracemalloc.get_traced_memory()
        assert current < 100 * 20_000
    finally:
        tracemalloc.stop()
    feed(readers[0], bytes(1_000_000), 5000)
    assert readers[0].buffered_bytes <= 4 * 1_000_008


def test_an_idle_reader_is_small() -> None:
    reader = FrameReader()
    assert reader.buffered_bytes == 0
    feed(reader, frame_of(300_000) + frame_of(20), 1 << 30)
    reader.trim()
    assert reader.buffered_bytes <= 4096
    feed(reader, frame_of(300_000)[:70_000], 1 << 30)
    reader.trim()
    assert feed(reader, frame_of(300_000)[70_000:], 1 << 30) == [frame_of(300_000)[4:]]


def test_limits() -> None:
    reader = FrameReader(limit=1000)
    assert feed(reader, frame_of(1000), 1 << 30) == [frame_of(1000)[4:]]
    with pytest.raises(FrameTooLarge, match="1001"):
        feed(reader, frame_of(1001)[:4], 1 << 30)
    reader = FrameReader(limit=1000)
    reader.limit = 2000
    assert feed(reader, frame_of(1500), 1 << 30)
    for size in (-1, 0, 7, -(1 << 31)):
        with pytest.raises(WireError):
            feed(FrameReader(), size.to_bytes(4, "big", signed=True), 1 << 30)


def test_an_unknown_key_is_refused_early() -> None:
    start = (50 << 20).to_bytes(4, "big") + b"\0\7"
    reader = FrameReader()
    assert feed(reader, start[:5], 1) == []
    with pytest.raises(UnknownApi, match="7"):
        feed(reader, start[5:], 1)
    for call in (reader.next_frame, reader.get_buffer):
        with pytest.raises(UnknownApi):
            call()
    with pytest.raises(UnknownApi):
        feed(FrameReader(api_keys={18}), frame_of(20), 1 << 30)


@pytest.mark.parametrize(
    ("start", "text"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP"),
        (b"POST /topics HTTP/1.1\r\n", "HTTP"),
    ],
)
def test_another_protocol_is_named(start: bytes, text: str) -> None:
    for most in (1, 1 << 30):
        with pytest.raises(NotKafka, match=text):
            feed(FrameReader(), start, most)


def test_noise() -> None:
    rng = random.Random(9)
    for _ in range(500):
        reader = FrameReader(limit=100_000)
        try:
            feed(reader, b"\0\0" + rng.randbytes(rng.randrange(2000)), rng.randint(1, 400))
        except WireError:
            with pytest.raises(WireError):
                reader.next_frame()


def test_whole_requests_and_responses() -> None:
    request = HeartbeatRequest(group_id="g", member_id="m")
    (frame,) = feed(FrameReader(), b"".join(request_parts(12, 4, 5, "me", request)), 1 << 30)
    header, offset = decode_request_header(frame)
    assert header == (12, 4, 5, "me")
    assert decode(HeartbeatRequest, 4, frame, offset) == (request, len(frame))

    response = HeartbeatResponse(error_code=27)
    reader = FrameReader(api_keys=None)
    (frame,) = feed(reader, b"".join(response_parts(12, 4, 5, response)), 1 << 30)  # type: ignore[arg-type]
    correlation_id, offset = decode_response_header(12, 4, frame)
    assert correlation_id == 5
    assert decode(HeartbeatResponse, 4, frame, offset)[0] == response


def test_the_size_counts_file_regions() -> None:
    region = FileRegion(fd=1, position=5, length=12345)
    topic = FetchableTopicResponse(topic="t", partitions=[PartitionData(records=region)])
    parts = response_parts(1, 12, 1, FetchResponse(responses=[topic]))
    assert parts[1] is region
    assert isinstance(parts[0], bytes)
    assert int.from_bytes(parts[0][:4], "big") == sum(map(len, parts)) - 4


def test_the_key_of_the_frame_that_waits() -> None:
    reader = FrameReader()
    assert reader.waiting_api_key is None
    data = frame_of(20) + (10).to_bytes(4, "big") + b"\0\1\0\4" + bytes(6)
    seen: list[int | None] = []
    for byte in data:
        reader.get_buffer()[0] = byte
        reader.buffer_updated(1)
        seen.append(reader.waiting_api_key)
    assert seen == [None] * 23 + [12] * 15, "as long as the first is not taken"
    assert reader.next_frame() is not None and reader.waiting_api_key == 1
    assert reader.next_frame() is not None and reader.waiting_api_key is None
