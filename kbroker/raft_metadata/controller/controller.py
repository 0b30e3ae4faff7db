"""The controller's state between two operations."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kbroker.raft_metadata.config_schema import ConfigSchema
from kbroker.raft_metadata.controller.policies import NO_POLICIES, Policies
from kbroker.raft_metadata.controller.view import ControllerView
from kbroker.raft_metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from kbroker.types import OffsetAndEpoch


class Controller:
    """Holds the image that runs ahead of the committed one: it has every record that this leader has appended.

    Deciding by uncommitted records is safe: responses wait for the commit, and a leader that loses its epoch calls
    ``reset`` with the committed image before it decides again.
    """

    def __init__(
        self, node_id: int, schema: ConfigSchema, rng: random.Random, policies: Policies = NO_POLICIES
    ) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.node_id = node_id
        self.schema = schema
        self._rng = rng
        self._policies = policies

    def view(self, next_offset: int | None = None) -> ControllerView:
        """The view for one operation; ``next_offset`` is the end of the metadata log, where its records will go.

        Without it: right behind the image's last record, which is not the end of the log if control records follow.
        """
        if self._policies.on_request is not None:
            self._policies.on_request()
        if next_offset is None:
            next_offset = self.image.offset + 1
        return ControllerView(self.node_id, self.image, next_offset, self.schema, self._rng, self._policies)

    def reset(self, image: MetadataImage) -> None:
        """Start again from ``image``: the committed one, or the one before records that could not be appended."""
        self.image = image

    def replay(self, records: Sequence[object], last: OffsetAndEpoch) -> MetadataDelta:
        """Take in the records of a result; ``last`` is the position of the last of them in the log."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(last)
        return delta
