"""Keeps a table in step with a topic: reads, makes rows, and commits them together with how far they go.

A commit is dead letters first, then the rows. Both carry the next offset of each partition. A follower that ends
between the two leaves dead letters that are ahead of the table: the next one knows those by their offsets, and adds
none twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow

from kbroker.base.collector import paused
from kbroker.client.errors import ResponseError
from kbroker.client.reader import Chunk, Skipped
from kbroker.client.schemas.registry import SchemaRegistry
from kbroker.errors import ErrorCode, FatalError
from kbroker.tables.formats import FORMATS, REGISTERED, values_of
from kbroker.tables.layout import Layout
from kbroker.tables.plan import Cut, Kept, Lost, NotYet, OffsetRange, Refused, plan, refused_loss
from kbroker.tables.rows import RECORD_FIELDS, BytesValues, Values, lost_row, rows_of
from kbroker.tables.sources import Source
from kbroker.tables.status import BEAT_SECONDS, Status, counted, forget_gone, now_ms, write_status
from kbroker.tables.target import Conflict, Merging, Target
from kbroker.tables.upserts import DEBEZIUM, ENVELOPES, UPSERT, latest
from kbroker.wire.record_batch import Record

_SHOWN_PARTITIONS: Final = 10
_CLEAN_SECONDS: Final = 3600.0
_SAMPLE: Final = 1000
"""Values that tell the columns of a new table well enough not to wait for more."""
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
    layout: Layout = field(default_factory=Layout)
    registry: SchemaRegistry | None = None
    """The registry that has the schemas of values."""
    upsert: bool = False
    """Whether the table has the latest row of each key."""
    changes: str | None = None
    """``debezium``: values are its envelopes, which are applied by key."""
    merging: Merging | None = field(default_factory=Merging)
    """When small files are merged; never without it."""
    keep_hours: int | None = None
    """Versions of the table that stay; as the table says, or a week."""

    def __post_init__(self) -> None:
        """``ValueError`` for settings that do not go together."""
        if self.changes not in (None, DEBEZIUM):
            raise ValueError(f"--changes is {DEBEZIUM}")
        if self.changes and self.value_format not in (None, *ENVELOPES):
            raise ValueError(f"--changes {DEBEZIUM} is of values that are {', '.join(ENVELOPES)}")

    @property
    def way(self) -> str:
        """The way in which the table is kept by key; empty if that is not said."""
        return DEBEZIUM if self.changes else UPSERT if self.upsert else ""


@dataclass(slots=True)
class Progress:
    """Counts of one follower."""

    rows: int = 0
    dead_letters: int = 0
    commits: int = 0
    conflicts: int = 0
    merged_files: int = 0
    lost: list[Lost] = field(default_factory=list)

    def __str__(self) -> str:
        dead = f", {counted(self.dead_letters, 'dead letters')}" if self.dead_letters else ""
        return counted(self.rows, "rows") + dead


class _Paused(Conflict):
    """Somebody has paused the table."""


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
        status: Status | None = None,
        beat: Callable[[Status], None] = lambda status: None,
    ) -> None:
        """``tell`` gets a line about what a person should know; ``show`` how far it is, at most every so often.

        ``status`` is kept up to date, written beside the table, and handed to ``beat``, every `BEAT_SECONDS`.
        """
        self.progress = Progress()
        self.status = Status() if status is None else status
        self.status.topic, self.status.table = source.topic, self.status.table or target.where
        self._beat = beat
        self._beat_due = 0.0
        self._waits: dict[int, int] = {}
        """Partition -> the timestamp of the first record that was read and is not in the table."""
        self._newest: dict[int, int] = {}
        """Partition -> the timestamp of the last record that was read."""
        self._paused = False
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
        self._way = ""
        self._drop()
        self._due = 0.0
        self._unmerged = 0
        self._clean_due = clock() + _CLEAN_SECONDS

    def _drop(self) -> None:
        self._raw: dict[int, list[Record]] = {}
        self._raw_records = self._raw_bytes = 0
        self._rows: list[pyarrow.RecordBatch] = []
        self._row_count = 0
        self._dead: list[pyarrow.RecordBatch] = []
        self._bytes = 0
        self._waits = {}

    # --- Where to go on ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Read the table, or make it, and begin where it ends; ``Refused`` if it cannot go on."""
        while True:
            try:
                self._begin()
                return
            except Conflict:
                self.progress.conflicts += 1
            except Cut:
                if not self._source.ends_late:
                    self._pause()
                raise

    def _pause(self) -> None:
        """Pause the table, so that nobody goes on with it without a person."""
        while not self._target.is_paused():
            with suppress(Conflict):
                self._target.pause(paused=True)

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
            way=settings.way,
        )
        if kept is None:
            value_format = settings.value_format or ("json" if settings.changes else FORMATS[0])
            kept = Kept(
                source.topic,
                source.topic_id,
                value_format,
                planned.starts,
                settings.declared,
                settings.layout.properties,
                settings.way,
            )
            self._values = values_of(kept, None, target, settings.registry)
            target.create(kept, self._first_schema(planned.starts))
        else:
            if settings.declared not in ("", kept.declared):
                raise Refused(f"{target.where} has another schema: leave out --schema, or name another place")
            settings.layout.check(Layout.of(kept.layout), target.where)
            self._values = values_of(kept, target.schema(), target, settings.registry)
            _check_columns(target.where, target.schema(), self._values)
            if kept.topic_id != source.topic_id:
                target.adopt(source.topic_id, planned.starts)
                kept = replace(kept, topic_id=source.topic_id, positions=planned.starts)
        self._way, self._paused = kept.way, kept.paused
        self._committed = {each: kept.positions[each] for each in planned.starts if each in kept.positions}
        self._skip = target.dead_offsets(self._committed)
        self._covered = dict(planned.starts)
        for lost in planned.lost:
            self._note(lost)
        source.begin(planned.starts)
        self._due = self._clock() + settings.interval

    def _first_schema(self, starts: Mapping[int, int]) -> pyarrow.Schema:
        """The columns of a new table: those that its layout names are those of the first values."""
        layout, values, source = self._settings.layout, self._values, self._source
        ends = {partition: each.end for partition, each in self._ranges.items()}
        read, has_begun = 0, False
        while (name := layout.missing(schema := pyarrow.schema([*RECORD_FIELDS, *values.fields()]))) is not None:
            if not has_begun:
                source.begin(starts)
                has_begun = True
            came = source.poll(0.5)
            records = [record for each in came if isinstance(each, Chunk) for record in each.records]
            if records:
                values.learn(record.value for record in records)
                values.columns([record.value for record in records], [record.headers for record in records])
            elif not came and source.reached(ends) and not read:
                raise NotYet(f"topic {source.topic} has no value yet that tells what {name} is")
            elif read >= self._settings.batch_records or (not came and source.reached(ends)):
                raise Refused(
                    f"topic {source.topic} has no {name} in its first {counted(read, 'values')}: name another field"
                )
            read += len(records)
        layout.check_columns(schema)
        return schema

    def _note(self, lost: Lost) -> None:
        self.progress.lost.append(lost)
        self._tell(str(lost))
        if (lost.partition, lost.first) not in self._skip:
            self._dead.append(lost_row(lost))

    # --- The loop ----------------------------------------------------------------------------------------------------

    def run(self, *, once: bool, stop: Callable[[], bool] = lambda: False, wait: float = 0.5) -> None:
        """Follow until ``stop``; with ``once`` until the table has what the topic had at the beginning."""
        self.begin()
        if self._paused and once:
            raise self._refuse()
        forget_gone(self._target)
        self._show(self._beginning())
        ends = {partition: each.end for partition, each in self._ranges.items()}
        told = False
        while not stop():
            self._tell_status()
            try:
                if self._paused:
                    self._await_resume(wait)
                    continue
                with paused():  # records are freed by their reference counts
                    came = self._source.poll(wait)
                    for each in came:
                        self._take(each)
                is_done = once and not came and self._source.reached(ends)
                if is_done or self._clock() >= self._due or self._may_begin(ends):
                    self.flush()
                self._show_commits()
                if is_done:
                    self._tell_status("ended")
                    return
            except Conflict as error:
                self.progress.conflicts += not isinstance(error, _Paused)
                self.begin()
                if self._paused and once:
                    raise self._refuse() from None
                if self._paused:
                    self._tell(f"{self._target.where} is paused")
                elif not told and not isinstance(error, _Paused):
                    others = (
                        "another follower or maintenance commits, too, or its store did a commit and did not say so"
                    )
                    self._tell(f"{self._target.where}: {others}")
                    told = True
            except ResponseError as error:
                if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:  # the topic may be longer again when it is tried again
                    self.begin()
                raise
        if not self._paused:
            self._finish()
        self._tell_status("ended")

    def _may_begin(self, ends: Mapping[int, int]) -> bool:
        """Whether the first commit needs not wait: all is read that the topic had, and it tells the columns."""
        positions, read = self._source.positions, self._row_count + self._raw_records
        if not read or self.progress.commits or any(positions.get(each, end) < end for each, end in ends.items()):
            return False
        return read >= _SAMPLE or bool(self._values.fields())

    def _refuse(self) -> Refused:
        return Refused(f"{self._target.where} is paused: kbroker table resume lets rows in again")

    def _await_resume(self, wait: float) -> None:
        """Wait a moment, and begin again once nobody has the table paused any more."""
        time.sleep(wait)
        if self._clock() >= self._due:
            self._due = self._clock() + self._settings.interval
            if not self._target.is_paused():
                self.begin()
                self._tell(f"{self._target.where} goes on")

    def _tell_status(self, state: str = "") -> None:
        """Write how it is beside the table, if it is time."""
        if not state and self._clock() < self._beat_due:
            return
        self._beat_due = self._clock() + BEAT_SECONDS
        status, progress = self.status, self.progress
        status.state = state or ("paused" if self._paused else "following")
        status.rows, status.commits, status.dead_letters = progress.rows, progress.commits, progress.dead_letters
        lags = self.lag
        for partition, position in self._covered.items():  # those that were read since the last look, too
            lags[partition] = max(lags.get(partition, 0), position - self._committed.get(partition, 0))
        waits = [self._waits.get(each, self._newest.get(each, -1)) for each, lag in lags.items() if lag]
        oldest = min((each for each in waits if each >= 0), default=None)
        age = None if oldest is None else max(now_ms() - oldest, 0) / 1000
        status.note_lag(sum(lags.values()), age if any(lags.values()) else 0.0)
        write_status(self._target, status)
        self._beat(status)

    def _beginning(self) -> str:
        goes_on = [f"{partition} from {offset}" for partition, offset in sorted(self._covered.items())]
        more = f" and {len(goes_on) - _SHOWN_PARTITIONS} more" if len(goes_on) > _SHOWN_PARTITIONS else ""
        where = f"{self._source.topic} to {self._target.where}"
        return f"following {where}: partitions {', '.join(goes_on[:_SHOWN_PARTITIONS])}{more}"

    def _show_commits(self) -> None:
        progress, now = self.progress, self._clock()
        if progress.commits > self._shown_commits and now >= self._show_due:
            self._shown_commits, self._show_due = progress.commits, now + self._show_seconds
            where = f"{self._source.topic} to {self._target.where}"
            self._show(f"{progress} of {where}, lag {sum(self.lag.values()):,}")

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
        self._waits.setdefault(partition, records[0].timestamp)
        self._newest[partition] = records[-1].timestamp
        self._raw.setdefault(partition, []).extend(records)
        self._raw_records += len(records)
        self._raw_bytes += sum([len(record.value) for record in records if record.value is not None])
        if self._raw_records >= self._settings.batch_records or self._raw_bytes >= self._settings.batch_bytes:
            self._convert_all()
            if self._bytes >= self._settings.max_bytes and not self._leave_latest():
                self._commit(self._covered)

    def _leave_latest(self) -> bool:
        """Leave the latest row of each key in memory, if the table is kept by key; whether much became free."""
        if not self._way or not self._rows:
            return False
        self._bytes -= sum(each.nbytes for each in self._rows)
        self._rows = latest(self._rows).to_batches()
        self._bytes += sum(each.nbytes for each in self._rows)
        return self._bytes < self._settings.max_bytes // 2

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
            rows, dead = rows_of(partition, records, self._values, keyed=bool(self._way))
            if self._rows and self._rows[0].schema != rows.schema:
                self._commit(self._covered)
            if rows.num_rows:
                self._rows.append(rows)
                self._row_count += rows.num_rows
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
            if self._target.is_paused():  # a commit would have been refused
                raise _Paused
            return
        self._ranges = self._source.ranges()  # the topic is still the one whose records were read
        if self._dead:
            self._target.add_dead(self._dead, moved)
            self._hint_at_registry()
            self.progress.dead_letters += sum(each.num_rows for each in self._dead)
            self._dead = []
        put = self._target.upsert if self._way else self._target.add
        put(self._rows, moved)
        self.progress.rows += self._row_count
        self.progress.commits += 1
        self._rows, self._row_count, self._bytes = [], 0, 0
        self._committed |= moved
        for partition, end in moved.items():
            if end >= self._source.positions.get(partition, end):
                self._waits.pop(partition, None)
        self._tend()

    def _hint_at_registry(self) -> None:
        """Say what values may be that are dead letters all of them, from the first on."""
        if self._row_count or self.progress.rows or self.progress.dead_letters or self._values.name in REGISTERED:
            return
        values = [value for each in self._dead for value in each.column("value").to_pylist() if value is not None]
        if values and all(value[:1] == b"\0" for value in values):
            self._tell(
                "all values so far begin with the byte 0, as those of a schema registry do: follow the topic into"
                f" another table with --value {', '.join(REGISTERED[:-1])} or {REGISTERED[-1]}, and --registry URL"
            )

    def _tend(self) -> None:
        """Merge small files and clean, now and then; what cannot be done is told, and done another time."""
        merging, now = self._settings.merging, self._clock()
        if merging is None:
            return
        try:
            if self._unmerged <= 0:
                self.progress.merged_files += self._target.merge_files(merging)
                self._unmerged = max(merging.fewest // 2, 1)
            self._unmerged -= 1
            if now >= self._clean_due:
                self._clean_due = now + _CLEAN_SECONDS
                self._target.clean(self._settings.keep_hours)
        except (Conflict, FatalError) as error:
            self._unmerged = merging.fewest
            self._tell(f"{error}: its files are left as they are for now")

    @property
    def lag(self) -> dict[int, int]:
        """Partition -> offsets that the topic had at the last commit, and the table had not."""
        return {each: max(end - self._committed.get(each, 0), 0) for each, (_, end) in self._ranges.items()}


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
