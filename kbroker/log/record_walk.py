"""Walks over the records of a batch that look at no more than compaction needs.

A compaction reads each record of a log once or twice, so these loops decide what it costs. They take the records
uncompressed, as ``bytes`` with a position (so that a chunk of a file need not be copied), and read varints of one
and two bytes inline. That each loop spells out the beginning of a record again is meant: one generator for all of
them was measured at 15 to 45% more time. :class:`CorruptRecord` where the bytes are not records.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from kbroker.wire.compression import CorruptRecord
from kbroker.wire.primitives import read_uvarint, read_varint, write_varint
from kbroker.wire.record_windows import MIN_RECORD_SIZE

STEP_RECORDS = 1024
"""After so many, a walk that others wait for gives way. A power of two."""

Runs = list[tuple[int, int]]
"""Parts of the records, each of whole records: where it begins and ends."""


def index_keys(
    data: bytes, position: int, stop: int, count: int, base_offset: int, offsets: dict[bytes, int]
) -> tuple[bool, int]:
    """Note in ``offsets`` where each key occurs last: its offset, or ``~offset`` if the value there is null.

    The ``count`` records lie in [``position``, ``stop``). Those without a key are passed over. Answers whether the
    records' offsets are consecutive from ``base_offset`` on, and the last one's.
    """
    regular = True
    delta = -1
    try:
        for index in range(count):
            length = data[position]
            position += 1
            if length >= 0x80:
                byte = data[position]
                position += 1
                if byte < 0x80:
                    length = length & 0x7F | byte << 7
                else:
                    length, position = read_uvarint(data, position - 2, 10)
            end = position + (length >> 1)

            position += 1  # attributes
            while data[position] >= 0x80:  # timestamp
                position += 1
            position += 1

            delta = data[position]
            position += 1
            if delta >= 0x80:
                byte = data[position]
                position += 1
                if byte < 0x80:
                    delta = delta & 0x7F | byte << 7
                else:
                    delta, position = read_uvarint(data, position - 2, 10)
            delta >>= 1
            if delta != index:
                regular = False

            size = data[position]
            position += 1
            if size >= 0x80:
                byte = data[position]
                position += 1
                if byte < 0x80:
                    size = size & 0x7F | byte << 7
                else:
                    size, position = read_uvarint(data, position - 2, 10)
            if not size & 1:
                key_end = position + (size >> 1)
                if key_end >= end:
                    raise CorruptRecord(f"a key of {size >> 1} bytes leaves its record")
                offset = base_offset + delta
                offsets[data[position:key_end]] = ~offset if data[key_end] == 1 else offset
            position = end
    except IndexError:
        raise CorruptRecord("records end early") from None
    if position != stop:
        raise CorruptRecord(f"{count} records end {position - stop} off")
    return regular, base_offset + delta


def are_keyed(data: bytes, stop: int, count: int, first: int) -> Generator[None, None, bool]:
    """Whether each record has a key, and their offsets go up by one from ``first`` on; and that nothing follows them.

    A step is over after `STEP_RECORDS`.
    """
    position = 0
    try:
        for index in range(first, first + count):
            if not ~index & STEP_RECORDS - 1:
                yield
            length = data[position]
            position += 1
            if length >= 0x80:
                byte = data[position]
                position += 1
                if byte < 0x80:
                    length = length & 0x7F | byte << 7
                else:
                    length, position = read_uvarint(data, position - 2, 10)
            end = position + (length >> 1)
            position += 1  # attributes
            while data[position] >= 0x80:  # timestamp
                position += 1
            position += 1
            delta = data[position]
            position += 1
            if delta >= 0x80:
                byte = data[position]
                position += 1
                if byte < 0x80:
                    delta = delta & 0x7F | byte << 7
                else:
                    delta, position = read_uvarint(data, position - 2, 10)
            if delta != index << 1 or data[position] & 1:  # the sign of the key's size
                return False
            position = end
    except IndexError:
        raise CorruptRecord("records end early") from None
    if position != stop:
        raise CorruptRecord(f"{count} records end {position - stop} off")
    return True


def first_above(data: bytes, stop: int, count: int, limit: int) -> Generator[None, None, int | None]:
    """The size of the first record whose body takes more than ``limit`` bytes; None if none does, and nothing follows.

    A step is over after `STEP_RECORDS`.
    """
    position = 0
    try:
        for index in range(count):
            if not ~index & STEP_RECORDS - 1:
                yield
            length, position = read_uvarint(data, position, 5)
            if length & 1 or length < 2 * MIN_RECORD_SIZE - 2:
                raise CorruptRecord(f"a record of {(length >> 1) ^ -(length & 1)} bytes")
            if length >> 1 > limit:
                return length >> 1
            position += length >> 1
    except IndexError:
        raise CorruptRecord("records end early") from None
    if position != stop:
        raise CorruptRecord(f"{count} records end {position - stop} off")
    return None


def first_late(
    data: bytes, stop: int, count: int, timestamp_delta: int, offset_delta: int
) -> Generator[None, None, tuple[int, int] | None]:
    """The deltas of the first record that has both or greater ones, and that nothing follows the last if none has.

    A step is over after `STEP_RECORDS`.
    """
    position = 0
    try:
        for index in range(count):
            if not ~index & STEP_RECORDS - 1:
                yield
            length = data[position]
            position += 1
            if length >= 0x80:
                byte = data[position]
                position += 1
                if byte < 0x80:
                    length = length & 0x7F | byte << 7
                else:
                    length, position = read_uvarint(data, position - 2, 5)
            end = position + (length >> 1)
            position += 1  # attributes
            delta = data[position]
            position += 1
            if delta >= 0x80:
                delta &= 0x7F
                shift = 7
                while (byte := data[position]) >= 0x80:
                    delta |= (byte & 0x7F) << shift
                    position += 1
                    shift += 7
                    if shift == 70:  # a number of a megabyte would take minutes
                        raise CorruptRecord("a varint has more than 10 bytes")
                delta = (delta | byte << shift) & 0xFFFFFFFFFFFFFFFF
                position += 1
            delta = (delta >> 1) ^ -(delta & 1)
            if delta >= timestamp_delta:
                found, _ = read_varint(data, position, 5)
                if end > stop:
                    raise CorruptRecord(f"a record ends {end - stop} off")
                if found >= offset_delta:
                    return delta, found
            position = end
    except IndexError:
        raise CorruptRecord("records end early") from None
    if position != stop:
        raise CorruptRecord(f"{count} records end {position - stop} off")
    return None


def renumbered(data: bytes, count: int, first: int) -> Generator[None, None, bytearray]:
    """The ``count`` records, which are sound, with offsets from ``first`` on. A step is over after `STEP_RECORDS`."""
    out = bytearray()
    delta = bytearray()
    position = 0
    for index in range(first, first + count):
        if not ~index & STEP_RECORDS - 1:
            yield
        length, position = read_uvarint(data, position, 5)
        end = position + (length >> 1)
        _, at = read_uvarint(data, position + 1, 10)  # behind the attributes: the timestamp
        _, rest = read_uvarint(data, at, 5)
        delta.clear()
        write_varint(delta, index)
        write_varint(out, at - position + len(delta) + end - rest)
        out += data[position:at]
        out += delta
        out += data[rest:end]
        position = end
    return out


def select_by_index(data: bytes, position: int, wanted: Sequence[int]) -> Runs:
    """The records with these numbers (ascending, from 0 for the one at ``position``)."""
    runs: Runs = []
    start = last = -1
    index = 0
    try:
        for target in wanted:
            while True:
                begin = position
                length = data[position]
                position += 1
                if length >= 0x80:
                    byte = data[position]
                    position += 1
                    if byte < 0x80:
                        length = length & 0x7F | byte << 7
                    else:
                        length, position = read_uvarint(data, position - 2, 10)
                position += length >> 1
                index += 1
                if index > target:
                    break
            if begin != last:
                if start >= 0:
                    runs.append((start, last))
                start = begin
            last = position
    except IndexError:
        raise CorruptRecord("records end early") from None
    if start >= 0:
        runs.append((start, last))
    return runs


def select_by_key(
    data: bytes,
    position: int,
    stop: int,
    count: int,
    base_offset: int,
    offsets: dict[bytes, int],
    keep_tombstones: bool,
) -> tuple[Runs, int, bool]:
    """The records that are the last of their key by ``offsets`` (:func:`index_keys`), or whose key is not in there.

    Records without a key are left out, and those without a value unless ``keep_tombstones``. Answers also how many
    these are, and whether one of them has no value.
    """
    runs: Runs = []
    start = last = -1
    kept = 0
    tombstones = False
    get = offsets.get
    try:
        for _ in range(count):
            begin = position
            length = data[position]
            position += 1
            if length >= 0x80:
                byte = data[position]
                position += 1
                if byte < 0x80:
                    length = length & 0x7F | byte << 7
                else:
                    length, position = read_uvarint(data, position - 2, 10)
            end = position + (length >> 1)

            position += 1  # attributes
            while data[position] >= 0x80:  # timestamp
                position += 1
            position += 1

            delta = data[position]
            position += 1
            if delta >= 0x80:
                byte = data[position]
                position += 1
                if byte < 0x80:
                    delta = delta & 0x7F | byte << 7
                else:
                    delta, position = read_uvarint(data, position - 2, 10)

            size = data[position]
            position += 1
            if size >= 0x80:
                byte = data[position]
                position += 1
                if byte < 0x80:
                    size = size & 0x7F | byte << 7
                else:
                    size, position = read_uvarint(data, position - 2, 10)
            if not size & 1:
                key_end = position + (size >> 1)
                if key_end >= end:
                    raise CorruptRecord(f"a key of {size >> 1} bytes leaves its record")
                found = get(data[position:key_end])
                if found is None or base_offset + (delta >> 1) >= (found if found >= 0 else ~found):
                    is_tombstone = data[key_end] == 1
                    if not is_tombstone or keep_tombstones:
                        kept += 1
                        if is_tombstone:
                            tombstones = True
                        if begin != last:
                            if start >= 0:
                                runs.append((start, last))
                            start = begin
                        last = end
            position = end
    except IndexError:
        raise CorruptRecord("records end early") from None
    if position != stop:
        raise CorruptRecord(f"{count} records end {position - stop} off")
    if start >= 0:
        runs.append((start, last))
    return runs, kept, tombstones


def max_timestamp_delta(data: bytes, runs: Runs) -> int:
    """The greatest of the records' timestamps, less the batch's base timestamp."""
    latest: int | None = None
    for position, stop in runs:
        while position < stop:
            length, position = read_uvarint(data, position, 10)
            delta, _ = read_uvarint(data, position + 1, 10)
            delta = (delta >> 1) ^ -(delta & 1)
            if latest is None or delta > latest:
                latest = delta
            position += length >> 1
    assert latest is not None
    return latest


def shift_timestamps(data: bytes, runs: Runs, difference: int) -> bytes:
    """The records with ``difference`` added to each timestamp: their batch's base timestamp changes by as much less."""
    out = bytearray()
    timestamp = bytearray()
    for position, stop in runs:
        while position < stop:
            length, position = read_uvarint(data, position, 10)
            end = position + (length >> 1)
            delta, rest = read_uvarint(data, position + 1, 10)
            delta = ((delta >> 1) ^ -(delta & 1)) + difference
            timestamp.clear()
            write_varint(timestamp, delta)
            write_varint(out, 1 + len(timestamp) + end - rest)
            out.append(data[position])
            out += timestamp
            out += data[rest:end]
            position = end
    return bytes(out)
