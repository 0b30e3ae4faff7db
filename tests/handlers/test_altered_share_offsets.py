"""AlterShareGroupOffsets where a part of it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kbroker.errors import ErrorCode
from kbroker.types import Uuid
from kbroker.wire.messages import share_group_offsets as offsets
from kbroker.wire.messages.share_groups import ShareGroupHeartbeatRequest
from tests.handlers.test_share_permissions import FEW, prepared
from tests.node.node_harness import running_node
from tests.node.share_state_harness import errors, initialize
from tests.patience import until

GROUP = "others"


async def test_a_partition_that_was_altered_stays_so_where_another_one_failed(tmp_path: Path) -> None:
    """The next member had it begin anew, though the client had been told that it was done."""
    async with running_node(tmp_path, **FEW) as node:
        await prepared(node)
        topic_id, client = Uuid(await node.create_topic("two", 2)), await node.connect()
        # A group of that name has been lost, and not the later state of its partition 1.
        later = await client.ask(initialize(topic_id, (1, 3, 0), group=GROUP))
        assert not errors(later)[0].error_code

        parts = [
            offsets.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=7) for index in (0, 1)
        ]
        topic = offsets.AlterShareGroupOffsetsRequestTopic(topic_name="two", partitions=parts)
        altered = await client.ask(offsets.AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[topic]))
        told = [each.error_code for each in altered.responses[0].partitions]
        assert told == [ErrorCode.NONE, ErrorCode.FENCED_STATE_EPOCH]

        epoch = 0

        async def assigned() -> Any:
            nonlocal epoch
            names = ["two"] if epoch == 0 else None
            beat = ShareGroupHeartbeatRequest(
                group_id=GROUP, member_id="member", member_epoch=epoch, subscribed_topic_names=names
            )
            answer = await client.ask(beat)
            epoch = answer.member_epoch
            assignment = answer.assignment
            return assignment is not None and [sorted(each.partitions) for each in assignment.topic_partitions] == [
                [0, 1]
            ]

        await until(assigned)
        everything = offsets.DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)
        described = await client.ask(offsets.DescribeShareGroupOffsetsRequest(groups=[everything]))
        starts = {each.partition_index: each.start_offset for each in described.groups[0].topics[0].partitions}
        assert starts[0] == 7
