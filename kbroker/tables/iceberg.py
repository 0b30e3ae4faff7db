"""A table in Iceberg's format, written by the package ``pyiceberg``, in an SQLite file or another catalog.

The next offset of each partition is a property of the table, set in the same commit as the rows. Each commit adds a
snapshot, also without rows, and asks that the snapshot before it is the one that was read. ``pyiceberg`` would try
again after another's commit by itself, with rows that the other has written, too: the tries are taken from it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual, Reference
from pyiceberg.table import CommitTableResponse, FileScanTask, Table, Transaction
from pyiceberg.transforms import IdentityTransform
from pyiceberg.utils.config import Config

from kbroker.errors import FatalError
from kbroker.tables.iceberg_files import (
    NAMES,
    NEXT,
    PARTITION,
    TAKEN,
    Replacing,
    clustered,
    columns_of,
    inward,
    marks_of,
    named_for,
    next_of,
    noted_in,
    outward,
    partition_column,
    positions_in,
    read_rows,
    remove_orphans,
    totals_of,
    write_rows,
)
from kbroker.tables.layout import TOPIC, TOPIC_ID, Layout, kept_of, properties_of
from kbroker.tables.plan import Kept
from kbroker.tables.rows import CHANGE, TOPIC_ID_FIELD, WRITE, widens
from kbroker.tables.stores import StoreOptions
from kbroker.tables.target import (
    DEAD_COLUMNS,
    DEAD_LETTERS,
    NOTES,
    PAUSED,
    ROW_GROUP,
    Conflict,
    Merging,
    TableCommit,
    TableFacts,
    Traits,
    furthest,
    size_to_merge,
    summed,
)
from kbroker.tables.upserts import chosen, latest, losing, of_keys, truncations, without_truncated

_TRIES: Final = "commit.retry.num-retries"
_MAY_CLEAN: Final = "gc.enabled"
_WEEK_HOURS: Final = 7 * 24
_EXPIRE_TRIES: Final = 10
_CATALOG_TRIES: Final = 2
"""A catalog has two tables of its own, either of which may come meanwhile."""
_OF_NEW_TABLES: Final = {
    "write.target-file-size-bytes": str(256 << 20),
    "write.parquet.row-group-limit": str(ROW_GROUP),
    _TRIES: "10",
}
"""The sizes are those of a file's rows in memory, as ``pyiceberg`` counts: to merge by keys reads one after the other.
The tries are for other writers, such as Spark's maintenance, between whose tries a follower may commit again."""
_SMALLER: Final = 8
"""By so much the files that are merged are smaller than Delta's: they are rows in memory all at once."""


_Begun = TypeVar("_Begun")


class IcebergTarget:
    """The table ``NAMESPACE.TABLE`` of a catalog, and its dead letters beside it.

    What is added goes on from the snapshot that `load` has read.
    """

    traits = Traits(has_time=True, promotes=True, taken=TAKEN, joins=True)

    def __init__(self, name: str, catalog: str, store: StoreOptions | None = None) -> None:
        """``catalog`` is ``sqlite:FILE``, ``rest:URL``, or ``catalog:NAME`` of pyiceberg's own configuration."""
        self.where = f"iceberg:{name}"
        self._name = name
        self._place = catalog
        self._file = os.path.abspath(catalog.partition(":")[2]) if catalog.startswith("sqlite:") else None
        self._store = store or StoreOptions()
        self._catalog: Catalog | None = None
        self._table: Table | None = None
        self._dead: Table | None = None
        self._topic_id = ""

    def _opened(self) -> Catalog:
        """The catalog. Its data are where ``warehouse`` says; without that, those of a file are beside it."""
        if self._catalog is None:
            kind, _, place = self._place.partition(":")
            name = place if kind == "catalog" else "kbroker"
            options = self._store.for_pyiceberg()
            if self._file is not None:
                directory = os.path.dirname(self._file)
                os.makedirs(directory, exist_ok=True)
                told = Config().get_catalog_config(name) or {}
                usual = {} if "warehouse" in told else {"warehouse": f"file://{directory}"}
                options = {"type": "sql", "uri": f"sqlite:///{self._file}"} | usual | options
                warehouse = str({**told, **options}["warehouse"])
                if {"#", "?"} & {*self._file, *warehouse}:  # ``pyiceberg`` would write into one file all that is below
                    raise FatalError(f"{self.where}: no path may have # or ?: name another than {warehouse}")
                self._store.refuse_without_credentials(self.where, warehouse, told)
            elif kind == "rest":
                options = {"type": "rest", "uri": place} | options
            self._catalog = _begun_once(partial(load_catalog, name, **options))
            if self._file is None:
                commit = _keeping_files(self._catalog.commit_table)
                self._catalog.commit_table = commit  # type: ignore[method-assign]
            self._store.hide(self._catalog.properties)
        return self._catalog

    def _is_nowhere(self) -> bool:
        """Whether the catalog is a file that is not there: to look into the file would make it."""
        return self._file is not None and not os.path.exists(self._file)

    def _loaded(self, name: str) -> Table | None:
        if self._is_nowhere():
            return None
        try:
            table = self._opened().load_table(name)
        except NoSuchTableError:
            return None
        table.metadata.properties[_TRIES] = "0"
        return table

    # --- What the table says -----------------------------------------------------------------------------------------

    def load(self, partitions: Iterable[int]) -> Kept | None:
        """Read the newest snapshot; None without a table. ``Refused`` if the table is nobody's of kbroker."""
        with self._readable():
            self._table = self._loaded(self._name)
            self._dead = self._loaded(self._name + DEAD_LETTERS)
        if self._table is None:
            return None
        kept = kept_of(self._table.properties, positions_in(self._table.properties), self.where)
        self._topic_id = kept.topic_id
        return kept

    def topic(self) -> str | None:
        """The topic of the table; None without a table."""
        if self._is_nowhere():
            raise FatalError(f"{self.where}: there is no catalog {self._place}")
        with self._readable():
            table = self._loaded(self._name)
            return None if table is None else table.properties.get(TOPIC)

    def schema(self) -> pyarrow.Schema:
        """The columns."""
        assert self._table is not None
        return columns_of(self._table)

    def dead_offsets(self, positions: Mapping[int, int]) -> set[tuple[int, int]]:
        """Partition and offset of the dead letters that are ahead of the table: its next commit was not reached."""
        found: set[tuple[int, int]] = set()
        if self._dead is None or self._dead.properties.get(TOPIC_ID) != self._topic_id:
            return found
        with self._readable():
            for partition, end in positions_in(self._dead.properties).items():
                first = positions.get(partition, 0)
                if end > first:
                    where = f"{partition_column(self._dead)} = {partition} and _offset >= {first}"
                    chosen = f"_topic_id = '{self._topic_id}' and {where}"
                    offsets = self._dead.scan(chosen, selected_fields=("_offset",)).to_arrow().column(0)
                    found.update((partition, offset) for offset in offsets.to_pylist())
        return found

    def facts(self) -> TableFacts:
        """The figures that `describe` shows, after `load`."""
        assert self._table is not None
        totals = totals_of(self._table)
        dead = 0 if self._dead is None else totals_of(self._dead)[0]
        return TableFacts(len(self._table.snapshots()), *totals, dead)

    # --- What is written ---------------------------------------------------------------------------------------------

    def create(self, kept: Kept, schema: pyarrow.Schema) -> None:
        """Make the table; ``Conflict`` if somebody else has made one meanwhile."""
        self._topic_id = kept.topic_id
        with self._readable():
            with suppress(NamespaceAlreadyExistsError):
                _begun_once(partial(self._opened().create_namespace, self._name.rpartition(".")[0]))
            properties = {**properties_of(kept), **next_of(kept.positions), **_OF_NEW_TABLES}
            self._create(outward(schema), properties, Layout.of(kept.layout))
            self._table = self._loaded(self._name)

    def _create(self, schema: pyarrow.Schema, properties: Mapping[str, str], layout: Layout) -> None:
        if not layout.parts and not layout.cluster:
            self._opened().create_table(self._name, schema, properties=dict(properties))
            return
        if any(each.unit for each in layout.parts) and importlib.util.find_spec("pyiceberg_core") is None:
            raise FatalError("days, hours and months of Iceberg need pyiceberg-core: pip install 'kbroker[iceberg]'")
        with self._opened().create_table_transaction(self._name, schema, properties=dict(properties)) as create:
            if layout.parts:
                with create.update_spec() as spec:
                    for part in layout.parts:
                        spec.add_field(NAMES.get(part.column, part.column), part.unit or "identity", part.name)
            if layout.cluster:
                with create.update_sort_order() as order:
                    for column in layout.cluster:
                        order.asc(NAMES.get(column, column), IdentityTransform())

    def adopt(self, topic_id: str, positions: Mapping[int, int]) -> None:
        """Go on with another topic of the same name."""
        assert self._table is not None
        self._topic_id = topic_id
        gone = [NEXT + str(each) for each in positions_in(self._table.properties) if each not in positions]
        self._commit(self._table, [], positions, gone)

    def add_dead(self, rows: Sequence[pyarrow.RecordBatch], positions: Mapping[int, int]) -> None:
        """Add dead letters, which are committed before the rows between them. ``Conflict``."""
        ids = pyarrow.array([self._topic_id] * sum(each.num_rows for each in rows), pyarrow.string())
        table = pyarrow.Table.from_batches(rows).append_column(TOPIC_ID_FIELD, ids)
        gone: list[str] = []
        if self._dead is None:
            with self._readable():
                self._opened().create_table(self._name + DEAD_LETTERS, outward(table.schema))
                self._dead = self._loaded(self._name + DEAD_LETTERS)
        assert self._dead is not None
        known = positions_in(self._dead.properties)
        if self._dead.properties.get(TOPIC_ID, self._topic_id) != self._topic_id:
            gone = [NEXT + str(each) for each in known if each not in positions]
            known = {}
        self._commit(self._dead, table.to_batches(), furthest(known, positions), gone)

    def add(self, rows: Sequence[pyarrow.RecordBatch], positions: Mapping[int, int]) -> None:
        """Add rows, which are of one schema, and the next offset of each partition that has moved. ``Conflict``."""
        assert self._table is not None
        self._commit(self._table, rows, positions, [])

    def _commit(
        self, table: Table, rows: Sequence[pyarrow.RecordBatch], positions: Mapping[int, int], gone: Sequence[str]
    ) -> None:
        data = clustered(table, pyarrow.Table.from_batches(rows) if rows else columns_of(table).empty_table())
        with self._going_on(table, data.schema, positions, gone) as (commit, told):
            commit.append(named_for(table, data), snapshot_properties=told)

    @contextmanager
    def _going_on(
        self, table: Table, columns: pyarrow.Schema, positions: Mapping[int, int], gone: Sequence[str] = ()
    ) -> Iterator[tuple[Transaction, dict[str, str]]]:
        """Commit what is added within, together with the positions and the columns that are new; ``Conflict``."""
        told = {TOPIC_ID: self._topic_id, **next_of(positions)}
        with self._readable(), table.transaction() as commit:
            if gone:
                commit.remove_properties(*gone)
            commit.set_properties(told)
            if widens(columns_of(table), columns):
                with commit.update_schema() as update:
                    update.union_by_name(named_for(table, columns))
            yield commit, told
        table.metadata.properties[_TRIES] = "0"

    def upsert(self, rows: Sequence[pyarrow.RecordBatch], positions: Mapping[int, int]) -> None:
        """Write and delete the rows of keys, and the next offset of each partition that has moved. ``Conflict``.

        The files that have such keys are written anew, one after the other.
        """
        if not rows:
            self.add(rows, positions)
            return
        assert self._table is not None
        table, merged = self._table, latest(rows)
        changes, cuts = of_keys(merged), truncations(merged)
        columns = merged.schema.remove(merged.schema.get_field_index(CHANGE.name))
        with self._going_on(table, columns, positions) as (commit, told):
            found: list[FileScanTask] = []
            may_have: BooleanExpression = AlwaysTrue()
            if not cuts:
                bounds = pc.min_max(changes["_key"]).as_py()
                key = Reference("_key")
                may_have = And(
                    GreaterThanOrEqual(term=key, value=bounds["min"]), LessThanOrEqual(term=key, value=bounds["max"])
                )
            for task in table.scan(may_have).plan_files():
                keys = read_rows(commit, table, task, "_key", "_partition", "_timestamp")
                there = keys.filter(pc.is_in(keys["_key"], changes["_key"]))
                if there.num_rows or without_truncated(keys, cuts).num_rows < keys.num_rows:
                    found.append(task)
                    lost = losing(changes, without_truncated(there, cuts))
                    if len(lost):
                        changes = changes.filter(pc.invert(pc.is_in(changes["_key"], lost)))
            with commit.update_snapshot(snapshot_properties=told).overwrite() as snapshot:
                written = chosen(changes, pc.equal(changes[CHANGE.name], WRITE)).select(columns.names)
                for each in write_rows(commit, table, written):
                    snapshot.append_data_file(each)
                for task in found:
                    before = read_rows(commit, table, task)
                    kept = without_truncated(before.filter(pc.invert(pc.is_in(before["_key"], changes["_key"]))), cuts)
                    if kept.num_rows < before.num_rows:
                        snapshot.delete_data_file(task.file)
                        for each in write_rows(commit, table, kept):
                            snapshot.append_data_file(each)

    # --- Maintenance -------------------------------------------------------------------------------------------------

    def merge_files(self, merging: Merging) -> int:
        """Merge the small files of those partitions that have many, and of the dead letters; their number."""
        return sum(self._merged(each, merging) for each in (self._table, self._dead) if each is not None)

    def _merged(self, table: Table, merging: Merging) -> int:
        merged = 0
        by_partition: dict[object, list[FileScanTask]] = {}
        with self._readable():
            for task in table.scan().plan_files():
                by_partition.setdefault((task.file.spec_id, task.file.partition), []).append(task)
        merging = merging._replace(size=merging.size // _SMALLER)
        budget = merging.budget
        for tasks in sorted(by_partition.values(), key=len, reverse=True):
            sizes = [each.file.file_size_in_bytes for each in tasks]
            if size := size_to_merge(sizes, merging._replace(budget=budget)):
                small = [each for each in tasks if each.file.file_size_in_bytes < size]
                budget -= sum(each.file.file_size_in_bytes for each in small)
                with suppress(Conflict):
                    self._merge(table, small, size)
                    merged += len(small)
        return merged

    def _merge(self, table: Table, tasks: Sequence[FileScanTask], size: int) -> None:
        with self._readable(), table.transaction() as commit, Replacing(commit, table) as snapshot:
            some: list[pyarrow.Table] = []
            read = 0
            for index, task in enumerate(tasks, 1):
                snapshot.delete_data_file(task.file)
                some.append(read_rows(commit, table, task))
                read += task.file.file_size_in_bytes
                if index == len(tasks) or read >= size:
                    for written in write_rows(commit, table, pyarrow.concat_tables(some, promote_options="permissive")):
                        snapshot.append_data_file(written)
                    some, read = [], 0
        table.metadata.properties[_TRIES] = "0"

    def clean(self, keep_hours: int | None = None) -> dict[str, int]:
        """Expire the snapshots that are older, and remove files that no metadata names and that are older, too.

        Nothing where the table forbids it, as catalogs do that name files in other places, such as branches.
        """
        hours = _WEEK_HOURS if keep_hours is None else keep_hours
        with self._readable():
            has_dead = self._loaded(self._name + DEAD_LETTERS) is not None
        return summed(self._cleaned(self._name + end, hours) for end in ("", *([DEAD_LETTERS] if has_dead else [])))

    def _cleaned(self, name: str, hours: int) -> dict[str, int]:
        for _ in range(_EXPIRE_TRIES):
            table = self._there(name)
            if table.properties.get(_MAY_CLEAN) == "false":
                return {"expired": 0, "removed_files": 0}
            before = len(table.snapshots())
            with suppress(Conflict), self._readable():
                now = datetime.now(UTC)
                table.maintenance.expire_snapshots().older_than(now - timedelta(hours=hours)).commit()
                # A file that is younger than an hour may not be committed yet.
                removed = remove_orphans(table, now - timedelta(hours=max(hours, 1)))
                return {"expired": before - len(table.snapshots()), **removed}
        raise FatalError(f"others commit to {self.where} all the time: try again later")

    def maintain(self, keep_hours: int | None = None) -> dict[str, int]:
        """Merge small files, expire snapshots and remove what nothing names; what was done."""
        self._table = self._there()
        with self._readable():
            self._dead = self._loaded(self._name + DEAD_LETTERS)
        merged = self.merge_files(Merging(fewest=2, size=128 << 20, budget=sys.maxsize))
        return {"merged_files": merged, **self.clean(keep_hours)}

    def _there(self, name: str = "") -> Table:
        with self._readable():
            table = self._loaded(name or self._name)
        if table is None:
            raise FatalError(f"there is no table {self.where}")
        return table

    # --- For people --------------------------------------------------------------------------------------------------

    def pause(self, *, paused: bool) -> None:
        """Have nobody add rows, or let them again; ``Conflict``. By a snapshot without rows, which a commit meets."""
        table = self._there()
        with self._readable(), table.transaction() as commit:
            commit.set_properties({PAUSED: str(paused).lower()})
            commit.append(table.schema().as_arrow().empty_table(), snapshot_properties=marks_of(table))

    def is_paused(self) -> bool:
        """Whether the newest version says so; ``FatalError`` if the table is gone."""
        return bool(self._there().properties.get(PAUSED) == "true")

    def commits(self, count: int) -> list[TableCommit]:
        """The last commits, the newest first."""
        assert self._table is not None
        snapshots = sorted(self._table.snapshots(), key=lambda each: each.sequence_number or 0)
        found = []
        for number, each in list(enumerate(snapshots, 1))[: -count - 1 : -1]:
            summary = each.summary
            rows = None if summary is None else int(summary["added-records"] or 0)
            what = "" if summary is None else summary.operation.value
            found.append(TableCommit(number, each.timestamp_ms, what, rows))
        return found

    def dead_letters(self) -> Iterator[pyarrow.RecordBatch]:
        """The columns `DEAD_COLUMNS` of all dead letters."""
        if self._dead is not None:
            columns = [partition_column(self._dead) if each == PARTITION else each for each in DEAD_COLUMNS]
            with self._readable():
                for batch in self._dead.scan(selected_fields=tuple(columns)).to_arrow_batch_reader():
                    yield batch.rename_columns(inward(batch.schema).names)

    def note(self, name: str, text: str | None) -> None:
        """Write what a follower tells beside the table, or remove it."""
        if self._table is None:
            return
        place = f"{self._table.location()}/{NOTES}/{name}"
        with self._readable():
            if text is None:
                self._table.io.delete(place)
                return
            with self._table.io.new_output(place).create(overwrite=True) as stream:
                stream.write(text.encode())

    def noted(self) -> dict[str, str]:
        """Returns what followers have told, by the names of their files."""
        table = self._there()
        with self._readable():
            return noted_in(table)

    def drop(self) -> int:
        """Remove the table and its dead letters, with all files that they have had; how many of others stay."""
        self._there()
        others = 0
        with self._readable():
            for name in (self._name + DEAD_LETTERS, self._name):
                each = self._loaded(name)
                if each is None:
                    continue
                if each.properties.get(_MAY_CLEAN) == "false":
                    self._opened().drop_table(name)
                    continue
                for note in noted_in(each):
                    each.io.delete(f"{each.location()}/{NOTES}/{note}")
                others += remove_orphans(each, datetime.now(UTC)).get("kept_files_of_others", 0)
                self._opened().purge_table(name)
        return others

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Turn errors of the library into ``Conflict`` or one line."""
        from sqlalchemy.exc import SQLAlchemyError

        with self._store.readable(self.where, (SQLAlchemyError, RESTError, OSError, ValueError)):
            try:
                yield
            except (CommitFailedException, ValidationException, TableAlreadyExistsError) as error:
                raise Conflict(str(error)) from error


def _begun_once(begin: Callable[[], _Begun]) -> _Begun:
    """Begin a catalog in a database again, if somebody else has made its tables or a namespace at the same moment."""
    from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

    for _ in range(_CATALOG_TRIES):
        try:
            return begin()
        except (IntegrityError, OperationalError, ProgrammingError) as error:
            if not isinstance(error, IntegrityError) and "already exists" not in str(error):
                raise
    return begin()


def _keeping_files(commit: Callable[..., CommitTableResponse]) -> Callable[..., CommitTableResponse]:
    """Let ``pyiceberg`` delete no files of a commit that a service has refused.

    A request that the network has repeated may be refused because it was done: the table has those files.
    """

    def commit_table(*arguments: Any) -> CommitTableResponse:
        try:
            return commit(*arguments)
        except CommitFailedException as error:
            raise Conflict(str(error)) from error

    return commit_table
