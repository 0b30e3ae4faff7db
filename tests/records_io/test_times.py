"""Times as people write them."""

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.client.records_io.times import parse_duration, parse_moment
from kbroker.tools.cli.output import timestamp

NOW = 1_800_000_000_123


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1h", 3_600_000),
        ("1h30m", 5_400_000),
        ("7d", 7 * 86_400_000),
        ("2w", 14 * 86_400_000),
        ("500ms", 500),
        ("1.5s", 1500),
        ("0s", 0),
        ("P1D", 86_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("PT0.001S", 1),
        ("pt1h", 3_600_000),
        ("P2W", 14 * 86_400_000),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "1", "h", "P", "PT", "P1DT", "1 h", "-1h", "1y", "P1Y", "P1M", "1h-", "abc"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is not a length of time"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("-1h", NOW - 3_600_000),
        ("-P1D", NOW - 86_400_000),
        ("-100000d", 0),
        ("@1700000000", 1_700_000_000_000),
        ("@1700000000.5", 1_700_000_000_500),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-14 22:13:20.123", 1_700_000_000_123),
        ("2023-11-15T00:13:20+02:00", 1_700_000_000_000),
        ("2023-11-14", 1_699_920_000_000),
        ("1970-01-01", 0),
    ],
)
def test_moments(text: str, expected: int) -> None:
    assert parse_moment(text, NOW) == expected


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2023-13-01", "2023-11-14T25:00", "@x", "@", "-", "-1", "1969-12-31"]
)
def test_no_moments(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        parse_moment(text, NOW)


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9999, 12, 31)))
def test_what_is_shown_is_read_again(moment: datetime) -> None:
    milliseconds = int(moment.replace(tzinfo=UTC).timestamp()) * 1000 + moment.microsecond // 1000
    assert parse_moment(timestamp(milliseconds), NOW) == milliseconds


@given(st.integers(0, 10**12))
def test_relative_times_lie_in_the_past(milliseconds: int) -> None:
    assert parse_moment(f"-{milliseconds}ms", NOW) == NOW - milliseconds
