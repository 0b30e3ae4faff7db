"""Exports: a file of all records that fit, or of the latest of each key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio
from starlette.responses import Response

from kbroker.client import Client, ClientError, ResponseError
from kbroker.client.records_io.json_types import Json
from kbroker.errors import ErrorCode
from kbroker.tools.console.api.topics import find_topic
from kbroker.tools.console.call import Call, RequestRefused
from kbroker.tools.console.export_files import FORMATS, ExportFile, check_format, export_file
from kbroker.tools.console.record_range import Limits, RecordRange, find_limits, range_of
from kbroker.tools.console.scan import MAX_RECORDS, Budget, Found, every
from kbroker.tools.console.scan_back import latest_per_key
from kbroker.tools.console.streaming import CutShort, Give, LimiterSlot, Streamed

_REMEMBERED: Final = 16
_LONGEST_WORD: Final = 40

_NOT_WHOLE: Final = "a file without it would not be whole: try again, or choose other partitions"


async def export_records(call: Call) -> Json | Response:
    """A file: CSV, Parquet, or JSON lines as ``kbroker consume --json`` writes them.

    With ``check`` there is no file: it is told whether there could be one, which a browser says of no file.
    """
    wanted = range_of(call)
    kind = call.choice("format", tuple(FORMATS), "json")
    name, per_key = wanted.look.topic, call.flag("latest_per_key")
    check_format(kind)

    def check(client: Client) -> None:
        find_limits(client, wanted, find_topic(client, name)).check_whole(name, _NOT_WHOLE)

    # What is wrong is told before the file begins.
    await call.ask(check)
    place = LimiterSlot(call.console.exports, "too many exports are under way: try again in a moment")
    if call.flag("check"):
        place.leave()
        return {"format": kind}
    ending, media = FORMATS[kind]
    word = call.text("export", "")[:_LONGEST_WORD]
    return Streamed(
        lambda give: _told_export(call, word, _export(call, wanted, kind, give, per_key=per_key)),
        media,
        {"Content-Disposition": f'attachment; filename="{name}.{ending}"'},
        close=place.leave,
    )


async def describe_export(call: Call) -> Json:
    """The outcome of an export that was named with ``export``: empty while it is under way, ``done``, or why not.

    It is null if there is no such export, or not yet.
    """
    return {"outcome": call.session.exports.get(call.text("export"))}


async def _told_export(call: Call, word: str, export: Awaitable[None]) -> None:
    """Keep what becomes of an export that has a word: of a file that breaks off a browser says nothing more."""
    if not word:
        await export
        return
    told = call.session.exports
    told.pop(word, None)
    while len(told) >= _REMEMBERED:
        del told[next(iter(told))]
    told[word] = ""
    outcome = "it was broken off"
    try:
        await export
        outcome = "done"
    except ClientError as error:
        outcome = str(error)
        raise CutShort from None
    finally:
        told[word] = outcome


async def _export(call: Call, wanted: RecordRange, kind: str, give: Give, *, per_key: bool) -> None:
    """The file, piece by piece; the thread that reads waits until the browser takes more."""
    make_client = call.view.cluster.make_client

    def run() -> None:
        file = export_file(kind, wanted.look.topic, lambda piece: trio.from_thread.run(give, piece))
        try:
            with make_client() as client:
                _write(client, wanted, file, per_key=per_key)
        except BaseException:
            file.give_up()
            raise

    with call.console.sessions.while_alive(call.session) as scope:
        await trio.to_thread.run_sync(run, limiter=trio.CapacityLimiter(1))
    if scope.cancelled_caught:
        raise CutShort


def _write(client: Client, wanted: RecordRange, file: ExportFile, *, per_key: bool) -> None:
    """All records of a range, to the end of the file; in a thread."""
    name = wanted.look.topic
    limits = find_limits(client, wanted, find_topic(client, name))
    try:
        limits.check_whole(name, _NOT_WHOLE)
    except RequestRefused as refused:
        raise ResponseError(ErrorCode.LEADER_NOT_AVAILABLE, name, str(refused)) from None
    if per_key:
        _every_latest(client, wanted, limits, file.add)
    else:
        every(client, wanted.look, limits.firsts, limits.ends, file.add, trio.from_thread.check_cancelled)
    file.finish()


def _every_latest(
    client: Client,
    wanted: RecordRange,
    limits: Limits,
    write: Callable[[Found], None],
    at_once: int = MAX_RECORDS,
    **bounds: int,
) -> None:
    """The latest of each key, in looks that go on from each other; ``bounds`` are those of `latest_per_key`."""
    before, seen = dict(limits.ends), frozenset[bytes]()
    while True:
        budget = Budget(check=trio.from_thread.check_cancelled)
        page, seen = latest_per_key(client, wanted.look, limits.firsts, before, at_once, budget, seen, **bounds)
        for found in page.records:
            trio.from_thread.check_cancelled()
            write(found)
        before = page.positions
        if page.finished:
            break
    if page.cut:
        raise ResponseError(ErrorCode.INVALID_REQUEST, wanted.look.topic, "; ".join(page.notes))
