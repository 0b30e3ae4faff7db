"""A node's own requests to the controller, with content in every field, in every version."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.node.controller.controller_channel import for_version
from kbroker.types import Uuid
from kbroker.wire.compiler import decode, encode
from kbroker.wire.messages import alter_partition, log_dirs, nodes, topics
from kbroker.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kbroker.wire.messages.nodes import BrokerHeartbeatRequest
from kbroker.wire.registry import API_KEYS

UUID = Uuid(bytes(range(16)))

ISR = alter_partition.AlterPartitionRequest(
    broker_id=1,
    broker_epoch=2,
    topics=[
        alter_partition.TopicData(
            topic_id=UUID,
            partitions=[
                alter_partition.PartitionData(
                    partition_index=3,
                    leader_epoch=4,
                    new_isr_with_epochs=[alter_partition.BrokerState(broker_id=5, broker_epoch=6)],
                    partition_epoch=7,
                )
            ],
        )
    ],
)
HEARTBEAT = BrokerHeartbeatRequest(
    broker_id=1, broker_epoch=2, current_metadata_offset=3, want_shut_down=True, offline_log_dirs=[UUID]
)
FILLED: list[Any] = [
    ISR,
    HEARTBEAT,
    AllocateProducerIdsRequest(broker_id=1, broker_epoch=2),
    log_dirs.AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=2,
        directories=[
            log_dirs.DirectoryData(
                id=UUID,
                topics=[log_dirs.TopicData(topic_id=UUID, partitions=[log_dirs.PartitionData(partition_index=1)])],
            )
        ],
    ),
    nodes.BrokerRegistrationRequest(
        broker_id=1,
        cluster_id="c",
        incarnation_id=UUID,
        listeners=[nodes.Listener(name="PLAINTEXT", host="h", port=9)],
        features=[nodes.Feature(name="f", min_supported_version=1, max_supported_version=2)],
        rack="r",
        log_dirs=[UUID],
        previous_broker_epoch=5,
    ),
    nodes.ControllerRegistrationRequest(
        controller_id=1,
        incarnation_id=UUID,
        listeners=[nodes.Listener(name="CONTROLLER", host="h", port=9)],
        features=[nodes.Feature(name="f", min_supported_version=1, max_supported_version=2)],
    ),
    topics.CreateTopicsRequest(
        timeout_ms=1,
        topics=[
            topics.CreatableTopic(
                name="t",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[topics.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])],
                configs=[topics.CreatableTopicConfig(name="n", value="v")],
            )
        ],
    ),
]


@pytest.mark.parametrize("request_", FILLED, ids=lambda request: type(request).__name__)
def test_in_every_version(request_: Any) -> None:
    versions = API_KEYS[type(request_).api_key].stable_versions
    for version in range(versions.lowest, versions.highest + 1):
        data = encode(for_version(request_, version), version)
        decoded, end = decode(type(request_), version, data)
        assert end == len(data)
        assert version < versions.highest or decoded == request_


def test_what_an_older_version_says() -> None:
    partition = for_version(ISR, 2).topics[0].partitions[0]
    assert partition.new_isr == [5] and partition.new_isr_with_epochs == []
    assert (partition.partition_index, partition.leader_epoch, partition.partition_epoch) == (3, 4, 7)
    assert for_version(ISR, 3) is ISR and for_version(HEARTBEAT, 1) is HEARTBEAT
    old = for_version(HEARTBEAT, 0)
    assert old.want_shut_down and old.offline_log_dirs == []
    assert ISR.topics[0].partitions[0].new_isr == [], "the request itself is not changed"
