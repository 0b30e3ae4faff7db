"""The parts of share groups (KIP-932) besides the group coordinator, as handlers see them."""

from __future__ import annotations

from typing import Protocol

from kbroker.handlers.services.coordinators import Coordinator
from kbroker.share_coordinator.coordinator import ShareCoordinator


class ShareCoordinators(Coordinator[ShareCoordinator], Protocol):
    """The share coordinator: a core for each partition of ``__share_group_state`` that this node leads."""


class SharePartitions(Protocol):
    """The share partitions that this node leads, and the share sessions of their readers."""
