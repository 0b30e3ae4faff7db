"""The words of authorization, under Kafka's names and ids, and what an authorizer is asked."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from kbroker.errors import ApiError, ErrorCode
from kbroker.security.principal import KafkaPrincipal


class ResourceType(IntEnum):
    """Kinds of things that there are rules for. ANY is for filters alone."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The ways in which a rule names resources. ANY and MATCH are for filters alone."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """An operation on a resource. ANY is for filters alone."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """Whether a rule allows or denies. ANY is for filters alone."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""

WILDCARD = "*"
"""As a resource's name, all of its type; as a host, all hosts."""


class AuthorizerNotReady(ApiError):
    """The rules are not known yet, and the principal is no super user. UNKNOWN_SERVER_ERROR, as in Kafka.

    It is no denial: a node that is denied to take part gives up, and one that hears this asks again.
    """

    def __init__(self) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, "The authorizer has not loaded its rules yet.")


class Authorizer(Protocol):
    """Decides. ``host`` is the client's address, without its port."""

    @property
    def version(self) -> int:
        """Changes whenever a decision may: what was decided under another version is to be asked again."""

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether a principal may do this to a resource. Writes no audit line. `AuthorizerNotReady`."""

    def authorize_by_resource_type(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether there may be a resource of this type that the principal may do this to. `AuthorizerNotReady`."""

    def audit(
        self,
        allowed: bool,
        principal: KafkaPrincipal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        api: str,
    ) -> None:
        """Write a decision into the log ``kbroker.authorizer``: denials at INFO, what was allowed at DEBUG."""
