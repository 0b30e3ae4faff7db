"""The input and the output of every operation of the controller."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Generic, TypeVar

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.config_schema import ConfigSchema
from kbroker.raft_metadata.controller.policies import NO_POLICIES, Policies
from kbroker.raft_metadata.image import MetadataImage
from kbroker.value_types import dataclass, field


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


T = TypeVar("T")

MAX_RECORDS_PER_USER_OP = 10_000
"""No request may cause more records than this (``QuorumController.MAX_RECORDS_PER_USER_OP``)."""


def too_many_records() -> ApiError:
    """The answer to a request that would cause more than `MAX_RECORDS_PER_USER_OP`."""
    return ApiError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[T]):
    """The records to commit (all or none, in one batch), and the response, which goes out once they are committed."""

    response: T
    records: Sequence[object] = field(default_factory=list)
