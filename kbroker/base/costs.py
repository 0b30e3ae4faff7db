"""The cost of work for a node, as measured: for `kbroker balance` and `kbroker capacity` alike."""

from __future__ import annotations

from typing import Final, NamedTuple


class Cost(NamedTuple):
    """A measured constant: ``value`` of ``unit``, and the benchmark's row that gives it (`docs/benchmarks.md`)."""

    what: str
    value: float
    unit: str
    source: str


REQUEST: Final = Cost(
    "a Produce or Fetch, whatever is in it, on a node that is busy",
    12.2e-6,
    "CPU s",
    "100 connections, small synchronous produce",
)
REQUEST_ALONE: Final = Cost(
    "the same on a node that waits for each",
    41e-6,
    "CPU s",
    "the same, times ListOffsets of one partition by 50 connections, heartbeat",
)
RECORD: Final = Cost(
    "a record that is produced", 0.025e-6, "CPU s", "produce 100 B, librdkafka, acks=all, 6 partitions, less 1 KB"
)
BYTE_IN: Final = Cost("a byte that is produced", 0.37e-9, "CPU s", "produce 1 KB, librdkafka, acks=all, 6 partitions")
BYTE_OUT: Final = Cost("a byte that is read", 0.19e-9, "CPU s", "consume 1 KB, librdkafka, 6 partitions")
BYTE_COPIED: Final = Cost(
    "a byte that a follower copies, beside what its leader sends",
    0.84e-9,
    "CPU s",
    "three nodes: produce 1 KB, acks=all, 6 partitions, less one node and what two copies cost the leader",
)
BYTE_IN_TLS: Final = Cost(
    "the same byte over TLS, more", 0.65e-9, "CPU s", "TLS: produce 1 KB, librdkafka, acks=all, 6 partitions"
)
BYTE_OUT_TLS: Final = Cost(
    "a byte read over TLS, more", 0.42e-9, "CPU s", "TLS: consume 1 KB, librdkafka, 6 partitions"
)
REQUEST_TLS: Final = Cost(
    "a request over TLS, more", 4.3e-6, "CPU s", "100 connections over SASL_SSL, small synchronous produce"
)
NODE: Final = Cost("a node under load", 50.2e6, "bytes of memory", "memory after all of it")
REPLICA: Final = Cost(
    "a replica", 3.65e3, "bytes of memory", "10,000 partitions, kill -9, launch to first accepted record"
)
CONNECTION: Final = Cost("a connection", 8.8e3, "bytes of memory", "1,000 idle connections")
KNOWN_PARTITION: Final = Cost(
    "a partition of the cluster, on each node",
    0.245e3,
    "bytes of memory",
    "metadata of 1,000,000 partitions, 100 brokers",
)
START: Final = Cost("the start of a node", 0.123, "s", "launch to first accepted record")
REPLICA_START: Final = Cost(
    "the same for each replica", 0.096e-3, "s", "10,000 partitions, kill -9, launch to first accepted record"
)

COSTS: Final = (
    *(REQUEST, REQUEST_ALONE, RECORD, BYTE_IN, BYTE_OUT, BYTE_COPIED, BYTE_IN_TLS, BYTE_OUT_TLS, REQUEST_TLS),
    *(NODE, REPLICA, CONNECTION, KNOWN_PARTITION, START, REPLICA_START),
)
"""All of them, for `kbroker capacity --constants`."""
