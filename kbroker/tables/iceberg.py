"""A table in Iceberg's format, written by the package ``pyiceberg``, in an SQLite file or another catalog.

The next offset of each partition is a property of the table, set in the same commit as the rows. Each commit adds a
snapshot, also without rows, and asks that the snapshot before it is the one that was read. ``pyiceberg`` would try
again after another's commit by itself, with rows that the other has written, too: the tries are taken from it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.utils.config import Config

from kbroker.errors import FatalError
from kbroker.tables.plan import Kept, Refused
from kbroker.tables.rows import TOPIC_ID_FIELD, plain_schema
from kbroker.tables.stores import StoreOptions
from kbroker.tables.target import DEAD_LETTERS, Conflict, TableFacts, furthest

_TOPIC: Final = "kbroker.topic"
_TOPIC_ID: Final = "kbroker.topic.id"
_VALUE: Final = "kbroker.value"
_DECLARED: Final = "kbroker.schema"
_NEXT: Final = "kbroker.next."
_TRIES: Final = "commit.retry.num-retries"
_WEEK_HOURS: Final = 7 * 24


class IcebergTarget:
    """The table ``NAMESPACE.TABLE`` of a catalog, and its dead letters beside it.

    What is added goes on from the snapshot that `load` has read.
    """

    def __init__(self, name: str, catalog: str, store: StoreOptions | None = None) -> None:
        """``catalog`` is ``sqlite:FILE``, ``rest:URL``, or ``catalog:NAME`` of pyiceberg's own configuration."""
        self.where = name
        self._place = catalog
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
            if kind == "sqlite":
                file = os.path.abspath(place)
                os.makedirs(os.path.dirname(file), exist_ok=True)
                told = Config().get_catalog_config(name) or {}
                usual = {} if "warehouse" in told else {"warehouse": f"file://{os.path.dirname(file)}"}
                options = {"type": "sql", "uri": f"sqlite:///{file}"} | usual | options
            elif kind == "rest":
                options = {"type": "rest", "uri": place} | options
            self._catalog = load_catalog(name, **options)
            if kind != "sqlite":
                commit = _keeping_files(self._catalog.commit_table)
                self._catalog.commit_table = commit  # type: ignore[method-assign]
            self._store.hide(self._catalog.properties)
        return self._catalog

    def _loaded(self, name: str) -> Table | None:
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
            self._table = self._loaded(self.where)
            self._dead = self._loaded(self.where + DEAD_LETTERS)
        if self._table is None:
            return None
        told = self._table.properties
        if _TOPIC not in told or _TOPIC_ID not in told:
            raise Refused(f"{self.where} is an Iceberg table, but none that kbroker made: choose another name")
        self._topic_id = told[_TOPIC_ID]
        value_format = told.get(_VALUE, "bytes")
        return Kept(told[_TOPIC], self._topic_id, value_format, _positions(self._table), told.get(_DECLARED, ""))

    def topic(self) -> str | None:
        """The topic of the table; None without a table."""
        with self._readable():
            table = self._loaded(self.where)
            return None if table is None else table.properties.get(_TOPIC)

    def schema(self) -> pyarrow.Schema:
        """The columns."""
        assert self._table is not None
        return plain_schema(self._table.schema().as_arrow())

    def dead_offsets(self, positions: Mapping[int, int]) -> set[tuple[int, int]]:
        """Partition and offset of the dead letters that are ahead of the table: its next commit was not reached."""
        found: set[tuple[int, int]] = set()
        if self._dead is None or self._dead.properties.get(_TOPIC_ID) != self._topic_id:
            return found
        with self._readable():
            for partition, end in _positions(self._dead).items():
                first = positions.get(partition, 0)
                if end > first:
                    chosen = f"_topic_id = '{self._topic_id}' and _partition = {partition} and _offset >= {first}"
                    offsets = self._dead.scan(chosen, selected_fields=("_offset",)).to_arrow().column(0)
                    found.update((partition, offset) for offset in offsets.to_pylist())
        return found

    def facts(self) -> TableFacts:
        """The figures that `describe` shows, after `load`."""
        assert self._table is not None
        totals = _totals(self._table)
        dead = 0 if self._dead is None else _totals(self._dead)[0]
        return TableFacts(len(self._table.snapshots()), *totals, dead)

    # --- What is written ---------------------------------------------------------------------------------------------

    def create(self, kept: Kept, schema: pyarrow.Schema) -> None:
        """Make the table; ``Conflict`` if somebody else has made one meanwhile."""
        told = {_TOPIC: kept.topic, _TOPIC_ID: kept.topic_id, _VALUE: kept.value_format, _DECLARED: kept.declared}
        self._topic_id = kept.topic_id
        with self._readable():
            with suppress(NamespaceAlreadyExistsError):
                self._opened().create_namespace(self.where.rpartition(".")[0])
            self._opened().create_table(self.where, schema, properties={**told, **_next(kept.positions)})
            self._table = self._loaded(self.where)

    def adopt(self, topic_id: str, positions: Mapping[int, int]) -> None:
        """Go on with another topic of the same name."""
        assert self._table is not None
        self._topic_id = topic_id
        gone = [_NEXT + str(each) for each in _positions(self._table) if each not in positions]
        self._commit(self._table, [], positions, gone)

    def add_dead(self, rows: Sequence[pyarrow.RecordBatch], positions: Mapping[int, int]) -> None:
        """Add dead letters, which are committed before the rows between them. ``Conflict``."""
        ids = pyarrow.array([self._topic_id] * sum(each.num_rows for each in rows), pyarrow.string())
        table = pyarrow.Table.from_batches(rows).append_column(TOPIC_ID_FIELD, ids)
        gone: list[str] = []
        if self._dead is None:
            with self._readable():
                self._opened().create_table(self.where + DEAD_LETTERS, table.schema)
                self._dead = self._loaded(self.where + DEAD_LETTERS)
        assert self._dead is not None
        known = _positions(self._dead)
        if self._dead.properties.get(_TOPIC_ID, self._topic_id) != self._topic_id:
            gone = [_NEXT + str(each) for each in known if each not in positions]
            known = {}
        self._commit(self._dead, table.to_batches(), furthest(known, positions), gone)

    def add(self, rows: Sequence[pyarrow.RecordBatch], positions: Mapping[int, int]) -> None:
        """Add rows, which are of one schema, and the next offset of each partition that has moved. ``Conflict``."""
        assert self._table is not None
        self._commit(self._table, rows, positions, [])

    def _commit(
        self, table: Table, rows: Sequence[pyarrow.RecordBatch], positions: Mapping[int, int], gone: Sequence[str]
    ) -> None:
        known = plain_schema(table.schema().as_arrow())
        data = pyarrow.Table.from_batches(rows) if rows else known.empty_table()
        told = {_TOPIC_ID: self._topic_id, **_next(positions)}
        with self._readable(), table.transaction() as commit:
            if gone:
                commit.remove_properties(*gone)
            commit.set_properties(told)
            if any(
                known.get_field_index(each.name) < 0 or known.field(each.name).type != each.type for each in data.schema
            ):
                with commit.update_schema() as update:
                    update.union_by_name(data.schema)
            commit.append(data, snapshot_properties=told)
        table.metadata.properties[_TRIES] = "0"

    # --- Maintenance -------------------------------------------------------------------------------------------------

    def maintain(self, retention_hours: int | None = None) -> dict[str, int]:
        """Expire the snapshots that are older; ``pyiceberg`` merges no files and removes none."""
        with self._readable():
            table = self._loaded(self.where)
            if table is None:
                raise FatalError(f"there is no table {self.where}")
            before = len(table.snapshots())
            oldest = datetime.fromtimestamp(time.time(), UTC) - timedelta(hours=_hours(retention_hours))
            table.maintenance.expire_snapshots().older_than(oldest).commit()
            return {"merged_files": 0, "new_files": 0, "removed_files": 0, "expired": before - len(table.snapshots())}

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Turn errors of the library into ``Conflict`` or one line."""
        from pyiceberg.exceptions import RESTError, ValidationException
        from sqlalchemy.exc import SQLAlchemyError

        with self._store.readable(self.where, (SQLAlchemyError, RESTError, OSError, ValueError)):
            try:
                yield
            except (CommitFailedException, ValidationException, TableAlreadyExistsError) as error:
                raise Conflict(str(error)) from error


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


def _hours(retention_hours: int | None) -> int:
    return _WEEK_HOURS if retention_hours is None else retention_hours


def _next(positions: Mapping[int, int]) -> dict[str, str]:
    return {_NEXT + str(partition): str(end) for partition, end in positions.items()}


def _positions(table: Table) -> dict[int, int]:
    told = table.properties.items()
    return {int(name.removeprefix(_NEXT)): int(end) for name, end in told if name.startswith(_NEXT)}


def _totals(table: Table) -> tuple[int, int, int]:
    """Rows, files, bytes."""
    snapshot = table.current_snapshot()
    summary = snapshot.summary if snapshot is not None else None
    if summary is None:
        return 0, 0, 0
    rows, files, size = (int(summary[name] or 0) for name in ("total-records", "total-data-files", "total-files-size"))
    return rows, files, size
