"""Rules of one's own in Python: a broker's authorizer, logins, principals and quotas as callables.

A node's file names them (``authorizer.class.name=python:my_rules:authorize``). This package has what they are given and
what they answer with; docs/security/python.md has an example of each.
"""

from __future__ import annotations

from kbroker.rules.bases import Authorizer, QuotaCallback, settings
from kbroker.rules.decision import NOT_MINE, Decision
from kbroker.rules.records import (
    Action,
    ClientMetrics,
    Login,
    Password,
    Peer,
    Quota,
    QuotaClient,
    QuotaKind,
    Token,
    TokenUser,
)
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.security.principal import KafkaPrincipal

__all__ = [
    "NOT_MINE",
    "AclOperation",
    "Action",
    "Authorizer",
    "ClientMetrics",
    "Decision",
    "KafkaPrincipal",
    "Login",
    "Password",
    "Peer",
    "Quota",
    "QuotaCallback",
    "QuotaClient",
    "QuotaKind",
    "ResourceType",
    "Token",
    "TokenUser",
    "settings",
]
