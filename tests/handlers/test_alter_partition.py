"""AlterPartition through the wire format of each version, on a controller with one broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.errors import ErrorCode
from kbroker.types import Uuid
from kbroker.wire.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.handlers.metadata_plane import metadata_plane


@pytest.mark.parametrize("version", [2, 3])
async def test_each_partition_gets_its_own_answer(tmp_path: Path, version: int) -> None:
    async with metadata_plane(tmp_path) as plane:
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        created = await plane.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000))
        epoch = plane.metadata.image.brokers[1].epoch

        def request(broker_epoch: int, topic_id: Uuid, isr: list[int]) -> AlterPartitionRequest:
            wish = PartitionData(partition_index=1)
            if version < 3:
                wish.new_isr = isr
            else:
                wish.new_isr_with_epochs = [BrokerState(broker_id=broker) for broker in isr]
            wishes = [wish, PartitionData(partition_index=5)]
            topics = [TopicData(topic_id=topic_id, partitions=wishes)]
            return AlterPartitionRequest(broker_id=1, broker_epoch=broker_epoch, topics=topics)

        topic_id = created.topics[0].topic_id
        answer = await plane.ask(request(epoch, topic_id, [1]), version)
        assert answer.error_code == 0 and answer.topics[0].topic_id == topic_id
        good, unknown = answer.topics[0].partitions
        assert (good.partition_index, good.error_code, good.leader_id, good.isr) == (1, 0, 1, [1])
        assert (good.leader_epoch, good.partition_epoch, good.leader_recovery_state) == (0, 0, 0)
        assert (unknown.partition_index, unknown.error_code) == (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        answer = await plane.ask(request(epoch, topic_id, [1, 2]), version)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
        answer = await plane.ask(request(epoch, Uuid(b"?" * 16), [1]), version)
        codes = [partition.error_code for partition in answer.topics[0].partitions]
        assert codes == [ErrorCode.UNKNOWN_TOPIC_ID] * 2
        answer = await plane.ask(request(epoch + 1, topic_id, [1]), version)
        assert (answer.error_code, answer.topics) == (ErrorCode.STALE_BROKER_EPOCH, [])
