"""Records as rows of Arrow: five columns that every table has, and the value's, by its format.

What is no value of the format is a dead letter: a row of another table, with the value as bytes and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow
import pyarrow.compute
import pyarrow.json

from kbroker.client.schemas.wire_format import Headers
from kbroker.tables.columns import TIME, converted, flattened, put
from kbroker.tables.json_kinds import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    LONG,
    RESERVED,
    STRING,
    TIMESTAMP,
    WHOLE_TO,
    Kind,
    Kinds,
    Unfit,
    aligned,
    check_joined,
    check_name,
    decimal_of,
    fit_object,
    flat_kinds,
    infer,
)
from kbroker.tables.plan import Lost
from kbroker.tables.target import NO_TRAITS, Traits
from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import NO_TIMESTAMP
from kbroker.wire.record_batch import Record

PIECE: Final = 1024
"""Values that are looked at one by one when one among them is no value of the format."""

LATEST_TIME: Final = 253_402_300_799_999
"""The end of the year 9999, in ms: engines that read tables know no later time."""

_HEADER: Final = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])

RECORD_FIELDS: Final = (
    pyarrow.field("_partition", pyarrow.int32()),
    pyarrow.field("_offset", pyarrow.int64()),
    pyarrow.field("_timestamp", TIME),
    pyarrow.field("_key", pyarrow.binary()),
    pyarrow.field("_headers", pyarrow.list_(_HEADER)),
)
"""The columns of every table."""

DEAD_LETTERS: Final = pyarrow.schema(
    [*RECORD_FIELDS, pyarrow.field("value", pyarrow.binary()), pyarrow.field("reason", pyarrow.string())]
)

TOPIC_ID_FIELD: Final = pyarrow.field("_topic_id", pyarrow.string())
"""The last column of dead letters: those of a topic that is gone are none of its successor's."""

CHANGE: Final = pyarrow.field("_key change", pyarrow.int8())
"""The last column of rows that are merged by their keys; no table has it, for no column may have a space."""
WRITE: Final = 0
DELETE: Final = 1
TRUNCATE: Final = 2

Bad = Mapping[int, str]
"""The index of a value -> why it is none of the format."""


class Values(Protocol):
    """A format of values."""

    name: str

    def fields(self) -> list[pyarrow.Field]:
        """The columns, as far as they are known."""

    def learn(self, values: Iterable[bytes | None]) -> None:
        """Take the first values that there are, of all partitions, for a sample."""

    def columns(self, values: Sequence[bytes | None], headers: Sequence[Headers]) -> tuple[list[pyarrow.Array], Bad]:
        """The columns of some values, null where they are bad; then `fields` may be more than they were.

        ``headers``: those of each value's record, in which a schema may be named.
        """


class BytesValues:
    """Values as they are."""

    name = "bytes"

    def fields(self) -> list[pyarrow.Field]:
        """Returns a single column."""
        return [pyarrow.field("value", pyarrow.binary())]

    def learn(self, values: Iterable[bytes | None]) -> None:
        """There is nothing to learn."""

    def columns(
        self, values: Sequence[bytes | None], headers: Sequence[Headers] = ()
    ) -> tuple[list[pyarrow.Array], Bad]:
        """Returns the values; all fit."""
        return [pyarrow.array(values, pyarrow.binary())], {}


class TextValues:
    """Values as text, which they are in UTF-8."""

    name = "text"

    def fields(self) -> list[pyarrow.Field]:
        """Returns a single column."""
        return [pyarrow.field("value", pyarrow.string())]

    def learn(self, values: Iterable[bytes | None]) -> None:
        """There is nothing to learn."""

    def columns(
        self, values: Sequence[bytes | None], headers: Sequence[Headers] = ()
    ) -> tuple[list[pyarrow.Array], Bad]:
        """Returns the texts; a value that is not UTF-8 is bad."""
        try:
            return [pyarrow.array(values, pyarrow.binary()).cast(pyarrow.string())], {}
        except pyarrow.ArrowInvalid:
            pass
        texts: list[str | None] = []
        bad: dict[int, str] = {}
        for index, value in enumerate(values):
            try:
                texts.append(None if value is None else value.decode())
            except UnicodeDecodeError as error:
                texts.append(None)
                bad[index] = f"not UTF-8 at byte {error.start}"
        return [pyarrow.array(texts, pyarrow.string())], bad


class JsonValues:
    """Values as JSON: each field of the object is a column. Fields that are new widen the table."""

    name = "json"

    def __init__(
        self, kinds: Kinds, *, declared: bool = False, flat: Kinds | None = None, traits: Traits = NO_TRAITS
    ) -> None:
        """``declared``: a field that the kinds have not is no reason to widen the table, but a dead letter.

        ``flat``: the columns of a table whose nested fields are columns of their own; the kinds are nested.
        """
        self.kinds = kinds
        self._declared = declared
        self._flat = flat
        self._traits = traits
        if flat is not None:
            self._widen(kinds)

    def _widen(self, kinds: Kinds) -> None:
        """Go on with more kinds; ``Unfit`` for one that cannot be a column."""
        columns = self._checked(kinds)
        if self._flat is not None:
            self._flat = columns
            kinds = aligned(kinds, columns)
        self.kinds = kinds

    def _checked(self, kinds: Kinds) -> Kinds:
        """The columns with those of more kinds; ``Unfit`` for one that cannot be."""
        known, more = (self.kinds, kinds) if self._flat is None else (self._flat, flat_kinds(kinds))
        names = {*map(str.lower, known), *self._traits.taken}
        for each in more:
            if each not in known:
                check_name(each, "", names)
        columns = kinds if self._flat is None else known | more | known
        if self._traits.joins:
            check_joined(columns)
        return columns

    def fields(self) -> list[pyarrow.Field]:
        """A column for each field whose kind is known."""
        return _fields(self.kinds if self._flat is None else self._flat, arrow_type)

    def learn(self, values: Iterable[bytes | None]) -> None:
        """Infer the kinds, if there are none yet."""
        if not self.kinds:
            self._widen(infer(values, self._checked))

    def columns(
        self, values: Sequence[bytes | None], headers: Sequence[Headers] = ()
    ) -> tuple[list[pyarrow.Array], Bad]:
        """Returns a column for each field; a value that is no object, or does not fit the kinds, is bad."""
        whole = self._parse(values)
        if whole is not None:
            return whole, {}
        before = self.kinds
        pieces, bad = self._pieces(values)
        if self.kinds is not before:
            pieces, bad = self._pieces(values)  # now that all of them are known
        columns = [
            pyarrow.chunked_array([piece[index] for piece in pieces], field.type).combine_chunks()
            for index, field in enumerate(self.fields())
        ]
        return columns, bad

    def _pieces(self, values: Sequence[bytes | None]) -> tuple[list[list[pyarrow.Array]], dict[int, str]]:
        pieces: list[list[pyarrow.Array]] = []
        bad: dict[int, str] = {}
        for start in range(0, len(values), PIECE):
            piece = values[start : start + PIECE]
            parsed = self._parse(piece)
            if parsed is None:
                parsed = self._fit(piece, start, bad)
            pieces.append(parsed)
        return pieces, bad

    def _parse(self, values: Sequence[bytes | None]) -> list[pyarrow.Array] | None:
        """The columns, if every value fits; None if one does not, and has to be found.

        A value within an object of its own cannot end that object and begin the next one unnoticed: then there are
        more rows than values, a field that is not known, or one that is there twice.
        """
        if not self.kinds:
            return None
        text = b'{"v":' + b'}\n{"v":'.join([b"null" if value is None else value for value in values]) + b"}\n"
        kind = pyarrow.struct(_fields(self.kinds, _read_type))
        try:
            text.decode()
            table = pyarrow.json.read_json(
                pyarrow.BufferReader(text),
                pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
                pyarrow.json.ParseOptions(
                    explicit_schema=pyarrow.schema([("v", kind)]),
                    newlines_in_values=True,
                    unexpected_field_behavior="error",
                ),
            )
        except (pyarrow.ArrowInvalid, UnicodeDecodeError):
            return None
        if table.num_rows != len(values):
            return None
        try:
            found = self._put(table.column(0).combine_chunks())
        except Unfit:
            return None
        return None if any(map(_is_doubtful, found)) else found

    def _put(self, array: pyarrow.StructArray) -> list[pyarrow.Array]:
        """The columns of the table, out of what was read."""
        if self._flat is not None:
            array = flattened(array)
        wanted = pyarrow.struct(self.fields())
        columns: list[pyarrow.Array] = (array if array.type == wanted else put(array, wanted)).flatten()
        return columns

    def _fit(self, values: Sequence[bytes | None], start: int, bad: dict[int, str]) -> list[pyarrow.Array]:
        """The columns, value by value; adds what does not fit to ``bad``, and what is new to the kinds."""
        documents: list[dict[str, Any]] = []
        for index, value in enumerate(values, start):
            fitted = None
            try:
                kinds, fitted = fit_object(self.kinds, value)
                if kinds is not self.kinds:
                    if self._declared:
                        raise Unfit("a field that the declared schema has not")
                    self._widen(kinds)
            except Unfit as error:
                bad[index] = str(error)
                fitted = None
            documents.append(fitted or {})
        kind, wanted = pyarrow.struct(_fields(self.kinds, _read_type)), pyarrow.struct(self.fields())

        def build(documents: Sequence[Any]) -> pyarrow.Array:
            array = pyarrow.array(documents, kind)
            return array if self._flat is None else flattened(array)

        array, unfit = converted(documents, build, wanted)
        bad.update((start + place, reason) for place, reason in unfit.items())
        columns: list[pyarrow.Array] = array.flatten()
        return columns


def _is_doubtful(column: pyarrow.Array) -> bool:
    """Whether a column has numbers that may be infinite, whole and rounded, or of too many digits: their text says it.

    ``pyarrow`` counts the digits of a decimal before it adds those behind the point, and takes NaN.
    """
    if pyarrow.types.is_struct(column.type):
        return any(map(_is_doubtful, column.flatten()))
    if pyarrow.types.is_list(column.type):
        return _is_doubtful(column.flatten())
    if pyarrow.types.is_decimal(column.type):
        try:
            column.validate(full=True)
        except pyarrow.ArrowInvalid:
            return True
    if column.type != pyarrow.float64():
        return False
    range_of = pyarrow.compute.min_max(column).as_py()
    if range_of["max"] is not None and max(-range_of["min"], range_of["max"]) >= WHOLE_TO:
        return True
    return bool(pyarrow.compute.any(pyarrow.compute.is_nan(column)).as_py())


_ARROW: Final = {
    BOOLEAN: pyarrow.bool_(),
    INT: pyarrow.int32(),
    LONG: pyarrow.int64(),
    DOUBLE: pyarrow.float64(),
    STRING: pyarrow.string(),
    TIMESTAMP: TIME,
    DATE: pyarrow.date32(),
}


def arrow_type(kind: Kind) -> pyarrow.DataType:
    """The type of a column."""
    if isinstance(kind, dict):
        return pyarrow.struct(_fields(kind, arrow_type))
    if isinstance(kind, list):
        return pyarrow.list_(arrow_type(kind[0]))
    assert kind is not None
    digits = decimal_of(kind)
    return _ARROW[kind] if digits is None else pyarrow.decimal128(*digits)


def _read_type(kind: Kind) -> pyarrow.DataType:
    """The type as which values are read: times are texts then."""
    if isinstance(kind, dict):
        return pyarrow.struct(_fields(kind, _read_type))
    if isinstance(kind, list):
        return pyarrow.list_(_read_type(kind[0]))
    return pyarrow.string() if kind in (TIMESTAMP, DATE) else arrow_type(kind)


def _fields(kinds: Kinds, type_of: Callable[[Kind], pyarrow.DataType]) -> list[pyarrow.Field]:
    return [pyarrow.field(name, type_of(kind)) for name, kind in kinds.items()]


def kinds_of(schema: pyarrow.Schema) -> tuple[Kinds, list[str]]:
    """The kinds of a table's columns besides those of the record, and the names of those that no JSON has."""
    kinds: Kinds = {}
    others: list[str] = []
    for field in schema:
        if field.name in RESERVED:
            continue
        kind = _kind(field.type)
        if kind is not None:
            kinds[field.name] = kind
        elif _is_foreign(field.type):
            others.append(field.name)
    return kinds, others


def _is_foreign(kind: pyarrow.DataType) -> bool:
    """Whether JSON has nothing of a type; of a structure some fields may be those of values."""
    if pyarrow.types.is_struct(kind):
        return all(_is_foreign(field.type) for field in kind)
    return _is_foreign(kind.value_type) if pyarrow.types.is_list(kind) else _kind(kind) is None


def _kind(kind: pyarrow.DataType) -> Kind:
    types = pyarrow.types
    if types.is_struct(kind):
        inner = {field.name: _kind(field.type) for field in kind}
        return inner if inner and None not in inner.values() else None
    if types.is_list(kind):
        element = _kind(kind.value_type)
        return None if element is None else [element]
    if types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return next((name for name, each in _ARROW.items() if each == kind), None)


def plain_schema(schema: pyarrow.Schema) -> pyarrow.Schema:
    """The same with lists, texts and bytes of the usual size, times in UTC, and without what is noted at a field."""
    return pyarrow.schema([pyarrow.field(each.name, _plain(each.type), each.nullable) for each in schema])


def widens(known: pyarrow.Schema, columns: pyarrow.Schema) -> bool:
    """Whether there is a column that is not known, or has fields within that are not."""
    return any(known.get_field_index(each.name) < 0 or known.field(each.name).type != each.type for each in columns)


def _plain(kind: pyarrow.DataType) -> pyarrow.DataType:
    types = pyarrow.types
    if types.is_struct(kind):
        return pyarrow.struct([(each.name, _plain(each.type)) for each in kind])
    if types.is_list(kind) or types.is_large_list(kind):
        return pyarrow.list_(_plain(kind.value_type))
    if types.is_map(kind):
        return pyarrow.map_(_plain(kind.key_type), _plain(kind.item_type))
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pyarrow.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pyarrow.binary()
    if types.is_timestamp(kind) and kind.tz is not None:
        return pyarrow.timestamp(kind.unit, "UTC")
    return kind


class Rows(NamedTuple):
    """Rows of some records, and the dead letters among the records."""

    rows: pyarrow.RecordBatch
    dead: pyarrow.RecordBatch | None


def rows_of(partition: int, records: Sequence[Record], values: Values, *, keyed: bool = False) -> Rows:
    """The rows of records of one partition. ``keyed``: the last column of the values is ``CHANGE``, of a key's row."""
    offsets, timestamps, keys, contents, headers = zip(*records, strict=True)
    columns, found = values.columns(contents, headers)
    bad = dict(found)
    times: Sequence[int] = timestamps
    if max(timestamps) > LATEST_TIME or min(timestamps) < NO_TIMESTAMP:
        for index, time in enumerate(timestamps):
            if not NO_TIMESTAMP <= time <= LATEST_TIME:
                bad[index] = f"its timestamp, {time} ms, is in no year that can be shown"
        times = [time if NO_TIMESTAMP <= time <= LATEST_TIME else NO_TIMESTAMP for time in timestamps]
    fields = [*RECORD_FIELDS, *values.fields()]
    if keyed:
        fields.append(CHANGE)
        for index in keyless(keys, columns[-1]):
            bad.setdefault(index, "no key, by which its row would be known")
    known = _record_columns(partition, offsets, times, keys, headers)
    rows = pyarrow.RecordBatch.from_arrays([*known, *columns], schema=pyarrow.schema(fields))
    if not bad:
        return Rows(rows, None)
    mask = pyarrow.array([index not in bad for index in range(len(records))])
    indexes = sorted(bad)
    dead = [column.take(pyarrow.array(indexes)) for column in known]
    dead.append(pyarrow.array([contents[index] for index in indexes], pyarrow.binary()))
    dead.append(pyarrow.array([bad[index].encode(errors="backslashreplace") for index in indexes], pyarrow.string()))
    return Rows(rows.filter(mask), pyarrow.RecordBatch.from_arrays(dead, schema=DEAD_LETTERS))


def keyless(keys: Sequence[bytes | None], changes: pyarrow.Array) -> list[int]:
    """Returns the indexes of changes that have no key, and are of a row."""
    if None not in keys:
        return []
    pairs = zip(keys, changes.to_pylist(), strict=True)
    return [index for index, (key, change) in enumerate(pairs) if key is None and change != TRUNCATE]


def lost_row(lost: Lost) -> pyarrow.RecordBatch:
    """A dead letter for offsets that are gone."""
    row = {"_partition": lost.partition, "_offset": lost.first, "_headers": [], "reason": str(lost)}
    return pyarrow.RecordBatch.from_pylist([row], schema=DEAD_LETTERS)


def _record_columns(
    partition: int,
    offsets: Sequence[int],
    timestamps: Sequence[int | None],
    keys: Sequence[bytes | None],
    headers: Sequence[Sequence[tuple[str, bytes | None]]],
) -> list[pyarrow.Array]:
    times = pyarrow.array(timestamps, pyarrow.int64())
    absent = pyarrow.compute.equal(times, NO_TIMESTAMP)
    times = pyarrow.compute.if_else(absent, None, times).cast(pyarrow.timestamp("ms", "UTC")).cast(TIME)
    ends = [0] * (len(offsets) + 1)
    flat: list[tuple[str, bytes | None]] = []
    if any(headers):
        for index, each in enumerate(headers, 1):
            flat += each
            ends[index] = len(flat)
    names = [name for name, _ in flat]
    try:
        header_names = pyarrow.array(names, pyarrow.string())
    except UnicodeEncodeError:  # a name that is not UTF-8: Kafka's consumers show it so, too
        names = [name.encode(errors="surrogateescape").decode(errors="replace") for name in names]
        header_names = pyarrow.array(names, pyarrow.string())
    header_columns = [header_names, pyarrow.array([value for _, value in flat], pyarrow.binary())]
    lists = pyarrow.ListArray.from_arrays(
        pyarrow.array(ends, pyarrow.int32()), pyarrow.StructArray.from_arrays(header_columns, fields=list(_HEADER))
    )
    return [
        pyarrow.array([partition], pyarrow.int32()).take(pyarrow.array([0] * len(offsets))),
        pyarrow.array(offsets, pyarrow.int64()),
        times,
        pyarrow.array(keys, pyarrow.binary()),
        lists,
    ]
