"""Lines for the application to count, and the counts that it has committed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, Producer

from tests.patience import LONG

ROUNDS = int(os.environ.get("KBROKER_COMPAT_STREAMS_FULL") or 0)
"""Rounds of kills; 0 leaves out what takes minutes."""


def write(bootstrap: str, *lines: str, timestamp_ms: int | None = None) -> None:
    """Write lines, to the three partitions in turn if they have a time, or else by their numbers."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number, line in enumerate(lines):
        if timestamp_ms is None:
            producer.produce("lines", line, key=str(number))
        else:
            producer.produce("lines", line, partition=number % 3, timestamp=timestamp_ms)
    assert producer.flush(LONG) == 0


class Steps:
    """A reader of the topic of counts: each step that was committed, in order."""

    def __init__(self, bootstrap: str) -> None:
        self.read: list[tuple[str, int]] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe(["counts"])

    def go_on(self, is_enough: Callable[[], bool], seconds: float = LONG) -> bool:
        """Read until there is enough; False if that is not in time."""
        end = time.monotonic() + seconds
        while not is_enough() and time.monotonic() < end:
            message = self._consumer.poll(1)
            if message is not None and message.error() is None:
                self.read.append(((message.key() or b"").decode(), int(message.value() or b"0")))
        return is_enough()

    def close(self) -> None:
        """Leave."""
        self._consumer.close()


def counted(steps: Sequence[tuple[str, int]], begin: dict[str, int] | None = None) -> dict[str, int]:
    """The last count of each word. Each step must be there once, and follow the one before it, from ``begin`` on."""
    found = dict(begin or {})
    for word, count in steps:
        assert count == found.get(word, 0) + 1, f"{word} is counted {count} after {found.get(word, 0)}"
        found[word] = count
    return found
