"""The numbers of a topic's records: sizes, keys, nulls, keys that repeat. Pure."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import Final

from kbroker.client.records_io.json_types import Json
from kbroker.wire.record_batch import Record

MOST_KEYS: Final = 1_000_000
"""Different keys that are remembered, a digest of each: some 100 MB."""


class Sizes:
    """Sizes in bytes: their number, sum, limits, and how many lie below each power of two."""

    def __init__(self) -> None:
        self.count = self.sum = self.largest = 0
        self.smallest: int | None = None
        self._bits: Counter[int] = Counter()

    def add(self, size: int) -> None:
        """Count one."""
        self.count += 1
        self.sum += size
        self.largest = max(self.largest, size)
        self.smallest = size if self.smallest is None else min(self.smallest, size)
        self._bits[size.bit_length()] += 1

    def told(self) -> dict[str, Json]:
        """Returns the numbers; ``buckets`` are pairs of a size and how many are smaller, and in no bucket before."""
        buckets: list[Json] = [[1 << bits, self._bits[bits]] for bits in sorted(self._bits)]
        return {
            "count": self.count,
            "sum": self.sum,
            "smallest": self.smallest,
            "largest": self.largest,
            "buckets": buckets,
        }


class _OfPartition:
    def __init__(self) -> None:
        self.records = self.bytes = self.null_keys = self.null_values = self.back_in_time = 0
        self.latest = -1


class Analysis:
    """Counts records, whichever come; those of a partition have to come in their order."""

    def __init__(self, most_keys: int = MOST_KEYS) -> None:
        """``most_keys``: so many different keys are remembered."""
        self._most_keys = most_keys
        self._digests: set[bytes] = set()
        self._partitions: dict[int, _OfPartition] = {}
        self._keys, self._values, self._headers = Sizes(), Sizes(), Sizes()
        self._empty_keys = self._repeated = self._unknown = 0
        self._times: tuple[int, int] | None = None

    def add(self, partition: int, record: Record) -> None:
        """Count one record."""
        of = self._partitions.setdefault(partition, _OfPartition())
        of.records += 1
        if record.key is None:
            of.null_keys += 1
        else:
            self._keys.add(len(record.key))
            self._empty_keys += not record.key
            self._note_key(record.key)
        if record.value is None:
            of.null_values += 1
        else:
            self._values.add(len(record.value))
        if record.headers:
            self._headers.add(sum(len(name.encode()) + len(content or b"") for name, content in record.headers))
        of.bytes += len(record.key or b"") + len(record.value or b"")
        at = record.timestamp
        of.back_in_time += at < of.latest
        of.latest = max(of.latest, at)
        first, last = self._times or (at, at)
        self._times = (min(first, at), max(last, at))

    def _note_key(self, key: bytes) -> None:
        digest = blake2b(key, digest_size=16).digest()
        if digest in self._digests:
            self._repeated += 1
        elif len(self._digests) < self._most_keys:
            self._digests.add(digest)
        else:
            self._unknown += 1

    def told(self) -> dict[str, Json]:
        """Returns the numbers so far.

        ``repeated``: records whose key came before; ``unknown``: those of which that is not known, as there are too
        many different keys.
        """
        partitions: list[Json] = [
            {
                "partition": number,
                "records": of.records,
                "bytes": of.bytes,
                "null_keys": of.null_keys,
                "null_values": of.null_values,
                "back_in_time": of.back_in_time,
            }
            for number, of in sorted(self._partitions.items())
        ]
        return {
            "partitions": partitions,
            "keys": self._keys.told(),
            "values": self._values.told(),
            "headers": self._headers.told(),
            "empty_keys": self._empty_keys,
            "different": len(self._digests),
            "repeated": self._repeated,
            "unknown": self._unknown,
            "times": None if self._times is None else list(self._times),
        }
