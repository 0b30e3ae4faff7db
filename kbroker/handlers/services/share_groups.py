"""The parts of share groups (KIP-932) besides the group coordinator, as handlers see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from kbroker.coordinator.result import CoordinatorResult
from kbroker.errors import ApiError
from kbroker.handlers.services.coordinators import Coordinator
from kbroker.later import Later
from kbroker.share_coordinator.coordinator import ShareCoordinator
from kbroker.share_state import SharePartitionKey

T = TypeVar("T")
R = TypeVar("R")


class ShareCoordinators(Coordinator[ShareCoordinator], Protocol):
    """The share coordinator: a core for each partition of ``__share_group_state`` that this node leads."""

    def run_each(
        self,
        items: Mapping[SharePartitionKey, T],
        step: Callable[[ShareCoordinator, SharePartitionKey, T, int], CoordinatorResult[R]],
    ) -> Later[dict[SharePartitionKey, R | ApiError]]:
        """Run a step for each share partition; each one's response, once it is committed, or its error."""
        ...


class SharePartitions(Protocol):
    """The share partitions that this node leads, and the share sessions of their readers."""
