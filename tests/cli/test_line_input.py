"""The lines of a descriptor, as kbroker produce reads them."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from kbroker.tools.cli.line_input import LineSource


@given(st.binary(max_size=200), st.lists(st.integers(1, 50)))
def test_lines_of_a_pipe_in_pieces(data: bytes, sizes: list[int]) -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, data)
        os.close(writing)
        source = LineSource(reading, lambda: None, 0)
        expected = data.split(b"\n")
        if expected[-1] == b"":
            expected.pop()
        assert list(source) == expected
        assert source.bytes_read == len(data)
    finally:
        os.close(reading)


def test_a_slow_writer_is_not_waited_for() -> None:
    reading, writing = os.pipe()
    seen: list[list[bytes]] = []
    lines: list[bytes] = []

    def idle() -> None:
        seen.append(list(lines))
        if len(seen) == 1:
            os.write(writing, b"b\nc")
        else:
            os.close(writing)

    os.write(writing, b"a\n")
    for line in LineSource(reading, idle, 0):
        lines += [line]
    os.close(reading)
    assert lines == [b"a", b"b", b"c"]
    assert seen == [[b"a"], [b"a", b"b"]]
