"""Records as tables of Arrow: the columns ``partition``, ``offset``, ``timestamp``, ``key``, ``value``, ``headers``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import FatalError
from kbroker.wire.batch_header import NO_TIMESTAMP
from kbroker.wire.record_batch import Record

if TYPE_CHECKING:
    import pyarrow

BATCH_BYTES: Final = 64 << 20


def pyarrow_module() -> Any:
    """The package ``pyarrow``; ``ImportError`` says how it is had."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError("tables need pyarrow: pip install kbroker[arrow]") from error
    return pyarrow


def topic_schema() -> pyarrow.Schema:
    """The columns."""
    arrow = pyarrow_module()
    header = arrow.struct([arrow.field("key", arrow.string()), arrow.field("value", arrow.binary())])
    return arrow.schema(
        [
            arrow.field("partition", arrow.int32(), nullable=False),
            arrow.field("offset", arrow.int64(), nullable=False),
            arrow.field("timestamp", arrow.timestamp("ms", "UTC")),
            arrow.field("key", arrow.binary()),
            arrow.field("value", arrow.binary()),
            arrow.field("headers", arrow.list_(header), nullable=False),
        ]
    )


def _check_name(name: str, partition: int, offset: int) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        problem = "the name of a header is not UTF-8, and columns of Arrow and Parquet have text alone"
        raise FatalError(f"partition {partition}, offset {offset}: {problem}") from None


class RecordColumns:
    """Records on their way into a batch of at most ``limit`` records, and not many more than ``BATCH_BYTES``."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._clear()

    def _clear(self) -> None:
        self._partitions: list[int] = []
        self._offsets: list[int] = []
        self._timestamps: list[int | None] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[tuple[tuple[str, bytes | None], ...]] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """Whether it is time for :meth:`batch`."""
        return len(self._offsets) >= self._limit or self._bytes >= BATCH_BYTES

    def add(self, partition: int, record: Record) -> None:
        """Add a record; ``FatalError`` if the columns cannot have it."""
        offset, timestamp, key, value, headers = record
        self._partitions.append(partition)
        self._offsets.append(offset)
        self._timestamps.append(timestamp if timestamp != NO_TIMESTAMP else None)
        self._keys.append(key)
        self._values.append(value)
        self._headers.append(headers)
        self._bytes += (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
        for name, content in headers:
            if not name.isascii() and not name.isprintable():
                _check_name(name, partition, offset)
            self._bytes += len(name) + (len(content) if content is not None else 0)

    def batch(self) -> pyarrow.RecordBatch:
        """The records as a batch; the columns are empty after it."""
        arrow = pyarrow_module()
        schema = topic_schema()
        headers = [[{"key": name, "value": value} for name, value in entry] for entry in self._headers]
        columns = [self._partitions, self._offsets, self._timestamps, self._keys, self._values, headers]
        arrays = [arrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        self._clear()
        return arrow.RecordBatch.from_arrays(arrays, schema=schema)
