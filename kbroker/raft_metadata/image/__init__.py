"""The cluster's metadata as a value: an immutable :class:`MetadataImage`, and the :class:`MetadataDelta` to the next.

A module for each subject has its part of the image and what records change in it; ``delta.py`` says which record
goes where. Images are shared between all readers: the mappings in them must not be written to.
"""

from kbroker.raft_metadata.image.cluster import (
    BrokerImage,
    ControllerImage,
    register_broker_record,
    register_controller_record,
)
from kbroker.raft_metadata.image.configs import ConfigResource, ConfigsImage, ResourceType
from kbroker.raft_metadata.image.delta import MetadataDelta
from kbroker.raft_metadata.image.endpoints import (
    Endpoint,
    endpoint_entries,
    feature_entries,
    read_endpoints,
    read_features,
)
from kbroker.raft_metadata.image.errors import MetadataReplayError
from kbroker.raft_metadata.image.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    TRANSACTION_VERSION,
    FeaturesImage,
)
from kbroker.raft_metadata.image.metadata import EMPTY_IMAGE, MetadataImage
from kbroker.raft_metadata.image.principals import PrincipalsImage, QuotaEntity
from kbroker.raft_metadata.image.topics import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERED,
    RECOVERING,
    PartitionImage,
    TopicImage,
    TopicsImage,
    changed_partition,
    has_collision_chars,
    partition_record,
    unify_collision_chars,
)

__all__ = [
    "ELIGIBLE_LEADER_REPLICAS_VERSION",
    "EMPTY_IMAGE",
    "METADATA_VERSION",
    "NO_LEADER",
    "NO_LEADER_CHANGE",
    "RECOVERED",
    "RECOVERING",
    "TRANSACTION_VERSION",
    "BrokerImage",
    "ConfigResource",
    "ConfigsImage",
    "ControllerImage",
    "Endpoint",
    "FeaturesImage",
    "MetadataDelta",
    "MetadataImage",
    "MetadataReplayError",
    "PartitionImage",
    "PrincipalsImage",
    "QuotaEntity",
    "ResourceType",
    "TopicImage",
    "TopicsImage",
    "changed_partition",
    "endpoint_entries",
    "feature_entries",
    "has_collision_chars",
    "partition_record",
    "read_endpoints",
    "read_features",
    "register_broker_record",
    "register_controller_record",
    "unify_collision_chars",
]
