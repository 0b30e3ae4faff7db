"""The cluster's metadata as a value: an immutable :class:`MetadataImage`, and the :class:`MetadataDelta` to the next.

A module for each subject has its part of the image and the effect of its records; ``delta.py`` has the table of all
records. Images are shared between all readers: the mappings in them must not be written to. The log that the records
come from is in `kbroker.raft_metadata.raft`. Begin with ``delta``.
"""

from kbroker.raft_metadata.image.cluster import (
    DIR_LOST,
    DIR_MIGRATING,
    DIR_UNASSIGNED,
    BrokerImage,
    ControllerImage,
    Endpoint,
    FeaturesImage,
    MetadataReplayError,
    endpoint_entries,
    feature_entries,
    is_one_machine,
    read_endpoints,
    read_features,
    register_broker_record,
    register_controller_record,
)
from kbroker.raft_metadata.image.configs import ALL_BROKERS, ConfigResource, ConfigsImage, ResourceType, config_record
from kbroker.raft_metadata.image.delta import EMPTY_IMAGE, MetadataDelta, MetadataImage
from kbroker.raft_metadata.image.principals import PrincipalsDelta, PrincipalsImage, QuotaEntity
from kbroker.raft_metadata.image.topics import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERED,
    RECOVERING,
    PartitionImage,
    TopicImage,
    TopicsImage,
    changed_partition,
    partition_record,
)

__all__ = [
    "ALL_BROKERS",
    "DIR_LOST",
    "DIR_MIGRATING",
    "DIR_UNASSIGNED",
    "EMPTY_IMAGE",
    "NO_LEADER",
    "NO_LEADER_CHANGE",
    "RECOVERED",
    "RECOVERING",
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
    "PrincipalsDelta",
    "PrincipalsImage",
    "QuotaEntity",
    "ResourceType",
    "TopicImage",
    "TopicsImage",
    "changed_partition",
    "config_record",
    "endpoint_entries",
    "feature_entries",
    "is_one_machine",
    "partition_record",
    "read_endpoints",
    "read_features",
    "register_broker_record",
    "register_controller_record",
]
