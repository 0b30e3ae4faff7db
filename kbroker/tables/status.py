"""A table's state for people: what its follower tells beside the table, and what table and topic say themselves.

Each follower writes a small file beside its table's rows, now and then and where the table is, so that whoever sees
the table sees its followers, too. After a kill nobody writes on: a follower that has not told for a while is taken
for gone.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

import pyarrow
import pyarrow.compute

from kbroker.errors import FatalError
from kbroker.tables.plan import Kept, OffsetRange
from kbroker.tables.sources import Source
from kbroker.tables.target import Conflict, Target

BEAT_SECONDS: Final = 10.0
"""Between two files of a follower. One that has not told for three times as long is gone."""
_POINTS: Final = 180
_SHOWN: Final = 20


def counted(count: int, what: str) -> str:
    """Returns a number of what is named in the plural: ``1 row``, ``2 files of others``."""
    return f"{count:,} " + (re.sub(r"s\b", "", what, count=1) if count == 1 else what)


def now_ms() -> int:
    """Returns the time, in Kafka's milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Status:
    """The state of a follower. Times are in milliseconds since 1970."""

    topic: str = ""
    table: str = ""
    state: str = "following"
    """Or ``paused``, ``trying again`` after an error, ``ended``."""
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    started: int = field(default_factory=now_ms)
    at: int = 0
    """The time at which this was told."""
    lag: int = 0
    seconds: float | None = None
    """The age of the oldest record that the table has not, once one was read."""
    rows: int = 0
    commits: int = 0
    dead_letters: int = 0
    errors: int = 0
    error: str = ""
    """The last one."""
    error_at: int = 0
    course: list[tuple[int, int, float | None]] = field(default_factory=list)
    """Of the lag: time, records, seconds."""

    def text(self) -> str:
        """Returns it as JSON, by which `read_statuses` makes it again."""
        return json.dumps(asdict(self))

    @property
    def name(self) -> str:
        """The name of its file: where two follow a table, neither hides the other."""
        return f"follower-{self.host}-{self.pid}.json"

    def note_lag(self, lag: int, seconds: float | None) -> None:
        """Note how far the table is behind, now."""
        self.at, self.lag, self.seconds = now_ms(), lag, seconds
        self.course = [*self.course[1 - _POINTS :], (self.at, lag, seconds)]

    def failed(self, error: str) -> None:
        """Note an error after which it is tried again."""
        self.at = self.error_at = now_ms()
        self.state, self.error = "trying again", error
        self.errors += 1

    def runs(self) -> bool:
        """Whether the follower is there, as far as it has told."""
        if self.state == "ended" or now_ms() - self.at > 3000 * BEAT_SECONDS:
            return False
        if self.host != socket.gethostname():
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:  # another user's
            pass
        return True


def write_status(target: Target, status: Status) -> None:
    """Write it beside the table, if there is one: nothing depends on it."""
    with suppress(FatalError, Conflict):
        target.note(status.name, status.text())


def read_statuses(target: Target) -> dict[str, Status]:
    """Returns what followers have told, by the names of their files: those that run first, the latest of them first."""
    found: dict[str, Status] = {}
    known = {each.name for each in fields(Status)}
    for file, text in target.noted().items():
        with suppress(AttributeError, TypeError, ValueError):
            found[file] = Status(**{name: value for name, value in json.loads(text).items() if name in known})
    return dict(sorted(found.items(), key=lambda each: (each[1].runs(), each[1].at), reverse=True))


def forget_gone(target: Target) -> None:
    """Remove what those have told that follow the table no more."""
    with suppress(FatalError, Conflict):
        for file, status in read_statuses(target).items():
            if not status.runs():
                target.note(file, None)


def topic_of(target: Target, how: str = "") -> str:
    """Returns the topic of a table that kbroker made; ``FatalError`` without one, that says ``how`` to go on."""
    topic = target.topic()
    if topic is None:
        raise FatalError(f"there is no table in {target.where} that kbroker made{how}")
    return topic


def positions_of(kept: Kept, ranges: dict[int, OffsetRange]) -> list[dict[str, int]]:
    """Returns each partition's next offset, end and lag."""
    rows = []
    for partition, (start, end) in sorted(ranges.items()):
        position = max(kept.positions.get(partition, start), start)
        rows.append({"partition": partition, "next_offset": position, "end_offset": end, "lag": max(end - position, 0)})
    return rows


def describe(
    target: Target, open_source: Callable[[str], Source], *, commits: int = 0, wanted: str | None = None
) -> dict[str, Any]:
    """Returns all that is told of a table; ``FatalError`` without one, or without its topic, which is ``wanted``.

    ``commits``: so many of the last ones are told, too.
    """
    try:
        topic = topic_of(target)
    except FatalError:
        if wanted is not None:
            open_source(wanted)  # that it is not there is the reason
        raise
    source = open_source(topic)
    ranges = source.ranges()
    kept = target.load(ranges)
    assert kept is not None
    if kept.topic_id != source.topic_id:
        raise FatalError(f"topic {topic} was deleted and made anew since {target.where} was written")
    partitions = positions_of(kept, ranges)
    behind = {each["partition"]: each["next_offset"] for each in partitions if each["lag"]}
    oldest = source.oldest(behind) if behind else None
    told: dict[str, Any] = {
        "table": target.where,
        "topic": topic,
        "value": kept.value_format,
        **{name.removeprefix("kbroker.").replace("-", "_"): text for name, text in kept.layout.items()},
        **({"way": kept.way} if kept.way else {}),
        **target.facts()._asdict(),
        "lag": sum(each["lag"] for each in partitions),
        "lag_seconds": 0.0 if not behind else None if oldest is None else max(now_ms() - oldest, 0) / 1000,
        "paused": kept.paused,
        **follower_of(target),
        "partitions": partitions,
    }
    if commits:
        told["commits"] = [each._asdict() for each in target.commits(commits)]
    return told


def follower_of(target: Target) -> dict[str, Any]:
    """Returns who follows a table and where, and the last error."""
    status = next(iter(read_statuses(target).values()), None)
    if status is None:
        return {"runs": False, "follower": None, "error": None}
    error = {"text": status.error, "at": status.error_at} if status.error else None
    told = asdict(status)
    return {"runs": status.runs(), "follower": told, "error": error}


def newest_dead_letters(batches: Iterable[pyarrow.RecordBatch], count: int = _SHOWN) -> list[dict[str, Any]]:
    """Returns the last of some dead letters, by time: of many of them few are in memory."""
    best: pyarrow.Table | None = None
    for batch in batches:
        found = pyarrow.Table.from_batches([batch])
        found = found if best is None else pyarrow.concat_tables([best, found])
        best = found.take(
            pyarrow.compute.select_k_unstable(found, count, [("_timestamp", "descending"), ("_offset", "descending")])
        )
    rows: list[dict[str, Any]] = [] if best is None else best.to_pylist()
    for row in rows:
        at = row.pop("_timestamp")
        row["at"] = None if at is None else round(at.timestamp() * 1000)
    return rows
