"""The input of every operation of the controller: :class:`ControllerView`."""

from __future__ import annotations

import random

from kbroker.raft_metadata.config_schema import ConfigSchema
from kbroker.raft_metadata.controller.policies import NO_POLICIES, Policies
from kbroker.raft_metadata.image import MetadataImage
from kbroker.value_types import dataclass


@dataclass(frozen=True, slots=True)
class ControllerView:
    """The metadata as the active controller sees it when it decides on one change."""

    node_id: int
    """The active controller's own node id."""
    image: MetadataImage
    """Every record that this leader has appended, committed or not."""
    next_offset: int
    """The offset that the first record of the result will get: a broker that registers gets it as its epoch."""
    schema: ConfigSchema
    rng: random.Random
    policies: Policies = NO_POLICIES

    def is_active(self, broker_id: int) -> bool:
        """Whether the broker is registered, unfenced and not in controlled shutdown."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.active
