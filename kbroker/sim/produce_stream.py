"""Produce requests of simulated producers, and a connection on which several of them may be under way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import trio

from kbroker.node.peers.client_stream import ClientStream, ConnectionEnded
from kbroker.runtime.env import Stream
from kbroker.sim.sim_env import EPOCH_MS
from kbroker.types import TopicPartition
from kbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kbroker.wire.record_batch import Record, build_batch

PRODUCE_VERSION: Final = 12

IN_FLIGHT = 5
"""``max.in.flight.requests.per.connection`` of an idempotent producer: as many batches as a broker remembers."""

_PATIENCE_SECONDS = 6.0


def make_batch(
    values: list[bytes], producer_id: int, producer_epoch: int, base_sequence: int, *, is_transactional: bool = False
) -> bytes:
    """Values as a batch of this moment."""
    now_ms = EPOCH_MS + int(trio.current_time() * 1000)
    return build_batch(
        [Record(0, now_ms, None, value) for value in values],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )


def produce_request(
    batches: Mapping[TopicPartition, bytes], *, acks: int = -1, transactional_id: str | None = None
) -> ProduceRequest:
    """The request for a batch of each partition; it may be sent again and again."""
    topics: dict[str, TopicProduceData] = {}
    for tp, batch in batches.items():
        topic = topics.setdefault(tp.topic, TopicProduceData(name=tp.topic, partition_data=[]))
        topic.partition_data.append(PartitionProduceData(index=tp.partition, records=memoryview(bytearray(batch))))
    return ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=3000, topic_data=list(topics.values())
    )


class ProduceStream:
    """Sends Produce requests of one version; their answers come in the order of the requests."""

    def __init__(self, stream: Stream, client_id: str, version: int) -> None:
        self._client = ClientStream(stream, client_id)
        self._version = version

    async def send(self, request: ProduceRequest) -> None:
        """Send a request. ``OSError``."""
        await self._client.send(request, self._version)

    async def receive(self) -> ProduceResponse | None:
        """The next answer; None if the connection has ended, or after six seconds. ``OSError``, ``WireError``."""
        with trio.move_on_after(_PATIENCE_SECONDS):
            try:
                response: ProduceResponse = await self._client.receive()
            except ConnectionEnded:
                return None
            return response
        return None

    def close(self) -> None:
        """End the connection."""
        self._client.stream.close()
