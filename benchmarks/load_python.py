"""load.c's modes and arguments in Python, for machines without a C compiler. Slower: the client is the bound.

Its figures compare the two brokers fairly, but are no measure of what a broker can do; the report names the client.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition, libversion

DEADLINE = time.monotonic() + float(os.environ.get("LOAD_SECONDS", "120"))


def _check_deadline() -> None:
    if time.monotonic() > DEADLINE:
        sys.exit("no end after the time limit")


def _settings(pairs: list[str]) -> dict[str, Any]:
    return dict(pair.split("=", 1) for pair in pairs)


class _Counting:
    """A producer that counts deliveries and ends the process at the first failure."""

    def __init__(self, bootstrap: str, settings: list[str]) -> None:
        self.producer = Producer({"bootstrap.servers": bootstrap, **_settings(settings)})
        self.delivered = 0

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            sys.exit(f"records failed: {error}")
        self.delivered += 1

    def send(self, topic: str, value: bytes, partition: int = -1) -> None:
        while True:
            try:
                self.producer.produce(topic, value, partition=partition, on_delivery=self._on_delivery)
                return
            except BufferError:
                self.producer.poll(0.01)
                _check_deadline()

    def await_delivered(self, count: int) -> None:
        while self.delivered < count:
            self.producer.poll(0.1)
            _check_deadline()


def produce(bootstrap: str, topic: str, records: str, size: str, *settings: str) -> dict[str, Any]:
    load, value, count = _Counting(bootstrap, list(settings)), os.urandom(int(size)), int(records)
    load.send(topic, value)
    load.await_delivered(1)
    start = time.monotonic()
    for number in range(1, count):
        load.send(topic, value)
        if not number & 0x3FF:
            load.producer.poll(0)
    load.await_delivered(count)
    return {"records": count - 1, "seconds": time.monotonic() - start, "client": f"confluent-kafka {_version()}"}


def consume(bootstrap: str, topic: str, partitions: str, records: str, *settings: str) -> dict[str, Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            **_settings(list(settings)),
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(int(partitions))])
    seen = total = 0
    start = 0.0
    while seen < int(records):
        messages = consumer.consume(10_000, 0.1)
        if messages and not start:
            start = time.monotonic()
        for message in messages:
            if message.error() is None:
                seen += 1
                total += len(message)
        _check_deadline()
    seconds = time.monotonic() - start
    return {"records": seen, "bytes": total, "seconds": seconds, "client": f"confluent-kafka {_version()}"}


def latency(bootstrap: str, topic: str, records: str, size: str, *settings: str) -> dict[str, Any]:
    load, value, count = _Counting(bootstrap, list(settings)), os.urandom(int(size)), int(records)
    took = []
    for number in range(count + 300):
        start = time.monotonic()
        load.send(topic, value, 0)
        load.await_delivered(number + 1)
        took.append((time.monotonic() - start) * 1e3)
    took = sorted(took[300:])
    return {"records": count, "p50_ms": took[count // 2], "p99_ms": took[count * 99 // 100], "max_ms": took[-1]}


def spread(bootstrap: str, topic: str, partitions: str, *settings: str) -> dict[str, Any]:
    load = _Counting(bootstrap, list(settings))
    start = time.monotonic()
    for index in range(int(partitions)):
        load.send(topic, b"x" * 100, index)
    load.await_delivered(int(partitions))
    return {"records": int(partitions), "seconds": time.monotonic() - start}


def requests(
    port: str, frames: str, count: str, connections: str, seconds: str, error_offset: str, counter: str = ""
) -> dict[str, Any]:
    shared = _mapped(counter) if counter else None
    data, offset = Path(frames).read_bytes(), 4 + int(error_offset)
    size = len(data) // int(count)
    poll, open_sockets = select.poll(), {}
    for index in range(int(connections)):
        sock = socket.create_connection(("127.0.0.1", int(port)), timeout=10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        start_at = index % int(count) * size
        open_sockets[sock.fileno()] = (sock, data[start_at : start_at + size], bytearray())
        poll.register(sock, select.POLLIN)
    done, start = 0, time.monotonic()
    for sock, request, _ in open_sockets.values():
        sock.sendall(request)
    end = start + float(seconds)
    while time.monotonic() < end or done < len(open_sockets):  # a peer that got no turn has still to answer
        if time.monotonic() >= end:
            _check_deadline()
        for descriptor, _event in poll.poll(1000):
            sock, request, response = open_sockets[descriptor]
            response += sock.recv(4096) or sys.exit("closed by the broker")
            if len(response) < 4 or len(response) < 4 + struct.unpack_from(">i", response)[0]:
                continue
            if response[offset] or response[offset + 1]:
                sys.exit(f"error code {struct.unpack_from('>h', response, offset)[0]}")
            response.clear()
            done += 1
            if shared is not None:
                struct.pack_into("=q", shared, 0, done)
            sock.sendall(request)
    return {"requests": done, "seconds": time.monotonic() - start}


def _mapped(path: str) -> mmap.mmap:
    with Path(path).open("r+b") as file:
        return mmap.mmap(file.fileno(), 8)


def _version() -> str:
    return str(libversion()[0])


if __name__ == "__main__":
    modes: dict[str, Callable[..., dict[str, Any]]]
    modes = {"produce": produce, "consume": consume, "latency": latency, "spread": spread, "requests": requests}
    print(json.dumps(modes[sys.argv[1]](*sys.argv[2:])))
