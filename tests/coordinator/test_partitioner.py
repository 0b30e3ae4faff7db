"""The partition of an internal topic that coordinates an id (Java's ``String.hashCode``)."""

from __future__ import annotations

import pytest

from kbroker.cores.coordinator.partitioner import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("abc", 96354), ("hello world", 1794106052), ("polygenelubricants", -(2**31)), ("\U0001f600", 1772899)],
)
def test_hash(text: str, value: int) -> None:
    assert java_hash(text) == value


@pytest.mark.parametrize(("key", "partition"), [("", 0), ("abc", 4), ("polygenelubricants", 0)])
def test_partition(key: str, partition: int) -> None:
    assert partition_for(key, 50) == partition == partition_for(key, 50)


def test_long_ids_are_not_kept() -> None:
    assert partition_for("a" * 30_000, 50) == abs(java_hash("a" * 30_000)) % 50
