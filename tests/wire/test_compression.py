"""Codecs: both snappy framings, damage, bombs, and the forms that Kafka's readers insist on."""

from __future__ import annotations

import gzip
import subprocess
import sys
import time
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.wire import compression
from kbroker.wire.batch_header import Buffer
from kbroker.wire.compression import CompressionType, CorruptRecord, compress
from tests.with_each import examples

CODECS = [codec for codec in CompressionType if codec is not CompressionType.NONE]
TEXT = b"the quick brown fox jumps over the lazy dog " * 3000  # several xerial and lz4 blocks


def decompress(codec: CompressionType, data: Buffer, limit: int = 64 << 20) -> bytes:
    return compression.decompress(codec, data, limit)


@given(st.binary(max_size=5000), st.sampled_from(list(CompressionType)))
@settings(max_examples=examples(100), deadline=None)
def test_round_trip(data: bytes, codec: CompressionType) -> None:
    assert decompress(codec, compress(codec, data)) == data
    assert decompress(codec, memoryview(bytearray(compress(codec, memoryview(data))))) == data


@pytest.mark.parametrize("codec", CODECS)
def test_large(codec: CompressionType) -> None:
    compressed = compress(codec, TEXT)
    assert len(compressed) < len(TEXT) / 5
    assert decompress(codec, compressed) == TEXT
    assert decompress(codec, compressed, len(TEXT)) == TEXT
    with pytest.raises(CorruptRecord, match="more than"):
        decompress(codec, compressed, len(TEXT) - 1)


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(CompressionType.GZIP, [-1, 1, 9]), (CompressionType.LZ4, [0, 1, 17]), (CompressionType.ZSTD, [-5, 3, 22])],
)
def test_levels(codec: CompressionType, levels: list[int]) -> None:
    for level in levels:
        assert decompress(codec, compress(codec, TEXT, level)) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_cut_at_every_byte(codec: CompressionType) -> None:
    data = bytes(range(256)) * 2
    compressed = compress(codec, data)
    for end in range(len(compressed)):
        try:
            got = decompress(codec, compressed[:end])
        except CorruptRecord:
            continue
        assert data.startswith(got)


@given(st.binary(max_size=400), st.sampled_from(CODECS))
@settings(max_examples=examples(300), deadline=None)
def test_garbage(data: bytes, codec: CompressionType) -> None:
    try:
        decompress(codec, data)
    except CorruptRecord:
        pass


@given(st.data(), st.sampled_from(CODECS))
@settings(max_examples=examples(300), deadline=None)
def test_flipped_bits(data: st.DataObject, codec: CompressionType) -> None:
    compressed = bytearray(compress(codec, TEXT[:2000]))
    for bit in data.draw(st.lists(st.integers(0, len(compressed) * 8 - 1), min_size=1, max_size=4)):
        compressed[bit // 8] ^= 1 << bit % 8
    try:
        decompress(codec, compressed, 1 << 20)
    except CorruptRecord:
        pass


BOMB = 200 * 1024 * 1024


def _bomb(codec: CompressionType) -> bytes:
    """A small input that would become 200 MiB."""
    zeros = bytes(1 << 20)
    if codec is CompressionType.GZIP:
        deflater = zlib.compressobj(9, zlib.DEFLATED, 31)
        return b"".join(deflater.compress(zeros) for _ in range(200)) + deflater.flush()
    if codec is CompressionType.ZSTD:
        compressor = zstandard.ZstdCompressor(level=3).compressobj()
        return b"".join(compressor.compress(zeros) for _ in range(200)) + compressor.flush()
    if codec is CompressionType.LZ4:
        with lz4.frame.LZ4FrameCompressor(block_linked=False) as lz4_compressor:
            parts = [lz4_compressor.begin()]
            parts += [lz4_compressor.compress(zeros) for _ in range(200)]
            parts.append(lz4_compressor.flush())
            return b"".join(parts)
    block = bytes(cramjam.snappy.compress_raw(zeros))
    return compress(codec, b"")[:16] + (len(block).to_bytes(4, "big") + block) * 200


@pytest.mark.parametrize("codec", CODECS)
def test_bomb(codec: CompressionType) -> None:
    bomb = _bomb(codec)
    assert len(bomb) < BOMB / 15
    limit = 4 * 1024 * 1024
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord, match="more than"):
            decompress(codec, bomb, limit)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * limit + 5 * len(bomb)


def test_raw_snappy_declaring_much_is_not_believed() -> None:
    declared = b"\xff\xff\xff\x0f"  # 32 MiB in a stream of 10 bytes
    with pytest.raises(CorruptRecord, match="cannot hold"):
        decompress(CompressionType.SNAPPY, declared + b"abcdef")
    with pytest.raises(CorruptRecord, match="cannot hold"):
        decompress(CompressionType.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"abcdef")
    with pytest.raises(CorruptRecord, match="no sensible length"):
        decompress(CompressionType.SNAPPY, b"\xff" * 9)


def test_raw_snappy_as_librdkafka_writes_it() -> None:
    assert decompress(CompressionType.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_raw_snappy_at_its_best_ratio() -> None:
    data = bytes(1 << 20)
    assert decompress(CompressionType.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data


def test_concatenated_streams_as_kafkas_readers_take_them() -> None:
    for codec in CODECS:
        assert decompress(codec, compress(codec, b"one") + compress(codec, b"two")) == b"onetwo"


def test_kafkas_lz4_reader_wants_independent_blocks() -> None:
    frame = compress(CompressionType.LZ4, TEXT)
    info = lz4.frame.get_frame_info(frame)
    assert not info["block_linked"]
    assert info["block_size"] == 64 * 1024
    assert not info["content_size"]


def test_other_libraries_read_it() -> None:
    assert gzip.decompress(compress(CompressionType.GZIP, TEXT)) == TEXT
    assert zstandard.ZstdDecompressor().decompress(compress(CompressionType.ZSTD, TEXT)) == TEXT
    kafka_codec = pytest.importorskip("kafka.codec")
    assert kafka_codec.snappy_decode(compress(CompressionType.SNAPPY, TEXT)) == TEXT
    assert decompress(CompressionType.SNAPPY, kafka_codec.snappy_encode(TEXT)) == TEXT
    assert decompress(CompressionType.LZ4, kafka_codec.lz4_encode(TEXT)) == TEXT


def test_names() -> None:
    assert CompressionType.from_name("uncompressed") is CompressionType.NONE
    assert CompressionType.from_name("none") is CompressionType.NONE
    assert CompressionType.from_name("zstd") is CompressionType.ZSTD


def test_codec_libraries_are_imported_on_first_use() -> None:
    code = (
        "import sys, kbroker.wire.record_batch\n"
        "assert not {'lz4', 'zstandard', 'cramjam', 'snappy', 'importlib.metadata'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def _tiny(codec: CompressionType, size: int) -> bytes:
    """The smallest thing that may stand in a row of its kind, holding ``size`` zeros."""
    if codec is CompressionType.GZIP:
        return gzip.compress(bytes(size))
    if codec is CompressionType.LZ4:
        return bytes(lz4.frame.compress(bytes(size), store_size=False, block_linked=False))
    if codec is CompressionType.ZSTD:
        return zstandard.ZstdCompressor().compress(bytes(size))
    block = bytes(cramjam.snappy.compress_raw(bytes(size)))
    return len(block).to_bytes(4, "big") + block


@pytest.mark.parametrize("size", [0, 1000])
@pytest.mark.parametrize("codec", CODECS)
def test_many_tiny_members(codec: CompressionType, size: int) -> None:
    """A megabyte of them took gzip more than a minute: what follows a member was copied each time."""
    tiny = _tiny(codec, size)
    count = 1_000_000 // len(tiny)
    head = compress(codec, b"")[:16] if codec is CompressionType.SNAPPY else b""
    began = time.process_time()
    assert decompress(codec, head + tiny * count) == bytes(size * count)
    assert time.process_time() - began < 10


def test_what_follows_a_member_must_be_one() -> None:
    for codec, end in ((CompressionType.GZIP, "damaged"), (CompressionType.LZ4, "frame")):
        data = compress(codec, b"x" * 100_000)
        assert decompress(codec, data + data) == b"x" * 200_000
        with pytest.raises(CorruptRecord, match=end):
            decompress(codec, data + b"garbage")
        for cut in (1, 5, len(data) - 10):
            with pytest.raises(CorruptRecord, match=r"early|damaged|frame"):
                decompress(codec, data + data[:cut])


def test_pythons_own_zstd_is_taken_where_there_is_one() -> None:
    """From 3.14 on; before, the package of the same interface stands in for it."""
    pytest.importorskip("backports.zstd")
    code = (
        "import sys, types, backports.zstd\n"
        "sys.modules['compression.zstd'] = sys.modules['backports.zstd']\n"
        "sys.modules['compression'] = types.ModuleType('compression')\n"
        "sys.modules['backports.zstd'] = None\n"
        "from kbroker.wire.compression import CompressionType, compress, decompress\n"
        "assert decompress(CompressionType.ZSTD, compress(CompressionType.ZSTD, b'text'), 100) == b'text'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_lz4_frames_of_every_kind() -> None:
    """With and without checksums, content size and larger blocks; those with linked blocks are refused, as by Kafka."""
    for checksums in (False, True):
        for block_size in (lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX4MB):
            frame = lz4.frame.compress(
                TEXT, block_linked=False, block_size=block_size, content_checksum=checksums, block_checksum=checksums
            )
            assert decompress(CompressionType.LZ4, frame) == TEXT
            if checksums:
                for position in (len(frame) - 1, len(frame) - 10, 20):
                    damaged = frame[:position] + bytes([frame[position] ^ 1]) + frame[position + 1 :]
                    with pytest.raises(CorruptRecord, match="damaged"):
                        decompress(CompressionType.LZ4, damaged)
    with pytest.raises(CorruptRecord, match="independent"):
        decompress(CompressionType.LZ4, lz4.frame.compress(TEXT, block_linked=True))
