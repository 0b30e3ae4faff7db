"""The durable state of a share partition (KIP-932), and the interface to whoever keeps it.

A share partition is one partition as one share group reads it. Its leader decides who gets which record, and has the
decisions kept by the share coordinator, through a `Persister`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import Protocol

from kbroker.errors import ErrorCode
from kbroker.types import Uuid, uuid_from_str, uuid_to_str
from kbroker.value_types import NamedTuple

UNINITIALIZED_EPOCH = 0
"""State epoch and leader epoch, in a summary, of a share partition that nobody has initialized."""

UNINITIALIZED_START_OFFSET = -1
"""Start offset of a share partition whose first reader has yet to decide where it starts."""

UNKNOWN_COUNT = -1
"""Delivery complete count where it is not known (KIP-1226)."""


_INTEGER = re.compile(r"[-+]?\d+")


class SharePartitionKey(NamedTuple):
    """A partition and the share group that reads it."""

    group_id: str
    topic_id: Uuid
    partition: int

    def __str__(self) -> str:
        """The key by which FindCoordinator asks for the share coordinator."""
        return f"{self.group_id}:{uuid_to_str(self.topic_id)}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> SharePartitionKey:
        """Read what `__str__` gives. As in Kafka it is read from its end: a group's id may have colons.

        ``ValueError``: it is no such key.
        """
        group_id, _, rest = text.rstrip(":").rpartition(":")
        group_id, _, topic_id = group_id.rpartition(":")
        if not group_id.strip():
            raise ValueError(f"{text!r} is not a share partition")
        if not _INTEGER.fullmatch(rest) or not -(2**31) <= int(rest) < 2**31:
            raise ValueError(f"{rest!r} is not a partition")
        return cls(group_id, uuid_from_str(topic_id), int(rest))


class DeliveryState(IntEnum):
    """State of a record's delivery (``RecordState``). ACQUIRED is never kept: locks end with their leader."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """To be archived, once a dead-letter queue has it (KIP-1191)."""
    ARCHIVED = 4


class StateBatch(NamedTuple):
    """Offsets, both inclusive, that share one state; ``delivery_count`` says how often they were handed out."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class SharePartitionState(NamedTuple):
    """A share partition's state as its leader writes and reads it; written, ``batches`` are those that changed.

    Offsets below ``start_offset`` are done with. Those from there on without a batch are available, or not read yet.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = UNKNOWN_COUNT
    """Offsets from ``start_offset`` on that are done with."""
    batches: tuple[StateBatch, ...] = ()


class StateSummary(NamedTuple):
    """A share partition's state without its batches."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int


class Persister(Protocol):
    """Keeps states (Kafka's ``Persister``).

    Each method takes share partitions of one group together and answers for each; it raises for none.
    """

    async def initialize(
        self, group_id: str, partitions: Mapping[SharePartitionKey, tuple[int, int]]
    ) -> dict[SharePartitionKey, ErrorCode]:
        """Begin share partitions anew, each with a state epoch and a start offset."""

    async def read(
        self, group_id: str, leader_epochs: Mapping[SharePartitionKey, int]
    ) -> dict[SharePartitionKey, SharePartitionState | ErrorCode]:
        """Read states for leaders with these epochs. Leaders with lower ones are refused from then on."""

    async def write(
        self, group_id: str, states: Mapping[SharePartitionKey, SharePartitionState]
    ) -> dict[SharePartitionKey, ErrorCode]:
        """Keep what has changed. FENCED_LEADER_EPOCH or FENCED_STATE_EPOCH: the writer is out of date."""

    async def delete(
        self, group_id: str, partitions: Collection[SharePartitionKey]
    ) -> dict[SharePartitionKey, ErrorCode]:
        """Forget share partitions; one that is not known is no error."""

    async def read_summaries(
        self, group_id: str, leader_epochs: Mapping[SharePartitionKey, int]
    ) -> dict[SharePartitionKey, StateSummary | ErrorCode]:
        """Read states without their batches."""
