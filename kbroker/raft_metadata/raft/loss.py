"""Says what a metadata log has lost: the offsets, why, and the records in what was set aside that can still be read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from kbroker.log.damage import Damage
from kbroker.log.disk import Disk
from kbroker.raft_metadata.raft.batches import MetadataBatch, decode_batches
from kbroker.wire.batch_header import HEADER_SIZE, LOG_OVERHEAD, parse_header
from kbroker.wire.errors import WireError
from kbroker.wire.records.metadata import TopicRecord

_MAGIC = b"\x02"
_MAGIC_AT = 16
MOST_NAMED = 20


def whole_batches(data: bytes) -> Iterator[tuple[bytes, MetadataBatch]]:
    """The batches in bytes that are damaged in places, each with its bytes."""
    position = 0
    while position + HEADER_SIZE <= len(data):
        try:
            end = position + parse_header(data, position).batch_length + LOG_OVERHEAD
            if end > len(data):
                raise WireError("it is cut off")
            (batch,) = decode_batches(data[position:end])
        except (WireError, ValueError):
            found = data.find(_MAGIC, position + 1 + _MAGIC_AT)
            if found < 0:
                return
            position = found - _MAGIC_AT
        else:
            yield data[position:end], batch
            position = end


def set_aside_batches(disk: Disk, directory: str, damage: Iterable[Damage]) -> list[tuple[bytes, MetadataBatch]]:
    """The batches in what was taken out of a log because of ``damage``, by their offsets."""
    names = {each.set_aside for each in damage if each.set_aside is not None}
    paths = (os.path.join(directory, name) for name in sorted(names))
    found = [each for path in paths if disk.exists(path) for each in whole_batches(disk.read_bytes(path))]
    return sorted(found, key=lambda each: each[1].base_offset)


def told(batches: Iterable[MetadataBatch]) -> str:
    """For a line: how many records can be read, which topics they make."""
    records = {
        offset: record
        for batch in batches
        if not batch.is_control
        for offset, record in enumerate(batch.records, batch.base_offset)
    }
    if not records:
        return "no record of what is lost can be read"
    topics = [f"{record.name} ({offset})" for offset, record in records.items() if isinstance(record, TopicRecord)]
    more = f" and {len(topics) - MOST_NAMED} more" if len(topics) > MOST_NAMED else ""
    made = f"make the topics {', '.join(topics[:MOST_NAMED])}{more}" if topics else "make no topic"
    return f"{len(records)} records of offsets {min(records)} to {max(records)} are set aside, and {made}"
