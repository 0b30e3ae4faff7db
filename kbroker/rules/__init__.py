"""Rules of one's own in Python: a broker's authorizer, logins, quotas, assignors, policies and more as callables.

A node's file names them (``authorizer.class.name=python:my_rules:authorize``). This package has what they are given and
what they answer with; docs/security/python.md has an example of each.
"""

from __future__ import annotations

from kbroker.rules.assignors import (
    ConsumerGroup,
    ConsumerMember,
    ConsumerTopic,
    StreamsGroup,
    StreamsMember,
    Subtopology,
    Task,
    Tasks,
)
from kbroker.rules.bases import Authorizer, QuotaCallback, settings
from kbroker.rules.decision import NOT_MINE, Decision
from kbroker.rules.descriptions import (
    DescribedSubtopology,
    DescriptionFiles,
    DescriptionRefused,
    GlobalStore,
    ProcessorNode,
    SinkNode,
    SourceNode,
    TopologyDescription,
    TopologyDescriptions,
)
from kbroker.rules.policies import ConfigChanges, NewTopic, PolicyViolation
from kbroker.rules.records import (
    Action,
    ClientMetrics,
    Login,
    Password,
    Peer,
    Quota,
    QuotaClient,
    QuotaKind,
    Reading,
    Replica,
    Token,
    TokenUser,
)
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.security.principal import KafkaPrincipal
from kbroker.types import TopicPartition

__all__ = [
    "NOT_MINE",
    "AclOperation",
    "Action",
    "Authorizer",
    "ClientMetrics",
    "ConfigChanges",
    "ConsumerGroup",
    "ConsumerMember",
    "ConsumerTopic",
    "Decision",
    "DescribedSubtopology",
    "DescriptionFiles",
    "DescriptionRefused",
    "GlobalStore",
    "KafkaPrincipal",
    "Login",
    "NewTopic",
    "Password",
    "Peer",
    "PolicyViolation",
    "ProcessorNode",
    "Quota",
    "QuotaCallback",
    "QuotaClient",
    "QuotaKind",
    "Reading",
    "Replica",
    "ResourceType",
    "SinkNode",
    "SourceNode",
    "StreamsGroup",
    "StreamsMember",
    "Subtopology",
    "Task",
    "Tasks",
    "Token",
    "TokenUser",
    "TopicPartition",
    "TopologyDescription",
    "TopologyDescriptions",
    "settings",
]
