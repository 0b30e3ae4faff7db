"""The ACL APIs without an authorizer."""

from __future__ import annotations

from pathlib import Path

from node_harness import run, running_node

from kbroker.errors import ErrorCode
from kbroker.wire.messages.create_acls import AclCreation, CreateAclsRequest
from kbroker.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kbroker.wire.messages.describe_acls import DescribeAclsRequest


def test_security_is_disabled(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_node(tmp_path) as node:
            client = await node.connect()
            for version in (1, 2, 3):
                described = await client.ask(DescribeAclsRequest(), version)
                assert described.error_code == ErrorCode.SECURITY_DISABLED
                assert described.error_message == "No Authorizer is configured on the broker"
                assert described.resources == []
                created = await client.ask(CreateAclsRequest(creations=[AclCreation(), AclCreation()]), version)
                deleted = await client.ask(DeleteAclsRequest(filters=[DeleteAclsFilter()]), version)
                for results, count in ((created.results, 2), (deleted.filter_results, 1)):
                    assert [(result.error_code, result.error_message) for result in results] == [
                        (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
                    ] * count

    run(test)
