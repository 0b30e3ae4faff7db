"""CreateAcls and DeleteAcls: ACLs in the metadata log (Kafka's ``AclControlManager``), and their form as records."""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.view import (
    MAX_RECORDS_PER_USER_OP,
    ControllerResult,
    ControllerView,
    too_many_records,
)
from kbroker.raft_metadata.metadata_version import CIDR_HOSTS_OF_ACLS
from kbroker.security.authorizer.acls import Acl, AclFilter, word
from kbroker.security.authorizer.hosts import AddressRange
from kbroker.security.authorizer.types import AclOperation, AclPermission, PatternType, ResourceType
from kbroker.types import Uuid, random_uuid
from kbroker.wire.records.metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord


def create_acls(view: ControllerView, acls: Sequence[Acl]) -> ControllerResult[list[ApiError | None]]:
    """Add ACLs; the error of each, in order. One that is there already is no error, and stays as it is.

    ``ApiError`` POLICY_VIOLATION if they are too many for one change.
    """
    with_ranges = view.image.features.metadata_version >= CIDR_HOSTS_OF_ACLS
    results: list[ApiError | None] = []
    wanted: dict[Acl, None] = {}
    for acl in acls:
        try:
            validate_acl(acl, with_ranges=with_ranges)
        except ApiError as error:
            results.append(error.without_traceback())
        else:
            wanted[acl] = None
            results.append(None)
    names = {acl.resource_name for acl in wanted}
    for record in view.image.principals.acls.values():
        if record.resource_name in names:
            wanted.pop(acl_of(record), None)
    if len(wanted) > MAX_RECORDS_PER_USER_OP:
        raise too_many_records()
    return ControllerResult(results, [acl_record(_new_id(view), acl) for acl in wanted])


def _new_id(view: ControllerView) -> Uuid:
    while True:
        acl_id = random_uuid(view.rng)
        if acl_id not in view.image.principals.acls:
            return acl_id


def validate_acl(acl: Acl, *, with_ranges: bool) -> None:
    """``ApiError`` if there cannot be such an ACL (``AclControlManager.validateNewAcl``).

    ``with_ranges``: hosts may be ranges of addresses (KIP-1276).
    """
    if acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise _invalid(f"Invalid resourceType {acl.resource_type.name}")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {acl.pattern_type.name}")
    if acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise _invalid(f"Invalid operation {acl.operation.name}")
    if acl.permission not in (AclPermission.DENY, AclPermission.ALLOW):
        raise _invalid(f"Invalid permissionType {acl.permission.name}")
    if not acl.resource_name:
        raise _invalid("Resource name should not be empty")
    if ":" not in acl.principal:
        raise _invalid(
            f"Could not parse principal from `{acl.principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    _validate_host(acl.host, with_ranges=with_ranges)


def _validate_host(host: str, *, with_ranges: bool) -> None:
    """Judge a host that looks like a range; any other text is taken for an address, as in Kafka."""
    if not host:
        raise _invalid("Host pattern cannot be null or empty")
    if "/" not in host:
        return
    if not with_ranges:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION, "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
        )
    try:
        AddressRange(host)
    except ValueError as error:
        raise _invalid(f"Invalid CIDR notation '{host}': {error}") from None


def delete_acls(view: ControllerView, filters: Sequence[AclFilter]) -> ControllerResult[list[list[Acl] | ApiError]]:
    """Remove the ACLs that a filter finds; for each filter those that it has found, or its error.

    An ACL that two filters find is in the results of both. ``ApiError`` INVALID_REQUEST if they are too many for one
    change: then none is removed.
    """
    removed: dict[Uuid, None] = {}
    results: list[list[Acl] | ApiError] = []
    there = [(acl_id, acl_of(record)) for acl_id, record in view.image.principals.acls.items()] if filters else []
    for each in filters:
        problem = _filter_problem(each)
        if problem is not None:
            results.append(_invalid(problem))
            continue
        found = []
        for acl_id, acl in there:
            if each.matches(acl):
                if len(removed) >= MAX_RECORDS_PER_USER_OP:
                    raise _invalid(
                        f"Cannot remove more than {MAX_RECORDS_PER_USER_OP} acls in a single delete operation."
                    )
                removed[acl_id] = None
                found.append(acl)
        results.append(found)
    return ControllerResult(results, [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in removed])


def _filter_problem(each: AclFilter) -> str | None:
    if each.resource_type is ResourceType.UNKNOWN or each.pattern_type is PatternType.UNKNOWN:
        return "Unknown patternFilter."
    if each.operation is AclOperation.UNKNOWN or each.permission is AclPermission.UNKNOWN:
        return "Unknown entryFilter."
    return None


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


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
