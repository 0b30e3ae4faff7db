"""The ACL APIs, without an authorizer and with one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from kbroker.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from tests.node.node_harness import run, running_node

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
        resource_name_filter="t",
        pattern_type_filter=PATTERN,
        principal_filter=None,
        host_filter="*",
        operation=OPERATION,
        permission_type=PERMISSION,
    )


AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
ANY: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
EVERY = DescribeAclsRequest(**ANY)


def other(**changes: Any) -> AclCreation:
    return dataclasses.replace(creation(), **changes)


def names(answer: DescribeAclsResponse) -> list[tuple[str, list[str]]]:
    assert (answer.error_code, answer.error_message) == (0, "")
    return sorted((each.resource_name, sorted(acl.principal for acl in each.acls)) for each in answer.resources)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_come_and_go(tmp_path: Path, version: int) -> None:
    async def test() -> None:
        async with running_node(tmp_path, **AUTHORIZER) as node:
            client = await node.connect()
            two = [creation(), other(principal="User:b"), other(resource_name="u", resource_pattern_type=4)]
            created = await client.ask(CreateAclsRequest(creations=two), version)
            assert [(each.error_code, each.error_message) for each in created.results] == [(0, "")] * 3
            assert names(await client.ask(EVERY, version)) == [("t", ["User:a", "User:b"]), ("u", ["User:a"])]
            assert names(await client.ask(described(), version)) == [("t", ["User:a", "User:b"])]
            everything = DeleteAclsFilter(**ANY | {"principal_filter": "User:a"})
            deleted = await client.ask(DeleteAclsRequest(filters=[everything]), version)
            [result] = deleted.filter_results
            assert (result.error_code, result.error_message) == (0, None)
            assert sorted((acl.resource_name, acl.pattern_type) for acl in result.matching_acls) == [("t", 3), ("u", 4)]
            assert {(acl.error_code, acl.error_message) for acl in result.matching_acls} == {(0, None)}
            assert names(await client.ask(EVERY, version)) == [("t", ["User:b"])]
        async with running_node(tmp_path, **AUTHORIZER) as node:
            assert names(await (await node.connect()).ask(EVERY, version)) == [("t", ["User:b"])]
            assert node.broker.services.authorizer is not None

    run(test)
