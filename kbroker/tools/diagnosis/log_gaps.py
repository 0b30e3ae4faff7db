"""Ends of logs with nothing for readers of committed records: markers of transactions, and records of aborted ones.

A consumer that commits the offset after the last record that it was given (librdkafka and Spring Kafka do) stays before
them. It is caught up, though its lag is not 0.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Final

from kbroker.client import Client, ClientError, ResponseError
from kbroker.client.patience import patience
from kbroker.client.reader import Reader, Skipped
from kbroker.client.topics import LATEST, list_offsets
from kbroker.types import TopicPartition

Spot = tuple[TopicPartition, int]
"""A partition, and the offset that is to be read next."""

_MOST_REMEMBERED: Final = 20_000
_MAX_READ: Final = 20
"""Spots that one look reads at."""

_READ_SECONDS: Final = 1.0


class LogGaps:
    """Remembers spots behind which the log has nothing: it is read once for each. Threads may look at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._empty_to: dict[Spot, int | None] = {}
        """Spot -> the offset before which nothing is there; None where a record is."""

    def knows(self, spot: Spot, end: int) -> bool:
        """Returns whether it has been seen that nothing is between a spot and an end."""
        with self._lock:
            known = self._empty_to.get(spot)
        return known is not None and known >= end

    def look(self, client: Client, spots: Mapping[Spot, int]) -> set[Spot]:
        """Returns the spots that no record follows, with the ends of their logs, as far as is known now.

        A log whose end readers of committed records cannot have yet has something to wait for.
        """
        with self._lock:
            known = {spot: self._empty_to[spot] for spot in spots if spot in self._empty_to}
        unknown = [spot for spot, end in spots.items() if (seen := known.get(spot, 0)) is not None and seen < end]
        if unknown:
            try:
                with patience(client, _READ_SECONDS):
                    self._read(client, {spot: spots[spot] for spot in unknown[:_MAX_READ]}, known)
            except ClientError:
                pass  # a leader is down, or this user may not read
        return {spot for spot, end in spots.items() if self.knows(spot, end)}

    def _read(self, client: Client, spots: Mapping[Spot, int], known: Mapping[Spot, int | None]) -> None:
        stable = list_offsets(client, dict.fromkeys([partition for partition, _ in spots], LATEST), read_committed=True)
        until = time.monotonic() + _READ_SECONDS
        for spot, end in spots.items():
            last = stable[spot[0]]
            if time.monotonic() >= until:
                return
            if not isinstance(last, ResponseError) and last.offset >= end:
                empty_to = _empty_to(client, spot[0], max(spot[1], known.get(spot) or 0), end, until)
                self._note(spot, empty_to)

    def _note(self, spot: Spot, empty_to: int | None) -> None:
        with self._lock:
            self._empty_to.pop(spot, None)
            self._empty_to[spot] = empty_to
            if len(self._empty_to) > _MOST_REMEMBERED:
                del self._empty_to[next(iter(self._empty_to))]


def _empty_to(client: Client, partition: TopicPartition, begin: int, end: int, until: float) -> int | None:
    """Returns the offset before which no record is, as far as there was time to read; None where a record is."""
    topic, number = partition
    reader = Reader(client, topic, {number: begin}, ends={number: end}, partition_bytes=256 << 10, max_wait_ms=200)
    try:
        while not reader.finished and (left := until - time.monotonic()) > 0:
            if any(not isinstance(chunk, Skipped) for chunk in reader.poll(left)):
                return None
        return reader.positions[number]
    finally:
        reader.close()
