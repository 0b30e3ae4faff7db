"""ACLs as records of the metadata log."""

from __future__ import annotations

from kbroker.security.authorizer.acls import Acl, word
from kbroker.security.authorizer.types import AclOperation, AclPermission, PatternType, ResourceType
from kbroker.types import Uuid
from kbroker.wire.records.metadata import AccessControlEntryRecord


def acl_of(record: AccessControlEntryRecord) -> Acl:
    """The ACL of a record. Codes of a later release are UNKNOWN."""
    return Acl(
        word(ResourceType, record.resource_type),
        record.resource_name,
        word(PatternType, record.pattern_type),
        record.principal,
        record.host,
        word(AclOperation, record.operation),
        word(AclPermission, record.permission_type),
    )


def acl_record(acl_id: Uuid, acl: Acl) -> AccessControlEntryRecord:
    """The record that adds an ACL."""
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
