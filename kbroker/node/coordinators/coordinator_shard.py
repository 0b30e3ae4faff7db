"""A partition that this node coordinates: the core, its log's partition, and the steps that are gathered for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

from kbroker.cores.coordinator.result import CoordinatorCore, CoordinatorResult
from kbroker.runtime.later import Later

if TYPE_CHECKING:
    from kbroker.node.replicas.partition import Partition

C = TypeVar("C", bound=CoordinatorCore)


GatheredStep = tuple[CoordinatorResult[Any], Later[Any]]
"""A step whose records are not appended yet, and its outcome."""


class Shard(Generic[C]):
    """A partition's core. ``loaded`` is set once its log has been replayed, or the shard has been dropped.

    ``gathered`` has steps whose records are neither appended nor replayed yet.
    ``gathers`` says that more are expected before the event loop comes round, which is when they are appended.
    ``when_loaded`` has steps that no request has asked for, and that wait until the log has been replayed.
    """

    __slots__ = ("core", "gathered", "gathers", "index", "leader_epoch", "loaded", "partition", "when_loaded")

    def __init__(self, core: C, index: int, partition: Partition, leader_epoch: int) -> None:
        self.core = core
        self.index = index
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.loaded = trio.Event()
        self.gathered: list[GatheredStep] = []
        self.gathers = False
        self.when_loaded: list[Callable[[C], CoordinatorResult[None] | None]] = []
