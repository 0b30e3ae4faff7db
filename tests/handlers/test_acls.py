"""The ACL APIs without an authorizer."""

from __future__ import annotations

from pathlib import Path

import pytest
from node_harness import run, running_node

from kbroker.errors import ErrorCode
from kbroker.wire.messages.create_acls import AclCreation, CreateAclsRequest
from kbroker.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kbroker.wire.messages.describe_acls import DescribeAclsRequest

# LITERAL, TOPIC, READ, ALLOW
PATTERN, RESOURCE, OPERATION, PERMISSION = 3, 2, 3, 3


def creation(resource_type: int = RESOURCE) -> AclCreation:
    return AclCreation(
        resource_type=resource_type,
        resource_name="t",
        resource_pattern_type=PATTERN,
        principal="User:a",
        host="*",
        operation=OPERATION,
        permission_type=PERMISSION,
    )


def described(resource_type: int = RESOURCE) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=resource_type,
        pattern_type_filter=PATTERN,
        operation=OPERATION,
        permission_type=PERMISSION,
    )


def deletion(resource_type: int = RESOURCE) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=resource_type,
        pattern_type_filter=PATTERN,
        operation=OPERATION,
        permission_type=PERMISSION,
    )


def test_security_is_disabled(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            client = await node.connect()
            for version in (1, 2, 3):
                answer = await client.ask(described(), version)
                assert answer.error_code == ErrorCode.SECURITY_DISABLED
                assert answer.error_message == "No Authorizer is configured on the broker"
                assert answer.resources == []
                created = await client.ask(CreateAclsRequest(creations=[creation(), creation()]), version)
                deleted = await client.ask(DeleteAclsRequest(filters=[deletion()]), version)
                for results, count in ((created.results, 2), (deleted.filter_results, 1)):
                    assert [(result.error_code, result.error_message) for result in results] == [
                        (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
                    ] * count

    run(test)


@pytest.mark.parametrize(
    "request_with_unknown",
    [described(0), CreateAclsRequest(creations=[creation(0)]), DeleteAclsRequest(filters=[deletion(0)])],
)
def test_what_kafka_cannot_read_ends_the_connection(tmp_path: Path, request_with_unknown: object) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            client = await node.connect()
            await client.send(request_with_unknown, 3)
            assert await client.closed()

    run(test)
