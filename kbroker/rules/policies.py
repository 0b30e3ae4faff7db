"""The questions to policies, and their way to refuse (KIP-108, KIP-133)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class PolicyViolation(Exception):
    """The refusal of a change: the client gets POLICY_VIOLATION with the text."""


class NewTopic(NamedTuple):
    """A topic that is to be created (Kafka's ``CreateTopicPolicy.RequestMetadata``)."""

    topic: str
    num_partitions: int | None
    """None where the client has chosen the replicas."""
    replication_factor: int | None
    """None where the client has chosen the replicas."""
    replicas_assignments: Mapping[int, Sequence[int]] | None
    """Broker ids by partition, where the client has chosen them."""
    configs: Mapping[str, str]
    """Those of the request, without the cluster's defaults."""


class ConfigChanges(NamedTuple):
    """Changes of the configs of one resource (Kafka's ``AlterConfigPolicy.RequestMetadata``)."""

    resource_type: str
    """``TOPIC``, ``BROKER``, ``GROUP`` or ``CLIENT_METRICS``."""
    resource_name: str
    """Empty for the defaults of all brokers."""
    configs: Mapping[str, str | None]
    """The new values by name, None for one that is removed; appended and subtracted values are applied already."""
