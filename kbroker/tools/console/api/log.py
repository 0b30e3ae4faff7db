"""A partition's log, to look into: batches and their bytes, producers; files, where the nodes' directories are here.

Beside a cluster there is what a Fetch tells. Files are shown to those alone who may read the topic.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from kbroker.client import Client
from kbroker.client.batches import fetch_batches
from kbroker.client.errors import known
from kbroker.client.records_io.json_types import Json
from kbroker.client.topics import EARLIEST, LATEST, list_offsets
from kbroker.client.transactions import describe_producers
from kbroker.tools.console.api.topics import find_topic
from kbroker.tools.console.batch_fields import ByteField, attribute_notes, batch_fields, codec_name, header_fields
from kbroker.tools.console.call import Call, RequestRefused
from kbroker.tools.console.log_files import PartitionFiles, file_entries, list_segments, partition_directories
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import BatchHeader, TimestampType, check_crc
from kbroker.wire.compression import CorruptRecord
from kbroker.wire.control_batch import ControlRecordType, parse_control_record
from kbroker.wire.record_batch import iter_records

MAX_BATCHES: Final = 200
_FETCH_BYTES: Final = 1 << 20
_FETCHES: Final = 4
"""Of one page of batches."""

_LAST: Final = 500
"""Offsets before the end where a look at the end begins."""


def _partition(call: Call) -> TopicPartition:
    return TopicPartition(call.text("topic"), call.number("partition", highest=2**31 - 1))


async def list_batches(call: Call) -> Json:
    """Batches from the offset ``from`` on (without it, near the end), by what their headers say."""
    partition = _partition(call)
    begin = call.number("from") if call.has("from") else None
    limit = call.number("limit", 100, lowest=1, highest=MAX_BATCHES)
    masked = bool(call.console.settings.masking(partition.topic))
    return await call.ask(lambda client: _list(client, partition, begin, limit, masked))


def _list(client: Client, partition: TopicPartition, begin: int | None, limit: int, masked: bool) -> Json:
    find_topic(client, partition.topic)
    start, end = _offset(client, partition, EARLIEST), _offset(client, partition, LATEST)
    stable = _offset(client, partition, LATEST, read_committed=True)
    offset = max(start, end - _LAST) if begin is None else min(max(begin, start), end)
    rows: list[Json] = []
    note = ""
    for _ in range(_FETCHES):
        if offset >= end or len(rows) >= limit:
            break
        try:
            found = fetch_batches(client, partition, offset, _FETCH_BYTES)
        except CorruptRecord as error:
            note = f"at offset {offset} is no batch: {error}"
            break
        if not found.batches:
            break
        for header, data in found.batches[: limit - len(rows)]:
            rows.append(_batch(header, data, masked))
            offset = header.next_offset
    return {
        "start": start,
        "end": end,
        "stable": stable,
        "batches": rows,
        "next": offset if offset < end else None,
        "note": note,
        "masked": masked,
    }


def _offset(client: Client, partition: TopicPartition, which: int, *, read_committed: bool = False) -> int:
    return known(list_offsets(client, {partition: which}, read_committed=read_committed))[partition].offset


def _batch(header: BatchHeader, data: bytes, masked: bool) -> Json:
    """A batch by its header. The checksum of masked records is left out: what it is of could be tried out."""
    try:
        check_crc(data, 0, header)
        sound = True
    except CorruptRecord:
        sound = False
    return {
        "base": header.base_offset,
        "last": header.last_offset,
        "count": header.records_count,
        "size": header.size,
        "attributes": header.attributes,
        "meaning": attribute_notes(header.attributes),
        "compression": codec_name(header.attributes),
        "append_time": header.timestamp_type is TimestampType.LOG_APPEND_TIME,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "leader_epoch": header.partition_leader_epoch,
        "producer": header.producer_id if header.has_producer_id else None,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "marker": _marker(data) if header.is_control else None,
        "crc": None if masked else f"{header.crc:08x}",
        "sound": sound,
    }


def _marker(data: bytes) -> str:
    try:
        record = next(iter_records(data), None)
        return "control" if record is None else ControlRecordType(parse_control_record(record)).name
    except (CorruptRecord, ValueError):
        return "control"


async def describe_batch(call: Call) -> Json:
    """The bytes of the batch that holds an offset, with their names. Of masked topics there is the header alone."""
    partition, offset = _partition(call), call.number("offset")
    masked = bool(call.console.settings.masking(partition.topic))

    def ask(client: Client) -> Json:
        find_topic(client, partition.topic)
        try:
            found = fetch_batches(client, partition, offset, 1)
        except CorruptRecord as error:
            raise RequestRefused(409, f"at offset {offset} is no batch: {error}") from None
        for header, data in found.batches:
            if header.base_offset <= offset <= header.last_offset:
                return {
                    "base": header.base_offset,
                    "size": header.size,
                    "masked": masked,
                    "fields": [
                        _field(each)
                        for each in (header_fields(data) if masked else batch_fields(header, data))
                        if not (masked and each.name == "CRC-32C")
                    ],
                }
        raise RequestRefused(404, f"there is no batch with offset {offset} any more")

    return await call.ask(ask)


def _field(each: ByteField) -> Json:
    return {
        "start": each.start,
        "stop": each.stop,
        "depth": each.depth,
        "name": each.name,
        "value": each.value,
        "note": each.note,
        "bytes": each.data[:64].hex(),
    }


async def list_producers(call: Call) -> Json:
    """The producers that the leader remembers in a partition, by which it knows a batch that comes again."""
    partition = _partition(call)

    def ask(client: Client) -> Json:
        find_topic(client, partition.topic)
        return [
            {
                "producer": each.producer_id,
                "epoch": each.producer_epoch,
                "last_sequence": each.last_sequence,
                "last_timestamp": each.last_timestamp,
                "coordinator_epoch": each.coordinator_epoch if each.coordinator_epoch >= 0 else None,
                "start": each.start_offset,
            }
            for each in describe_producers(client, partition)
        ]

    return {"rows": await call.ask(ask), "now": time.time_ns() // 1_000_000}


# --- Files ----------------------------------------------------------------------------------------------------------


async def list_files(call: Call) -> Json:
    """Segments with their indexes, in each directory of the partition that is on this machine."""
    partition = _partition(call)
    data = call.console.settings.data
    if not data:
        return {"told": False, "directories": []}
    await call.ask(lambda client: _let_read(client, partition))

    def look() -> Json:
        found = partition_directories(data, partition.topic, partition.partition)
        try:
            return [_directory(list_segments(each)) for each in found]
        except OSError as error:
            raise RequestRefused(409, f"the log directory cannot be read: {error.strerror}") from None

    return {"told": True, "directories": await call.compute(look)}


def _directory(files: PartitionFiles) -> Json:
    return {
        "directory": str(files.directory),
        "count": files.count,
        "segments": [
            {
                "base": each.base_offset,
                "size": each.size,
                "changed": each.changed,
                "files": [
                    {"name": file.name, "kind": file.kind, "size": file.size, "entries": file.entries}
                    for file in each.files
                ],
            }
            for each in reversed(files.segments)
        ],
    }


async def describe_file(call: Call) -> Json:
    """The first entries of one file: batches by their headers, index entries, producers of a snapshot."""
    partition, name = _partition(call), call.text("file")
    wanted, masked = call.text("directory"), bool(call.console.settings.masking(partition.topic))
    await call.ask(lambda client: _let_read(client, partition))

    def look() -> list[dict[str, Any]] | None:
        for each in partition_directories(call.console.settings.data, partition.topic, partition.partition):
            if str(each) == wanted:
                return file_entries(each, name)
        return None

    try:
        entries = await call.compute(look)
    except OSError as error:
        raise RequestRefused(409, f"the file cannot be read: {error.strerror}") from None
    if entries is None:
        raise RequestRefused(404, f"there is no file {name[:60]} of this partition any more")
    return {"entries": [_entry(each, masked) for each in entries]}


def _entry(entry: Mapping[str, Any], masked: bool) -> Json:
    return {name: value for name, value in entry.items() if not (masked and name == "crc")}


def _let_read(client: Client, partition: TopicPartition) -> None:
    """Raise what the cluster answers to whoever may not read the topic: the files themselves ask nobody."""
    find_topic(client, partition.topic)
    describe_producers(client, partition)
