"""The common part of the ACL APIs. Not an API itself."""

from __future__ import annotations

from typing import Protocol

from kbroker.errors import ApiError
from kbroker.security.authorizer.acls import AclFilter, word
from kbroker.security.authorizer.types import AclOperation, AclPermission, PatternType, ResourceType


class _Filter(Protocol):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def acl_filter(item: _Filter) -> AclFilter:
    """The filter of a request. A code that nobody knows is UNKNOWN, and finds nothing."""
    return AclFilter(
        word(ResourceType, item.resource_type_filter),
        item.resource_name_filter,
        word(PatternType, item.pattern_type_filter),
        item.principal_filter,
        item.host_filter,
        word(AclOperation, item.operation),
        word(AclPermission, item.permission_type),
    )


def has_unknown(item: _Filter) -> bool:
    """Whether a filter says UNKNOWN somewhere: the code 0, not one that nobody knows."""
    return 0 in (item.pattern_type_filter, item.resource_type_filter, item.permission_type, item.operation)


def denied_message(error: ApiError) -> str:
    """The text of an answer to somebody who may not ask. Kafka's tells of the connection besides."""
    return error.message or "Cluster authorization failed."
