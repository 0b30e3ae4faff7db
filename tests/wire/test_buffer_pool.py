"""Buffers that are used again, and never while anybody sees their bytes."""

from __future__ import annotations

import random

import pytest

from kbroker.wire.buffer_pool import KEPT, LEAST, MOST, BufferPool
from kbroker.wire.framing import FrameReader
from tests.wire.test_framing import frame_of


def test_a_buffer_that_nobody_looks_into_is_used_again() -> None:
    pool = BufferPool()
    buffer = pool.take(1_000_000)
    assert len(buffer) >= 1_000_000
    assert len(buffer) % LEAST == 0
    buffer[-1] = 9
    pool.give(buffer)
    again = pool.take(len(buffer))
    assert again is buffer
    assert (len(again), again[-1]) == (len(buffer), 9), "neither shortened nor filled"
    assert pool.take(1_000_000) is not buffer, "it is not there twice"


@pytest.mark.parametrize(
    "look", [lambda view: view, lambda view: view[3:5], lambda view: view.cast("B")[9:].toreadonly()]
)
def test_one_that_is_looked_into_waits(look: object) -> None:
    assert callable(look)
    pool = BufferPool()
    buffer = pool.take(2 * LEAST)
    seen = look(memoryview(buffer))
    pool.give(buffer)
    assert pool.take(2 * LEAST) is not buffer
    del seen
    assert pool.take(2 * LEAST) is buffer


def test_one_much_larger_than_asked_for_is_left_to_others() -> None:
    pool = BufferPool()
    large = pool.take(1 << 20)
    pool.give(large)
    assert len(pool.take(LEAST + 1)) == 2 * LEAST
    assert pool.take(1 << 20) is large


def test_only_a_few_are_kept_and_no_huge_ones() -> None:
    pool = BufferPool()
    given = [pool.take(2 * LEAST) for _ in range(KEPT + 1)]
    for buffer in given:
        pool.give(buffer)
    assert {id(pool.take(2 * LEAST)) for _ in range(KEPT)} == {id(buffer) for buffer in given[1:]}
    huge = pool.take(MOST + 1)
    pool.give(huge)
    assert pool.take(MOST + 1) is not huge
    small = pool.take(LEAST)
    pool.give(small)
    assert pool.take(LEAST) is not small, "those of small requests would take the places of the large"


@pytest.mark.parametrize("seed", range(6))
def test_frames_that_are_held_stay_as_they_were(seed: int) -> None:
    """Two connections share a pool; of their frames some are held for long, some dropped at once."""
    rng = random.Random(seed)
    pool = BufferPool()
    readers = [FrameReader(pool=pool) for _ in range(2)]
    frames = [
        [
            frame_of(rng.choice((50, 5000, 100_000, 999_900 + rng.randrange(200), 1_500_000)), number)
            for number in range(25)
        ]
        for _ in readers
    ]
    streams = [memoryview(b"".join(each)) for each in frames]
    expected = [iter(each) for each in frames]
    held: list[tuple[memoryview, bytes]] = []
    buffers = set()
    while any(streams):
        index = rng.choice([number for number, stream in enumerate(streams) if stream])
        reader, stream = readers[index], streams[index]
        room = reader.get_buffer()
        buffers.add(id(room.obj))
        count = min(len(room), len(stream), rng.choice((7, 4096, 300_000, 1 << 30)))
        room[:count] = stream[:count]
        reader.buffer_updated(count)
        streams[index] = stream[count:]
        del room
        for frame in reader:
            whole = next(expected[index])[4:]
            assert frame == whole
            if rng.random() < 0.3:
                held.append((frame, whole))
            del frame
        while len(held) > rng.randrange(8):
            held.pop(rng.randrange(len(held)))
        assert all(view == whole for view, whole in held)
    assert [next(each, None) for each in expected] == [None, None]


def test_what_follows_a_large_frame_has_a_buffer_of_its_own() -> None:
    """Or each small request behind it would hold all of it in memory."""
    pool = BufferPool()
    reader = FrameReader(pool=pool)
    stream = memoryview(frame_of(1_000_000) + frame_of(100) + frame_of(3_000_000) + frame_of(70_000) + frame_of(50))
    frames = []
    while stream:
        room = reader.get_buffer()
        count = min(len(room), len(stream))
        room[:count] = stream[:count]
        reader.buffer_updated(count)
        stream = stream[count:]
        del room
        frames += list(reader)
    assert [len(frame) for frame in frames] == [1_000_000, 100, 3_000_000, 70_000, 50]
    assert len({id(frame.obj) for frame in frames}) == len(frames)
    held = [len(memoryview(frame.obj)) for frame in frames if len(frame) < 1000]
    assert max(held) <= LEAST
    assert reader.buffered_bytes <= LEAST
