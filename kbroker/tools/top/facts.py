"""A snapshot of a cluster: the answers of its brokers, as values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kbroker.client.groups import GroupListing
from kbroker.tools.diagnosis.facts import ClusterView
from kbroker.tools.diagnosis.group_watch import Judged
from kbroker.types import TopicPartition

Offsets = Mapping[TopicPartition, int]
"""Partition -> an offset."""


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """Requests of one API at one node, by its page of metrics; milliseconds of the slowest hundredth, by stage."""

    api: str
    count: float
    """Requests, ever."""

    middle: float | None
    """Milliseconds that half of the requests take at most."""

    slow: float | None
    """Milliseconds that 99 of 100 requests take at most."""

    stages: Mapping[str, float] = field(default_factory=dict)
    """Stage -> the same for a part of the time."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """One page of metrics. ``node`` is the broker whose page it is, None if the page does not tell."""

    url: str
    node: int | None
    at: float
    """Seconds, of a clock that does not jump."""

    bytes_in: Mapping[str, float] = field(default_factory=dict)
    """Topic -> bytes appended, ever."""

    bytes_out: Mapping[str, float] = field(default_factory=dict)
    """Topic -> bytes sent to consumers, ever."""

    lag_seconds: Mapping[str, Mapping[TopicPartition, float]] = field(default_factory=dict)
    """Group -> partition -> seconds that the oldest record has waited which the group has not committed.

    A node knows them of the partitions that it has a replica of."""

    requests: tuple[RequestTimes, ...] = ()
    connections: float | None = None
    memory: float | None = None
    """Bytes of the process."""

    cpu_seconds: float | None = None
    """Seconds of processor time, ever."""

    turn_ms: float | None = None
    """Milliseconds that 99 of 100 turns of the event loop take at most (kbroker alone)."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The answers of one look. What was not asked in it is not in it: ``ClusterHistory`` remembers earlier answers."""

    at: float
    """Seconds, of a clock that does not jump."""

    cluster: ClusterView
    """Brokers, quorum, transactions, and all topics by name, as of at most a few seconds ago."""

    ends: Offsets = field(default_factory=dict)
    """Ends of the partitions that were asked for."""

    sizes: Offsets = field(default_factory=dict)
    """Bytes on the leaders' disks, of the same partitions."""

    groups: tuple[GroupListing, ...] = ()
    committed: Mapping[str, Offsets] = field(default_factory=dict)
    """Group -> its committed offsets, of the groups that were asked for."""

    judged: Mapping[str, Judged] = field(default_factory=dict)
    """Group -> where its records wait and why, of those that were asked for and have members."""

    share_lags: Mapping[str, int | None] = field(default_factory=dict)
    """Share group -> records that are not done with, None where the broker cannot tell."""

    record_times: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Partition -> an offset and the time of the record there, in ms since 1970."""

    transactions_count: int = 0
    """Open transactions, those that were not described included."""

    blocked: Offsets = field(default_factory=dict)
    """Partition -> records that ``read_committed`` does not see yet, of the partitions of open transactions."""

    scrapes: tuple[Scrape, ...] = ()
    problems: tuple[str, ...] = ()
    """Parts that are not shown, and why; a line each."""

    requests: int = 0
    """Requests that this look took."""
