"""Dead letters (KIP-1191): the records of a dead-letter topic, and when such a topic may be written.

Pure. The rules are those of Kafka 4.4's ``ShareGroupDLQStateManager`` and ``ShareGroupDLQRecordFetcher``.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from kbroker.base.exponential_backoff import exponential_backoff
from kbroker.wire.batch_header import HEADER_SIZE
from kbroker.wire.record_batch import Record, build_batch

ATTEMPTS = 5
"""Attempts to write one batch, the creation of the topic included."""
_PAUSE_MS = 1_000
_LONGEST_PAUSE_MS = 30_000
_JITTER = 0.2
_INTERNAL = "__"
_LONGEST_FRAME = 5 + 1 + 1 + 3 + 5 + 5 + 1
"""Bytes of a letter's length, attributes, timestamp (they have the same), offset, two more lengths, and a count."""
_LONGEST_HEADER_FRAME = 1 + 3
"""Bytes of the lengths of a header's name and value: a topic or a group may have a long one."""
MOST_LETTERS = 500
"""Letters of one batch: the node's loop is not held up by more of them."""


class DeadLetterReason(Enum):
    """The reason for which a group gives a record up; the value is the text of the header."""

    REJECTED = "Offset rejected by client."
    DELIVERED_TOO_OFTEN = "Offset delivery count exceeded the threshold."


class DeadLetters(NamedTuple):
    """Offsets, both inclusive, that go to the dead-letter queue before they are archived."""

    first_offset: int
    last_offset: int
    delivery_count: int
    reason: DeadLetterReason

    @property
    def size(self) -> int:
        """The number of letters."""
        return self.last_offset - self.first_offset + 1


class Source(NamedTuple):
    """The share partition that the records are given up in."""

    group_id: str
    topic: str
    partition: int


class DeadLetterTopic(NamedTuple):
    """A group's dead-letter topic, as the metadata and the configs have it."""

    name: str
    """``errors.deadletterqueue.topic.name`` of the group."""
    exists: bool
    is_enabled: bool
    """``errors.deadletterqueue.group.enable`` of the topic."""
    may_be_created: bool
    """``errors.deadletterqueue.auto.create.topics.enable``."""
    prefix: str
    """``errors.deadletterqueue.topic.name.prefix``."""

    def refusal(self) -> str | None:
        """The reason why nothing may be written there; None if it may."""
        if not self.name:
            return "the group has no errors.deadletterqueue.topic.name"
        if self.name.startswith(_INTERNAL):
            return f"a dead-letter topic cannot be named {self.name}: {_INTERNAL} is for internal topics"
        if self.exists and not self.is_enabled:
            return f"the topic {self.name} has not errors.deadletterqueue.group.enable=true"
        if not self.exists and not self.may_be_created:
            return (
                f"there is no topic {self.name}, and errors.deadletterqueue.auto.create.topics.enable=false "
                "has nobody create it"
            )
        if not self.name.startswith(self.prefix):
            return f"the name {self.name} does not begin with errors.deadletterqueue.topic.name.prefix={self.prefix}"
        return None


class Originals(NamedTuple):
    """Records to be copied, by their offsets, as far as ``until``: those behind it have not been looked at."""

    records: Mapping[int, Record]
    until: int


def _size(record: Record) -> int:
    """Bytes of a letter in a batch, or a few more: lengths count as the longest that they can be."""
    size = _LONGEST_FRAME + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += _LONGEST_HEADER_FRAME + len(name) + len(value or b"")
    return size


class Round(NamedTuple):
    """A batch for the dead-letter topic, the offsets that are in it, and those that are left for another."""

    batch: bytes
    done: list[DeadLetters]
    rest: list[DeadLetters]


def make_round(
    source: Source, letters: Sequence[DeadLetters], originals: Originals, *, max_bytes: int, now_ms: int
) -> Round:
    """As many dead letters as fit into a batch of ``max_bytes``, at least one, and at most `MOST_LETTERS`.

    A copy that is too large with its headers is left out, and its letter has headers alone. Kafka has the topic's
    leader refuse it, and no letter is kept.
    """
    until = max(originals.until, letters[0].first_offset)
    records: list[Record] = []
    done: list[DeadLetters] = []
    size = HEADER_SIZE
    for index, letter in enumerate(letters):
        for offset in range(letter.first_offset, letter.last_offset + 1):
            record = _letter(source, letter, offset, originals.records.get(offset), now_ms)
            more = _size(record)
            if HEADER_SIZE + more > max_bytes:
                record = record._replace(key=None, value=None)
                more = _size(record)
            is_full = size + more > max_bytes or len(records) == MOST_LETTERS
            if records and (is_full or offset > until):
                if offset > letter.first_offset:
                    done.append(letter._replace(last_offset=offset - 1))
                rest = [letter._replace(first_offset=offset), *letters[index + 1 :]]
                return Round(build_batch(records), done, rest)
            records.append(record)
            size += more
        done.append(letter)
    return Round(build_batch(records), done, [])


def _letter(source: Source, letter: DeadLetters, offset: int, original: Record | None, now_ms: int) -> Record:
    told = {
        "topic": source.topic,
        "partition": source.partition,
        "offset": offset,
        "group": source.group_id,
        "delivery.count": letter.delivery_count,
        "message": letter.reason.value,
    }
    headers = tuple((f"__dlq.errors.{name}", str(value).encode()) for name, value in told.items())
    key, value = (None, None) if original is None else (original.key, original.value)
    return Record(offset, now_ms, key, value, headers)


def pause_ms(failures: int, rng: random.Random) -> int:
    """The time until another attempt, after so many failures in a row (1 or more)."""
    first = _PAUSE_MS * rng.uniform(1 - _JITTER, 1 + _JITTER)
    return int(exponential_backoff(first, failures, _LONGEST_PAUSE_MS))
