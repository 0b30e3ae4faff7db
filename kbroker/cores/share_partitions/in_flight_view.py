"""The records of a share partition that are in flight, for those who look: who holds them, and how often they went out.

Pure, and it changes nothing. In flight is what a member holds, what came back and waits for the next member, and what
is on its way to the dead-letter queue. What nobody was ever handed, and what is done with, is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from kbroker.cores.share_partitions.partition import SharePartition
from kbroker.cores.share_partitions.runs import Run
from kbroker.cores.share_state import DeliveryState


class InFlight(NamedTuple):
    """Neighbouring offsets, both inclusive, that nothing tells apart."""

    first_offset: int
    last_offset: int
    state: DeliveryState
    """ACQUIRED until a member's word is kept: nobody else gets the records before."""
    delivery_count: int
    member_id: str | None
    """The holder; None of records that nobody holds."""
    lock_ms_left: int | None
    """Time until the holder's lock ends, 0 if it is over and that is yet to be noticed; None of what nobody holds."""


class InFlightView(NamedTuple):
    """A share partition at one moment."""

    start_offset: int
    ranges: list[InFlight]
    left_out: int
    """Ranges more than were asked for."""


def view(partition: SharePartition, most: int, now_ms: int) -> InFlightView:
    """The first ``most`` ranges in flight, by offset, and how many more there are."""
    ranges = in_flight(partition.runs(), now_ms)
    first = list(islice(ranges, most))
    return InFlightView(partition.start_offset, first, sum(1 for _ in ranges))


def in_flight(runs: Iterable[Run], now_ms: int) -> Iterator[InFlight]:
    """The ranges in flight, by offset; neighbours that look alike are one range."""
    last: InFlight | None = None
    for run in runs:
        found = _found(run, now_ms)
        if found is None:
            continue
        if last is not None and last.last_offset + 1 == found.first_offset and last[2:] == found[2:]:
            last = last._replace(last_offset=found.last_offset)
            continue
        if last is not None:
            yield last
        last = found
    if last is not None:
        yield last


def _found(run: Run, now_ms: int) -> InFlight | None:
    if run.state is DeliveryState.ACQUIRED:
        left = None if run.locked_until_ms is None else max(0, run.locked_until_ms - now_ms)
        return InFlight(run.first, run.last, run.state, run.delivery_count, run.member_id, left)
    if run.state is DeliveryState.ARCHIVING or (run.state is DeliveryState.AVAILABLE and run.delivery_count):
        return InFlight(run.first, run.last, run.state, run.delivery_count, None, None)
    return None
