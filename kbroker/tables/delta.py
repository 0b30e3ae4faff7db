"""A table in Delta's format, written by the package ``deltalake``.

The next offset of a partition is the version of a transaction identifier (``txn``) that is named after the topic's id
and the partition. Delta refuses a commit if an identifier in it has got another version since the table was read, so of
two followers of a partition one commits, and the other reads the table again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pyarrow
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    QueryBuilder,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake._internal import DeltaFileSystemHandler
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from pyarrow.fs import FileType

from kbroker.errors import FatalError
from kbroker.tables.layout import TOPIC, TOPIC_ID, Layout, kept_of, properties_of
from kbroker.tables.plan import Kept, Refused
from kbroker.tables.rows import CHANGE, DELETE, TOPIC_ID_FIELD, plain_schema, widens
from kbroker.tables.stores import StoreOptions
from kbroker.tables.target import (
    DEAD_COLUMNS,
    DEAD_LETTERS,
    NO_TRAITS,
    NOTE,
    NOTES,
    PAUSED,
    ROW_GROUP,
    Conflict,
    Merging,
    TableCommit,
    TableFacts,
    Traits,
    checked_file,
    furthest,
    size_to_merge,
    summed,
)
from kbroker.tables.upserts import latest, of_keys, truncations

_FIRST: Final = "kbroker.first.partition"
_DATA_FILE: Final = re.compile(r"([^/=]+=[^/]*/)*part-\d+-[0-9a-f-]{36}[-.]c\d+(\.\w+)?\.parquet")
"""The names that Delta's writers give to files of rows, in directories of partitions."""
_DELETED: Final = re.compile(r"([^/]+/)?deletion_vector_[0-9a-f-]{36}\.bin")
"""Those of the files that say which rows are deleted: `deltalake` takes all of them for files of nobody."""
_LOG_FILE: Final = re.compile(r"_delta_log/(\d{20}\.[\w.-]+|_last_(checkpoint|vacuum_info)|_sidecars/.*|_commits/.*)")
_BOUNDS: Final = ColumnProperties(statistics_enabled="CHUNK")
_NO_BOUNDS: Final = ColumnProperties(statistics_enabled="NONE")
_DOUBLES_DIGITS: Final = 15
"""Decimals of so many digits are what they were when they were doubles."""
_FORGETS: Final = "delta.setTransactionRetentionDuration"
_T_TIME: Final = "coalesce(t._timestamp, to_timestamp_micros(0))"
_S_TIME: Final = "coalesce(s._timestamp, to_timestamp_micros(0))"
_IS_LATER: Final = (
    f"(t._partition = s._partition or {_S_TIME} > {_T_TIME} or ({_S_TIME} = {_T_TIME} and s._partition > t._partition))"
)
"""Whether a change ``s`` is the latest of a key with the row ``t``."""


class DeltaTarget:
    """The table in a directory, and its dead letters beside it.

    What is added goes on from the version that `load` has read.
    """

    traits: Traits = NO_TRAITS

    def __init__(self, path: str, store: StoreOptions | None = None) -> None:
        self.where = f"delta:{path}"
        self._is_local = "://" not in path
        self._path = os.path.abspath(path) if self._is_local else path.rstrip("/")
        self._store = store or StoreOptions()
        self._store.refuse_without_credentials(self.where, path)
        self._options = None if self._is_local else self._store.for_delta()
        self._is_assured = self._is_local
        self._table: DeltaTable | None = None
        self._dead: DeltaTable | None = None
        self._layout = Layout()
        self._topic_id = ""
        self._known: dict[int, int] = {}
        self._known_dead: dict[int, int] = {}
        self._seen: dict[str, int] = {}
        """The table's path -> the version whose positions are the known ones."""

    # --- What the table says -----------------------------------------------------------------------------------------

    def load(self, partitions: Iterable[int]) -> Kept | None:
        """Read the newest version; None without a table. ``Refused`` if the table is nobody's of kbroker."""
        with self._readable():
            self._table = self._open(self._path)
            self._dead = self._open(self._path + DEAD_LETTERS)
            if self._table is None:
                return None
            told: Mapping[str, str] = self._table.metadata().configuration
            kept = kept_of(told, {}, self.where)
            self._topic_id, self._layout = kept.topic_id, Layout.of(told)
            positions = _positions(self._table, self._topic_id, partitions)
            self._known, self._known_dead, self._seen = dict(positions), {}, {}
            self._seen[self._table.table_uri] = self._table.version()
            if self._dead is not None:
                self._known_dead = _positions(self._dead, self._topic_id, partitions)
                self._seen[self._dead.table_uri] = self._dead.version()
            first = int(told.get(_FIRST, "0"))
        if _FORGETS in told:
            raise Refused(
                f"{self.where} has {_FORGETS}, by which it forgets how far it is: take that property away from it"
            )
        if self._table.transaction_version(_app_id(self._topic_id, first)) is None:
            raise Refused(f"{self.where} does not say any more how far it is: write the topic into another table")
        return replace(kept, positions=positions)

    def topic(self) -> str | None:
        """The topic of the table; None without a table."""
        with self._readable():
            table = self._open(self._path)
            return None if table is None else table.metadata().configuration.get(TOPIC)

    def schema(self) -> pyarrow.Schema:
        """The columns, but for those that are days, hours or months of others."""
        assert self._table is not None
        derived = [each.name for each in self._layout.parts if each.unit]
        found = plain_schema(pyarrow.schema(self._table.schema().to_arrow()))
        return pyarrow.schema([each for each in found if each.name not in derived])

    def dead_offsets(self, positions: Mapping[int, int]) -> set[tuple[int, int]]:
        """Partition and offset of the dead letters that are ahead of the table: its next commit was not reached."""
        found: set[tuple[int, int]] = set()
        if self._dead is None:
            return found
        with self._readable():
            for partition, end in self._known_dead.items():
                first = positions.get(partition, 0)
                if end > first:
                    chosen = f"_topic_id = '{self._topic_id}' and _partition = {partition} and _offset >= {first}"
                    for batch in _read(self._dead, f"select _offset from it where {chosen}"):
                        found.update((partition, offset) for offset in batch.column(0).to_pylist())
        return found

    def facts(self) -> TableFacts:
        """The figures that `describe` shows, after `load`."""
        assert self._table is not None
        with self._readable():
            sizes = pyarrow.table(self._table.get_add_actions(flatten=True)).column("size_bytes").to_pylist()
            dead = 0 if self._dead is None else self._dead.count()
            return TableFacts(self._table.version(), _count(self._table), len(sizes), sum(sizes), dead)

    # --- What is written ---------------------------------------------------------------------------------------------

    def create(self, kept: Kept, schema: pyarrow.Schema) -> None:
        """Make the table; ``Conflict`` if somebody else has made one meanwhile."""
        self._layout = Layout.of(kept.layout)
        derived = [pyarrow.field(each.name, each.type) for each in self._layout.parts if each.unit]
        self._topic_id, self._known = kept.topic_id, dict(kept.positions)
        with self._readable():
            try:
                self._table = DeltaTable.create(
                    self._path,
                    pyarrow.schema([*schema, *derived]),
                    partition_by=[each.name for each in self._layout.parts] or None,
                    configuration={**properties_of(kept), _FIRST: str(min(kept.positions))},
                    raise_if_key_not_exists=False,
                    storage_options=self._options,
                    commit_properties=self._commit(kept.positions),
                )
            except DeltaError as error:
                if DeltaTable.is_deltatable(self._path, self._options):
                    raise Conflict from error
                raise

    def adopt(self, topic_id: str, positions: Mapping[int, int]) -> None:
        """Go on with another topic: first its positions, then its id, so that a kill between them leaves a table."""
        assert self._table is not None
        self._topic_id, self._known, self._known_dead = topic_id, dict(positions), {}
        with self._readable():
            self._add_nothing(positions)
            told = {TOPIC_ID: topic_id, _FIRST: str(min(positions))}
            self._table.alter.set_table_properties(told, raise_if_not_exists=False)

    def add_dead(self, rows: Sequence[pyarrow.RecordBatch], positions: Mapping[int, int]) -> None:
        """Add dead letters, which are committed before the rows between them. ``Conflict``."""
        with self._readable():
            self._assure()
            table = pyarrow.Table.from_batches(rows)
            table = table.append_column(
                TOPIC_ID_FIELD, pyarrow.array([self._topic_id] * table.num_rows, pyarrow.string())
            )
            if self._dead is None:
                path = self._path + DEAD_LETTERS
                with suppress(DeltaError):  # it is there by now
                    DeltaTable.create(path, table.schema, storage_options=self._options)
                self._dead = DeltaTable(path, storage_options=self._options)
            reached = furthest(self._known_dead, positions)
            with self._going_on(self._dead, self._known_dead, positions):
                write_deltalake(self._dead, table, mode="append", commit_properties=self._commit(reached))
            self._known_dead |= reached

    def add(self, rows: Sequence[pyarrow.RecordBatch], positions: Mapping[int, int]) -> None:
        """Add rows, which are of one schema, and the next offset of each partition that has moved. ``Conflict``."""
        assert self._table is not None
        with self._readable(), self._going_on(self._table, self._known, positions):
            if rows:
                table = self._with_parts(pyarrow.Table.from_batches(rows))
                write_deltalake(
                    self._table,
                    table,
                    mode="append",
                    schema_mode="merge",
                    writer_properties=_writer(table.schema),
                    commit_properties=self._commit(positions),
                )
            else:
                self._add_nothing(positions)
        self._known |= positions

    def _with_parts(self, table: pyarrow.Table) -> pyarrow.Table:
        """The same with the columns of days, hours and months by which the table is partitioned."""
        for part in self._layout.parts:
            if part.unit:
                table = table.append_column(part.name, part.of(table.column(part.column)))
        return table

    def upsert(self, rows: Sequence[pyarrow.RecordBatch], positions: Mapping[int, int]) -> None:
        """Write and delete the rows of keys, and the next offset of each partition that has moved. ``Conflict``.

        Columns that are new come first, in a commit of their own: to merge into what lies within an object, and widen
        it by the same commit, would lose that of rows that stay as they are.
        """
        if not rows:
            self.add(rows, positions)
            return
        assert self._table is not None
        changes = self._with_parts(latest(rows))
        columns = changes.slice(0, 0).drop_columns([CHANGE.name])
        with self._readable():
            if widens(plain_schema(pyarrow.schema(self._table.schema().to_arrow())), columns.schema):
                with self._going_on(self._table, self._known, positions):
                    write_deltalake(
                        self._table, columns, mode="append", schema_mode="merge", commit_properties=self._commit({})
                    )
            with self._going_on(self._table, self._known, positions):
                self._merge(changes, columns.column_names, positions)
        self._known |= positions

    def _merge(self, changes: pyarrow.Table, columns: Sequence[str], positions: Mapping[int, int]) -> None:
        assert self._table is not None
        before = self._table.version()
        is_later, values = _IS_LATER, {_quoted(name): f"s.{_quoted(name)}" for name in columns}
        covered = " or ".join(
            f"t._partition = {each.partition} or {_T_TIME} <= to_timestamp_micros({each.microseconds})"
            for each in truncations(changes)
        )
        merge = self._table.merge(
            of_keys(changes),
            "t._key = s._key",
            "s",
            "t",
            writer_properties=_writer(changes.schema),
            commit_properties=self._commit(positions),
        )
        if covered:
            is_later = f"({is_later} or {covered})"
            merge = merge.when_not_matched_by_source_delete(covered)
        is_gone = f"s.`{CHANGE.name}` = {DELETE}"
        merge = merge.when_matched_delete(f"{is_gone} and {is_later}").when_matched_update(values, is_later)
        merge.when_not_matched_insert(values, f"not {is_gone}").execute()
        if self._table.version() == before:  # nothing changed
            self._add_nothing(positions)

    @contextmanager
    def _going_on(self, table: DeltaTable, known: Mapping[int, int], partitions: Iterable[int]) -> Iterator[None]:
        """Commit something within; ``Conflict`` if the version before it has other positions than `load` has told.

        A commit that another follower's came before, of other partitions, goes on from both; no later one would be
        refused for what that follower did.
        """
        if table.version() != self._seen.get(table.table_uri):
            told = {each: known[each] for each in partitions if each in known}
            if _positions(table, self._topic_id, partitions) != told:
                raise Conflict("another follower has gone on with a partition")
        before = table.version()
        yield
        # To ask for all positions takes a while: a version before which nobody's commit came needs it not.
        if table.version() == before + 1:
            self._seen[table.table_uri] = before + 1
        else:
            self._seen.pop(table.table_uri, None)

    def _add_nothing(self, positions: Mapping[int, int]) -> None:
        assert self._table is not None
        self._table.create_write_transaction(
            [], "append", self._table.schema(), commit_properties=self._commit(positions)
        )
        self._table.update_incremental()

    def _commit(self, positions: Mapping[int, int]) -> CommitProperties:
        self._assure()
        return CommitProperties(
            app_transactions=[Transaction(_app_id(self._topic_id, each), end) for each, end in positions.items()]
        )

    # --- The store ---------------------------------------------------------------------------------------------------

    def _open(self, path: str) -> DeltaTable | None:
        try:
            return DeltaTable(path, storage_options=self._options)
        except TableNotFoundError:
            return None

    def _assure(self) -> None:
        if not self._is_assured:
            self._store.refuse_lost_commits(self.where, self._path)
            self._is_assured = True

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Turn errors of the library into ``Conflict`` or one line."""
        with self._store.readable(self.where, (DeltaError, OSError)):
            try:
                yield
            except CommitFailedError as error:
                raise Conflict(str(error)) from error

    # --- Maintenance -------------------------------------------------------------------------------------------------

    def merge_files(self, merging: Merging) -> int:
        """Merge the small files of those partitions that have many, and of the dead letters; their number."""
        return sum(self._merged(each, merging) for each in (self._table, self._dead) if each is not None)

    def _merged(self, table: DeltaTable, merging: Merging) -> int:
        merged = 0
        with self._readable(), suppress(CommitFailedError):
            files = pyarrow.table(table.get_add_actions(flatten=True))
            names = table.metadata().partition_columns
            writer = _writer(pyarrow.schema(table.schema().to_arrow()))
            by_partition: dict[tuple[Any, ...], list[int]] = {}
            for file in files.select(["size_bytes", *(f"partition.{name}" for name in names)]).to_pylist():
                by_partition.setdefault(tuple(file.values())[1:], []).append(file["size_bytes"])
            budget = merging.budget
            for value, sizes in sorted(by_partition.items(), key=lambda each: -len(each[1])):
                if size := size_to_merge(sizes, merging._replace(budget=budget)):
                    budget -= sum(each for each in sizes if each < size)
                    chosen = zip(names, value, strict=True)
                    filters = [(name, "=", _as_filter(each)) for name, each in chosen]
                    done: dict[str, Any] = table.optimize.compact(
                        filters or None, target_size=size, writer_properties=writer
                    )
                    merged += done["numFilesRemoved"]
        return merged

    def clean(self, keep_hours: int | None = None) -> dict[str, int]:
        """Remove the files that no version of the retention needs, of the dead letters, too; what was done."""
        with self._readable():
            return summed(self._cleaned(each, keep_hours) for each in self._both())

    def maintain(self, keep_hours: int | None = None) -> dict[str, int]:
        """Merge small files, and remove those that no version of the retention needs; what was done."""
        with self._readable():
            self._assure()
            return summed(self._maintained(each, keep_hours) for each in self._both())

    def _maintained(self, table: DeltaTable, keep_hours: int | None) -> dict[str, int]:
        cluster = Layout.of(table.metadata().configuration).cluster
        writer = _writer(pyarrow.schema(table.schema().to_arrow()))
        optimize = partial(table.optimize.z_order, cluster) if cluster else table.optimize.compact
        merged: dict[str, Any] = optimize(writer_properties=writer)
        table.create_checkpoint()
        removed = self._cleaned(table, keep_hours)
        return {"merged_files": merged["numFilesRemoved"], "new_files": merged["numFilesAdded"], **removed}

    def _both(self) -> list[DeltaTable]:
        """The table as it is now, and its dead letters if there are some."""
        return [self._opened(), *filter(None, [self._open(self._path + DEAD_LETTERS)])]

    def _opened(self) -> DeltaTable:
        table = self._open(self._path)
        if table is None:
            raise FatalError(f"there is no table in {self.where}")
        return table

    def _cleaned(self, table: DeltaTable, keep_hours: int | None) -> dict[str, int]:
        vacuum = partial(table.vacuum, keep_hours, enforce_retention_duration=keep_hours is None)
        # A full one would remove whatever the table does not know, whoever has put it there, and whoever has not
        # committed it yet.
        others = [each for each in vacuum(dry_run=True, full=True) if not _DATA_FILE.fullmatch(each)]
        removed = vacuum(dry_run=False, full=not others and keep_hours != 0)
        return {"removed_files": len(removed), **({"kept_files_of_others": len(others)} if others else {})}

    # --- For people --------------------------------------------------------------------------------------------------

    def pause(self, *, paused: bool) -> None:
        """Have nobody add rows, or let them again; ``Conflict``. Delta refuses a commit around it."""
        with self._readable():
            self._assure()
            table = self._opened()
            table.alter.set_table_properties({PAUSED: str(paused).lower()}, raise_if_not_exists=False)

    def is_paused(self) -> bool:
        """Whether the newest version says so; ``FatalError`` if the table is gone."""
        with self._readable():
            return bool(self._opened().metadata().configuration.get(PAUSED) == "true")

    def commits(self, count: int) -> list[TableCommit]:
        """The last commits, the newest first."""
        assert self._table is not None
        with self._readable():
            return [
                TableCommit(
                    each["version"],
                    each.get("timestamp", 0),
                    str(each.get("operation", "")).lower(),
                    each.get("operationMetrics", {}).get("num_added_rows"),
                )
                for each in self._table.history(count)
            ]

    def dead_letters(self) -> Iterator[pyarrow.RecordBatch]:
        """The columns `DEAD_COLUMNS` of all dead letters."""
        if self._dead is not None:
            with self._readable():
                yield from _read(self._dead, f"select {', '.join(DEAD_COLUMNS)} from it")

    def note(self, name: str, text: str | None) -> None:
        """Write what a follower tells beside the table, or remove it."""
        with self._readable():
            if self._table is None:
                return
            handler: Any = DeltaFileSystemHandler.from_table(self._table._table)
            if text is None:
                handler.delete_file(f"{NOTES}/{name}")
                return
            stream = handler.open_output_stream(f"{NOTES}/{name}")
            stream.write(text.encode())
            stream.close()

    def noted(self) -> dict[str, str]:
        """Returns what followers have told, by the names of their files."""
        found: dict[str, str] = {}
        with self._readable():
            handler: Any = DeltaFileSystemHandler.from_table(self._opened()._table)
            for each in handler.get_file_info_selector(NOTES, True, False):
                if not NOTE.fullmatch(each.base_name):
                    continue
                with suppress(FileNotFoundError):
                    found[each.base_name] = bytes(handler.open_input_file(each.path).read()).decode("utf-8", "replace")
        return found

    def drop(self) -> int:
        """Remove the dead letters and the table: their rows first, then their logs. Files of others, which stay."""
        with self._readable():
            self._opened()
            tables = (self._open(self._path + DEAD_LETTERS), self._open(self._path))
            return sum(_remove(each) for each in tables if each is not None)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _as_filter(value: Any) -> Any:
    """The value of a partition as a filter has it."""
    if value is None:
        return ""
    return str(value) if isinstance(value, Decimal) else value


def _writer(columns: Iterable[pyarrow.Field]) -> WriterProperties:
    """The way in which files are written: without the bounds of decimals that ``deltalake`` would tell as doubles.

    By these, readers would pass over files that have what they look for. What is within a structure has no name here.
    """
    columns = list(columns)
    rounded = {each.name for each in columns if _has_long_decimal(each.type)}
    is_within = any(pyarrow.types.is_struct(each.type) for each in columns if each.name in rounded)
    named = {each.name: _NO_BOUNDS if each.name in rounded else _BOUNDS for each in columns}
    return WriterProperties(
        compression="SNAPPY",
        max_row_group_size=ROW_GROUP,
        default_column_properties=_NO_BOUNDS if is_within else None,
        column_properties=named if rounded else None,
    )


def _has_long_decimal(kind: pyarrow.DataType) -> bool:
    if pyarrow.types.is_decimal(kind):
        return bool(kind.precision > _DOUBLES_DIGITS)
    return pyarrow.types.is_struct(kind) and any(_has_long_decimal(each.type) for each in kind)


def _read(table: DeltaTable, query: str) -> Iterator[pyarrow.RecordBatch]:
    """Rows of a table that is named ``it``: where pyarrow reads them itself, a process may abort when it ends."""
    for batch in pyarrow.RecordBatchReader.from_stream(QueryBuilder().register("it", table).execute(query)):
        yield batch.cast(plain_schema(batch.schema))


def _count(table: DeltaTable) -> int:
    """Returns the number of rows; the statistics of files count those, too, that deletion vectors delete."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return table.count()
    return sum(int(each.column("n")[0].as_py()) for each in _read(table, "select count(*) as n from it"))


def _remove(table: DeltaTable) -> int:
    """Remove what a table has had; how many files are left where it was."""
    table.delete()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    handler = DeltaFileSystemHandler.from_table(table._table)
    found = handler.get_file_info_selector("", False, True)
    files = sorted((each.path for each in found if each.type != FileType.Directory), reverse=True)
    own = [
        each
        for each in files
        if _LOG_FILE.fullmatch(checked_file(each))
        or (each.startswith(NOTES) and NOTE.fullmatch(each))
        or _is_left_of_rows(each)
    ]
    for each in own:  # the newest of the log first: what is left by a kill is a table yet
        handler.delete_file(each)
    directory = table.table_uri.removeprefix("file://")
    for path, _, _ in os.walk(directory, topdown=False):
        with suppress(OSError):
            os.rmdir(path)
    return len(files) - len(own)


def _is_left_of_rows(path: str) -> bool:
    """Whether a file is beside those of rows, which were removed before: their checksums, or which are deleted."""
    name = checked_file(path)
    return bool(_DELETED.fullmatch(name)) or (bool(_DATA_FILE.fullmatch(name)) and not path.endswith(".parquet"))


def _app_id(topic_id: str, partition: int) -> str:
    return f"kbroker/{topic_id}/{partition}"


def _positions(table: DeltaTable, topic_id: str, partitions: Iterable[int]) -> dict[int, int]:
    found = {each: table.transaction_version(_app_id(topic_id, each)) for each in partitions}
    return {partition: version for partition, version in found.items() if version is not None}
