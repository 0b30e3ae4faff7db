"""The state of tables, for people and programs: `list`, `describe`, `pause`, `resume`, `drop`; the console, too."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import ErrorCode, FatalError
from kbroker.tools.cli.output import print_table, size

if TYPE_CHECKING:
    from kbroker.client import Client
    from kbroker.tables.sources import Source
    from kbroker.tables.target import Target
    from kbroker.tools.cli.table_following import Order

_TRIES: Final = 20
_SHOWN_COMMITS: Final = 30


class FollowedTables:
    """The tables of a file. ``read_orders`` reads it anew; the topics are asked for by the client of whoever looks."""

    def __init__(self, read_orders: Callable[[], Sequence[Order]]) -> None:
        self._read_orders = read_orders
        self._dead: dict[str, tuple[int, list[dict[str, Any]]]] = {}
        """Place -> how many dead letters there were, and the last of them."""

    def states(self, client: Client) -> list[dict[str, Any]]:
        """Returns each table's state, or its ``problem``; none of topics that the client's user may not see."""
        found = [self._told(order, client) for order in self._read_orders()]
        return [each for each in found if each.pop("allowed", True)]

    def _told(self, order: Order, client: Client, commits: int = 0) -> dict[str, Any]:
        told: dict[str, Any] = {"topic": order.topic, "to": order.place, "table": order.place, "problem": None}
        try:
            return told | state_of(order.make_target(), client, commits=commits, wanted=order.topic)
        except FatalError as error:
            allowed = getattr(error.__cause__, "code", None) != ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return told | {"problem": str(error), "allowed": allowed}

    def _order(self, place: str) -> Order:
        for order in self._read_orders():
            if order.place == place:
                return order
        raise FatalError(f"no table of the file is {place}")

    def topic_of(self, place: str) -> str:
        """Returns the topic of a table; ``FatalError`` if there is none of that name."""
        return self._order(place).topic

    def describe(self, place: str, client: Client) -> dict[str, Any]:
        """Returns a table's state with its columns, last commits and last dead letters."""
        from kbroker.tables.status import newest_dead_letters

        order = self._order(place)
        told = self._told(order, client, _SHOWN_COMMITS)
        if not told.pop("allowed", True):
            raise FatalError(told["problem"])
        if told["problem"] is None:
            target = order.make_target()
            target.load(())
            told["columns"] = [{"name": each.name, "type": str(each.type)} for each in target.schema()]
            count, last = self._dead.get(place, (0, []))
            if count != told["dead_letters"]:
                last = newest_dead_letters(target.dead_letters())
                self._dead[place] = told["dead_letters"], last
            told["last_dead_letters"] = last
        return told

    def pause(self, place: str, *, paused: bool) -> None:
        """Pause a table, or let it go on; ``FatalError``."""
        pause(self._order(place).make_target(), paused=paused)


def state_of(target: Target, client: Client, *, commits: int = 0, wanted: str | None = None) -> dict[str, Any]:
    """Returns all that is told of a table of a cluster's topic; ``FatalError``."""
    from kbroker.tables.sources import ClusterSource
    from kbroker.tables.status import describe
    from kbroker.tools.cli.common import readable_errors

    with readable_errors():
        return describe(target, lambda topic: ClusterSource(client, topic), commits=commits, wanted=wanted)


def state_in(target: Target, log_dir: str) -> dict[str, Any]:
    """Returns the same of a topic in a log directory."""
    from kbroker.tables.sources import DirectorySource
    from kbroker.tables.status import describe

    def open_source(topic: str) -> Source:
        return DirectorySource(log_dir, topic)

    return describe(target, open_source)


def pause(target: Target, *, paused: bool) -> None:
    """Pause a table for whoever follows it, or let it go on; ``FatalError``."""
    from kbroker.tables.status import topic_of
    from kbroker.tables.target import Conflict

    topic_of(target)
    for _ in range(_TRIES):
        try:
            if target.is_paused() != paused:
                target.pause(paused=paused)
            return
        except Conflict:
            time.sleep(0.1)
    raise FatalError(f"{target.where} has commits all the time: try again")


def drop(target: Target, agree: Callable[[str], bool]) -> int | None:
    """Drop a table; None without agreement, else how many files of others stay. ``FatalError`` while it is followed."""
    from kbroker.tables.status import counted, topic_of

    topic = topic_of(target)
    target.load(())
    _refuse_followed(target)
    facts, was_paused = target.facts(), target.is_paused()
    what = f"{counted(facts.rows, 'rows')} in {counted(facts.files, 'files')} of {size(facts.bytes)}"
    what += f", {counted(facts.dead_letters, 'dead letters')}"
    if not agree(f"Remove {target.where} with {what}, and all its versions? Topic {topic} stays."):
        return None
    pause(target, paused=True)  # who begins to follow it meanwhile adds no rows
    try:
        _refuse_followed(target)
    except FatalError:
        pause(target, paused=was_paused)
        raise
    return target.drop()


def _refuse_followed(target: Target) -> None:
    from kbroker.tables.status import follower_of

    told = follower_of(target)
    if told["runs"]:
        where = f"process {told['follower']['pid']} on {told['follower']['host']}"
        raise FatalError(f"{target.where} is followed by {where}: stop that first")


# --- Printing --------------------------------------------------------------------------------------------------------


def print_list(documents: Sequence[Mapping[str, Any]]) -> None:
    """Print a line for each table."""
    names = ["rows", "dead letters", "files", "version", "lag", "lag s"]
    print_table(
        ["topic", "table", *names, "follower", "problem"],
        [
            [
                each["topic"],
                each["table"],
                *(each.get(name.replace(" ", "_")) for name in names[:-1]),
                _seconds(each.get("lag_seconds")),
                _who(each),
                each["problem"] or _trouble(each),
            ]
            for each in documents
        ],
        numbers=names,
    )


def _who(told: Mapping[str, Any]) -> str:
    if "runs" not in told:
        return ""
    state = "paused" if told["paused"] else told["follower"]["state"] if told["runs"] else "none"
    return f"{state}, {told['follower']['host']} {told['follower']['pid']}" if told["runs"] else state


def _trouble(told: Mapping[str, Any]) -> str:
    """Returns the last error, unless the follower has got over it."""
    is_well = told["runs"] and told["follower"]["state"] == "following"
    return "" if is_well or told["error"] is None else str(told["error"]["text"])


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:,.1f}"


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000).astimezone().isoformat(sep=" ", timespec="seconds")


def print_description(document: Mapping[str, Any]) -> None:
    """Print all of one table."""
    told = dict(document)
    follower, error, partitions = told.pop("follower"), told.pop("error"), told.pop("partitions")
    told |= {"bytes": size(told["bytes"]), "lag_seconds": _seconds(told["lag_seconds"])}
    told |= {"paused": "yes" if told["paused"] else "no", "follower": "none has told"}
    runs = told.pop("runs")
    if follower is not None:
        where = f"process {follower['pid']} on {follower['host']}, {follower['state']}"
        told["follower"] = where if runs else f"none; the last was {where}, {_time(follower['at'])}"
    if error is not None:
        told["last_error"] = f"{error['text']} ({_time(error['at'])})"
    for name, value in told.items():
        print(
            f"{name.replace('_', ' '):<14}{value:,}"
            if isinstance(value, int)
            else f"{name.replace('_', ' '):<14}{value}"
        )
    print()
    columns = ["partition", "next offset", "end", "lag"]
    print_table(columns, [list(each.values()) for each in partitions], numbers=columns)
