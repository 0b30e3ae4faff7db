"""Tables that have the latest row of each key: what a record does to its key's row, also by Debezium's envelope.

Within a partition the offset says which record of a key is the latest. A key is in two partitions if their number
grew, or if producers choose partitions in different ways; offsets of two partitions say nothing about each other, so
there the later timestamp wins, and of equal ones the higher partition.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow
import pyarrow.compute as pc

from kbroker.client.records_io.json_types import ExactFloat, Json, load_json, to_bytes
from kbroker.client.schemas.wire_format import Headers
from kbroker.tables.columns import converted, flattened, widen
from kbroker.tables.json_kinds import Unfit
from kbroker.tables.rows import CHANGE, DELETE, TRUNCATE, WRITE, Bad, Values
from kbroker.tables.target import Traits
from kbroker.value_types import NamedTuple

UPSERT: Final = "upsert"
DEBEZIUM: Final = "debezium"
"""Ways in which a table is kept by key; the one without a name has every record as a row."""

ENVELOPES: Final = ("json", "avro", "protobuf")
"""Formats that envelopes have."""

_WRITES: Final = ("c", "u", "r")
_OTHERS: Final = {"d": DELETE, "t": TRUNCATE}
_LONG_NUMBER: Final = re.compile(rb"(?=[\d.]{17})\d+\.\d")
"""The beginning of a broken number that may say more than a double holds."""
_FIRST_TIME: Final = pyarrow.scalar(0, pyarrow.timestamp("us", "UTC"))


class KeyedValues:
    """Values of a format; a tombstone deletes the row of its key."""

    def __init__(self, values: Values) -> None:
        self.name = values.name
        self._values = values

    def fields(self) -> list[pyarrow.Field]:
        """Returns the columns of the format."""
        return self._values.fields()

    def learn(self, values: Iterable[bytes | None]) -> None:
        """Take a sample."""
        self._values.learn(values)

    def columns(self, values: Sequence[bytes | None], headers: Sequence[Headers]) -> tuple[list[pyarrow.Array], Bad]:
        """Returns the columns of the values, and the changes that they are."""
        columns, bad = self._values.columns(values, headers)
        changes = [DELETE if value is None else WRITE for value in values]
        return [*columns, pyarrow.array(changes, CHANGE.type)], bad


class DebeziumValues(KeyedValues):
    """Debezium's envelopes in JSON, with a schema or without; the columns are those of ``after``."""

    def learn(self, values: Iterable[bytes | None]) -> None:
        """Take a sample."""
        self._values.learn(_rows(values))

    def columns(self, values: Sequence[bytes | None], headers: Sequence[Headers]) -> tuple[list[pyarrow.Array], Bad]:
        """Returns the columns of the rows that are written, and the changes; a value that is no envelope is bad."""
        changes = [DELETE] * len(values)
        rows: list[bytes | None] = [None] * len(values)
        bad: dict[int, str] = {}
        for index, value in enumerate(values):
            try:
                changes[index], rows[index] = open_envelope(value)
            except Unfit as error:
                bad[index] = str(error)
        columns, unfit = self._values.columns(rows, headers)
        return [*columns, pyarrow.array(changes, CHANGE.type)], {**unfit, **bad}


class DebeziumColumns:
    """Debezium's envelopes in a format whose columns they are; the table's columns are the fields of ``after``."""

    def __init__(
        self, values: Values, columns: Sequence[pyarrow.Field], traits: Traits, *, flatten: bool = False
    ) -> None:
        """``columns``: those that the table has."""
        self.name = values.name
        self._values = values
        self._known = pyarrow.struct(columns)
        self._traits = traits
        self._flatten = flatten

    def fields(self) -> list[pyarrow.Field]:
        """Returns the columns of the rows that envelopes are about."""
        after = next((each.type for each in self._values.fields() if each.name == "after"), None)
        if self._flatten or after is None or not pyarrow.types.is_struct(after):
            after = self._known
        return list(after)

    def learn(self, values: Iterable[bytes | None]) -> None:
        """There is nothing to learn: the schemas tell all."""

    def columns(self, values: Sequence[bytes | None], headers: Sequence[Headers]) -> tuple[list[pyarrow.Array], Bad]:
        """Returns the columns of ``after``, and the changes; a value that is no envelope is bad."""
        columns, found = self._values.columns(values, headers)
        bad = dict(found)
        named = {each.name: column for each, column in zip(self._values.fields(), columns, strict=True)}
        nothing = pyarrow.nulls(len(values))
        after, operations = named.get("after", nothing), named.get("op", nothing).to_pylist()
        if not pyarrow.types.is_struct(after.type):
            after = pyarrow.nulls(len(values), self._known)
        changes: list[int] = []
        for index, (value, operation, row) in enumerate(
            zip(values, operations, after.is_valid().to_pylist(), strict=True)
        ):
            changes.append(DELETE)
            if value is not None and index not in bad:
                try:
                    changes[-1] = _change_of(operation, has_row=row)
                except Unfit as error:
                    bad[index] = str(error)
        if self._flatten:
            after, unfit = self._flat(after)
            bad = unfit | bad
        return [*after.flatten(), pyarrow.array(changes, CHANGE.type)], bad

    def _flat(self, after: pyarrow.StructArray) -> tuple[pyarrow.StructArray, dict[int, str]]:
        """Returns the rows with the columns of the table, and why some do not fit them."""
        try:
            rows = flattened(after)
            self._known = widen(self._known, rows.type, self._traits)
        except Unfit as error:
            written = [index for index, each in enumerate(after.is_valid().to_pylist()) if each]
            return pyarrow.nulls(len(after), self._known), dict.fromkeys(written, str(error))
        return converted(
            range(len(rows)), lambda places: rows.take(pyarrow.array(places, pyarrow.int64())), self._known
        )


def _change_of(operation: Json, *, has_row: bool) -> int:
    """The change that an envelope is; ``Unfit``."""
    if operation is None:
        raise Unfit("no envelope of Debezium: it has no op")
    if operation in _WRITES and not has_row:
        raise Unfit(f"no envelope of Debezium: op {operation} without after")
    change = WRITE if operation in _WRITES else _OTHERS.get(str(operation))
    if change is None:
        raise Unfit(f"op {str(operation)[:30]} of Debezium is no change of a row")
    return change


def _rows(values: Iterable[bytes | None]) -> Iterator[bytes | None]:
    for value in values:
        try:
            yield open_envelope(value)[1]
        except Unfit:
            continue


def open_envelope(value: bytes | None) -> tuple[int, bytes | None]:
    """Returns the change that a value is, and the row that it writes; ``Unfit`` if it is no envelope."""
    if value is None:
        return DELETE, None
    is_long = _LONG_NUMBER.search(value) is not None
    try:
        envelope = load_json(value, exact=is_long)
    except UnicodeDecodeError:
        raise Unfit("not UTF-8") from None
    except ValueError as error:
        raise Unfit(f"not JSON: {error}") from None
    if isinstance(envelope, dict) and envelope.keys() == {"schema", "payload"}:
        envelope = envelope["payload"]
    if not isinstance(envelope, dict):
        raise Unfit("no envelope of Debezium: it has no op")
    after = envelope.get("after")
    change = _change_of(envelope.get("op"), has_row=isinstance(after, dict))
    try:
        if change != WRITE:
            return change, None
        return change, _exactly(after).encode() if is_long else to_bytes(after)
    except RecursionError:
        raise Unfit("nested too deep") from None


def _exactly(document: Json) -> str:
    """A document in JSON, with its numbers as they were written."""
    if isinstance(document, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_exactly(each)}" for name, each in document.items()) + "}"
    if isinstance(document, list):
        return "[" + ",".join(map(_exactly, document)) + "]"
    return document.text if isinstance(document, ExactFloat) else json.dumps(document)


# --- The latest of each key ------------------------------------------------------------------------------------------


class Truncation(NamedTuple):
    """All rows are deleted: those of its partition that are before it, and those of others that are not later."""

    partition: int
    offset: int
    microseconds: int


def latest(batches: Sequence[pyarrow.RecordBatch]) -> pyarrow.Table:
    """Returns the last change of each key, and the truncations, of rows that are in the order of their offsets.

    The result and what comes after it may be given again.
    """
    table = pyarrow.Table.from_batches(batches)
    cuts = table.filter(pc.equal(table[CHANGE.name], TRUNCATE))
    changes = _last_of(of_keys(table), ["_key", "_partition"])
    if pc.count_distinct(changes["_key"]).as_py() < changes.num_rows:
        order = pyarrow.table({"time": _times(changes), "partition": changes["_partition"]})
        changes = changes.take(pc.sort_indices(order, [("time", "ascending"), ("partition", "ascending")]))
        changes = _last_of(changes, ["_key"])
    for cut in truncations(cuts):
        same = pc.equal(changes["_partition"], cut.partition)
        later = pc.if_else(
            same,
            pc.greater(changes["_offset"], cut.offset),
            pc.greater(_times(changes).cast(pyarrow.int64()), cut.microseconds),
        )
        index = changes.schema.get_field_index(CHANGE.name)
        # A row that was truncated deletes one that the table may have.
        kept = pc.if_else(later, changes[CHANGE.name], pyarrow.scalar(DELETE, CHANGE.type))
        changes = changes.set_column(index, CHANGE, kept)
    return pyarrow.concat_tables([changes, cuts])


def _last_of(table: pyarrow.Table, keys: list[str]) -> pyarrow.Table:
    numbers = pyarrow.array(range(table.num_rows), pyarrow.int64())
    grouped = table.select(keys).append_column("number", numbers).group_by(keys, use_threads=False)
    return chosen(table, pc.is_in(numbers, grouped.aggregate([("number", "max")])["number_max"].combine_chunks()))


def chosen(table: pyarrow.Table, mask: Any) -> pyarrow.Table:
    """Returns the rows that a mask chooses; of all of them no copy."""
    return table if pc.all(mask).as_py() else table.filter(mask)


def _times(table: pyarrow.Table) -> Any:
    return pc.coalesce(table["_timestamp"], _FIRST_TIME)


def truncations(changes: pyarrow.Table) -> list[Truncation]:
    """Returns the truncations among changes."""
    cuts = changes.filter(pc.equal(changes[CHANGE.name], TRUNCATE))
    times = _times(cuts).cast(pyarrow.int64()).to_pylist()
    return list(map(Truncation, cuts["_partition"].to_pylist(), cuts["_offset"].to_pylist(), times))


def of_keys(changes: pyarrow.Table) -> pyarrow.Table:
    """Returns the changes without the truncations."""
    return chosen(changes, pc.not_equal(changes[CHANGE.name], TRUNCATE))


def losing(changes: pyarrow.Table, found: pyarrow.Table) -> pyarrow.Array:
    """Returns the keys of changes that are older than the rows of other partitions which a table has for them."""
    both = changes.select(["_key", "_partition", "_timestamp"]).join(
        found.select(["_key", "_partition", "_timestamp"]), "_key", join_type="inner", right_suffix="_found"
    )
    time, other = pc.coalesce(both["_timestamp"], _FIRST_TIME), pc.coalesce(both["_timestamp_found"], _FIRST_TIME)
    older = pc.or_(
        pc.less(time, other), pc.and_(pc.equal(time, other), pc.less(both["_partition"], both["_partition_found"]))
    )
    lost = both.filter(pc.and_(older, pc.not_equal(both["_partition"], both["_partition_found"])))
    return lost["_key"].combine_chunks()


def without_truncated(found: pyarrow.Table, cuts: Iterable[Truncation]) -> pyarrow.Table:
    """Returns the rows of a table that truncations, which are later than the table, leave."""
    for cut in cuts:
        later = pc.greater(_times(found).cast(pyarrow.int64()), cut.microseconds)
        found = found.filter(pc.and_(pc.not_equal(found["_partition"], cut.partition), later))
    return found
