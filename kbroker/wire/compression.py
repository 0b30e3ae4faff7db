"""The four codecs of record batches, as Apache Kafka's clients write and read them.

Codec libraries are imported on first use: most topics never need them, and their imports would be a
large part of the start-up time.

Decompression is bounded: output stops at a limit, grows as it is produced, and no length that the
compressed bytes declare is allocated on trust.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum

from kbroker.wire.errors import WireError

DEFAULT_MAX_DECOMPRESSED = 64 * 1024 * 1024
"""Bytes that one batch's records may take when decompressed; more is taken for a bomb."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, lowest compatible version
_XERIAL_BLOCK = 32 * 1024  # snappy-java's default block size, which the Java client uses
_INT32 = struct.Struct(">i")

# The longest copy of the snappy format makes 64 bytes out of 3, so no stream grows by more than this.
_SNAPPY_MAX_RATIO = 22

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_FIRST_CHUNK = 64 * 1024

_LATER_INPUT = 16 * 1024
"""Compressed bytes that a library gets at once after the first member or frame, which gets all. What it leaves behind
an end is copied: with all of the rest each time, a batch of many tiny ones would take minutes."""


class CorruptRecord(WireError):
    """A record batch is damaged, or is not what its header says (Kafka: CORRUPT_MESSAGE)."""


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


def compress(codec: CompressionType, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """``data`` in the form that the Java client writes; ``level`` is that of the codec (snappy has none).

    LZ4 blocks are independent because Kafka's reader refuses linked ones; snappy is in snappy-java's framing.
    """
    if codec is CompressionType.NONE:
        return bytes(data)
    if codec is CompressionType.GZIP:
        deflater = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return deflater.compress(data) + deflater.flush()
    if codec is CompressionType.SNAPPY:
        return _compress_xerial(data)
    if codec is CompressionType.LZ4:
        import lz4.frame

        compressed: bytes = lz4.frame.compress(
            data,
            compression_level=0 if level is None else level,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
        return compressed
    import zstandard

    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def decompress(
    codec: CompressionType,
    data: bytes | bytearray | memoryview,
    limit: int = DEFAULT_MAX_DECOMPRESSED,
) -> bytes:
    """The records of a batch; ``CorruptRecord`` if damaged or if more than ``limit`` bytes come out."""
    if codec is CompressionType.NONE:
        if len(data) > limit:
            raise _too_large(codec, limit)
        return bytes(data)
    if codec is CompressionType.GZIP:
        return _decompress_gzip(data, limit)
    if codec is CompressionType.SNAPPY:
        return _decompress_snappy(bytes(data), limit)
    if codec is CompressionType.LZ4:
        return _decompress_lz4(data, limit)
    return _decompress_zstd(data, limit)


def _too_large(codec: CompressionType, limit: int) -> DecompressesTooLarge:
    return DecompressesTooLarge(f"{codec.name.lower()} data decompresses to more than {limit} bytes")


def _decompress_gzip(data: bytes | bytearray | memoryview, limit: int) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = []
    total = position = 0
    most_input = len(view)
    while True:  # one turn per gzip member; writers make one, the format allows several
        inflater = zlib.decompressobj(31)
        while not inflater.eof:
            piece = view[position : position + most_input]
            if not piece:
                raise CorruptRecord("gzip data ends early")
            try:
                # zlib grows its output by doubling: max_length is a bound, not an allocation.
                out = inflater.decompress(piece, limit + 1 - total)
            except zlib.error as error:
                raise CorruptRecord(f"gzip data is damaged: {error}") from None
            total += len(out)
            if total > limit:
                raise _too_large(CompressionType.GZIP, limit)
            parts.append(out)
            position += len(piece)
        position -= len(inflater.unused_data)
        most_input = _LATER_INPUT
        if position == len(view):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _compress_xerial(data: bytes | bytearray | memoryview) -> bytes:
    import cramjam

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: bytes, limit: int) -> bytes:
    """Either framing: snappy-java's (Java, kafka-python) or one raw block (librdkafka, Go clients)."""
    if not data.startswith(_XERIAL_MAGIC):
        return _decompress_raw_snappy(data, limit)
    parts: list[bytes] = []
    total = 0
    position = len(_XERIAL_HEADER)
    end = len(data)
    if position > end:
        raise CorruptRecord("snappy data ends within its header")
    while position < end:
        if data.startswith(_XERIAL_MAGIC, position):  # streams may be concatenated, as snappy-java reads them
            position += len(_XERIAL_HEADER)
            continue
        if position + 4 > end:
            raise CorruptRecord("snappy data ends within a block's length")
        (length,) = _INT32.unpack_from(data, position)
        position += 4
        if not 0 <= length <= end - position:
            raise CorruptRecord(f"snappy block of {length} bytes where {end - position} are left")
        block = _decompress_raw_snappy(data[position : position + length], limit - total)
        total += len(block)
        parts.append(block)
        position += length
    return b"".join(parts)


def _decompress_raw_snappy(data: bytes, limit: int) -> bytes:
    declared = 0
    for index in range(5):
        if index >= len(data):
            raise CorruptRecord("snappy data ends within its declared length")
        declared |= (data[index] & 0x7F) << (7 * index)
        if data[index] < 0x80:
            break
    else:
        raise CorruptRecord("snappy data declares no sensible length")
    if declared > limit:
        raise _too_large(CompressionType.SNAPPY, limit)
    if declared > _SNAPPY_MAX_RATIO * len(data):
        raise CorruptRecord(f"snappy data of {len(data)} bytes cannot hold the {declared} bytes it declares")
    import cramjam

    try:
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise CorruptRecord(f"snappy data is damaged: {error}") from None


def _decompress_lz4(data: bytes | bytearray | memoryview, limit: int) -> bytes:
    import lz4.frame

    view = memoryview(data)
    parts: list[bytes] = []
    total = position = 0
    most_input = len(view)
    # max_length is allocated up front by the library, so it grows with what has come out so far.
    chunk_size = max(_FIRST_CHUNK, 4 * len(view))
    while True:  # one turn per frame
        if view[position : position + 4] != _LZ4_MAGIC:
            raise CorruptRecord("lz4 data does not begin with a frame")
        decompressor = lz4.frame.LZ4FrameDecompressor()
        while not decompressor.eof:
            piece = b""
            if decompressor.needs_input:
                piece = bytes(view[position : position + most_input])
                if not piece:
                    raise CorruptRecord("lz4 data ends early")
                position += len(piece)
            try:
                out = decompressor.decompress(piece, max_length=min(chunk_size, limit - total + 1))
            except (RuntimeError, EOFError) as error:
                raise CorruptRecord(f"lz4 data is damaged: {error}") from None
            total += len(out)
            if total > limit:
                raise _too_large(CompressionType.LZ4, limit)
            if out:
                parts.append(out)
                chunk_size = max(chunk_size, total)
        position -= len(decompressor.unused_data or b"")
        most_input = _LATER_INPUT
        chunk_size = _FIRST_CHUNK
        if position == len(view):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_zstd(data: bytes | bytearray | memoryview, limit: int) -> bytes:
    import zstandard

    parts: list[bytes] = []
    total = 0
    chunk_size = max(_FIRST_CHUNK, 4 * len(data))
    try:
        # The library refuses windows over 128 MiB, as Kafka's does; the pages of a smaller one are touched
        # only as far as output reaches.
        reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
        while True:
            chunk = reader.read(min(chunk_size, limit - total + 1))
            if not chunk:
                break
            parts.append(chunk)
            total += len(chunk)
            if total > limit:
                raise _too_large(CompressionType.ZSTD, limit)
            chunk_size = max(chunk_size, total)
    except zstandard.ZstdError as error:
        raise CorruptRecord(f"zstd data is damaged: {error}") from None
    # A frame cut short reads as a short result; the records in it then fail to parse, as the caller checks.
    return parts[0] if len(parts) == 1 else b"".join(parts)
