"""Copies into a topic, with ``--writes``: begun, asked for, cancelled; they belong to the session, not to a page."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from kbroker.client import Client
from kbroker.client.records_io.json_types import Json
from kbroker.tools.console.api.copy_steps import ImportOrder, ReplayOrder
from kbroker.tools.console.api.uploads import keep_piece, upload_of
from kbroker.tools.console.call import Call, RequestRefused, error_answer
from kbroker.tools.console.copies import (
    MOST_OPEN,
    MOST_OWN,
    AnyCopy,
    CopyContext,
    Defect,
    ImportCopy,
    Outcome,
    ReplayCopy,
)
from kbroker.tools.console.export_files import check_format
from kbroker.tools.console.record_range import range_of

logger = logging.getLogger(__name__)

_LONGEST_NAME: Final = 255
"""Characters of a file's name that are remembered."""


async def list_copies(call: Call) -> Json:
    """The session's copies, and how far each is."""
    _ = call.view
    found = call.console.copies.of(call.session.id)
    for copy in found:
        copy.seen()
    return {"rows": [copy.view() for copy in found]}


async def begin_replay(call: Call) -> Json:
    """Begin to send the records that fit to another topic. What has to be refused is, before anything is sent."""
    wanted = range_of(call)
    to, topic = call.text("to"), wanted.look.topic
    if wanted.look.masking:
        raise RequestRefused(403, f"parts of {topic} are masked here: in another topic they might be seen")
    # No log has what somebody looks for.
    details: Json = {"from": topic, "filtered": wanted.look.fits is not None}
    copy = ReplayCopy(
        ReplayOrder(wanted, to, call.flag("keep_partitions")),
        topic,
        to,
        _context(call, "replay", to, details),
        while_alive=lambda: call.console.sessions.while_alive(call.session),
        ends_unwatched=call.flag("ends_unwatched"),
    )
    _add(call, copy, "replay", details)
    copy.go_on()
    await copy.settled.wait()
    if copy.failure is not None:
        call.console.copies.forget(call.session.id, copy)
        raise copy.failure
    return copy.view()


async def begin_import(call: Call) -> Json:
    """Begin to store the records of a file, whose pieces come by ``store_piece``."""
    to, kind = call.text("topic"), call.choice("format", ("csv", "jsonl", "parquet"), "jsonl")
    name, size = call.text("name", "")[:_LONGEST_NAME], call.number("size", 0)
    details: Json = {"file": name, "bytes": size, "format": kind}
    call.refuse_read_only("import", to, details)
    check_format(kind)
    await call.ask(lambda client: client.partitions_of(to))
    order = ImportOrder(to, kind, call.flag("keep_partitions"))
    copy = ImportCopy(order, name, size, kind, to, _context(call, "import", to, details))
    _add(call, copy, "import", details)
    return copy.view()


def _context(call: Call, action: str, to: str, details: Json) -> CopyContext:
    """The console as a copy knows it that the session's user begins."""
    cluster, limiter = call.view.cluster, call.console.copies.threads

    async def ask(question: Callable[[Client], Outcome]) -> Outcome:
        try:
            return await cluster.ask(question, limiter)
        except Exception as error:
            if error_answer(error) is not None:
                raise
            raise Defect(_text_of(error)) from error

    return CopyContext(ask, partial(call.audit, action, to, details), _text_of)


def _text_of(error: Exception) -> str:
    if isinstance(error, Defect) or error_answer(error) is not None:
        return str(error)
    logger.error("a copy failed unexpectedly", exc_info=error)
    return "the console failed unexpectedly; its log says more"


def _add(call: Call, copy: AnyCopy, action: str, details: Json) -> None:
    call.refuse_read_only(action, copy.to, details)
    if not call.console.sessions.lives(call.session):
        raise RequestRefused(401, "sign in first")
    if not call.console.copies.add(call.session.id, copy):
        raise RequestRefused(429, f"{MOST_OWN} copies of yours are open, or {MOST_OPEN} of all: cancel one, or wait")
    call.audit(action, copy.to, details, "begun")


def _copy_of(call: Call) -> AnyCopy:
    _ = call.view
    copy = call.console.copies.find(call.session.id, call.text("id"))
    if copy is None:
        raise RequestRefused(404, "there is no such copy")
    copy.seen()
    return copy


def _import_of(call: Call) -> ImportCopy:
    copy = _copy_of(call)
    if not isinstance(copy, ImportCopy):
        raise RequestRefused(400, "this copy takes no file")
    return copy


async def upload_piece(call: Call) -> Json:
    """Keep a piece of the file of an import that has to be whole before its rows are stored."""
    call.refuse_read_only("upload", call.text("id", ""), None)
    copy = _import_of(call)
    if copy.format != "parquet":
        raise RequestRefused(400, "the file of this import comes by pieces of whole records")
    if copy.is_over:
        raise RequestRefused(409, f"the import is {copy.state.value}")
    return await keep_piece(call, copy)


async def store_piece(call: Call) -> Json:
    """Store a piece of a file, the ``number``-th from 0; one that is stored already is passed over.

    ``last``: there are no more, and the import is done. Of Parquet a piece is rows of the file that was uploaded, those
    that come next, and with the last of them the import is done.
    """
    copy = _import_of(call)
    number = call.number("number")
    if number > copy.pieces:
        raise RequestRefused(409, f"piece {copy.pieces} of the file comes next")
    if number == copy.pieces:
        if copy.format == "parquet":
            if not copy.is_over:
                await copy.store_rows(upload_of(copy))
        elif call.flag("last"):
            copy.finish()
        else:
            await copy.store(call.text("text"), call.number("shift", 0))
    return copy.view()


async def go_on(call: Call) -> Json:
    """Go on with a copy that has failed, from where it has stopped. ``may_double`` tells what may be stored twice."""
    copy = _copy_of(call)
    copy.go_on()
    return copy.view()


async def cancel(call: Call) -> Json:
    """End a copy; what it has stored stays."""
    copy = _copy_of(call)
    copy.cancel()
    return copy.view()


async def forget(call: Call) -> Json:
    """Tell no more of a copy that is over."""
    copy = _copy_of(call)
    if not copy.is_over:
        raise RequestRefused(409, "it is not over: cancel it first")
    call.console.copies.forget(call.session.id, copy)
    return {}
