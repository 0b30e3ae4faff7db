"""DescribeShareGroupOffsets with kbroker's own tag: what is in flight, of whom the leader tells it, and its bounds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kbroker.cores.share_state import DeliveryState
from kbroker.errors import ErrorCode
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import ZERO_UUID
from kbroker.wire.compiler import encode
from kbroker.wire.messages.share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from tests.handlers.principals import connect_as, under
from tests.node.node_harness import Client, batch, produce_request, run, running_node
from tests.node.share_member import ACCEPT, RELEASE, Member, begin
from tests.node.share_state_harness import GROUP

FEW = {"share_coordinator_state_topic_num_partitions": "1", "offsets_topic_num_partitions": "1"}
HELD, FREE = DeliveryState.ACQUIRED, DeliveryState.AVAILABLE


def asked(
    *partitions: int, topics: Sequence[str] = ("t",), group: str = GROUP, wants: bool = True
) -> DescribeShareGroupOffsetsRequest:
    """A request about these partitions of each topic; of all that the node knows, without any."""
    named = [DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=list(partitions)) for name in topics]
    of_group = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=named if partitions else None)
    return DescribeShareGroupOffsetsRequest(groups=[of_group], wants_in_flight=wants)


async def told(client: Client, request: DescribeShareGroupOffsetsRequest) -> list[Any]:
    """The partitions of the only group of an answer."""
    (group,) = (await client.ask(request)).groups
    assert not group.error_code, group
    return [each for topic in group.topics for each in topic.partitions]


def ranges(partition: Any) -> list[tuple[int, int, int, int, str | None]]:
    found = partition.in_flight.ranges
    return [(r.first_offset, r.last_offset, r.delivery_state, r.delivery_count, r.member_id) for r in found]


def test_what_the_leader_tells(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_node(tmp_path, **FEW) as node:
            topic_id = await node.create_topic("t", 2)
            client = await node.connect()
            await begin(client, topic_id)
            await client.ask(produce_request("t", batch(*[b"job"] * 20), topic_id=topic_id))

            # Nobody has read yet, and nothing is in flight; nobody leads what is not there.
            here, beyond = await told(client, asked(0, 7))
            assert (here.error_code, here.start_offset, here.in_flight.ranges) == (0, -1, [])
            assert (beyond.error_code, beyond.in_flight) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
            assert await told(client, asked()) == []

            one = Member(await node.connect(), topic_id, member_id="one")
            two = Member(await node.connect(), topic_id, member_id="two")
            assert await one.fetch(10) == [(0, 9, 1)]
            assert await two.fetch(5) == [(10, 14, 1)]
            await one.acknowledge(0, 2, ACCEPT)
            await one.acknowledge(5, 5, RELEASE)
            (here,) = await told(client, asked(0))
            assert (here.start_offset, here.in_flight.ranges_left_out) == (3, 0)
            assert ranges(here) == [
                (3, 4, HELD, 1, "one"),
                (5, 5, FREE, 1, None),
                (6, 9, HELD, 1, "one"),
                (10, 14, HELD, 1, "two"),
            ]
            left = [each.lock_ms_left for each in here.in_flight.ranges]
            assert left[1] == -1 and all(0 < left[index] <= 30_000 for index in (0, 2, 3))
            assert await two.fetch(1) == [(5, 5, 2)]
            (here,) = await told(client, asked())
            assert ranges(here)[1] == (5, 5, HELD, 2, "two")

            # Another group has its own, and a stock client's answer has none.
            (other,) = await told(client, asked(0, group="others"))
            assert other.in_flight.ranges == []
            (stock,) = await told(client, asked(0, wants=False))
            assert (stock.start_offset, stock.in_flight) == (3, None)

            # A partition is told once, and as much of all as there is room for.
            first, again = await told(client, asked(0, 0))
            assert len(first.in_flight.ranges) == 4 and (again.error_code, again.in_flight) == (42, None)
            twice = asked()
            twice.groups *= 2
            assert [len(group.topics) for group in (await client.ask(twice)).groups] == [1, 0]
            node.allow(in_flight_of_partition=3)
            (here,) = await told(client, asked(0))
            assert (len(here.in_flight.ranges), here.in_flight.ranges_left_out) == (3, 1)
            node.allow(in_flight_ranges=2)
            (here,) = await told(client, asked(0))
            assert (len(here.in_flight.ranges), here.in_flight.ranges_left_out) == (2, 2)

            # The same may see it who may describe the group and the topic.
            authorizer = under(node)
            authorizer.deny("blind", (AclOperation.DESCRIBE, ResourceType.TOPIC))
            authorizer.deny("deaf", (AclOperation.DESCRIBE, ResourceType.GROUP))
            blind, deaf = await connect_as(node, "blind"), await connect_as(node, "deaf")
            assert len(await told(await connect_as(node, "anybody"), asked(0))) == 1
            refused = await told(blind, asked(0, topics=("t", "absent")))
            assert {(each.error_code, each.in_flight) for each in refused} == {(29, None)}
            assert await told(blind, asked()) == []
            (group,) = (await deaf.ask(asked(0))).groups
            assert (group.error_code, group.topics) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])

    run(scenario)


def test_the_bytes_of_requests_and_answers_without_the_wish_are_those_of_kafka() -> None:
    """The bytes are those of Kafka's definitions: each empty set of tagged fields is one byte, 0."""
    assert encode(asked(3, wants=False), 1).hex() == "0208776f726b6572730202740200000003000000"
    partition = DescribeShareGroupOffsetsResponsePartition(partition_index=3, start_offset=4, leader_epoch=5, lag=6)
    topic = DescribeShareGroupOffsetsResponseTopic(topic_name="t", topic_id=ZERO_UUID, partitions=[partition])
    group = DescribeShareGroupOffsetsResponseGroup(group_id="g", topics=[topic])
    answer = DescribeShareGroupOffsetsResponse(groups=[group])
    head = "00000000020267020274" + 16 * "00" + "0200000003000000000000000400000005"
    lag, tail = "0000000000000006", "00000000000000000000"
    assert encode(answer, 0).hex() == head + tail
    assert encode(answer, 1).hex() == head + lag + tail
