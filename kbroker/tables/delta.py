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
from functools import partial
from typing import Any, Final

import pyarrow
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from kbroker.errors import FatalError
from kbroker.tables.plan import Kept, Refused
from kbroker.tables.rows import TOPIC_ID_FIELD, plain_schema
from kbroker.tables.stores import StoreOptions
from kbroker.tables.target import DEAD_LETTERS, Conflict, TableFacts, furthest

_TOPIC: Final = "kbroker.topic"
_TOPIC_ID: Final = "kbroker.topic.id"
_VALUE: Final = "kbroker.value"
_DECLARED: Final = "kbroker.schema"
_FIRST: Final = "kbroker.first.partition"
_DATA_FILE: Final = re.compile(r"part-\d+-[0-9a-f-]{36}-c\d+(\.\w+)?\.parquet")
"""The names that Delta's writers give to files of rows."""
_FORGETS: Final = "delta.setTransactionRetentionDuration"


class DeltaTarget:
    """The table in a directory, and its dead letters beside it.

    What is added goes on from the version that `load` has read.
    """

    def __init__(self, path: str, store: StoreOptions | None = None) -> None:
        self.where = path
        self._is_local = "://" not in path
        self._path = os.path.abspath(path) if self._is_local else path.rstrip("/")
        self._store = store or StoreOptions()
        self._options = None if self._is_local else self._store.for_delta()
        self._is_assured = self._is_local
        self._table: DeltaTable | None = None
        self._dead: DeltaTable | None = None
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
            if _TOPIC not in told or _TOPIC_ID not in told:
                raise Refused(f"{self.where} is a Delta table, but none that kbroker made: name another place")
            self._topic_id = told[_TOPIC_ID]
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
        return Kept(told[_TOPIC], self._topic_id, told.get(_VALUE, "bytes"), positions, told.get(_DECLARED, ""))

    def topic(self) -> str | None:
        """The topic of the table; None without a table."""
        with self._readable():
            table = self._open(self._path)
            return None if table is None else table.metadata().configuration.get(_TOPIC)

    def schema(self) -> pyarrow.Schema:
        """The columns."""
        assert self._table is not None
        return plain_schema(pyarrow.schema(self._table.schema().to_arrow()))

    def dead_offsets(self, positions: Mapping[int, int]) -> set[tuple[int, int]]:
        """Partition and offset of the dead letters that are ahead of the table: its next commit was not reached."""
        found: set[tuple[int, int]] = set()
        if self._dead is None:
            return found
        from pyarrow.dataset import field

        with self._readable():
            for partition, end in self._known_dead.items():
                if end > positions.get(partition, 0):
                    rows = self._dead.to_pyarrow_table(
                        columns=["_offset"],
                        filters=(field("_topic_id") == self._topic_id)
                        & (field("_partition") == partition)
                        & (field("_offset") >= positions.get(partition, 0)),
                    )
                    found.update((partition, offset) for offset in rows.column(0).to_pylist())
        return found

    def facts(self) -> TableFacts:
        """The figures that `describe` shows, after `load`."""
        assert self._table is not None
        with self._readable():
            sizes = pyarrow.table(self._table.get_add_actions(flatten=True)).column("size_bytes").to_pylist()
            dead = 0 if self._dead is None else self._dead.count()
            return TableFacts(self._table.version(), self._table.count(), len(sizes), sum(sizes), dead)

    # --- What is written ---------------------------------------------------------------------------------------------

    def create(self, kept: Kept, schema: pyarrow.Schema) -> None:
        """Make the table; ``Conflict`` if somebody else has made one meanwhile."""
        told = {_TOPIC: kept.topic, _TOPIC_ID: kept.topic_id, _VALUE: kept.value_format, _DECLARED: kept.declared}
        told[_FIRST] = str(min(kept.positions))
        self._topic_id, self._known = kept.topic_id, dict(kept.positions)
        with self._readable():
            try:
                self._table = DeltaTable.create(
                    self._path,
                    schema,
                    configuration={name: text for name, text in told.items() if text},
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
            told = {_TOPIC_ID: topic_id, _FIRST: str(min(positions))}
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
            self._check(self._dead, self._known_dead, positions)
            reached = furthest(self._known_dead, positions)
            before = self._dead.version()
            write_deltalake(self._dead, table, mode="append", commit_properties=self._commit(reached))
            self._saw(self._dead, before)
            self._known_dead |= reached

    def add(self, rows: Sequence[pyarrow.RecordBatch], positions: Mapping[int, int]) -> None:
        """Add rows, which are of one schema, and the next offset of each partition that has moved. ``Conflict``."""
        assert self._table is not None
        with self._readable():
            self._check(self._table, self._known, positions)
            before = self._table.version()
            if rows:
                write_deltalake(
                    self._table, rows, mode="append", schema_mode="merge", commit_properties=self._commit(positions)
                )
            else:
                self._add_nothing(positions)
            self._known |= positions
            self._saw(self._table, before)

    def _check(self, table: DeltaTable, known: Mapping[int, int], partitions: Iterable[int]) -> None:
        """``Conflict`` if the version that a commit goes on from has other positions than `load` has told.

        A commit that another follower's came before, of other partitions, goes on from both; no later one would be
        refused for what that follower did.
        """
        if table.version() == self._seen.get(table.table_uri):
            return
        if _positions(table, self._topic_id, partitions) != {each: known[each] for each in partitions if each in known}:
            raise Conflict("another follower has gone on with a partition")

    def _saw(self, table: DeltaTable, before: int) -> None:
        """Note the version of a commit that nobody's came before: to ask for all positions takes a while."""
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

    def maintain(self, retention_hours: int | None = None) -> dict[str, int]:
        """Merge small files, and remove those that no version of the retention needs; what was done."""
        with self._readable():
            table = self._open(self._path)
            if table is None:
                raise FatalError(f"there is no table in {self.where}")
            merged: dict[str, Any] = table.optimize.compact()
            table.create_checkpoint()
            vacuum = partial(table.vacuum, retention_hours, enforce_retention_duration=retention_hours is None)
            # A full one would remove whatever the table does not know, whoever has put it there.
            others = [each for each in vacuum(dry_run=True, full=True) if not _DATA_FILE.fullmatch(each)]
            removed = vacuum(dry_run=False, full=not others)
            return {
                "merged_files": merged["numFilesRemoved"],
                "new_files": merged["numFilesAdded"],
                "removed_files": len(removed),
                **({"kept_files_of_others": len(others)} if others else {}),
            }


def _app_id(topic_id: str, partition: int) -> str:
    return f"kbroker/{topic_id}/{partition}"


def _positions(table: DeltaTable, topic_id: str, partitions: Iterable[int]) -> dict[int, int]:
    found = {each: table.transaction_version(_app_id(topic_id, each)) for each in partitions}
    return {partition: version for partition, version in found.items() if version is not None}
