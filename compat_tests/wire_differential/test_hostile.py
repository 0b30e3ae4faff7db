"""Any bytes on the port: the node lives, answers others for less than a second of the processor, and keeps its memory.

KBROKER_HOSTILE_FRAMES says how many damaged frames are sent in all (6,000; a soak sends millions),
KBROKER_HOSTILE_SEED which.
A failure prints the seed, the number and the bytes of the last frame.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import socket
import struct
import subprocess
import time
from collections.abc import Iterator

import crc32c
import lz4.frame
import psutil
import pytest
import zstandard

from compat_tests.api_versions import served_apis
from compat_tests.brokers import Broker, KbrokerBroker
from compat_tests.wire_differential.dialogue import Dialogue
from compat_tests.wire_differential.generator import GROUP_APIS, Generator
from compat_tests.wire_differential.test_differential import prepare
from kbroker.wire.compression import CompressionType
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kbroker.wire.primitives import encode_uvarint
from kbroker.wire.record_batch import Record, build_batch
from kbroker.wire.registry import API_KEYS
from tests.patience import SHORT

FRAMES = int(os.environ.get("KBROKER_HOSTILE_FRAMES", "6000"))
SEED = int(os.environ.get("KBROKER_HOSTILE_SEED", "0"))
MEMORY_LIMIT = 64 << 20

hostile = pytest.mark.feature("wire", "Hostile input", "the node lives, memory stays")


class Target:
    """A kbroker of its own, and the checks on it."""

    def __init__(self, node: KbrokerBroker) -> None:
        self.node = node
        self.talk = prepare(node.bootstrap)
        host, port = node.bootstrap.rsplit(":", 1)
        self.address = (host, int(port))
        self.check()
        self.memory_before = self.memory()

    def memory(self) -> int:
        """Resident memory of the node in bytes."""
        assert self.node.process is not None
        told = subprocess.run(["ps", "-o", "rss=", "-p", str(self.node.process.pid)], capture_output=True, text=True)
        return int(told.stdout) * 1024

    def busy_seconds(self) -> float:
        """The seconds for which the node has had a processor: unlike the time of day, whatever else runs."""
        assert self.node.process is not None
        used = psutil.Process(self.node.process.pid).cpu_times()
        return float(used.user + used.system)

    def check(self, about: str = "") -> None:
        """The node runs and answers a new connection before it has had a processor for a second."""
        assert self.node.process is not None
        assert self.node.process.poll() is None, f"the node has ended: {about}\n{self.node.log[-2000:]}"
        begin = self.busy_seconds()
        served_apis(self.node.bootstrap)
        busy = self.busy_seconds() - begin
        assert busy < 1, f"the node was busy for {busy:.1f} s before it answered: {about}"

    def check_memory(self, about: str, before: int | None = None) -> None:
        """Memory has not grown by more than the limit: since the start, or since it was ``before``."""
        grown = self.memory() - (self.memory_before if before is None else before)
        assert grown < MEMORY_LIMIT, f"memory grew by {grown >> 20} MB: {about}"

    def check_log(self) -> None:
        """No handler and no task failed with an exception of its own."""
        log = self.node.log
        assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:4000]

    def send(self, data: bytes, wait: float = 0.2) -> str:
        """Send bytes on a connection of their own; "answered", "closed" or "silent"."""
        with socket.create_connection(self.address, timeout=SHORT) as connection:
            connection.settimeout(wait)
            try:
                connection.sendall(data)
                return "answered" if connection.recv(65536) else "closed"
            except TimeoutError:
                return "silent"
            except OSError:
                return "closed"


@pytest.fixture(scope="module")
def target(broker: Broker) -> Iterator[Target]:
    if not isinstance(broker, KbrokerBroker):
        pytest.skip("for kbroker alone: how others take it is theirs")
    node = KbrokerBroker()
    try:
        yield Target(node)
    finally:
        node.stop()


@hostile
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(struct.pack(">i", -1), id="negative length"),
        pytest.param(struct.pack(">i", 0), id="no length"),
        pytest.param(struct.pack(">i", 3) + b"abc", id="shorter than a header"),
        pytest.param(struct.pack(">i", 0x7FFFFFFF) + b"\x00\x03\x00\x0c" + b"\x00" * 100, id="2 GiB"),
        pytest.param(struct.pack(">ihhi", 50, 9999, 0, 1) + b"\x00" * 42, id="unknown API"),
        pytest.param(struct.pack(">ihhi", 50, 3, 99, 1) + b"\x00" * 42, id="unknown version"),
        pytest.param(struct.pack(">ihhi", 50, 0, 1, 1) + b"\x00" * 42, id="a version that is only advertised"),
        pytest.param(struct.pack(">ihhih", 12, 3, 12, 1, 30000) + b"xy", id="client id beyond the frame"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="HTTP"),
        pytest.param(bytes.fromhex("16030100f4010000f00303") + b"\x00" * 240, id="TLS hello"),
        pytest.param(os.urandom(5000), id="random bytes"),
    ],
)
def test_bad_frames(target: Target, data: bytes) -> None:
    # Those that end early wait for more, which is right; all others must not be left waiting.
    told = target.send(data, wait=60 if len(data) >= 4 else 1)
    target.check(repr(data[:40]))
    if len(data) >= 4:
        assert told == "closed", told
    target.check_log()


@hostile
def test_declared_sizes_reserve_nothing(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            connection = stack.enter_context(socket.create_connection(target.address, timeout=SHORT))
            # A valid start of a Produce of 90 MB, and then nothing.
            connection.sendall(struct.pack(">ihhih", 90 << 20, 0, 9, 1, -1) + b"\x00" * 64)
        target.check("200 frames begun")
        target.check_memory("200 frames of 90 MB begun")
    target.check("200 frames given up")


def _many_keys(count: int) -> bytes:
    """FindCoordinator v4 for so many groups, whose names take two bytes each."""
    body = struct.pack(">hhih", 10, 4, 1, -1) + b"\0" + b"\0" + encode_uvarint(count + 1) + b"\2g" * count + b"\0"
    return struct.pack(">i", len(body)) + body


@hostile
def test_many_elements(target: Target) -> None:
    """Each would become a thousand bytes of memory, and work while nobody else is served."""
    assert target.send(_many_keys(20_000), wait=SHORT) == "answered"
    target.check("20,000 elements")
    assert target.send(_many_keys(4 << 20), wait=SHORT) == "closed"
    target.check("four million elements")
    target.check_memory("four million elements")
    target.check_log()


@hostile
def test_idle_connections(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(500):
            stack.enter_context(socket.create_connection(target.address, timeout=SHORT))
        target.check("500 idle connections")
        target.check_memory("500 idle connections")
    target.check("500 connections closed")


def _damaged(rng: random.Random, frame: bytes) -> bytes:
    """The frame with one or more kinds of damage, its length field right in most cases."""
    body = bytearray(frame)
    for _ in range(rng.choice((1, 1, 2, 4))):
        kind = rng.randrange(7)
        # The key and version stay mostly: behind them is what can be hurt.
        at = rng.randrange(min(8, len(body) - 1), len(body)) if len(body) > 9 else 0
        if kind == 0:
            del body[at:]
        elif kind == 1:
            body[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            body[at : at + 4] = rng.choice(
                (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00\xff\xff\xff")
            )
        elif kind == 3:
            body[at:at] = rng.randbytes(rng.randrange(1, 20))
        elif kind == 4:
            body += rng.randbytes(rng.randrange(1, 100))
        elif kind == 5:
            body[at : at + 5] = b"\xff\xff\xff\xff\x0f"
        else:
            del body[at : at + rng.randrange(1, 9)]
        if len(body) < 10:
            break
    length = len(body) if rng.random() < 0.95 else rng.choice((0, 5, len(body) + 7, 1 << 20))
    return struct.pack(">i", length) + bytes(body)


@hostile
def test_damaged_requests(target: Target) -> None:
    rng = random.Random(SEED)
    now = int(time.time() * 1000)
    pairs = [
        (key, version)
        for key, (low, high) in served_apis(target.node.bootstrap).items()
        for version in range(max(low, API_KEYS[key].valid_versions.lowest), high + 1)
    ]
    each = max(1, FRAMES // len(pairs))
    number = 0
    for key, version in pairs:
        name = f"{API_KEYS[key].name} v{version}"
        for request in Generator(key, version, SEED, now).requests(each):
            data = _damaged(rng, target.talk.frame(request, version))
            number += 1
            # Group requests may wait for others, a Fetch for data: silence is right there.
            told = target.send(data, wait=0.05 if key in GROUP_APIS or key == 1 else 0.3)
            if told == "silent" or number % 50 == 0:
                target.check(f"seed {SEED}, frame {number}, {name}: {data[:2000].hex()}")
        target.check(f"seed {SEED}, {name}")
    target.check_memory(f"{number} damaged requests")
    target.check_log()


_ZEROS = bytes(1 << 20)


def _bomb(codec: CompressionType) -> bytes:
    """A record batch whose records say that they are hundreds of megabytes of zeros, within max.message.bytes."""
    batch = bytearray(build_batch([Record(0, 1_717_000_000_000, b"k", b"v", ())], compression=codec))
    if codec is CompressionType.GZIP:
        data = gzip.compress(_ZEROS * 300)
    elif codec is CompressionType.ZSTD:
        data = zstandard.ZstdCompressor().compress(_ZEROS * 300)
    elif codec is CompressionType.LZ4:
        data = lz4.frame.compress(_ZEROS * 200, block_linked=False)
    else:
        # A snappy block that declares 2 GiB: an unsigned varint, then a literal.
        data = b"\xff\xff\xff\xff\x07" + b"\x00a" + b"\xfe\x01\x00" * 20000
    body = batch[:61] + data

    struct.pack_into(">i", body, 8, len(body) - 12)
    struct.pack_into(">I", body, 17, crc32c.crc32c(bytes(body[21:])))
    return bytes(body)


@hostile
@pytest.mark.parametrize("codec", [codec for codec in CompressionType if codec], ids=lambda codec: codec.name.lower())
def test_decompression_bombs(target: Target, codec: CompressionType) -> None:
    talk = Dialogue(target.node.bootstrap)
    data = _bomb(codec)
    assert len(data) < 1_048_588
    before = target.memory()
    # A compacted topic needs every key, one with another codec needs all bytes: both make the broker look inside.
    for topic in ("wd-compact",):
        request = ProduceRequest(
            acks=1,
            timeout_ms=60_000,
            topic_data=[
                TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=memoryview(data))])
            ],
        )
        begin = target.busy_seconds()
        told = talk.ask(request, 9)
        assert not isinstance(told, str), told
        assert told.responses[0].partition_responses[0].error_code != 0
        assert target.busy_seconds() - begin < 3
    talk.close()
    target.check(f"a bomb in {codec.name}")
    # Since the bomb: the allocator keeps up to 45 MB of the one before, and gives them back with the next.
    target.check_memory(f"a bomb in {codec.name}", before)
    target.check_log()
