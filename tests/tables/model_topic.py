"""A topic in memory, a source of its records, and a target that is killed at a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest

from kbroker.client.errors import ResponseError
from kbroker.client.reader import Chunk, Skipped
from kbroker.errors import ErrorCode, FatalError
from kbroker.tables.plan import Kept, OffsetRange
from kbroker.wire.batch_header import TimestampType
from kbroker.wire.record_batch import Record

pytest.importorskip("deltalake")

from kbroker.tables.delta import DeltaTarget
from kbroker.tables.follower import Follower, Settings
from kbroker.tables.target import DEAD_LETTERS, Merging, TableCommit, TableFacts, Target

TIME = 1_700_000_000_000


@dataclass
class ModelTopic:
    """Records by partition; ``ends`` are behind what no reader sees, such as markers of transactions."""

    name: str = "orders"
    topic_id: str = "AAAAAAAAAAAAAAAAAAAAAQ"
    logs: dict[int, list[Record]] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)

    def append(self, partition: int, *values: bytes | None, gap: int = 0) -> None:
        """Add records; ``gap``: offsets behind them that have none."""
        log = self.logs.setdefault(partition, [])
        self.starts.setdefault(partition, 0)
        end = self.ends.get(partition, 0)
        for offset, value in enumerate(values, end):
            headers = (("h", b"%d" % offset), ("n", None)) if offset % 2 else ()
            log.append(Record(offset, TIME + offset, b"key-%d" % offset if offset % 3 else None, value, headers))
        self.ends[partition] = end + len(values) + gap

    def cut(self, partition: int, offset: int) -> None:
        """Lose the last records, as an election of a replica without them does."""
        self.ends[partition] = offset
        self.logs[partition] = [record for record in self.logs[partition] if record.offset < offset]

    def delete_before(self, partition: int, offset: int) -> None:
        """Take records away, as retention does."""
        self.starts[partition] = offset
        self.logs[partition] = [record for record in self.logs[partition] if record.offset >= offset]


class ModelSource:
    """Reads a model, ``chunk`` records at a time."""

    ends_late = False

    def __init__(self, topic: ModelTopic, chunk: int = 7) -> None:
        self._model = topic
        self._chunk = chunk
        self.topic = topic.name
        self.topic_id = topic.topic_id
        self.positions: dict[int, int] = {}

    def ranges(self) -> dict[int, OffsetRange]:
        if self._model.topic_id != self.topic_id:
            raise FatalError(f"topic {self.topic} was deleted and made anew")
        return {each: OffsetRange(start, self._model.ends.get(each, 0)) for each, start in self._model.starts.items()}

    def begin(self, starts: Mapping[int, int]) -> None:
        self.positions = dict(starts)

    def poll(self, timeout: float) -> list[Chunk | Skipped]:
        for partition, position in self.positions.items():
            start = self._model.starts[partition]
            if position < start:
                self.positions[partition] = start
                return [Skipped(partition, position, start)]
            left = [record for record in self._model.logs[partition] if record.offset >= position]
            if left:
                self.positions[partition] = left[: self._chunk][-1].offset + 1
                return [Chunk(partition, left[: self._chunk], TimestampType.CREATE_TIME)]
            if position > self._model.ends[partition]:
                raise ResponseError(ErrorCode.OFFSET_OUT_OF_RANGE)
            self.positions[partition] = self._model.ends[partition]
        return []

    def oldest(self, positions: Mapping[int, int]) -> int | None:
        return min((TIME + offset for offset in positions.values()), default=None)

    def reached(self, ends: Mapping[int, int]) -> bool:
        return all(self.positions[partition] >= end for partition, end in ends.items() if partition in self.positions)


class Killed(BaseException):
    """Stands for the end of a process: nothing of the follower runs after it."""


class Place(Protocol):
    """A table that is in no directory."""

    def target(self) -> Target: ...

    def rows(self, end: str = "") -> list[dict[str, Any]]:
        """The rows of the table, or of that whose name ends so."""


def target_of(path: Path | Place) -> Target:
    """The table of a path: Iceberg's, if the name says so."""
    if not isinstance(path, Path):
        return path.target()
    if path.name.startswith("iceberg"):
        from kbroker.tables.iceberg import IcebergTarget

        return IcebergTarget(f"lake.{path.name}", f"sqlite:{path.parent / 'catalog.db'}")
    return DeltaTarget(str(path))


class WatchedTarget:
    """A table; ``at`` is called before and after each of its steps, with the number of the moment."""

    def __init__(self, path: Path | Place, at: Callable[[int], None]) -> None:
        self._target = target_of(path)
        self.where = self._target.where
        self.traits = self._target.traits
        self._at = at
        self.moments = 0

    def _step(self, step: Callable[..., None], *arguments: Any) -> None:
        for act in (None, step):
            if act is not None:
                act(*arguments)
            self.moments += 1
            self._at(self.moments)

    def load(self, partitions: Iterable[int]) -> Kept | None:
        return self._target.load(partitions)

    def schema(self) -> Any:
        return self._target.schema()

    def dead_offsets(self, positions: Mapping[int, int]) -> set[tuple[int, int]]:
        return self._target.dead_offsets(positions)

    def create(self, kept: Kept, schema: Any) -> None:
        self._step(self._target.create, kept, schema)

    def adopt(self, topic_id: str, positions: Mapping[int, int]) -> None:
        self._step(self._target.adopt, topic_id, positions)

    def topic(self) -> str | None:
        return self._target.topic()

    def facts(self) -> TableFacts:
        return self._target.facts()

    def maintain(self, keep_hours: int | None = None) -> dict[str, int]:
        return self._target.maintain(keep_hours)

    def clean(self, keep_hours: int | None = None) -> dict[str, int]:
        return self._target.clean(keep_hours)

    def merge_files(self, merging: Merging) -> int:
        return self._target.merge_files(merging)

    def upsert(self, rows: Sequence[Any], positions: Mapping[int, int]) -> None:
        self._step(self._target.upsert, rows, positions)

    def pause(self, *, paused: bool) -> None:
        self._target.pause(paused=paused)

    def is_paused(self) -> bool:
        return self._target.is_paused()

    def commits(self, count: int) -> list[TableCommit]:
        return self._target.commits(count)

    def dead_letters(self) -> Iterator[Any]:
        return self._target.dead_letters()

    def note(self, name: str, text: str | None) -> None:
        self._target.note(name, text)

    def noted(self) -> dict[str, str]:
        return self._target.noted()

    def drop(self) -> int:
        return self._target.drop()

    def add_dead(self, rows: Sequence[Any], positions: Mapping[int, int]) -> None:
        self._step(self._target.add_dead, rows, positions)

    def add(self, rows: Sequence[Any], positions: Mapping[int, int]) -> None:
        self._step(self._target.add, rows, positions)


def follow(
    topic: ModelTopic, path: Path | Place, settings: Settings, at: Callable[[int], None] = lambda moment: None
) -> Follower:
    """Follow to the end of the topic, ``at`` at each moment."""
    follower = Follower(ModelSource(topic), WatchedTarget(path, at), settings)
    follower.run(once=True)
    return follower


def iceberg_rows(name: str, file: Path, **options: str) -> list[dict[str, Any]]:
    """The rows of a table in the catalog of a file, if it is there."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import NoSuchTableError

    from kbroker.tables.iceberg_files import inward

    try:
        rows = SqlCatalog("kbroker", uri=f"sqlite:///{file}", **options).load_table(f"lake.{name}").scan().to_arrow()
    except NoSuchTableError:
        return []
    found: list[dict[str, Any]] = rows.rename_columns(inward(rows.schema).names).to_pylist()
    return found


def rows_in(path: Path | Place) -> list[dict[str, Any]]:
    """The rows of a table, by partition and offset."""
    if not isinstance(path, Path):
        rows = path.rows()
    elif path.name.startswith("iceberg"):
        rows = iceberg_rows(path.name, path.parent / "catalog.db")
    else:
        from deltalake import DeltaTable

        is_there = DeltaTable.is_deltatable(str(path))
        rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist() if is_there else []
    return sorted(rows, key=lambda row: (row["_partition"], row["_offset"]))


def dead_in(path: Path | Place) -> list[dict[str, Any]]:
    """The dead letters beside a table."""
    if not isinstance(path, Path):
        return path.rows(DEAD_LETTERS)
    return rows_in(path.with_name(path.name + DEAD_LETTERS))


def check_once(topic: ModelTopic, path: Path | Place) -> None:
    """Assert that every record is there once, in the table or among the dead letters, with all that it has."""
    rows, dead = rows_in(path), dead_in(path)
    found = sorted((row["_partition"], row["_offset"]) for row in rows + dead)
    wanted = {(partition, record.offset): record for partition, log in sorted(topic.logs.items()) for record in log}
    assert found == sorted(wanted)
    for row in rows + dead:
        record = wanted[row["_partition"], row["_offset"]]
        assert round(row["_timestamp"].timestamp() * 1000) == record.timestamp
        assert row["_key"] == record.key
        assert tuple((each["key"], each["value"]) for each in row["_headers"]) == record.headers
    for row in dead:
        assert row["value"] == wanted[row["_partition"], row["_offset"]].value and row["reason"]
