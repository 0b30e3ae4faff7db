"""Rules of one's own in Python: a broker's authorizer, logins, quotas, assignors, policies and more as callables.

A node's file names them (``authorizer.class.name=python:my_rules:authorize``). This package has what they are given and
what they answer with; docs/security/python.md has an example of each. How a node calls them is in
`kbroker.node.rules`. Begin with `bases`, then `loading`.
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
from kbroker.rules.bases import AclKeeper, Authorizer, QuotaCallback, settings
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
    AclChange,
    AclRemoval,
    Action,
    ClientMetrics,
    Cluster,
    ConnectingClient,
    Login,
    Password,
    Quota,
    QuotaClient,
    QuotaKind,
    Reading,
    Replica,
    ScramLogin,
    Token,
    TokenUser,
)
from kbroker.security.authorizer.acls import Acl, AclFilter
from kbroker.security.authorizer.types import AclOperation, AclPermission, PatternType, ResourceType
from kbroker.security.principal import KafkaPrincipal
from kbroker.security.sasl.scram import ScramCredential, ScramMechanism
from kbroker.types import TopicPartition

__all__ = [
    "NOT_MINE",
    "Acl",
    "AclChange",
    "AclFilter",
    "AclKeeper",
    "AclOperation",
    "AclPermission",
    "AclRemoval",
    "Action",
    "Authorizer",
    "ClientMetrics",
    "Cluster",
    "ConfigChanges",
    "ConnectingClient",
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
    "PatternType",
    "PolicyViolation",
    "ProcessorNode",
    "Quota",
    "QuotaCallback",
    "QuotaClient",
    "QuotaKind",
    "Reading",
    "Replica",
    "ResourceType",
    "ScramCredential",
    "ScramLogin",
    "ScramMechanism",
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
