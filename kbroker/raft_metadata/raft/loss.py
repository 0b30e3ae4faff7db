"""Says what a metadata log has lost: the offsets, why, and the records in what was set aside that can still be read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from kbroker.log.disk import Disk
from kbroker.log.file_names import SET_ASIDE_SUFFIX
from kbroker.raft_metadata.raft.batches import MetadataBatch, decode_batches
from kbroker.wire.batch_header import HEADER_SIZE, LOG_OVERHEAD, parse_header
from kbroker.wire.errors import WireError
from kbroker.wire.records.metadata import TopicRecord

_MAGIC = b"\x02"
_MAGIC_AT = 16
MOST_NAMED = 20


def whole_batches(data: bytes) -> Iterator[MetadataBatch]:
    """The batches in bytes that are damaged in places."""
    position = 0
    while position + HEADER_SIZE <= len(data):
        try:
            end = position + parse_header(data, position).batch_length + LOG_OVERHEAD
            if end > len(data):
                raise WireError("it is cut off")
            batches = list(decode_batches(data[position:end]))
        except (WireError, ValueError):
            found = data.find(_MAGIC, position + 1 + _MAGIC_AT)
            if found < 0:
                return
            position = found - _MAGIC_AT
        else:
            yield from batches
            position = end


def set_aside_records(disk: Disk, directory: str, from_offset: int) -> Mapping[int, object]:
    """The records at ``from_offset`` and above, by offset, in the files beside a log that was cut there."""
    found: dict[int, object] = {}
    for name in disk.list_dir(directory) if disk.is_dir(directory) else ():
        if name.endswith(".log" + SET_ASIDE_SUFFIX) or (".log." in name and name.endswith(SET_ASIDE_SUFFIX)):
            for batch in whole_batches(disk.read_bytes(os.path.join(directory, name))):
                if not batch.is_control and batch.base_offset >= from_offset:
                    found |= enumerate(batch.records, batch.base_offset)
    return dict(sorted(found.items()))


def told(records: Mapping[int, object]) -> str:
    """For a line: how many records can be read, which topics they make."""
    if not records:
        return "no record of what is lost can be read"
    offsets = list(records)
    topics = [f"{record.name} ({offset})" for offset, record in records.items() if isinstance(record, TopicRecord)]
    more = f" and {len(topics) - MOST_NAMED} more" if len(topics) > MOST_NAMED else ""
    made = f"make the topics {', '.join(topics[:MOST_NAMED])}{more}" if topics else "make no topic"
    return f"{len(offsets)} records of offsets {offsets[0]} to {offsets[-1]} are set aside, and {made}"
