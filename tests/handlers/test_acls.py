"""The ACL APIs, without an authorizer and with one."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.wire.messages.create_acls import AclCreation, CreateAclsRequest
from kbroker.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kbroker.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
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


def deletion(resource_type: int = RESOURCE) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=resource_type,
        pattern_type_filter=PATTERN,
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

INVALID = ErrorCode.INVALID_REQUEST


def other(**changes: Any) -> AclCreation:
    return dataclasses.replace(creation(), **changes)


def names(answer: DescribeAclsResponse) -> list[tuple[str, list[str]]]:
    assert (answer.error_code, answer.error_message) == (0, "")
    return sorted((each.resource_name, sorted(acl.principal for acl in each.acls)) for each in answer.resources)


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


def test_each_creation_has_its_result(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path, **AUTHORIZER) as node:
            client = await node.connect()
            creations = [
                other(resource_type=4, resource_name="cluster"),
                creation(),
                other(resource_name=""),
                other(principal="nobody"),
                other(operation=99),
                other(resource_type=4, resource_name="kafka-cluster"),
            ]
            answer = await client.ask(CreateAclsRequest(creations=creations))
            assert [(each.error_code, each.error_message) for each in answer.results] == [
                (INVALID, "The only valid name for the CLUSTER resource is kafka-cluster"),
                (0, ""),
                (INVALID, "Invalid empty resource name"),
                (
                    INVALID,
                    "Could not parse principal from `nobody` (no colon is present separating the principal type from "
                    "the principal name)",
                ),
                (INVALID, "Invalid operation UNKNOWN"),
                (0, ""),
            ]
            for wrong in (other(resource_type=1), other(resource_pattern_type=2), other(operation=1)):
                answer = await client.ask(CreateAclsRequest(creations=[other(resource_name="new"), wrong]))
                assert [(each.error_code, each.error_message) for each in answer.results] == [(-1, None)] * 2
            unknown = DeleteAclsFilter(**ANY | {"resource_type_filter": 99})
            [result] = (await client.ask(DeleteAclsRequest(filters=[unknown]))).filter_results
            assert (result.error_code, result.error_message) == (INVALID, "Unknown patternFilter.")
            assert (await client.ask(dataclasses.replace(EVERY, operation=99))).resources == []
            assert names(await client.ask(EVERY)) == [("kafka-cluster", ["User:a"]), ("t", ["User:a"])]

    run(test)


def test_they_are_for_those_who_may_alter_and_describe_the_cluster(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first ACL for the cluster shuts out everybody whom none allows anything."""
    everybody = AUTHORIZER | {"super.users": "", "allow.everyone.if.no.acl.found": "true"}
    cluster = {"resource_type": 4, "resource_name": "kafka-cluster"}
    denied = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")

    caplog.set_level(logging.INFO, "kbroker.authorizer")

    async def test() -> None:
        async with running_node(tmp_path, **everybody) as node:
            client = await node.connect()
            describing = other(**cluster, operation=8, principal="User:ANONYMOUS")
            altering = other(**cluster, operation=7)
            answer = await client.ask(CreateAclsRequest(creations=[describing, altering]))
            assert [each.error_code for each in answer.results] == [0, 0]
            answer = await client.ask(CreateAclsRequest(creations=[creation(), creation()]))
            assert [(each.error_code, each.error_message) for each in answer.results] == [denied] * 2
            answer = await client.ask(DeleteAclsRequest(filters=[deletion(), deletion()]))
            assert [(each.error_code, each.error_message) for each in answer.filter_results] == [denied] * 2
            assert names(await client.ask(EVERY)) == [("kafka-cluster", ["User:ANONYMOUS", "User:a"])]

    run(test)
    told = [each.getMessage() for each in caplog.records if each.name == "kbroker.authorizer"]
    assert told == [
        f"Denied: User:ANONYMOUS from 127.0.0.1, ALTER on CLUSTER:kafka-cluster for {api}: no ACL allows it"
        for api in ("CreateAcls", "DeleteAcls")
    ]
