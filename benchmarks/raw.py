"""The few bytes of Kafka's protocol that the benchmarks write themselves, in old, fixed-width versions.

Written by hand so that the measure does not rest on the code that is measured.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from dataclasses import dataclass

import crc32c

PRODUCE, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 2, 3, 18
RETRIABLE = frozenset({3, 5, 6, 9, 29})
"""Unknown topic, leader or broker not available, not the leader: what a starting broker answers for a moment."""


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def frame(api_key: int, version: int, body: bytes, correlation_id: int = 0) -> bytes:
    """A request with header version 1, its length in front."""
    payload = struct.pack(">hhi", api_key, version, correlation_id) + _string("benchmark") + body
    return struct.pack(">i", len(payload)) + payload


def record_batch(value: bytes) -> bytes:
    """A batch v2 of one record without key."""

    def varint(number: int) -> bytes:
        zigzag, out = number << 1 if number >= 0 else (-number << 1) - 1, bytearray()
        while zigzag > 0x7F:
            out.append(zigzag & 0x7F | 0x80)
            zigzag >>= 7
        return bytes((*out, zigzag))

    record = b"\0" + varint(0) + varint(0) + varint(-1) + varint(len(value)) + value + varint(0)
    record = varint(len(record)) + record
    now = int(time.time() * 1000)
    tail = struct.pack(">hiqqqhii", 0, 0, now, now, -1, -1, -1, 1) + record
    head = struct.pack(">qiib", 0, len(tail) + 9, -1, 2)
    return head + struct.pack(">I", crc32c.crc32c(tail)) + tail


def produce_frame(topic: str, partition: int, value: bytes) -> bytes:
    """Produce v7, acks=all, one record to one partition."""
    batch = record_batch(value)
    body = struct.pack(">hhii", -1, -1, 30_000, 1) + _string(topic)
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    return frame(PRODUCE, 7, body)


def produce_error_offset(topic: str) -> int:
    """Where the error code of a Produce v7 response to `produce_frame` lies, behind the response's length."""
    return 4 + 4 + 2 + len(topic.encode()) + 4 + 4


def metadata_frame(topic: str) -> bytes:
    """Metadata v4 for one topic, which may be created by it."""
    return frame(METADATA, 4, struct.pack(">i", 1) + _string(topic) + b"\1")


def list_offsets_frame(topic: str, partition: int) -> bytes:
    """ListOffsets v2: the latest offset of one partition."""
    body = struct.pack(">ibi", -1, 0, 1) + _string(topic) + struct.pack(">iiq", 1, partition, -1)
    return frame(LIST_OFFSETS, 2, body)


def listed_offset(response: bytes, topic: str) -> int:
    """The offset in an answer to `list_offsets_frame`. Raises RuntimeError for an error code."""
    error, _, offset = struct.unpack_from(">hqq", response, 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4)
    if error:
        raise RuntimeError(f"error code {error} for ListOffsets")
    return int(offset)


def api_versions_frame() -> bytes:
    """ApiVersions v0, what every client sends first."""
    return frame(API_VERSIONS, 0, b"")


@dataclass(slots=True)
class Connection:
    """A blocking connection that sends one request and reads its response."""

    sock: socket.socket

    @classmethod
    def open(cls, host: str, port: int, timeout: float = 10) -> Connection:
        """Raises OSError."""
        sock = socket.create_connection((host, port), timeout=timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(sock)

    def request(self, data: bytes) -> bytes:
        """The response without its length. Raises OSError, also when the connection is closed."""
        self.sock.sendall(data)
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = self.sock.recv(count - len(data))
            if not chunk:
                raise ConnectionError("closed by the broker")
            data += chunk
        return bytes(data)

    def close(self) -> None:
        self.sock.close()


def produced(connection: Connection, topic: str, partition: int, value: bytes) -> int:
    """Error code of producing one record."""
    response = connection.request(produce_frame(topic, partition, value))
    offset = produce_error_offset(topic)
    (error,) = struct.unpack_from(">h", response, offset)
    return int(error)


def await_record(host: str, port: int, topic: str, partition: int = 0, timeout: float = 60) -> float:
    """Tries every 2 ms to produce a record to `topic`, created if need be; returns `time.monotonic()` of the success.

    Raises TimeoutError, or RuntimeError for an error that does not pass.
    """
    deadline = time.monotonic() + timeout
    connection: Connection | None = None
    try:
        while time.monotonic() < deadline:
            try:
                if connection is None:
                    connection = Connection.open(host, port)
                connection.request(metadata_frame(topic))
                error = produced(connection, topic, partition, b"first")
            except OSError:
                with contextlib.suppress(AttributeError):
                    connection.close()  # type: ignore[union-attr]
                connection = None
            else:
                if not error:
                    return time.monotonic()
                if error not in RETRIABLE:
                    raise RuntimeError(f"error code {error} for a single record")
            time.sleep(0.002)
    finally:
        if connection is not None:
            connection.close()
    raise TimeoutError(f"no record accepted within {timeout} s")
