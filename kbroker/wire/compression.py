"""The four codecs of record batches, as Apache Kafka's clients write and read them.

Codec libraries are imported on first use: most topics never need them, and their imports would be a
large part of the start-up time.

Decompression is bounded: output comes in pieces (`unpack`), grows as it is produced, and no length that the
compressed bytes declare is allocated on trust.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator, Iterator
from enum import IntEnum
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kbroker.wire.errors import WireError

if TYPE_CHECKING:
    import cramjam

PIECE_BYTES = 1024 * 1024
"""Bytes of a batch's records that are decompressed at once: some milliseconds, and the most that need be in memory."""

Bytes = bytes | bytearray | memoryview

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, lowest compatible version
_XERIAL_BLOCK = 32 * 1024  # snappy-java's default block size, which the Java client uses
_INT32 = struct.Struct(">i")

# The longest copy of the snappy format makes 64 bytes out of 3, so no stream grows by more than this.
_SNAPPY_MAX_RATIO = 22

# A block of snappy is decompressed as a whole up to here, and slowly, element by element, beyond.
_SNAPPY_WHOLE = 16 * 1024 * 1024
_SNAPPY_SLOW_PIECE = 128 * 1024
_SNAPPY_WINDOW = 64 * 1024  # compressors look no farther back

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT, _LZ4_HAS_BLOCK_CHECKSUMS, _LZ4_HAS_SIZE, _LZ4_HAS_CHECKSUM = 0x20, 0x10, 0x08, 0x04
_LZ4_HAS_DICTIONARY = 0x01
_LZ4_MAX_RATIO = 255
_UINT32 = struct.Struct("<I")

_LATER_INPUT = 16 * 1024
"""Compressed bytes that a library gets at once after its first call, which gets more. What it leaves, behind an end or
for the next piece, is copied: with all of the rest each time, a batch of many tiny ones would take minutes."""


class CorruptRecord(WireError):
    """A record batch is damaged, or is not what its header says (Kafka: CORRUPT_MESSAGE)."""


class CorruptCompression(CorruptRecord):
    """A batch's records cannot be decompressed."""


class DecompressesTooLarge(CorruptRecord):
    """A batch's records are more than the caller wants to have at once."""


class CompressionType(IntEnum):
    """Bits 0-2 of a batch's attributes; the names are those of ``compression.type``."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_name(cls, name: str) -> CompressionType:
        """From the value of ``compression.type``; "none" and "uncompressed" are the same."""
        if name == "uncompressed":
            return cls.NONE
        return cls[name.upper()]


def compress(codec: CompressionType, data: Bytes, level: int | None = None) -> bytes:
    """``data`` in the form that the Java client writes; ``level`` is that of the codec (snappy has none).

    LZ4 blocks are independent because Kafka's reader refuses linked ones; snappy is in snappy-java's framing.
    """
    if codec is CompressionType.NONE:
        return bytes(data)
    if codec is CompressionType.GZIP:
        deflater = _deflater(level)
        return deflater.compress(data) + deflater.flush()
    if codec is CompressionType.SNAPPY:
        return _XERIAL_HEADER + _xerial_blocks(memoryview(data))
    if codec is CompressionType.LZ4:
        whole = _lz4_compressor(level)
        whole.compress(bytes(data))
        return bytes(whole.finish())
    compressor = _zstd_compressor(level)
    return bytes(compressor.compress(data, compressor.FLUSH_FRAME))  # in one call it knows the size, and is quicker


def _deflater(level: int | None) -> zlib._Compress:
    return zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)


def _lz4_compressor(level: int | None) -> cramjam.lz4.Compressor:
    import cramjam

    return cramjam.lz4.Compressor(level=0 if level is None else level, content_checksum=False, block_linked=False)


def _zstd_compressor(level: int | None) -> Any:
    return _zstd().ZstdCompressor(level=3 if level is None else level)


class Compressor:
    """Makes what `compress` makes, which is quicker, of data that comes in pieces."""

    def __init__(self, codec: CompressionType, level: int | None = None) -> None:
        self._codec = codec
        self._head = b""
        self._rest = b""
        """Data for a block of snappy that is not full."""
        self._library: Any = None
        self._lz4: Any = None
        if codec is CompressionType.GZIP:
            self._library = _deflater(level)
        elif codec is CompressionType.SNAPPY:
            self._head = _XERIAL_HEADER
        elif codec is CompressionType.LZ4:
            self._lz4 = _lz4_compressor(level)
        elif codec is CompressionType.ZSTD:
            self._library = _zstd_compressor(level)

    def add(self, data: Bytes) -> bytes:
        """Take in the next piece; returns what is to be written so far."""
        head, self._head = self._head, b""
        if self._codec is CompressionType.NONE:
            return bytes(data)
        if self._library is not None:
            added: bytes = self._library.compress(data)
            return added
        if self._lz4 is not None:
            self._lz4.compress(bytes(data))
            return b""  # it keeps what it has made
        if self._rest:
            data = self._rest + bytes(data)
        end = len(data) - len(data) % _XERIAL_BLOCK
        self._rest = bytes(data[end:])
        return head + _xerial_blocks(memoryview(data)[:end])

    def finish(self) -> bytes:
        """Returns the end of what is to be written."""
        head, self._head = self._head, b""
        if self._codec is CompressionType.NONE:
            return b""
        if self._library is not None:
            end: bytes = self._library.flush()
            return end
        if self._lz4 is not None:
            return bytes(self._lz4.finish())
        return head + _xerial_blocks(memoryview(self._rest))


def _xerial_blocks(view: memoryview) -> bytes:
    import cramjam

    parts = []
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def decompress(codec: CompressionType, data: Bytes, limit: int) -> bytes:
    """The records of a batch; ``CorruptRecord`` if damaged or if more than ``limit`` bytes come out."""
    parts: list[bytes] = []
    total = 0
    for part in unpack(codec, data, limit + 1):
        total += len(part)
        if total > limit:
            raise DecompressesTooLarge(f"{codec.name.lower()} data decompresses to more than {limit} bytes")
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def unpack(codec: CompressionType, data: Bytes, most: int = PIECE_BYTES) -> Iterator[bytes]:
    """The records of a batch, in pieces of at most ``most`` bytes; ``CorruptCompression`` where they are damaged.

    There may be many empty ones: as many as members, frames and blocks without content, which cost time all the same.
    A piece may be larger, up to 16 MiB, where a client compressed with snappy and without framing.
    """
    if codec is CompressionType.NONE:
        return iter((bytes(data),))
    if codec is CompressionType.GZIP:
        return _unpack_gzip(memoryview(data), most)
    if codec is CompressionType.SNAPPY:
        return _unpack_snappy(memoryview(data), most)
    if codec is CompressionType.LZ4:
        return _unpack_lz4(memoryview(data), most)
    return _unpack_zstd(data, most)


def _unpack_gzip(view: memoryview, most: int) -> Iterator[bytes]:
    position = 0
    most_input = max(most, _LATER_INPUT)
    while True:  # one turn per gzip member; writers make one, the format allows several
        inflater = zlib.decompressobj(31)
        out = b""
        while not inflater.eof:
            piece = view[position : position + most_input]
            if not piece and len(out) < most:
                raise CorruptCompression("gzip data ends early")
            try:
                # zlib grows its output by doubling: max_length is a bound, not an allocation.
                out = inflater.decompress(piece, most)
            except zlib.error as error:
                raise CorruptCompression(f"gzip data is damaged: {error}") from None
            position += len(piece) - len(inflater.unconsumed_tail)
            most_input = _LATER_INPUT
            if out or inflater.eof:
                yield out
        position -= len(inflater.unused_data)
        if position == len(view):
            return


def _unpack_snappy(view: memoryview, most: int) -> Iterator[bytes]:
    """Either framing: snappy-java's (Java, kafka-python) or one raw block (librdkafka, Go clients)."""
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield from _unpack_raw_snappy(view, most)
        return
    position = len(_XERIAL_HEADER)
    end = len(view)
    if position > end:
        raise CorruptCompression("snappy data ends within its header")
    while position < end:
        if view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)  # streams may be concatenated, as snappy-java reads them
            continue
        if position + 4 > end:
            raise CorruptCompression("snappy data ends within a block's length")
        (length,) = _INT32.unpack_from(view, position)
        position += 4
        if not 0 <= length <= end - position:
            raise CorruptCompression(f"snappy block of {length} bytes where {end - position} are left")
        yield from _unpack_raw_snappy(view[position : position + length], most)
        position += length


def _unpack_raw_snappy(view: memoryview, most: int) -> Iterator[bytes]:
    declared = 0
    for index in range(5):
        if index >= len(view):
            raise CorruptCompression("snappy data ends within its declared length")
        declared |= (view[index] & 0x7F) << (7 * index)
        if view[index] < 0x80:
            break
    else:
        raise CorruptCompression("snappy data declares no sensible length")
    if declared > _SNAPPY_MAX_RATIO * len(view):
        raise CorruptCompression(f"snappy data of {len(view)} bytes cannot hold the {declared} bytes it declares")
    if declared > max(_SNAPPY_WHOLE, most):
        yield from _unpack_snappy_slowly(bytes(view[index + 1 :]), declared)
        return
    import cramjam

    try:
        yield bytes(cramjam.snappy.decompress_raw(view))
    except cramjam.DecompressionError as error:
        raise CorruptCompression(f"snappy data is damaged: {error}") from None


def _unpack_snappy_slowly(data: bytes, declared: int) -> Iterator[bytes]:
    """The elements of a raw block: literals, and copies of what came before."""
    out = bytearray()
    position = 0
    end = len(data)
    left = declared
    try:
        while position < end:
            tag = data[position]
            position += 1
            kind = tag & 3
            if kind == 0:
                length = tag >> 2
                if length >= 60:
                    width = length - 59
                    length = int.from_bytes(data[position : position + width], "little")
                    position += width
                length += 1
                if position + length > end:
                    raise CorruptCompression("snappy data is damaged: a literal is cut off")
                out += data[position : position + length]
                position += length
            else:
                if kind == 1:
                    length = 4 + (tag >> 2 & 7)
                    offset = tag >> 5 << 8 | data[position]
                    position += 1
                else:
                    length = 1 + (tag >> 2)
                    width = 2 if kind == 2 else 4
                    offset = int.from_bytes(data[position : position + width], "little")
                    position += width
                start = len(out) - offset
                if not offset or start < 0:
                    raise CorruptCompression(f"snappy data is damaged: a copy from {offset} bytes before")
                if offset >= length:
                    out += out[start : start + length]
                else:
                    out += (out[start:] * (length // offset + 1))[:length]
            if len(out) >= _SNAPPY_SLOW_PIECE + _SNAPPY_WINDOW:
                left -= len(out) - _SNAPPY_WINDOW
                yield bytes(out[:-_SNAPPY_WINDOW])
                del out[:-_SNAPPY_WINDOW]
    except IndexError:
        raise CorruptCompression("snappy data is damaged: an element is cut off") from None
    if left != len(out):
        raise CorruptCompression(f"snappy data is damaged: {left} bytes are declared, and {len(out)} left")
    yield bytes(out)


def has_linked_blocks(view: memoryview, position: int) -> bool:
    """Whether a frame of lz4 begins at a position whose blocks depend on each other: Kafka's readers take none."""
    return view[position : position + 4] == _LZ4_MAGIC and not view[position + 4] & _LZ4_INDEPENDENT


def _unpack_lz4(view: memoryview, most: int) -> Iterator[bytes]:
    position = 0
    while True:  # one turn per frame
        if view[position : position + 4] != _LZ4_MAGIC:
            raise CorruptCompression("lz4 data does not begin with a frame")
        try:
            position = yield from _unpack_lz4_frame(view, position + 4, most)
        except (IndexError, struct.error):
            raise CorruptCompression("lz4 data ends early") from None
        if position == len(view):
            return


def _unpack_lz4_frame(view: memoryview, position: int, most: int) -> Generator[bytes, None, int]:
    """The blocks of a frame whose magic ends at ``position``; returns where it ends."""
    import cramjam
    import xxhash

    flags, descriptor = view[position], view[position + 1]
    if flags >> 6 != 1 or flags & 0x02 or descriptor & 0x8F or descriptor < 0x40:
        raise CorruptCompression("lz4 data is damaged: no such frame")
    if not flags & _LZ4_INDEPENDENT:
        raise CorruptCompression("lz4 blocks depend on those before: Kafka's reader takes independent ones only")
    size_and_dictionary = (8 if flags & _LZ4_HAS_SIZE else 0) + (4 if flags & _LZ4_HAS_DICTIONARY else 0)
    end = position + 2 + size_and_dictionary
    if view[end] != xxhash.xxh32_intdigest(view[position:end]) >> 8 & 0xFF:
        raise CorruptCompression("lz4 data is damaged: checksum of the frame's header")
    position = end + 1
    largest = 1 << 2 * (descriptor >> 4) + 8
    whole = xxhash.xxh32() if flags & _LZ4_HAS_CHECKSUM else None
    while size := _UINT32.unpack_from(view, position)[0]:
        is_stored, size = size >> 31, size & 0x7FFFFFFF
        position += 4
        block = view[position : position + size]
        position += size
        if position > len(view):
            raise CorruptCompression("lz4 data ends early")
        if size > largest:
            raise CorruptCompression(f"lz4 data is damaged: a block of {size} bytes where {largest} are the limit")
        if flags & _LZ4_HAS_BLOCK_CHECKSUMS:
            if _UINT32.unpack_from(view, position)[0] != xxhash.xxh32_intdigest(block):
                raise CorruptCompression("lz4 data is damaged: checksum of a block")
            position += 4
        if is_stored:
            out = bytes(block)
        else:
            room = bytearray(min(largest, _LZ4_MAX_RATIO * size))
            try:
                out = bytes(memoryview(room)[: cramjam.lz4.decompress_block_into(block, room)])
            except cramjam.DecompressionError as error:
                raise CorruptCompression(f"lz4 data is damaged: {error}") from None
        if whole is not None:
            whole.update(out)
        for start in range(0, len(out) or 1, most):
            yield out[start : start + most]
    yield b""  # also a frame without blocks has taken time
    position += 4
    if whole is not None:
        if _UINT32.unpack_from(view, position)[0] != whole.intdigest():
            raise CorruptCompression("lz4 data is damaged: checksum of the content")
        position += 4
    return position


@cache
def _zstd() -> ModuleType:
    """Python's own module from 3.14 on, before that the same from a package."""
    try:
        return import_module("compression.zstd")
    except ModuleNotFoundError:
        return import_module("backports.zstd")


def _unpack_zstd(data: Bytes, most: int) -> Iterator[bytes]:
    zstd = _zstd()
    view = memoryview(data)
    position = 0
    most_input = max(most, _LATER_INPUT)
    while position < len(view):  # one turn per frame
        # The library refuses windows over 128 MiB, as Kafka's does; the pages of a smaller one are touched
        # only as far as output reaches.
        decompressor = zstd.ZstdDecompressor()
        while not decompressor.eof:
            piece: Bytes = b""
            if decompressor.needs_input:
                piece = view[position : position + most_input]
                if not piece:
                    return  # a frame cut short: the records in it then fail to parse, as the caller checks
                position += len(piece)
            try:
                out = decompressor.decompress(piece, most)
            except zstd.ZstdError as error:
                raise CorruptCompression(f"zstd data is damaged: {error}") from None
            most_input = _LATER_INPUT
            if out or decompressor.eof:
                yield out
        position -= len(decompressor.unused_data)
