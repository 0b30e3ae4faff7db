"""The entries of a log's files: of segments, metadata snapshots, indexes, producer snapshots and checkpoints.

Files are only read, and may belong to a running broker. Each format is shown by one generator of *entries*, plain
dictionaries with a ``kind``. Damage is an entry, too (``"kind": "error"``).
"""

from __future__ import annotations

import dataclasses
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kbroker.log.disk import DiskFile, ReadOnlyDisk
from kbroker.log.segments.batch_walk import Bounds, Damaged, Whole, walk
from kbroker.types import Uuid, uuid_to_str
from kbroker.wire.batch_header import HEADER_SIZE, BatchHeader, TimestampType, check_crc, parse_header
from kbroker.wire.compiler import decode
from kbroker.wire.errors import WireError
from kbroker.wire.record_batch import Record, iter_records
from kbroker.wire.schema import is_hidden, struct_spec

Entry = dict[str, Any]

_CHUNK = 1 << 20
_MAX_OFFSET = 2**63 - 1


def read_entries(path: Path, *, records: bool = True) -> Iterator[Entry]:
    """The entries of one file, of whatever kind its name says it is."""
    reader = _reader(path)
    if reader is None:
        yield _error(0, f"{path.name} is not the name of a log, index, snapshot or checkpoint file")
        return
    if reader is _log:
        yield from _log(path, records=records)
    else:
        yield from reader(path)


def has_entries(path: Path) -> bool:
    """Whether a file has a name by which its entries can be read."""
    return _reader(path) is not None


def _reader(path: Path) -> Callable[[Path], Iterator[Entry]] | None:
    name = re.sub(r"\.(deleted|cleaned|swap|[\d-]+\.set-aside)$", "", path.name)
    if name.endswith(".log") or re.fullmatch(r"\d{20}-\d{10}\.checkpoint", name):
        return _log
    for suffix, reader in (
        (".index", _offset_index),
        (".timeindex", _time_index),
        (".txnindex", _transaction_index),
        (".snapshot", _producer_snapshot),
    ):
        if re.fullmatch(r"\d{20}" + re.escape(suffix), name):
            return reader
    if name.endswith("-checkpoint") or name in ("partition.metadata", "meta.properties", "quorum-state"):
        return _text
    if name == ".kafka_cleanshutdown" or name.endswith(".set-aside.json"):
        return _text
    return None


def _error(position: int, problem: str) -> Entry:
    return {"kind": "error", "position": position, "problem": problem}


# --- Log segments and metadata snapshots ------------------------------------------------------------------------


def _log(path: Path, *, records: bool = True) -> Iterator[Entry]:
    topic = re.sub(r"-\d+(\.[0-9a-f]{32}-delete)?$", "", path.absolute().parent.name)
    file = ReadOnlyDisk().open(str(path))
    size = file.size()

    def shown(position: int, header: BatchHeader, data: bytes, problem: str | None = None) -> Iterator[Entry]:
        yield _batch(position, header, data) | ({} if problem is None else {"kind": "error", "problem": problem})
        if records:
            yield from _records(topic, position, header, data)

    for item in walk(file, size, Bounds(0, _MAX_OFFSET, epoch=None)):
        if isinstance(item, Whole):
            yield from shown(item.position, item.header, bytes(item.chunk[item.at : item.at + item.header.size]))
            continue
        position, problem = item.position, item.reason
        while position < item.end:  # what seems to be a batch is shown, too
            try:
                header = parse_header(file.pread(HEADER_SIZE, position))
            except WireError:
                break
            if position + header.size > item.end:
                break
            yield from shown(position, header, file.pread(header.size, position), problem)
            position, problem = position + header.size, f"it follows damage at byte {item.position}"
        if position < item.end:
            yield _no_batch(file, item, position, size)


def _no_batch(file: DiskFile, item: Damaged, position: int, size: int) -> Entry:
    """Bytes from ``position`` to the next whole batch."""
    problem = f"the bytes up to {item.end} of {size} are no batch"
    if item.end == size and not any(any(file.pread(_CHUNK, at)) for at in range(position, size, _CHUNK)):
        problem = "zeros up to the end, as in a segment that was preallocated"
    elif position == item.position:
        problem += f": {item.reason}"
    if item.end_offset is not None and item.end_offset > item.start_offset:
        problem += f"; offsets {item.start_offset} to {item.end_offset - 1} are missing"
    return _error(position, problem) | {"size": item.end - position}


def _batch(position: int, header: BatchHeader, data: bytes) -> Entry:
    try:
        check_crc(data, 0, header)
        crc_ok = True
    except WireError:
        crc_ok = False
    return {
        "kind": "batch" if crc_ok else "error",
        "position": position,
        "size": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.records_count,
        "leader_epoch": header.partition_leader_epoch,
        "magic": header.magic,
        "compression": header.compression_type.name.lower(),
        "timestamp_type": "LogAppendTime" if header.timestamp_type is TimestampType.LOG_APPEND_TIME else "CreateTime",
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete_horizon_ms": header.delete_horizon_ms,
        "crc": header.crc,
        "crc_ok": crc_ok,
        **({} if crc_ok else {"problem": f"the checksum of batch {header.base_offset} is wrong"}),
    }


def _records(topic: str, position: int, header: BatchHeader, data: bytes) -> Iterator[Entry]:
    try:
        for record in iter_records(data):
            entry: Entry = {"kind": "record", "offset": record.offset, "timestamp": record.timestamp}
            entry.update(_content(topic, header, record))
            if record.headers:
                entry["headers"] = [
                    [_readable(name.encode("utf-8", "surrogateescape")), _readable(value)]
                    for name, value in record.headers
                ]
            yield entry
    except WireError as error:
        yield _error(position, str(error))


def _content(topic: str, header: BatchHeader, record: Record) -> Entry:
    """Key and value, decoded where the topic's records have a schema of Kafka's own."""
    try:
        if header.is_control:
            return _control(record)
        if topic == "__cluster_metadata" and record.value is not None:
            from kbroker.wire.records.metadata import decode_metadata_record

            message, version = decode_metadata_record(record.value)
            return {"type": type(message).__name__, "version": version, "value": _fields(message)}
        if topic == "__consumer_offsets" and record.key is not None:
            return _group_record(record.key, record.value)
        if topic == "__transaction_state" and record.key is not None:
            return _transaction_record(record.key, record.value)
        if topic == "__share_group_state" and record.key is not None:
            return _share_state_record(record.key, record.value)
    except WireError as error:
        return {"key": _readable(record.key), "value": _readable(record.value), "undecodable": str(error)}
    return {"key": _readable(record.key), "value": _readable(record.value)}


def _control(record: Record) -> Entry:
    from kbroker.wire.control_batch import ControlRecordType
    from kbroker.wire.records.control import decode_control_key, decode_control_value, decode_end_txn_marker

    kind = decode_control_key(record.key or b"")
    try:
        name = ControlRecordType(kind).name
    except ValueError:
        name = f"UNKNOWN({kind})"
    if kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        return {"type": name, "value": {"coordinator_epoch": decode_end_txn_marker(record.value or b"")}}
    return {"type": name, "value": _fields(decode_control_value(kind, record.value or b""))}


def _group_record(key: bytes, value: bytes | None) -> Entry:
    from kbroker.wire.records.versioned import group_record_classes, read_version

    return _coordinator_record(*group_record_classes(read_version(key)), key, value)


def _transaction_record(key: bytes, value: bytes | None) -> Entry:
    from kbroker.wire.records.transaction_state import TransactionLogKey, TransactionLogValue

    return _coordinator_record(TransactionLogKey, TransactionLogValue, key, value)


def _share_state_record(key: bytes, value: bytes | None) -> Entry:
    from kbroker.wire.records.share_state import share_record_classes
    from kbroker.wire.records.versioned import read_version

    return _coordinator_record(*share_record_classes(read_version(key)), key, value)


def _coordinator_record(key_class: type[Any], value_class: type[Any], key: bytes, value: bytes | None) -> Entry:
    from kbroker.wire.records.versioned import decode_versioned, read_version

    if read_version(key) != struct_spec(key_class).api_key:
        raise WireError(f"unknown record type {read_version(key)}")
    decoded, _ = decode(key_class, 0, key, 2)
    content = None if value is None else _fields(decode_versioned(value_class, value)[0])
    return {"type": key_class.__name__.removesuffix("Key"), "key": _fields(decoded), "value": content}


def _fields(message: object) -> object:
    """A message as plain data: bytes readable, ids as Kafka prints them."""
    if dataclasses.is_dataclass(message) and not isinstance(message, type):
        sibling = getattr(message, "name", None)
        return {
            entry.name: "[hidden]" if is_hidden(entry.name, sibling) else _fields(getattr(message, entry.name))
            for entry in dataclasses.fields(message)
        }
    if isinstance(message, list | tuple):
        return [_fields(item) for item in message]
    if isinstance(message, bytes | bytearray | memoryview):
        data = bytes(message)
        return uuid_to_str(Uuid(data)) if len(data) == 16 else _readable(data)
    return message


def _readable(data: bytes | None) -> str | None:
    """Text where it is text, else ``0x`` and hexadecimal digits."""
    if data is None:
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return "0x" + data.hex()
    return text if text.isprintable() or not text else _with_escapes(data, text)


def _with_escapes(data: bytes, text: str) -> str:
    odd = sum(not (char.isprintable() or char in "\t\r\n") for char in text)
    return "0x" + data.hex() if odd else text


# --- Indexes, snapshots, checkpoints ----------------------------------------------------------------------------


def _rows(path: Path, layout: str) -> Iterator[tuple[int, tuple[int, ...]]]:
    entry = struct.Struct(layout)
    data = path.read_bytes()
    for position in range(0, len(data) - entry.size + 1, entry.size):
        yield position, entry.unpack_from(data, position)
    rest = len(data) % entry.size
    if rest:
        raise WireError(f"{rest} bytes are left after the last whole entry")


def _index(path: Path, layout: str, kind: str, names: tuple[str, str], offset_at: int) -> Iterator[Entry]:
    base = int(path.name[:20])
    last = (-1, -1)
    try:
        for position, values in _rows(path, layout):
            if values == (0, 0) and position:
                yield {"kind": "padding", "position": position, "bytes": path.stat().st_size - position}
                return
            shown = [value + base if column == offset_at else value for column, value in enumerate(values)]
            if values < last:
                yield _error(position, f"entry {values} comes after {last}")
            last = (values[0], values[1])
            yield {"kind": kind, names[0]: shown[0], names[1]: shown[1]}
    except WireError as error:
        yield _error(path.stat().st_size, str(error))


def _offset_index(path: Path) -> Iterator[Entry]:
    return _index(path, ">ii", "index", ("offset", "position"), 0)


def _time_index(path: Path) -> Iterator[Entry]:
    return _index(path, ">qi", "timeindex", ("timestamp", "offset"), 1)


def _transaction_index(path: Path) -> Iterator[Entry]:
    try:
        for position, (version, producer_id, first, last, stable) in _rows(path, ">hqqqq"):
            if version != 0:
                yield _error(position, f"version {version} is unknown")
                return
            yield {
                "kind": "aborted",
                "producer_id": producer_id,
                "first_offset": first,
                "last_offset": last,
                "last_stable_offset": stable,
            }
    except WireError as error:
        yield _error(path.stat().st_size, str(error))


def _producer_snapshot(path: Path) -> Iterator[Entry]:
    from kbroker.log.producer_state import CorruptSnapshot, decode_snapshot

    try:
        entries = decode_snapshot(path.read_bytes())
    except CorruptSnapshot as error:
        yield _error(0, str(error))
        return
    for entry in entries:
        last = entry.batches[-1] if entry.batches else None
        yield {
            "kind": "producer",
            "producer_id": entry.producer_id,
            "producer_epoch": entry.producer_epoch,
            "last_sequence": None if last is None else last.last_sequence,
            "last_offset": None if last is None else last.last_offset,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_first_offset": entry.current_txn_first_offset,
        }


def _text(path: Path) -> Iterator[Entry]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except UnicodeDecodeError as error:
        yield _error(error.start, "not text")
        return
    for line in lines:
        yield {"kind": "line", "text": line}
