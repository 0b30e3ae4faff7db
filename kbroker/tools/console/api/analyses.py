"""A topic's analysis: the numbers of a range of its records, as they are read, until its end or the browser's."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Final

import trio
from starlette.responses import Response

from kbroker.client import Client, ClientError
from kbroker.client.records_io.json_types import Json
from kbroker.tools.console.analysis import Analysis
from kbroker.tools.console.api.topics import find_topic
from kbroker.tools.console.call import Call
from kbroker.tools.console.record_range import Limits, find_limits, range_of
from kbroker.tools.console.scan import Budget, RecordView, read_chunks
from kbroker.tools.console.streaming import Give, LimiterSlot, Streamed

MOST_RECORDS: Final = 50_000_000
LONGEST_SECONDS: Final = 900.0

_TELL_SECONDS: Final = 0.5


async def analyse_topic(call: Call) -> Response:
    """Server-sent events: ``progress`` with the numbers so far, ``done`` with all of them, ``trouble`` with an error.

    The range is that of a list of records, without a filter; what the records hold is not told, so no mask counts.
    """
    wanted = range_of(call)
    name = wanted.look.topic
    look = RecordView(name, read_committed=wanted.look.read_committed)
    limits = await call.ask(lambda client: find_limits(client, wanted, find_topic(client, name)))
    place = LimiterSlot(call.console.exports, "too many exports and analyses are under way: try again in a moment")
    begins = limits.firsts if wanted.begin == "latest" else limits.begins

    async def produce(give: Give) -> None:
        def run() -> None:
            with call.view.cluster.make_client() as client:
                _analyse(client, look, begins, limits, lambda text: trio.from_thread.run(give, text.encode()))

        with call.console.sessions.while_alive(call.session):
            await trio.to_thread.run_sync(run, limiter=trio.CapacityLimiter(1))

    return Streamed(produce, "text/event-stream", close=place.leave)


def _analyse(
    client: Client, look: RecordView, begins: Mapping[int, int], limits: Limits, tell: Callable[[str], None]
) -> None:
    """Read all of a range, and tell how far it came; in a thread."""
    analysis, notes = Analysis(), list(limits.notes)
    reached = dict(begins)
    budget = Budget(
        records=MOST_RECORDS, seconds=LONGEST_SECONDS, size=float("inf"), check=trio.from_thread.check_cancelled
    )
    began = told_at = time.monotonic()

    def event(kind: str) -> str:
        now = time.monotonic()
        document: dict[str, Json] = {
            **analysis.told(),
            "offsets": sum(reached[each] - begins[each] for each in begins),
            "of_offsets": sum(limits.ends[each] - begins[each] for each in begins),
            "milliseconds": round((now - began) * 1000),
            "notes": list(notes),
        }
        return f"event: {kind}\ndata: {json.dumps(document)}\n\n"

    try:
        for partition, chunk, after in read_chunks(client, look, begins, limits.ends, budget, notes):
            for record in chunk.records:
                analysis.add(partition, record)
            reached[partition] = min(after, limits.ends[partition])
            if time.monotonic() - told_at >= _TELL_SECONDS:
                tell(event("progress"))
                told_at = time.monotonic()
    except ClientError as error:
        tell(f"event: trouble\ndata: {json.dumps({'error': str(error)})}\n\n")
        return
    if any(reached[each] < limits.ends[each] for each in begins):
        notes.append(f"it ends after {MOST_RECORDS:,} records or {LONGEST_SECONDS / 60:.0f} minutes: choose a range")
    tell(event("done"))
