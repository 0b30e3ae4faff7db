"""Keeps a table in step with a topic: reads, makes rows, and commits them together with how far they go.

A commit is dead letters first, then the rows. Both carry the next offset of each partition. A follower that ends
between the two leaves dead letters that are ahead of the table: the next one knows those by their offsets, and adds
none twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow

from kbroker.base.collector import paused
from kbroker.client.reader import Chunk, Skipped
from kbroker.tables.json_kinds import parse_kinds
from kbroker.tables.plan import Kept, Lost, OffsetRange, Refused, plan, refused_loss
from kbroker.tables.rows import RECORD_FIELDS, BytesValues, JsonValues, TextValues, Values, kinds_of, lost_row, rows_of
from kbroker.tables.sources import Source
from kbroker.tables.target import Conflict, Target
from kbroker.wire.record_batch import Record

_SHOWN_PARTITIONS: Final = 10
FORMATS = ("bytes", "text", "json")
USUAL_SECONDS = {"delta": 10.0, "iceberg": 60.0}
"""Between commits, by the kind of table. Each commit of Iceberg writes all snapshots that are not expired."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The way in which a table is kept. ``value_format`` None: as the table has it, or bytes."""

    value_format: str | None = None
    declared: str = ""
    """The schema of JSON values, in JSON; without one it is inferred and widened."""
    interval: float = 10.0
    """Seconds between commits."""
    max_bytes: int = 32 << 20
    """Bytes of rows in memory: then they are committed before it is time."""
    batch_records: int = 16_384
    """Records that become rows together."""
    batch_bytes: int = 8 << 20
    accept_loss: bool = False
    new_topic: bool = False


@dataclass(slots=True)
class Progress:
    """Counts of one follower."""

    rows: int = 0
    dead_letters: int = 0
    commits: int = 0
    conflicts: int = 0
    lost: list[Lost] = field(default_factory=list)


class Follower:
    """Follows one topic into one table, until it is told to stop."""

    def __init__(
        self,
        source: Source,
        target: Target,
        settings: Settings,
        tell: Callable[[str], None] = lambda line: None,
        clock: Callable[[], float] = time.monotonic,
        show: Callable[[str], None] = lambda line: None,
        show_seconds: float = 10.0,
    ) -> None:
        """``tell`` gets a line about what a person should know; ``show`` how far it is, at most every so often."""
        self.progress = Progress()
        self._source = source
        self._target = target
        self._settings = settings
        self._tell = tell
        self._clock = clock
        self._show = show
        self._show_seconds = show_seconds
        self._show_due = 0.0
        self._shown_commits = 0
        self._values: Values = BytesValues()
        self._ranges: dict[int, OffsetRange] = {}
        self._committed: dict[int, int] = {}
        self._covered: dict[int, int] = {}
        """Partition -> the offset up to which there are rows in memory, or in the table."""
        self._skip: set[tuple[int, int]] = set()
        self._drop()
        self._due = 0.0

    def _drop(self) -> None:
        self._raw: dict[int, list[Record]] = {}
        self._raw_records = self._raw_bytes = 0
        self._rows: list[pyarrow.RecordBatch] = []
        self._dead: list[pyarrow.RecordBatch] = []
        self._bytes = 0

    # --- Where to go on ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Read the table, or make it, and begin where it ends; ``Refused`` if it cannot go on."""
        while True:
            try:
                self._begin()
                return
            except Conflict:
                self.progress.conflicts += 1

    def _begin(self) -> None:
        source, target, settings = self._source, self._target, self._settings
        self._drop()
        self._ranges = source.ranges()
        kept = target.load(self._ranges)
        planned = plan(
            kept,
            target.where,
            source.topic,
            source.topic_id,
            settings.value_format,
            self._ranges,
            accept_loss=settings.accept_loss,
            new_topic=settings.new_topic,
        )
        if kept is None:
            kept = Kept(
                source.topic, source.topic_id, settings.value_format or FORMATS[0], planned.starts, settings.declared
            )
            self._values = _values_of(kept.value_format, kept.declared, None)
            target.create(kept, pyarrow.schema([*RECORD_FIELDS, *self._values.fields()]))
        else:
            if settings.declared not in ("", kept.declared):
                raise Refused(f"{target.where} has another schema: leave out --schema, or name another place")
            self._values = _values_of(kept.value_format, kept.declared, target.schema())
            _check_columns(target.where, target.schema(), self._values)
            if kept.topic_id != source.topic_id:
                target.adopt(source.topic_id, planned.starts)
                kept = Kept(kept.topic, source.topic_id, kept.value_format, planned.starts, kept.declared)
        self._committed = {each: kept.positions[each] for each in planned.starts if each in kept.positions}
        self._skip = target.dead_offsets(self._committed)
        self._covered = dict(planned.starts)
        for lost in planned.lost:
            self._note(lost)
        source.begin(planned.starts)
        self._due = self._clock() + settings.interval

    def _note(self, lost: Lost) -> None:
        self.progress.lost.append(lost)
        self._tell(str(lost))
        if (lost.partition, lost.first) not in self._skip:
            self._dead.append(lost_row(lost))

    # --- The loop ----------------------------------------------------------------------------------------------------

    def run(self, *, once: bool, stop: Callable[[], bool] = lambda: False, wait: float = 0.5) -> None:
        """Follow until ``stop``; with ``once`` until the table has what the topic had at the beginning."""
        self.begin()
        self._show(self._beginning())
        ends = {partition: each.end for partition, each in self._ranges.items()}
        told = False
        while not stop():
            try:
                with paused():  # records are freed by their reference counts
                    came = self._source.poll(wait)
                    for each in came:
                        self._take(each)
                is_done = once and not came and self._source.reached(ends)
                if is_done or self._clock() >= self._due:
                    self.flush()
                self._show_commits()
                if is_done:
                    return
            except Conflict:
                self.progress.conflicts += 1
                if not told:
                    where = f"{self._source.topic} into {self._target.where}"
                    self._tell(f"somebody else follows {where}, too, or its store did a commit and did not say so")
                told = True
                self.begin()
        self._finish()

    def _beginning(self) -> str:
        goes_on = [f"{partition} from {offset}" for partition, offset in sorted(self._covered.items())]
        more = f" and {len(goes_on) - _SHOWN_PARTITIONS} more" if len(goes_on) > _SHOWN_PARTITIONS else ""
        where = f"{self._source.topic} to {self._target.where}"
        return f"following {where}: partitions {', '.join(goes_on[:_SHOWN_PARTITIONS])}{more}"

    def _show_commits(self) -> None:
        progress, now = self.progress, self._clock()
        if progress.commits > self._shown_commits and now >= self._show_due:
            self._shown_commits, self._show_due = progress.commits, now + self._show_seconds
            dead = f", {progress.dead_letters:,} dead letters" if progress.dead_letters else ""
            where = f"{self._source.topic} to {self._target.where}"
            self._show(f"{progress.rows:,} rows{dead} of {where}, lag {sum(self.lag.values()):,}")

    def _finish(self) -> None:
        """Commit what is there; another follower may have done it."""
        try:
            self.flush()
        except Conflict:
            self.progress.conflicts += 1

    def _take(self, came: Chunk | Skipped) -> None:
        partition = came.partition
        if isinstance(came, Skipped):
            self._convert_all()
            lost = Lost(partition, came.wanted, came.start)
            if not self._settings.accept_loss:
                self._commit(self._covered)
                raise refused_loss(lost)
            self._note(lost)
            self._covered[partition] = came.start
            return
        records = came.records
        self._raw.setdefault(partition, []).extend(records)
        self._raw_records += len(records)
        self._raw_bytes += sum([len(record.value) for record in records if record.value is not None])
        if self._raw_records >= self._settings.batch_records or self._raw_bytes >= self._settings.batch_bytes:
            self._convert_all()
            if self._bytes >= self._settings.max_bytes:
                self._commit(self._covered)

    def _convert_all(self) -> None:
        self._values.learn(record.value for records in self._raw.values() for record in records)
        for partition in list(self._raw):
            self._convert(partition)
        self._raw_records = self._raw_bytes = 0

    def _convert(self, partition: int) -> None:
        """Make rows of a partition's records; those in memory are committed first if the new ones have more columns."""
        records = self._raw.pop(partition, [])
        if not records:
            return
        end = records[-1].offset + 1
        if self._skip:
            records = [record for record in records if (partition, record.offset) not in self._skip]
        if records:
            rows, dead = rows_of(partition, records, self._values)
            if self._rows and self._rows[0].schema != rows.schema:
                self._commit(self._covered)
            if rows.num_rows:
                self._rows.append(rows)
                self._bytes += rows.nbytes
            if dead is not None:
                self._dead.append(dead)
                self._bytes += dead.nbytes
        self._covered[partition] = end

    def flush(self) -> None:
        """Commit all that was read; ``Conflict``."""
        self._convert_all()
        self._covered = dict(self._source.positions)
        self._commit(self._covered)
        self._ranges = self._source.ranges()
        new = {partition: 0 for partition in self._ranges if partition not in self._covered}
        if new:  # partitions that were added
            self._covered |= new
            self._source.begin(self._covered)

    def _commit(self, positions: Mapping[int, int]) -> None:
        self._due = self._clock() + self._settings.interval
        moved = {each: end for each, end in positions.items() if self._committed.get(each) != end}
        if not moved:
            return
        self._ranges = self._source.ranges()  # the topic is still the one whose records were read
        if self._dead:
            self._target.add_dead(self._dead, moved)
            self.progress.dead_letters += sum(each.num_rows for each in self._dead)
            self._dead = []
        self._target.add(self._rows, moved)
        self.progress.rows += sum(each.num_rows for each in self._rows)
        self.progress.commits += 1
        self._rows, self._bytes = [], 0
        self._committed |= moved

    @property
    def lag(self) -> dict[int, int]:
        """Partition -> offsets that the topic had at the last commit, and the table had not."""
        return {each: max(end - self._committed.get(each, 0), 0) for each, (_, end) in self._ranges.items()}


def _values_of(value_format: str, declared: str, schema: pyarrow.Schema | None) -> Values:
    if value_format == "text":
        return TextValues()
    if value_format != "json":
        return BytesValues()
    if declared:
        return JsonValues(parse_kinds(declared.encode()), declared=True)
    return JsonValues({} if schema is None else kinds_of(schema)[0])


def _check_columns(where: str, schema: pyarrow.Schema, values: Values) -> None:
    """``Refused`` if the columns of a table are not those that rows have; others beside them may be null."""
    for wanted in (*RECORD_FIELDS, *values.fields()):
        index = schema.get_field_index(wanted.name)
        if index < 0 or schema.field(index).type != wanted.type:
            found = "gone" if index < 0 else f"{schema.field(index).type} where it was {wanted.type}"
            raise Refused(
                f"somebody has changed the columns of {where}: {wanted.name} is {found}; change it back, or name"
                " another place"
            )
    known = {each.name for each in (*RECORD_FIELDS, *values.fields())}
    for each in schema:
        if each.name not in known and not each.nullable:
            raise Refused(f"somebody has added {each.name} to {where}, which may not be null: let it be null")
