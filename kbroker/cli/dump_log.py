"""``kbroker dump-log``: what is in log segments, metadata snapshots, indexes, producer snapshots and checkpoints.

Files are only read, and may belong to a running broker. Each format is shown by one generator of *entries*, plain
dictionaries with a ``kind``; they are printed as lines of text, or as JSON with ``--json``, one object a line.
Damage is an entry too (``"kind": "error"``) and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kbroker.cli.progress import progress
from kbroker.errors import FatalError
from kbroker.types import Uuid, uuid_to_str
from kbroker.wire.batch_header import BatchHeader, TimestampType, check_crc, parse_header
from kbroker.wire.errors import WireError
from kbroker.wire.record_batch import Record, iter_records
from kbroker.wire.schema import is_hidden

Entry = dict[str, Any]

_MAX_BATCH = 1 << 30


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``dump-log``."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files or directories to show")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--batches", action="store_true", help="batch headers only, no records")
    parser.add_argument(
        "--width", type=int, default=100, metavar="N", help="show at most N characters of a key or value"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print every file; 1 if one of them is damaged or unknown."""
    damaged = False
    files = _expand(arguments.files)
    # Lines that run over a terminal are progress enough.
    with progress("entries:") if not sys.stdout.isatty() else nullcontext() as shown:
        for path in files:
            if not arguments.json:
                print(f"{path}:")
            try:
                for entry in read_entries(path, records=not arguments.batches):
                    damaged = damaged or entry["kind"] == "error"
                    if shown is not None:
                        shown.add(1)
                    if arguments.json:
                        print(json.dumps({"file": str(path)} | entry, default=_plain, ensure_ascii=False))
                    else:
                        print(_as_text(entry, arguments.width))
            except OSError as error:
                raise FatalError(f"cannot read {path}: {error.strerror}") from error
    return 1 if damaged else 0


def _expand(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(entry for entry in path.iterdir() if entry.is_file())
            files += [entry for entry in inside if _reader(entry) is not None]
        else:
            files.append(path)
    if not files:
        raise FatalError(f"{paths[0]}: there is nothing in it that can be shown")
    return files


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


def _reader(path: Path) -> Callable[[Path], Iterator[Entry]] | None:
    name = re.sub(r"\.(deleted|cleaned|swap)$", "", path.name)
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
    if name == ".kafka_cleanshutdown":
        return _text
    return None


def _error(position: int, problem: str) -> Entry:
    return {"kind": "error", "position": position, "problem": problem}


# --- Log segments and metadata snapshots ------------------------------------------------------------------------


def _log(path: Path, *, records: bool = True) -> Iterator[Entry]:
    topic = re.sub(r"-\d+(\.[0-9a-f]{32}-delete)?$", "", path.absolute().parent.name)
    size = path.stat().st_size
    with path.open("rb") as file:
        position = 0
        while position < size:
            head = file.read(12)
            length = struct.unpack(">i", head[8:12])[0] if len(head) == 12 else 0
            if not any(head):
                yield _error(position, "zeros up to the end, as in a segment that was preallocated")
                return
            if length < 49 or length > _MAX_BATCH or position + 12 + length > size:
                yield _error(position, f"no whole batch: {size - position} bytes left, length field {length}")
                return
            data = head + file.read(length)
            try:
                header = parse_header(data)
            except WireError as error:
                yield _error(position, str(error))
                return
            yield _batch(position, header, data)
            if records:
                yield from _records(topic, position, header, data)
            position += 12 + length


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
                entry["headers"] = [[name, _readable(value)] for name, value in record.headers]
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
    from kbroker.wire.compiler import decode
    from kbroker.wire.records.versioned import decode_versioned, read_version
    from kbroker.wire.schema import struct_spec

    if read_version(key) != struct_spec(key_class).api_key:
        raise WireError(f"unknown record type {read_version(key)}")
    decoded, _ = decode(key_class, 0, key, 2)
    content = None if value is None else _fields(decode_versioned(value_class, value)[0])
    return {"type": key_class.__name__.removesuffix("Key"), "key": _fields(decoded), "value": content}


def _fields(message: Any) -> Any:
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


# --- Printing ---------------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    return str(value)


def _time(timestamp: int) -> str:
    if timestamp < 0:
        return "none"
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp % 1000:03d}Z"


def _as_text(entry: Entry, width: int) -> str:
    kind = entry["kind"]
    if kind == "error" and "crc" not in entry:
        return f"  ERROR at byte {entry['position']}: {entry['problem']}"
    if kind in ("batch", "error"):
        return _batch_text(entry)
    if kind == "record":
        return _record_text(entry, width)
    if kind == "line":
        return f"  {entry['text']}"
    if kind == "timeindex":
        return f"  {_time(entry['timestamp'])}  offset {entry['offset']}"
    return "  " + "  ".join(f"{name} {value}" for name, value in entry.items() if name != "kind")


def _batch_text(entry: Entry) -> str:
    words = [
        f"  batch {entry['base_offset']}..{entry['last_offset']}",
        f"{entry['count']} records",
        f"byte {entry['position']}+{entry['size']}",
        f"epoch {entry['leader_epoch']}",
        f"{entry['timestamp_type']} {_time(entry['max_timestamp'])}",
    ]
    if entry["compression"] != "none":
        words.append(entry["compression"])
    if entry["producer_id"] >= 0:
        words.append(f"producer {entry['producer_id']}/{entry['producer_epoch']}")
        if entry["base_sequence"] >= 0:
            words.append(f"sequence {entry['base_sequence']}..{entry['last_sequence']}")
    words += [name for name in ("transactional", "control") if entry[name]]
    if not entry["crc_ok"]:
        words.append("WRONG CHECKSUM")
    return "  ".join(words)


def _record_text(entry: Entry, width: int) -> str:
    words = [f"    {entry['offset']}", _time(entry["timestamp"])]
    if "type" in entry:
        words.append(entry["type"])
    words += [f"{name} {_shorten(entry[name], width)}" for name in ("key", "value") if name in entry]
    if "headers" in entry:
        words.append("headers " + ", ".join(f"{name}={_shorten(text, width)}" for name, text in entry["headers"]))
    if "undecodable" in entry:
        words.append(f"({entry['undecodable']})")
    return "  ".join(words)


def _shorten(value: Any, width: int) -> str:
    if value is None:
        return "null"
    text = json.dumps(value, ensure_ascii=False, default=str) if not isinstance(value, str) else value
    if not text.isprintable():
        text = repr(text)[1:-1]
    if sys.stdout.encoding and sys.stdout.encoding.lower() not in ("utf-8", "utf8"):
        text = text.encode("ascii", "backslashreplace").decode()
    return text if len(text) <= width else f"{text[:width]}... ({len(text)} characters)"
