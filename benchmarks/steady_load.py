"""Small requests of 100 connections without a pause, of which slices are measured."""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import raw
from benchmarks.clients import LoadError
from benchmarks.pairs import Slice
from benchmarks.servers import Server
from benchmarks.workloads import Bench, stored_records

CONNECTIONS = 100
PARTITIONS = 6
LONGEST_SECONDS = 3600
"""The load ends then by itself, if nobody has ended it."""

COUNTER = struct.Struct("=q")


class SteadyLoad:
    """The load of a server, and its count of answered requests."""

    def __init__(self, server: Server, count: mmap.mmap) -> None:
        self._server = server
        self._count = count

    @property
    def requests(self) -> int:
        """The requests that have been answered."""
        return int(COUNTER.unpack_from(self._count)[0])

    def slice(self, seconds: float) -> Slice:
        """Measure the next ``seconds``."""
        requests, used, began = self.requests, self._server.processor_clock(), time.monotonic()
        time.sleep(seconds)
        return Slice(work=self.requests - requests, cpu=used(), seconds=time.monotonic() - began)


def ready_topic(bench: Bench, server: Server) -> str:
    """A new topic that takes records in each partition."""
    topic = bench.new_topic(server, PARTITIONS)
    for partition in range(PARTITIONS):
        raw.await_record(server.host, server.port, topic, partition)
    return topic


@contextmanager
def steady_requests(bench: Bench, server: Server, topic: str) -> Iterator[SteadyLoad]:
    """The load of the workload ``requests`` until the block ends: each connection has one Produce under way.

    LoadError if it ends before, or if the topic has fewer records afterwards than were acknowledged.
    """
    before = stored_records(server, topic, PARTITIONS)
    frames, count = bench.scratch / "frames", bench.scratch / "count"
    frames.write_bytes(b"".join(raw.produce_frame(topic, index, b"x" * 100) for index in range(PARTITIONS)))
    with counter(count) as shared:
        offset = raw.produce_error_offset(topic)
        arguments = (server.port, frames, PARTITIONS, CONNECTIONS, LONGEST_SECONDS, offset, count)
        load = SteadyLoad(server, shared)
        with bench.load.running("requests", *arguments):
            yield load
        stored = stored_records(server, topic, PARTITIONS) - before
        if stored < load.requests:
            raise LoadError(f"{load.requests:,} requests were answered, {stored:,} records are there")


@contextmanager
def counter(path: Path) -> Iterator[mmap.mmap]:
    """A file with a number, 0 at first, that the load counts up in shared memory."""
    path.write_bytes(COUNTER.pack(0))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), COUNTER.size) as shared:
        yield shared
