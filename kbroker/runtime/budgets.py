"""Budgets of one node: how much of it is done in one go, and for how long it waits. No property sets them.

A test gives a node others (`RealEnv`), to see in little what a busy node does.
"""

from __future__ import annotations

from typing import Final

from kbroker.value_types import NamedTuple


class Budgets(NamedTuple):
    """The defaults are a node's. Times are seconds."""

    turn_parts: int = 128
    """Parts of a request that are served before others have a turn. One (a topic, a group) takes 5 to 50 us."""
    long_request_bytes: int = 64 * 1024
    """Bytes of a request from which on others have a turn between decoding, serving and encoding it, too."""
    large_answer_parts: int = 2000
    """Topics and their partitions, or groups, of an answer from which on it is encoded in a thread: it would hold up
    the others for milliseconds, and with 100,000 topics for half a second."""
    turn_partitions: int = 6
    """Partitions that are made, led, followed or dropped for an image of the metadata before others have a turn. One
    takes 20 to 70 us."""
    turn_isrs: int = 128
    """Partitions whose ISRs or log directories are compared with the metadata before others have a turn. One takes 1 to
    4 us."""
    turn_records: int = 64
    """Records of the metadata that are decided on, or read, before others have a turn. One takes 6 to 12 us."""
    batch_records: int = 10_000
    """Records of a batch of the metadata. No fewer than a request may cause: its records are one batch, so all or none
    of them are there. More come of a broker that comes or goes alone: what comes of the first batches alone is right,
    and is ended by the next controller (``QuorumController.DEFAULT_MAX_RECORDS_PER_BATCH``)."""
    short_turns_seconds: float = 0.3
    """The time for which turns of ``turn_records`` stay short. On a busy node a long log in short ones would last so
    long that the quorum's leader is taken for gone, and a long change hold up all others."""
    fetch_turn_partitions: int = 256
    """Partitions that are read in one go; then other requests have their turn."""
    crowd: int = 8
    """The least streams of a crowded round of the poller."""
    sweep_seconds: float = 5.0
    """The exactness of time limits of connections (``node.serving.listener``)."""
    remembers: bool = True
    """Whether requests that repeat are recognised (``node.shortcuts``)."""
    repeated_bytes: int = 8 << 20
    """Bytes of duplicate answers in one response. First answers are bounded by what the node holds."""
    in_flight_of_partition: int = 1000
    """Ranges that are told of one share partition. It may have one for each lock
    (``group.share.partition.max.record.locks``)."""
    in_flight_ranges: int = 10_000
    """Ranges that are told in one response, of all its share partitions."""
    described_properties: int = 200_000
    """Properties in one response: those of five thousand topics (an eighth of that with documentation). A request asks
    for a broker's hundreds of properties with six bytes, and may do so many times."""
    high_watermark_delay: float = 0.05
    """Delay before a waiting follower gets a response only for a new high watermark.

    Mostly it gets the high watermark with the next records. Without the delay, each acknowledged record would cost a
    second round trip.
    """
    hand_over_bytes: int = 1 << 20
    """Bytes of a log from which on it is handed over to a node of the machine: a smaller one is copied sooner than it
    is flushed."""
    hand_over_seconds: float = 30.0
    """The time that a log is waited for, most of it to be flushed; then it is copied."""
    probes: int = 9
    """Connection probes after a broker's connection closed; after that, its session is waited for."""
    retry_pauses: float = 1.0
    """Pauses between attempts to write dead letters, and to keep their state, in multiples of the usual."""
    rule_patience: float = 1.0
    """The times of a rule in Python that says nothing of them, in multiples of those in docs/plugins.md."""
    provider_wait: float = 8.0
    """The time for which a client waits for keys that its token needs. It has ten seconds in all to authenticate."""
    unauthenticated_bytes: int = 32 << 20
    """Bytes of frames, not answered yet, that all clients of a listener may have before they have authenticated."""


DEFAULTS: Final = Budgets()
