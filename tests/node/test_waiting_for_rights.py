"""Fetch and ShareFetch wait for records on a topic's leader, while ACLs are changed by way of another node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kbroker.errors import ErrorCode
from kbroker.security.authorizer.types import AclOperation, AclPermission, PatternType, ResourceType
from kbroker.types import Uuid
from kbroker.wire.messages.acls import AclCreation, CreateAclsRequest, DeleteAclsFilter, DeleteAclsRequest
from tests.handlers.principals import connect_as
from tests.node.node_harness import Client, batch, fetch_request, produce_request, values
from tests.node.quorum_harness import Quorum, three_nodes
from tests.node.share_member import begin, share_fetch
from tests.node.share_state_harness import GROUP, find

SECURE = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
    "share_coordinator_state_topic_num_partitions": "1",
    "share_coordinator_state_topic_replication_factor": "1",
    "share_coordinator_state_topic_min_isr": "1",
}
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
LONG_MS = 600_000
"""Nothing here is answered because its time is out."""


def rule(resource: ResourceType, name: str, permission: AclPermission) -> CreateAclsRequest:
    """The user bob may read, or may not."""
    acl = AclCreation(
        resource_type=resource,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal="User:bob",
        host="*",
        operation=AclOperation.READ,
        permission_type=permission,
    )
    return CreateAclsRequest(creations=[acl])


def versions(cluster: Quorum) -> dict[int, int]:
    """The rules that each node decides by."""
    found = {}
    for node_id, node in cluster.nodes.items():
        authorizer = node.services.authorizer
        assert authorizer is not None
        found[node_id] = authorizer.version
    return found


async def everywhere(cluster: Quorum, client: Client, request: CreateAclsRequest | DeleteAclsRequest) -> None:
    """Change ACLs by way of a node, and wait until each decides by them."""
    before = versions(cluster)
    answer = await client.ask(request)
    [result] = answer.results if isinstance(request, CreateAclsRequest) else answer.filter_results
    assert result.error_code == 0, result
    await cluster.until(lambda: all(version > before[node_id] for node_id, version in versions(cluster).items()))


class Scene:
    """A topic, its leader, and clients: bob of the leader, and an administrator of another node."""

    admin: Client
    writer: Client
    bob: Client

    def __init__(self, cluster: Quorum, topic_id: Uuid) -> None:
        self.cluster = cluster
        self.topic_id = topic_id
        self.leader = int(cluster.newest_image().topics.by_name["t"].partitions[0].leader)

    async def begin(self) -> None:
        """Connect, and let bob read."""
        cluster = self.cluster
        elsewhere = next(node_id for node_id in cluster.nodes if node_id != self.leader)
        self.admin = await cluster.node(elsewhere).connect()
        self.writer = await cluster.node(self.leader).connect()
        self.bob = await connect_as(cluster.node(self.leader), "bob")
        await everywhere(cluster, self.admin, rule(ResourceType.TOPIC, "t", AclPermission.ALLOW))
        await everywhere(cluster, self.admin, rule(ResourceType.GROUP, GROUP, AclPermission.ALLOW))

    async def deny(self, resource: ResourceType, name: str) -> None:
        await everywhere(self.cluster, self.admin, rule(resource, name, AclPermission.DENY))

    async def forget_denials(self) -> None:
        found = DeleteAclsFilter(
            resource_type_filter=ResourceType.ANY,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter="User:bob",
            host_filter=None,
            operation=AclOperation.ANY,
            permission_type=AclPermission.DENY,
        )
        await everywhere(self.cluster, self.admin, DeleteAclsRequest(filters=[found]))

    async def wait(self, request: Any) -> None:
        """Have bob ask, and wait until his request waits for records."""
        await self.bob.send(request)
        purgatory = self.cluster.nodes[self.leader].services.replica_manager.purgatory
        await self.cluster.until(lambda: bool(purgatory.fetch_watch_count))

    async def produce(self, value: bytes) -> None:
        request = produce_request("t", batch(value), topic_id=self.topic_id, timeout_ms=30_000)
        answer = await self.writer.ask(request)
        assert not answer.responses[0].partition_responses[0].error_code, answer

    async def answer(self) -> Any:
        """The answer to bob."""
        return (await self.bob.receive())[1]


async def test_nothing_is_brought_that_was_denied_elsewhere(tmp_path: Path) -> None:
    async with three_nodes(tmp_path, **SECURE) as cluster:
        topic_id = await cluster.node(1).create_topic("t")
        await cluster.topics_everywhere(["t"])
        scene = Scene(cluster, topic_id)
        await scene.begin()
        await consumer(scene)
        await begin(await cluster.node(await find(scene.admin, topic_id)).connect(), topic_id, start_offset=2)
        await share_consumer(scene)


async def consumer(scene: Scene) -> None:
    await scene.wait(fetch_request("", topic_id=scene.topic_id, max_wait_ms=LONG_MS))
    await scene.deny(ResourceType.TOPIC, "t")
    await scene.produce(b"secret")
    told = (await scene.answer()).responses[0].partitions[0]
    assert (told.error_code, bytes(told.records or b"")) == (DENIED, b"")

    await scene.forget_denials()
    await scene.wait(fetch_request("", [(0, 1)], topic_id=scene.topic_id, max_wait_ms=LONG_MS))
    await scene.deny(ResourceType.TOPIC, "another")  # takes nothing from who waits
    await scene.produce(b"open")
    while not (topics := (await scene.answer()).responses) or not topics[0].partitions[0].records:
        await scene.bob.send(fetch_request("", [(0, 1)], topic_id=scene.topic_id, max_wait_ms=LONG_MS))
    told = topics[0].partitions[0]
    assert (told.error_code, values(told.records)) == (0, [(1, b"open")])


async def share_consumer(scene: Scene) -> None:
    """Records that were not handed out count as not delivered."""
    for resource, name, offset in ((ResourceType.TOPIC, "t", 2), (ResourceType.GROUP, GROUP, 3)):
        await scene.bob.send(share_fetch(scene.topic_id))
        assert not (await scene.answer()).error_code
        await scene.wait(share_fetch(scene.topic_id, 1, max_wait_ms=LONG_MS))
        await scene.deny(resource, name)
        await scene.produce(b"job")
        answer, epoch = await scene.answer(), 2
        if resource is ResourceType.GROUP:
            assert (answer.error_code, answer.responses) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])
            epoch = 0
        else:
            told = answer.responses[0].partitions[0]
            assert (told.error_code, told.acquired_records, bytes(told.records or b"")) == (DENIED, [], b"")
        await scene.forget_denials()
        await scene.bob.send(share_fetch(scene.topic_id, epoch, max_wait_ms=LONG_MS))
        handed = (await scene.answer()).responses[0].partitions[0].acquired_records
        assert [(each.first_offset, each.last_offset, each.delivery_count) for each in handed] == [(offset, offset, 1)]
        await scene.bob.send(share_fetch(scene.topic_id, epoch + 1, accepted=offset))
        assert not (await scene.answer()).responses[0].partitions[0].acknowledge_error_code
