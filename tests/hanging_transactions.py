"""A transaction that its coordinator knows nothing of: its client names no partition before it writes there."""

from __future__ import annotations

from kbroker.client import Client
from kbroker.types import TopicPartition
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kbroker.wire.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from kbroker.wire.record_batch import Record, build_batch


def init_unknown(client: Client) -> InitProducerIdResponse:
    """Returns the id and the epoch of a producer. Each further call gives it the next epoch."""
    return client.ask_coordinator(
        "lost",
        InitProducerIdRequest(transactional_id="lost", transaction_timeout_ms=60_000),
        lambda _: None,
        key_type=1,
    )


def write_unknown(
    client: Client, partition: TopicPartition, timestamp: int, producer: InitProducerIdResponse | None = None
) -> int:
    """Write a record of a transaction that hangs to the partition's leader, node 1; its producer id.

    The broker must not verify: ``transaction.partition.verification.enable`` is false.
    """
    given = producer or init_unknown(client)
    batch = build_batch(
        [Record(0, timestamp, b"k", b"v")],
        producer_id=given.producer_id,
        producer_epoch=given.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    data = PartitionProduceData(index=partition.partition, records=memoryview(batch))
    request = ProduceRequest(
        transactional_id="lost",
        acks=-1,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name=partition.topic, partition_data=[data])],
    )
    [answer] = client.ask_node(1, request, highest=11).responses[0].partition_responses
    assert answer.error_code == 0, answer
    return given.producer_id
