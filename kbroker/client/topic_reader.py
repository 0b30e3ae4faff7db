"""Topics as tables: ``kbroker.read_topic`` and ``kbroker.read_topic_batches``, for notebooks and jobs.

A topic is read from a broker (any Kafka), or straight from a log directory without one. The columns are ``partition``,
``offset``, ``timestamp`` (milliseconds, UTC), ``key``, ``value`` and ``headers``; a partition's records are in order.
Needs ``pyarrow`` (``pip install kbroker[arrow]``), and pandas for frames.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from kbroker.client.cluster import Client
from kbroker.client.errors import known
from kbroker.client.records_io.arrow import RecordColumns, pyarrow_module, topic_schema
from kbroker.errors import FatalError
from kbroker.types import TopicPartition
from kbroker.wire.record_batch import Record

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from kbroker.client.security import ClientSecurity

BATCH_RECORDS = 65_536
_END = 2**63 - 1

Offsets = int | Mapping[int, int] | None
"""The same for every partition, or one for each that is named."""

ClientConfig = Mapping[str, str] | str | os.PathLike[str] | None
"""Kafka's client properties, or the file that has them."""


@overload
def read_topic(
    source: str | os.PathLike[str],
    topic: str,
    *,
    frame: Literal["arrow"] = "arrow",
    partitions: Iterable[int] | None = None,
    start: Offsets = None,
    end: Offsets = None,
    read_committed: bool = True,
    client_properties: ClientConfig = None,
) -> pyarrow.Table: ...


@overload
def read_topic(
    source: str | os.PathLike[str],
    topic: str,
    *,
    frame: Literal["pandas"],
    partitions: Iterable[int] | None = None,
    start: Offsets = None,
    end: Offsets = None,
    read_committed: bool = True,
    client_properties: ClientConfig = None,
) -> pandas.DataFrame: ...


def read_topic(
    source: str | os.PathLike[str],
    topic: str,
    *,
    frame: Literal["arrow", "pandas"] = "arrow",
    partitions: Iterable[int] | None = None,
    start: Offsets = None,
    end: Offsets = None,
    read_committed: bool = True,
    client_properties: ClientConfig = None,
) -> pyarrow.Table | pandas.DataFrame:
    """A whole topic as a table.

    ``source`` is a log dir, or ``host:port`` of a broker. Offsets from ``start`` to before ``end``; by default all that
    there is now. ``client_properties`` are Kafka's, or a file of them, for a broker that is secured. ``FatalError`` if
    the topic or a partition is not there, ``kbroker.client.ClientError`` if a broker does not let the client in.
    """
    if frame not in ("arrow", "pandas"):
        raise ValueError(f'frame is "arrow" or "pandas", not {frame!r}')
    arrow = pyarrow_module()
    batches = read_topic_batches(
        source,
        topic,
        partitions=partitions,
        start=start,
        end=end,
        read_committed=read_committed,
        client_properties=client_properties,
    )
    table: pyarrow.Table = arrow.Table.from_batches(batches, schema=topic_schema())
    return table.to_pandas() if frame == "pandas" else table


def read_topic_batches(
    source: str | os.PathLike[str],
    topic: str,
    *,
    partitions: Iterable[int] | None = None,
    start: Offsets = None,
    end: Offsets = None,
    read_committed: bool = True,
    batch_records: int = BATCH_RECORDS,
    client_properties: ClientConfig = None,
) -> Iterator[pyarrow.RecordBatch]:
    """The same in batches of at most ``batch_records`` records of one partition: in bounded memory."""
    pyarrow_module()
    wanted = None if partitions is None else sorted(set(partitions))
    if os.path.isdir(source):
        chunks = _from_directory(source, topic, wanted, start, end, read_committed)
    elif isinstance(source, str) and os.sep not in source:
        chunks = _from_broker(source, topic, wanted, start, end, read_committed, client_properties)
    else:
        raise FatalError(f"{os.fspath(source)} is no directory")
    return _in_batches(chunks, batch_records)


def _bound(offsets: Offsets, partition: int, default: int) -> int:
    if offsets is None:
        return default
    return offsets if isinstance(offsets, int) else offsets.get(partition, default)


def _from_directory(
    source: str | os.PathLike[str],
    topic: str,
    wanted: list[int] | None,
    start: Offsets,
    end: Offsets,
    read_committed: bool,
) -> Iterator[tuple[int, Iterable[Record]]]:
    from kbroker.log.read_only import find_partitions

    found = {directory.topic_partition.partition: directory for directory in find_partitions(source, topic)}
    _check(topic, found, wanted, os.fspath(source))
    for partition in wanted if wanted is not None else found:
        records = found[partition].records(
            _bound(start, partition, 0), _bound(end, partition, _END), read_committed=read_committed
        )
        yield partition, records


def _from_broker(
    bootstrap: str,
    topic: str,
    wanted: list[int] | None,
    start: Offsets,
    end: Offsets,
    read_committed: bool,
    client_properties: ClientConfig,
) -> Iterator[tuple[int, Iterable[Record]]]:
    from kbroker.client.reader import Chunk, Reader
    from kbroker.client.topics import EARLIEST, LATEST, list_offsets

    with Client(bootstrap, security=_security(client_properties)) as client:
        [metadata] = client.refresh([topic], client.deadline())
        found = {} if metadata.error_code else {part.partition_index: part for part in metadata.partitions}
        _check(topic, found, wanted, bootstrap)
        indexes = wanted if wanted is not None else sorted(found)
        bounds: list[dict[int, int]] = []
        for place in (EARLIEST, LATEST):
            asked = {TopicPartition(topic, index): place for index in indexes}
            answers = known(list_offsets(client, asked, read_committed=read_committed))
            bounds.append({tp.partition: answer.offset for tp, answer in answers.items()})
        starts = {index: max(_bound(start, index, 0), low) for index, low in bounds[0].items()}
        ends = {index: min(_bound(end, index, _END), high) for index, high in bounds[1].items()}
        for index in indexes:
            if starts[index] < ends[index]:
                reader = Reader(
                    client, topic, {index: starts[index]}, ends={index: ends[index]}, read_committed=read_committed
                )
                while not reader.finished:
                    for chunk in reader.poll(client.timeout):
                        if isinstance(chunk, Chunk):
                            yield index, chunk.records


def _security(given: ClientConfig) -> ClientSecurity | None:
    if given is None:
        return None
    from kbroker.client.properties import ClientProperties
    from kbroker.client.security import security_of

    return security_of(ClientProperties(given) if isinstance(given, Mapping) else ClientProperties.read(Path(given)))


def _check(topic: str, found: Mapping[int, object], wanted: list[int] | None, source: str) -> None:
    if not found:
        raise FatalError(f"there is no topic {topic} in {source}")
    missing = [str(index) for index in wanted or () if index not in found]
    if missing:
        raise FatalError(f"topic {topic} in {source} has no partition {', '.join(missing)}")


def _in_batches(chunks: Iterator[tuple[int, Iterable[Record]]], batch_records: int) -> Iterator[object]:
    columns = RecordColumns(batch_records)
    before: int | None = None
    for partition, records in chunks:
        if partition != before and columns:
            yield columns.batch()
        before = partition
        for record in records:
            columns.add(partition, record)
            if columns.is_full:
                yield columns.batch()
    if columns:
        yield columns.batch()
