"""A partition that this node coordinates: the core, its log's partition, and the steps that are gathered for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

from kbroker.cores.coordinator.result import CoordinatorCore, CoordinatorResult, Outcome

if TYPE_CHECKING:
    from kbroker.node.replicas.partition import Partition

C = TypeVar("C", bound=CoordinatorCore)


GatheredStep = tuple[CoordinatorResult[Any], Outcome]
"""A step whose records are not appended yet, and its outcome."""


class Shard(Generic[C]):
    """A partition's core. ``loaded`` is set once its log has been replayed, or the shard has been dropped.

    ``gathered`` has steps whose records are neither appended nor replayed yet.
    ``gathers`` says that more are expected before the event loop comes round, which is when they are appended.
    ``in_round`` says that they are appended at the end of the poller's present round.
    ``when_loaded`` has steps that no request has asked for, and that wait until the log has been replayed.
    """

    __slots__ = (
        *("core", "gathered", "gathers", "in_round", "index", "leader_epoch", "loaded", "partition", "when_loaded"),
    )

    def __init__(self, core: C, index: int, partition: Partition, leader_epoch: int) -> None:
        self.core = core
        self.index = index
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.loaded = trio.Event()
        self.gathered: list[GatheredStep] = []
        self.gathers = False
        self.in_round = False
        self.when_loaded: list[Callable[[C], CoordinatorResult[None] | None]] = []
