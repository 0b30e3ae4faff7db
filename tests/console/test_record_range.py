"""Partitions as a person writes them: within bounds."""

from __future__ import annotations

import pytest

from kbroker.tools.console.call import RequestRefused
from kbroker.tools.console.record_range import parse_partitions


def test_numbers_and_ranges() -> None:
    assert parse_partitions("7, 0-2,1") == (0, 1, 2, 7)
    assert parse_partitions(" ") is None
    assert len(parse_partitions("0-9999") or ()) == 10_000


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (",".join(["0-9999"] * 101), "more than 100"),
        ("0-9999,10000", "more than 10,000"),
        ("0-10000", "are no partitions"),
        ("3-1", "are no partitions"),
    ],
)
def test_too_many_are_refused(text: str, told: str) -> None:
    with pytest.raises(RequestRefused, match=told):
        parse_partitions(text)
