"""Permissions of the APIs of share groups that are asked for where a group has offsets, or a member has a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.errors import ErrorCode
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import Uuid
from kbroker.wire.messages import share_fetch as share_acknowledge
from kbroker.wire.messages import share_group_offsets as alter
from kbroker.wire.messages import share_group_offsets as delete
from kbroker.wire.messages import share_group_offsets as describe
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from tests.handlers.principals import connect_as, under
from tests.node.node_harness import Node, batch, produce_request, running_node
from tests.node.share_member import share_fetch
from tests.patience import SHORT, until

GROUP = "workers"
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
FEW = {"share_coordinator_state_topic_num_partitions": "1", "offsets_topic_num_partitions": "1"}


def altered(offset: int = 0) -> alter.AlterShareGroupOffsetsRequest:
    part = alter.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
    topic = alter.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[part])
    return alter.AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[topic])


async def prepared(node: Node) -> Uuid:
    """A topic, and a group without members that has an offset in it; under an authorizer that denies nothing yet."""
    topic_id = Uuid(await node.create_topic("t"))
    client = await node.connect()
    for kind in (0, 2):
        key = GROUP if kind == 0 else f"{GROUP}:AAAAAAAAAAAAAAAAAAAAAA:0"

        async def found(kind: int = kind, key: str = key) -> Any:
            answer = await client.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))
            return not answer.coordinators[0].error_code

        await until(found)

    async def begun() -> Any:
        answer = await client.ask(altered())
        return not answer.error_code and not answer.responses[0].partitions[0].error_code

    await until(begun)
    return topic_id


async def test_topics_that_a_principal_may_not_see_or_read(tmp_path: Path) -> None:
    async with running_node(tmp_path, **FEW) as node:
        topic_id = await prepared(node)
        authorizer = under(node)
        for user, operation in (("blind", AclOperation.DESCRIBE), ("deaf", AclOperation.READ)):
            authorizer.deny(user, (operation, ResourceType.TOPIC))
        blind, deaf = await connect_as(node, "blind"), await connect_as(node, "deaf")

        everything = describe.DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)
        asked = describe.DescribeShareGroupOffsetsRequest(groups=[everything])
        seen = await connect_as(node, "anybody")
        assert [topic.topic_name for topic in (await seen.ask(asked)).groups[0].topics] == ["t"]
        assert (await blind.ask(asked)).groups[0].topics == []

        answer = (await deaf.ask(altered(5))).responses[0].partitions[0]
        assert answer.error_code == DENIED
        topics = [delete.DeleteShareGroupOffsetsRequestTopic(topic_name="t")]
        answer = await deaf.ask(delete.DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=topics))
        assert answer.responses[0].error_code == DENIED

        assert (await deaf.ask(share_fetch(topic_id))).responses[0].partitions[0].error_code == DENIED
        batch = share_acknowledge.AcknowledgementBatch(acknowledge_types=[1])
        told = share_acknowledge.AcknowledgePartition(acknowledgement_batches=[batch])
        word = share_acknowledge.ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id="member",
            share_session_epoch=1,
            topics=[share_acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=[told])],
        )
        assert (await deaf.ask(word)).responses[0].partitions[0].error_code == DENIED

        epoch = 0

        async def assigned() -> Any:
            nonlocal epoch
            names = ["t"] if epoch == 0 else None
            beat = ShareGroupHeartbeatRequest(
                group_id=GROUP, member_id="member", member_epoch=epoch, subscribed_topic_names=names
            )
            answer = await seen.ask(beat)
            epoch = answer.member_epoch
            return answer.assignment is not None and answer.assignment.topic_partitions

        await until(assigned)
        group = (await blind.ask(ShareGroupDescribeRequest(group_ids=[GROUP]))).groups[0]
        assert (group.error_code, group.members) == (DENIED, [])
        assert (await seen.ask(ShareGroupDescribeRequest(group_ids=[GROUP]))).groups[0].members


@pytest.mark.parametrize("resource", [ResourceType.TOPIC, ResourceType.GROUP])
async def test_a_waiting_member_is_not_handed_what_was_denied_meanwhile(tmp_path: Path, resource: ResourceType) -> None:
    """And nobody counts it as handed out."""
    async with running_node(tmp_path, **FEW) as node:
        topic_id = await prepared(node)
        authorizer = under(node)
        bob, writer = await connect_as(node, "bob"), await node.connect()
        assert not (await bob.ask(share_fetch(topic_id))).error_code
        await bob.send(share_fetch(topic_id, 1, max_wait_ms=3_600_000))
        await until(lambda: node.broker.services.replica_manager.purgatory.fetch_watch_count)
        authorizer.deny("bob", (AclOperation.READ, resource))
        await writer.ask(produce_request("t", batch(b"value"), topic_id=topic_id))
        with trio.fail_after(SHORT):
            answer = (await bob.receive())[1]
        authorizer.deny("bob")
        epoch = 2
        if resource is ResourceType.GROUP:
            assert (answer.error_code, answer.responses) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])
            epoch = 0
        else:
            told = answer.responses[0].partitions[0]
            assert (told.error_code, told.acquired_records, bytes(told.records or b"")) == (DENIED, [], b"")
        answer = await bob.ask(share_fetch(topic_id, epoch, max_wait_ms=10_000))
        handed = answer.responses[0].partitions[0].acquired_records
        assert [(each.first_offset, each.last_offset, each.delivery_count) for each in handed] == [(0, 0, 1)]
