"""The form of streams and files: whatever is written is read again, and what is malformed is one readable error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.observe.explorer.exchange import (
    KEPT_TAIL,
    MAX_KEPT,
    ClientInfo,
    Closed,
    ConnectionInfo,
    Exchange,
    Frame,
    Names,
    Skipped,
    StreamStart,
    cut_frame,
    whole_frame,
)
from kbroker.observe.explorer.lines import BadLine, is_saved, item_of, line_of, read_items

texts = st.text(max_size=20)
numbers = st.integers(0, 2**31 - 1)
times = st.integers(0, 2**41).map(float)


@st.composite
def frames(draw: st.DrawFn, first: int = 0) -> Frame:
    pieces, end = [], 0
    for index in range(draw(st.integers(1, 3))):
        piece = draw(st.binary(min_size=first if index == 0 else 0, max_size=40))
        pieces.append((end, piece))
        end += len(piece) + draw(st.integers(0, 5))
    return Frame(end, tuple(pieces))


exchanges = st.builds(
    Exchange, numbers, numbers, numbers, times, frames(8), st.just(None), st.just(-1.0), texts, st.booleans()
) | st.builds(Exchange, numbers, numbers, numbers, times, frames(8), frames(), times, texts, st.booleans())
connections = st.builds(ConnectionInfo, numbers, texts, texts, st.booleans(), texts, texts, numbers)
items = (
    exchanges
    | connections
    | st.builds(ClientInfo, connections, texts, texts, texts, times, numbers, numbers, texts, st.booleans())
    | st.builds(Closed, numbers, numbers)
    | st.builds(Skipped, st.dictionaries(st.integers(0, 99), numbers), texts)
    | st.builds(Names, st.dictionaries(texts, texts))
    | st.builds(StreamStart, numbers, texts, texts, times, texts)
)


@given(items)
def test_every_item_is_read_as_it_was_written(item: object) -> None:
    line = line_of(item)  # type: ignore[arg-type]
    assert line.endswith("\n") and line.count("\n") == 1 and line.isascii()
    assert item_of(line) == item


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.dictionaries(
            st.sampled_from(
                [
                    "exchange",
                    "connection",
                    "request",
                    "response",
                    "pieces",
                    "size",
                    "node",
                    "at",
                    "skipped",
                    "names",
                    "closed",
                    "kbroker-exchanges",
                ]
            ),
            inner | st.lists(inner, max_size=3),
            max_size=6,
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode())
)
def test_nonsense_is_refused_in_one_line(data: bytes) -> None:
    try:
        item_of(data)
    except BadLine as error:
        assert "\n" not in str(error)[:-1]


def test_a_file_says_what_it_is() -> None:
    start = line_of(StreamStart(1, "c", "kbroker", 0.0))
    assert is_saved(start.encode()) and not is_saved(b"\0\0\0\1")
    assert list(read_items([start, "\n", '{"news":1}\n'])) == [StreamStart(1, "c", "kbroker", 0.0)]
    with pytest.raises(BadLine, match="line 1: this is not the beginning"):
        list(read_items(["{}\n"]))
    with pytest.raises(BadLine, match="line 2: "):
        list(read_items([start, "{\n"]))
    with pytest.raises(BadLine, match="format 2"):
        list(read_items([start.replace(":1,", ":2,", 1)]))


def test_a_line_cannot_claim_more_than_a_frame_may_have() -> None:
    line = json.loads(line_of(Exchange(1, 1, 1, 0.0, whole_frame(bytes(8)))))
    for request in (
        {"size": 1 << 40, "pieces": [[0, "AAAAAAAAAAA="]]},
        {"size": 2, "pieces": [[0, "AAAAAAAAAAA="]]},
        {"size": 20, "pieces": [[0, "AAAAAAAAAAA="], [3, "AAAA"]]},
        {"size": 20, "pieces": [[1, "AAAAAAAAAAA="]]},
        "AAAA",
        "not base64!",
    ):
        with pytest.raises(BadLine):
            item_of(json.dumps(line | {"request": request}))


@given(st.integers(0, 3 * MAX_KEPT))
def test_a_large_frame_keeps_its_beginning_and_its_end(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    frame = cut_frame(memoryview(data))
    assert frame.size == size and frame.kept == min(size, MAX_KEPT) and len(frame.filled()) == size
    assert frame.is_whole == (size <= MAX_KEPT)
    filled = frame.filled()
    assert filled[: min(size, MAX_KEPT - KEPT_TAIL)] == data[: MAX_KEPT - KEPT_TAIL]
    assert filled[-KEPT_TAIL:] == data[-KEPT_TAIL:]
