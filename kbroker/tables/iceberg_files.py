"""The files of a table in Iceberg's format: rows are read and written with the names of columns that all tables have.

What ``pyiceberg`` 0.12 does not do, or does otherwise than a table that is followed needs, is here too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, TypeVar

import pyarrow
import pyarrow.compute as pc
import pyiceberg.io.pyarrow
from pyarrow.fs import FileSelector, FileSystem
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFileIO, _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table, Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.utils.truncate import truncate_upper_bound_text_string

from kbroker.errors import FatalError
from kbroker.tables.layout import TOPIC_ID, Layout
from kbroker.tables.rows import plain_schema
from kbroker.tables.target import NOTE, NOTES, checked_file

NEXT: Final = "kbroker.next."
PARTITION: Final = "_partition"
NAMES: Final = {PARTITION: "_topic_partition"}
"""Columns that have another name there: Iceberg keeps these for itself, and Spark reads no table that has one."""
TAKEN: Final = (*NAMES.values(), *("_file", "_pos", "_deleted", "_spec_id", "_row_id", "_last_updated_sequence_number"))
_INWARD: Final = {theirs: ours for ours, theirs in NAMES.items()}

Data = TypeVar("Data", pyarrow.Schema, pyarrow.Table)
_ITS_FILE: Final = re.compile(
    r"data/([^/=]+=[^/]*/)*[0-9]{5}-[0-9]+-[0-9a-f-]{36}(-[0-9]+)*(-deletes)?\.parquet"
    r"|metadata/([0-9a-f-]{36}-m[0-9]+|optimized-m-[0-9a-f-]{36}|snap-[0-9]+-[0-9]+-[0-9a-f-]{36})\.avro"
    r"|metadata/[0-9]{5,}-[0-9a-f-]{36}\.metadata\.json"
)
"""The names that Iceberg's writers give to files below a table's place."""


def _store_of(table: Table) -> tuple[FileSystem, str]:
    """The file system of a table, and the table's place there."""
    if not isinstance(table.io, PyArrowFileIO):
        raise FatalError(f"{type(table.io).__name__} of the catalog lists no files: leave out py-io-impl")
    scheme, host, place = PyArrowFileIO.parse_location(table.location())
    return table.io.fs_by_scheme(scheme, host), place


def noted_in(table: Table) -> dict[str, str]:
    """Returns what followers have told beside a table, by the names of their files."""
    store, place = _store_of(table)
    found: dict[str, str] = {}
    for each in store.get_file_info(FileSelector(f"{place}/{NOTES}", allow_not_found=True)):
        if not NOTE.fullmatch(each.base_name):
            continue
        with suppress(FileNotFoundError):
            found[each.base_name] = store.open_input_stream(each.path).read().decode("utf-8", "replace")
    return found


def next_of(positions: Mapping[int, int]) -> dict[str, str]:
    """Returns the properties that have the next offset of each partition."""
    return {NEXT + str(partition): str(end) for partition, end in positions.items()}


def marks_of(table: Table) -> dict[str, str]:
    """Returns the offsets that the table has, for the summary of a snapshot that changes nothing of it."""
    return {TOPIC_ID: table.properties[TOPIC_ID], **next_of(positions_in(table.properties))}


def positions_in(told: Mapping[str, str]) -> dict[int, int]:
    """Returns the next offset of each partition, out of the properties of a table."""
    return {int(name.removeprefix(NEXT)): int(end) for name, end in told.items() if name.startswith(NEXT)}


def totals_of(table: Table) -> tuple[int, int, int]:
    """Returns how many rows, files and bytes a table has."""
    snapshot = table.current_snapshot()
    summary = snapshot.summary if snapshot is not None else None
    if summary is None:
        return 0, 0, 0
    rows, files, size = (int(summary[name] or 0) for name in ("total-records", "total-data-files", "total-files-size"))
    if int(summary["total-delete-files"] or 0):  # the records are counted without them
        rows = table.scan().count()
    return rows, files, size


class _Projection(pyiceberg.io.pyarrow.ArrowProjectionVisitor):
    """Reads a list or a map without a value as null: ``pyiceberg`` 0.12 makes it empty if it is one of structures."""

    def list(self, list_type: Any, list_array: Any, value_array: Any) -> Any:
        """Returns the lists with their nulls."""
        return _with_nulls(super().list(list_type, list_array, value_array), list_array)

    def map(self, map_type: Any, map_array: Any, key_result: Any, value_result: Any) -> Any:
        """Returns the maps with their nulls."""
        return _with_nulls(super().map(map_type, map_array, key_result, value_result), map_array)


def _with_nulls(found: Any, before: Any) -> Any:
    if found is None or found.null_count == before.null_count:
        return found
    return pc.if_else(before.is_valid(), found, pyarrow.nulls(len(found), found.type))


def _upper_bound(value: str, trunc_length: int | None) -> str | None:
    """Returns an upper bound of so many characters; none where it would be one of half a surrogate pair."""
    found = truncate_upper_bound_text_string(value, trunc_length)
    return None if found is not None and "\ud800" in found else found


pyiceberg.io.pyarrow.ArrowProjectionVisitor = _Projection  # type: ignore[misc]
pyiceberg.io.pyarrow.truncate_upper_bound_text_string = _upper_bound  # type: ignore[attr-defined]


class Replacing(_OverwriteFiles):
    """A snapshot that changes no rows: Iceberg's operation for it, which streams of Spark pass over."""

    def __init__(self, commit: Transaction, table: Table) -> None:
        super().__init__(Operation.OVERWRITE, commit, table.io, snapshot_properties=marks_of(table))

    def _summary(self, snapshot_properties: Mapping[str, str] | None = None) -> Summary:
        summary = super()._summary(dict(snapshot_properties or {}))
        return Summary(Operation.REPLACE, **summary.additional_properties)


def read_rows(commit: Transaction, table: Table, task: FileScanTask, *columns: str) -> pyarrow.Table:
    """Returns the rows of a file with the columns of the table, or with some of them."""
    schema = commit.table_metadata.schema()
    names = (partition_column(table) if each == PARTITION else each for each in columns)
    chosen = schema.select(*names) if columns else schema
    rows = ArrowScan(commit.table_metadata, table.io, chosen, AlwaysTrue()).to_table([task])
    rows = rows.cast(plain_schema(rows.schema))
    return rows.rename_columns(inward(rows.schema).names)


def clustered(table: Table, rows: pyarrow.Table) -> pyarrow.Table:
    """Returns rows in the order that the table asks for."""
    order = [(each, "ascending") for each in Layout.of(table.properties).cluster]
    return rows.sort_by(order) if order else rows


def write_rows(commit: Transaction, table: Table, rows: pyarrow.Table) -> Iterable[DataFile]:
    """Write rows into new files, which no snapshot names yet."""
    if not rows.num_rows:
        return ()
    return _dataframe_to_data_files(commit.table_metadata, named_for(table, clustered(table, rows)), table.io)


def outward(schema: pyarrow.Schema) -> pyarrow.Schema:
    """Returns the columns of all tables with the names that they have in Iceberg."""
    return pyarrow.schema([each.with_name(NAMES.get(each.name, each.name)) for each in schema])


def columns_of(table: Table) -> pyarrow.Schema:
    """Returns a table's columns as the follower makes them."""
    return inward(plain_schema(table.schema().as_arrow()))


def inward(schema: pyarrow.Schema) -> pyarrow.Schema:
    """Returns a table's columns with the names that those of all tables have."""
    return pyarrow.schema([each.with_name(_INWARD.get(each.name, each.name)) for each in schema])


def partition_column(table: Table) -> str:
    """Returns the name that the partition's column has: tables of the first release have it as it is."""
    return PARTITION if PARTITION in table.schema().column_names else NAMES[PARTITION]


def named_for(table: Table, data: Data) -> Data:
    """Returns rows, or a schema, with the names that the table has."""
    if partition_column(table) == PARTITION:
        return data
    return outward(data) if isinstance(data, pyarrow.Schema) else data.rename_columns(outward(data.schema).names)


def remove_orphans(table: Table, oldest: datetime) -> dict[str, int]:
    """Remove files at the table's place that none of its metadata names; those whose names nothing explains stay."""
    metadata = table.metadata
    named = {table.metadata_location, *(each.metadata_file for each in metadata.metadata_log)}
    named.update(each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics))
    named.update(each.manifest_list for each in metadata.snapshots)
    manifests = {each.manifest_path: each for snapshot in metadata.snapshots for each in snapshot.manifests(table.io)}
    named.update(manifests)
    for manifest in manifests.values():
        named.update(each.data_file.file_path for each in manifest.fetch_manifest_entry(table.io))
    store, place = _store_of(table)
    known = {PyArrowFileIO.parse_location(each)[2] for each in named}
    orphans = [
        each
        for each in store.get_file_info(FileSelector(place, recursive=True))
        if each.is_file
        and checked_file(each.path) not in known
        and each.mtime < oldest
        and not os.path.relpath(each.path, place).startswith(f"{NOTES}/")
    ]
    its_own = [each.path for each in orphans if _ITS_FILE.fullmatch(checked_file(os.path.relpath(each.path, place)))]
    for path in its_own:
        store.delete_file(path)
    others = len(orphans) - len(its_own)
    return {"removed_files": len(its_own), **({"kept_files_of_others": others} if others else {})}
