"""The controller's part of CreateAcls and DeleteAcls."""

from __future__ import annotations

import pytest

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.acls import acl_of, create_acls, delete_acls
from kbroker.raft_metadata.controller.view import MAX_RECORDS_PER_USER_OP
from kbroker.raft_metadata.image import EMPTY_IMAGE, MetadataDelta
from kbroker.security.authorizer.acls import Acl, AclFilter
from kbroker.security.authorizer.types import AclOperation, AclPermission, PatternType, ResourceType
from kbroker.types import OffsetAndEpoch
from tests.raft_metadata.controller_harness import Harness

ORDERS = Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermission.ALLOW)
GROUP = Acl(ResourceType.GROUP, "g", PatternType.PREFIXED, "User:a", "::1", AclOperation.ALL, AclPermission.DENY)


def acls(harness: Harness) -> list[Acl]:
    return [acl_of(record) for record in harness.view.image.principals.acls.values()]


def test_acls_are_created_once() -> None:
    harness = Harness()
    assert harness.apply(create_acls(harness.view, [ORDERS, GROUP, ORDERS])) == [None, None, None]
    assert acls(harness) == [ORDERS, GROUP]
    again = create_acls(harness.view, [GROUP, ORDERS])
    assert again.response == [None, None] and again.records == []


def test_acls_are_in_the_next_snapshot() -> None:
    harness = Harness()
    harness.apply(create_acls(harness.view, [ORDERS, GROUP]))
    image = harness.view.image
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in image.records():
        delta.replay(record)
    assert delta.apply(OffsetAndEpoch(image.offset, 1)).principals.acls == image.principals.acls


def test_one_that_is_refused_does_not_concern_the_others() -> None:
    harness = Harness()
    first, second = harness.apply(create_acls(harness.view, [ORDERS._replace(host=""), ORDERS]))
    assert first.code == ErrorCode.INVALID_REQUEST and second is None
    assert acls(harness) == [ORDERS]


@pytest.mark.parametrize(
    ("acl", "problem"),
    [
        (ORDERS._replace(resource_type=ResourceType.UNKNOWN), "Invalid resourceType UNKNOWN"),
        (ORDERS._replace(resource_type=ResourceType.ANY), "Invalid resourceType ANY"),
        (ORDERS._replace(pattern_type=PatternType.MATCH), "Invalid patternType MATCH"),
        (ORDERS._replace(operation=AclOperation.UNKNOWN), "Invalid operation UNKNOWN"),
        (ORDERS._replace(permission=AclPermission.ANY), "Invalid permissionType ANY"),
        (ORDERS._replace(resource_name=""), "Resource name should not be empty"),
        (
            ORDERS._replace(principal="a"),
            "Could not parse principal from `a` (no colon is present separating the principal type from the principal "
            "name)",
        ),
        (ORDERS._replace(host=""), "Host pattern cannot be null or empty"),
    ],
)
def test_what_no_acl_can_be(acl: Acl, problem: str) -> None:
    result = create_acls(Harness().view, [acl])
    [error] = result.response
    assert error is not None and (error.code, error.message) == (ErrorCode.INVALID_REQUEST, problem)
    assert result.records == []


def test_ranges_of_addresses_need_their_level() -> None:
    harness = Harness(level=31)
    [error] = create_acls(harness.view, [ORDERS._replace(host="10.0.0.0/8")]).response
    assert error is not None and error.code == ErrorCode.UNSUPPORTED_VERSION
    assert error.message == "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
    harness = Harness(level=32)
    good, bad = create_acls(
        harness.view, [ORDERS._replace(host="10.0.0.0/8"), ORDERS._replace(host="10.0.0.0/33")]
    ).response
    assert good is None
    assert bad is not None and bad.code == ErrorCode.INVALID_REQUEST
    assert bad.message == "Invalid CIDR notation '10.0.0.0/33': Value [33] not in range [0,32]"


def test_filters_remove_what_they_find() -> None:
    harness = Harness()
    harness.apply(create_acls(harness.view, [ORDERS, GROUP]))
    unknown = AclFilter(resource_type=ResourceType.UNKNOWN)
    result = delete_acls(
        harness.view, [AclFilter(principal="User:a"), AclFilter(host="::1"), AclFilter(host="none"), unknown]
    )
    every, second, none, error = result.response
    assert every == [ORDERS, GROUP] and second == [GROUP] and none == []
    assert isinstance(error, ApiError) and (error.code, error.message) == (
        ErrorCode.INVALID_REQUEST,
        "Unknown patternFilter.",
    )
    assert len([*result.records]) == 2  # the one that two filters find is removed once
    harness.apply(result)
    assert acls(harness) == []


def test_unknown_entries_of_filters_are_refused() -> None:
    for wrong in (AclFilter(operation=AclOperation.UNKNOWN), AclFilter(permission=AclPermission.UNKNOWN)):
        [error] = delete_acls(Harness().view, [wrong]).response
        assert isinstance(error, ApiError) and error.message == "Unknown entryFilter."


def test_one_change_has_a_limit() -> None:
    harness, most = Harness(), MAX_RECORDS_PER_USER_OP
    many = [ORDERS._replace(resource_name=f"t{number}") for number in range(most + 1)]
    with pytest.raises(ApiError) as caught:
        create_acls(harness.view, many)
    assert caught.value.code == ErrorCode.POLICY_VIOLATION
    assert caught.value.message == "Unable to perform excessively large batch operation."
    harness.apply(create_acls(harness.view, many[:most]))
    harness.apply(create_acls(harness.view, many))  # all but one are there already
    with pytest.raises(ApiError) as caught:
        delete_acls(harness.view, [AclFilter()])
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    assert caught.value.message == f"Cannot remove more than {most} acls in a single delete operation."
    assert len(acls(harness)) == most + 1
