"""Records on their way out of a file."""

from __future__ import annotations

from kbroker.value_types import NamedTuple
from kbroker.wire.record_batch import Record


class Item(NamedTuple):
    """A record to send. ``line`` is where it begins in the input, from 1 on; ``partition`` is None without a wish."""

    record: Record
    line: int
    partition: int | None = None


class BadLine(NamedTuple):
    """A line that is no record, and why."""

    line: int
    problem: str
