"""The right of a member that waits for others is taken away: it is answered, and refused from its next request on.

That is how Apache Kafka does it (``KafkaApis.handleJoinGroupRequest`` and ``handleSyncGroupRequest`` ask first, and not
when the coordinator answers).
"""

from __future__ import annotations

from pathlib import Path

import trio

from kbroker.errors import ErrorCode
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.sim.classic_group_clients import (
    ASSIGNOR,
    heartbeat_request,
    join_request,
    shares,
    subscription,
    sync_request,
)
from kbroker.wire.messages.classic_groups import JoinGroupRequest
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.handlers.principals import ByName, connect_as, under
from tests.node.node_harness import Client, running_node

GROUP = "readers"
READ = (AclOperation.READ, ResourceType.GROUP)
LONG_MS = 600_000
"""Nothing here is answered because its time is out."""
JOIN, SYNC, HEARTBEAT = 3, 3, 3
"""Versions; from version 4 on a first JoinGroup is answered with a member id alone."""


def join(member_id: str = "") -> JoinGroupRequest:
    """A request of a member that takes its time."""
    protocols = [(ASSIGNOR, subscription("t"))]
    return join_request(GROUP, member_id, protocols, session_timeout_ms=60_000, rebalance_timeout_ms=LONG_MS)


async def asked(authorizer: ByName, times: int) -> None:
    """Wait until bob has been asked for his right so often."""
    while sum(user == "bob" and what == READ for user, what, _ in authorizer.asked) < times:
        await trio.lowlevel.checkpoint()


async def rebalancing(client: Client, generation: int, member_id: str) -> None:
    """Wait until a member is told that others wait for it."""
    request = heartbeat_request(GROUP, generation, member_id)
    while (await client.ask(request, HEARTBEAT)).error_code != ErrorCode.REBALANCE_IN_PROGRESS:
        await trio.lowlevel.checkpoint()


async def test_a_member_that_waits_is_answered_and_refused_afterwards(tmp_path: Path) -> None:
    async with running_node(tmp_path, group_initial_rebalance_delay_ms="0") as node:
        authorizer = under(node)
        await node.create_topic("t", 2)
        leader, bob = await node.connect(), await connect_as(node, "bob")
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        while (await leader.ask(find, 4)).coordinators[0].error_code:
            await trio.lowlevel.checkpoint()  # __consumer_offsets is being created
        while (first := await leader.ask(join(), JOIN)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await trio.lowlevel.checkpoint()
        assert first.error_code == 0 and first.leader == first.member_id
        synced = await leader.ask(
            sync_request(GROUP, first.generation_id, first.member_id, shares("t", 2, first)), SYNC
        )
        assert synced.error_code == 0

        await bob.send(join(), JOIN)
        await rebalancing(leader, first.generation_id, first.member_id)
        authorizer.deny("bob", READ)
        second = await leader.ask(join(first.member_id), JOIN)
        joined = (await bob.receive())[1]
        assert (joined.error_code, joined.generation_id) == (0, second.generation_id)
        mine = sync_request(GROUP, joined.generation_id, joined.member_id, {})
        refused = await bob.ask(mine, SYNC)
        assert refused.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED

        authorizer.deny("bob")
        await bob.send(mine, SYNC)
        await asked(authorizer, 3)
        authorizer.deny("bob", READ)
        await leader.ask(sync_request(GROUP, second.generation_id, first.member_id, shares("t", 2, second)), SYNC)
        synced = (await bob.receive())[1]
        assert synced.error_code == 0 and synced.assignment
        beat = await bob.ask(heartbeat_request(GROUP, joined.generation_id, joined.member_id), HEARTBEAT)
        assert beat.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
