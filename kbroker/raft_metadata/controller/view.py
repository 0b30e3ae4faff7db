"""The controller's state between two operations, and the input and the output of each operation."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Generic, TypeVar

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.config_schema import ConfigSchema
from kbroker.raft_metadata.controller.policies import NO_POLICIES, Policies
from kbroker.raft_metadata.controller.surviving_logs import LogEnds
from kbroker.raft_metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from kbroker.types import OffsetAndEpoch
from kbroker.value_types import dataclass, field


@dataclass(frozen=True, slots=True)
class ControllerView:
    """The metadata as the active controller sees it when it decides on one change."""

    node_id: int
    """The active controller's own node id."""
    image: MetadataImage
    """Every record that this leader has appended, committed or not."""
    next_offset: int
    """The offset that the first record of the result will get."""
    schema: ConfigSchema
    rng: random.Random
    policies: Policies
    log_ends: LogEnds

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


@dataclass(slots=True)
class ControllerResult(Generic[T]):
    """The records to commit, up to 10,000 of them in one batch, and the response, which goes out once all are."""

    response: T
    """Holds once the records are read."""
    records: Iterable[object] = field(default_factory=list)
    """Read once. They may be decided on as they are read, and the response with them: the view stays as it is until
    then. None is a step that makes no record."""
    at_once: bool = False
    """Whether the response waits for nothing if there are no records: not even until what the operation may have seen
    is committed."""


class Controller:
    """Holds the image that runs ahead of the committed one: it has every record that this leader has appended.

    Deciding by uncommitted records is safe: responses wait for the commit, and a leader that loses its epoch calls
    ``reset`` with the committed image before it decides again.
    """

    def __init__(
        self,
        node_id: int,
        schema: ConfigSchema,
        rng: random.Random,
        policies: Policies = NO_POLICIES,
        *,
        recovery_timeout_ms: int = 0,
    ) -> None:
        """``recovery_timeout_ms``: how long to wait for what brokers have, where no replica is known to have all."""
        self.image: MetadataImage = EMPTY_IMAGE
        self.node_id = node_id
        self.schema = schema
        self._rng = rng
        self._policies = policies
        self.log_ends = LogEnds(recovery_timeout_ms)

    def begin(self, next_offset: int) -> ControllerView:
        """Begin a decision, which has all of the policies' time. Returns its view."""
        if self._policies.on_request is not None:
            self._policies.on_request()
        return self.view(next_offset)

    def view(self, next_offset: int | None = None) -> ControllerView:
        """The view for one operation; ``next_offset`` is the end of the metadata log, where its records will go.

        Without it: right behind the image's last record, which is not the end of the log if control records follow.
        """
        if next_offset is None:
            next_offset = self.image.offset + 1
        return ControllerView(
            self.node_id, self.image, next_offset, self.schema, self._rng, self._policies, self.log_ends
        )

    def reset(self, image: MetadataImage) -> None:
        """Start again from ``image``: the committed one, or the one before records that could not be appended."""
        self.image = image
        self.log_ends.restart(image)

    def replay(self, records: Iterable[object], last: OffsetAndEpoch) -> MetadataDelta:
        """Take in the records of a result; ``last`` is the position of the last of them in the log."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.adopt(delta, last)
        return delta

    def adopt(self, delta: MetadataDelta, last: OffsetAndEpoch) -> None:
        """Take in a delta of the present image; ``last`` is the position of its last record in the log."""
        self.image = delta.apply(last)
        self.log_ends.on_change(delta, self.image)
