"""The partition of a key is the one that other clients choose."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.client.pending_batches import murmur2, partition_for_key


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        # Kafka's own UtilsTest.testMurmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_kafka_s_own_values(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected & 0xFFFFFFFF


@given(st.binary(max_size=70), st.integers(1, 1000))
def test_as_kafka_python(key: bytes, count: int) -> None:
    other = pytest.importorskip("kafka.partitioner.default")
    assert murmur2(key) == other.murmur2(key) & 0xFFFFFFFF
    cluster = SimpleNamespace(
        topics=lambda: {"t"},
        partitions_for_topic=lambda topic: set(range(count)),
        available_partitions_for_topic=lambda topic: set(range(count)),
    )
    assert partition_for_key(key, count) == other.DefaultPartitioner().partition("t", key, key, None, None, cluster)
