"""Tables that topics are followed into: their state, one with its columns and commits; paused with ``--writes``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from kbroker.client import Client
from kbroker.client.nodes import cluster_operations
from kbroker.client.records_io.json_types import Json
from kbroker.errors import FatalError
from kbroker.security.authorizer.types import AclOperation
from kbroker.tools.console.call import Call, RequestRefused
from kbroker.tools.console.settings import Tables

T = TypeVar("T")


def _tables(call: Call) -> Tables:
    if call.console.settings.tables is None:
        raise RequestRefused(404, "this console was started without --tables")
    return call.console.settings.tables


def _readable(question: Callable[[Client], T]) -> Callable[[Client], T]:
    """The question, whose errors of tables are told to who asks."""

    def ask(client: Client) -> T:
        try:
            return question(client)
        except FatalError as error:
            raise RequestRefused(409, str(error)) from None

    return ask


async def list_tables(call: Call) -> Json:
    """The tables whose topics the user may see."""
    rows = await call.ask(_readable(_tables(call).states))
    for row in rows:
        row["course"] = [point[1] for point in ((row.get("follower") or {}).pop("course", None) or ())]
    return {"rows": cast(Json, rows)}


async def describe_table(call: Call) -> Json:
    """Tells of a table. Reasons of dead letters quote values: they are left out where the records have masks."""
    tables, place = _tables(call), call.text("to")

    def describe(client: Client) -> dict[str, Any]:
        return tables.describe(place, client)

    told = await call.ask(_readable(describe))
    if call.console.settings.masking(told["topic"]):
        told["last_dead_letters"] = [each | {"reason": None} for each in told.get("last_dead_letters", ())]
    return cast(Json, told)


async def pause_table(call: Call) -> Json:
    """Pause a table, or let it go on. Where users sign in, it is for those who may alter the cluster."""
    tables, place, paused = _tables(call), call.text("to"), call.flag("paused")

    def change(client: Client) -> None:
        if call.console.settings.sign_in and AclOperation.ALTER not in cluster_operations(client):
            raise RequestRefused(403, "to pause tables you have to be allowed to alter the cluster")
        tables.pause(place, paused=paused)

    await call.write("pause-table" if paused else "resume-table", place, None, _readable(change))
    return {"done": f"{place} is paused" if paused else f"{place} goes on"}
