"""The controller's state and its parts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from kbroker.raft_metadata.controller.brokers import BrokerControl
from kbroker.raft_metadata.controller.configs import ConfigControl
from kbroker.raft_metadata.controller.features import FeatureControl
from kbroker.raft_metadata.controller.leadership import LeadershipControl
from kbroker.raft_metadata.controller.producer_ids import ProducerIdControl
from kbroker.raft_metadata.controller.reassignments import ReassignmentControl
from kbroker.raft_metadata.controller.schema import ConfigSchema
from kbroker.raft_metadata.controller.topics import TopicControl
from kbroker.raft_metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from kbroker.types import OffsetAndEpoch


class Controller:
    """Decides on changes. An operation reads ``image`` and returns a ``ControllerResult``; it never writes state.

    ``image`` runs ahead of what is committed: it holds every record that this leader has appended. That is safe
    because answers wait for the commit, and because a leader that loses its epoch calls ``reset`` with the committed
    image before it decides anything again.
    """

    def __init__(self, node_id: int, schema: ConfigSchema, rng: random.Random) -> None:
        self.node_id = node_id
        self.schema = schema
        self.rng = rng
        self.image: MetadataImage = EMPTY_IMAGE
        self.next_offset = 0
        """The offset that the first record of the next result will get: a broker's epoch is one."""
        self.topics = TopicControl(self)
        self.leadership = LeadershipControl(self)
        self.configs = ConfigControl(self)
        self.brokers = BrokerControl(self)
        self.features = FeatureControl(self)
        self.reassignments = ReassignmentControl(self)
        self.producer_ids = ProducerIdControl(self)

    def reset(self, image: MetadataImage, next_offset: int) -> None:
        """Start from what is committed."""
        self.image = image
        self.next_offset = next_offset

    def replay(self, records: Sequence[Any], last: OffsetAndEpoch) -> MetadataDelta:
        """Take in the records of a result, appended with ``last`` as the position of the last one."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(last)
        self.next_offset = last.offset + 1
        return delta
