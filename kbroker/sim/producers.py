"""What producers of a simulated cluster have in common, and the one that sends batch after batch."""

from __future__ import annotations

from typing import Final

import trio

from kbroker.errors import ErrorCode
from kbroker.sim.clients import BROKEN_SEQUENCE, RETRIABLE, ClusterClient
from kbroker.sim.clock import sim_clock
from kbroker.sim.history import History, Violation, make_value
from kbroker.sim.sim_env import EPOCH_MS
from kbroker.types import TopicPartition
from kbroker.wire.messages.init_producer_id import InitProducerIdRequest
from kbroker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from kbroker.wire.record_batch import Record, build_batch

PRODUCE_VERSION: Final = 12


async def new_producer_id(client: ClusterClient) -> tuple[int, int] | None:
    """Producer id and epoch from any node; None, after a while, if it has none to give."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    response = await client.ask(client.any_node(), request)
    if response is None or response.error_code:
        await trio.sleep(0.2)
        return None
    return response.producer_id, response.producer_epoch


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
    tp: TopicPartition, batch: bytes, *, acks: int = -1, transactional_id: str | None = None
) -> ProduceRequest:
    """The request for a batch; it may be sent again and again."""
    data = PartitionProduceData(index=tp.partition, records=memoryview(bytearray(batch)))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=3000,
        topic_data=[TopicProduceData(name=tp.topic, partition_data=[data])],
    )


def is_stored(
    client: ClusterClient,
    history: History,
    tp: TopicPartition,
    answer: PartitionProduceResponse,
    values: list[bytes],
    node_id: int,
    authority: tuple[int, int] | None,
    *,
    retried: bool,
    is_next: bool = True,
) -> bool:
    """Whether a node's answer says that values are stored, which the history is told; if not, they are to be sent anew.

    :class:`Violation` for what an idempotent producer is never told. Of its sequence nothing is missing before the
    batch that ``is_next``; but only the leader knows that, and ``authority`` is who led when the batch was sent.
    """
    code = ErrorCode(answer.error_code)
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        offset = answer.base_offset if code == ErrorCode.NONE else -1
        history.acknowledged(tp, values, offset, node_id, retried=retried)
        return True
    history.refused(code.name)
    if code in BROKEN_SEQUENCE:
        leads = authority is not None and authority[0] == node_id and authority == client.authority(tp)
        if is_next and leads:
            raise Violation(f"{tp}: a batch before which nothing is missing was told {code.name} by leader {node_id}")
    elif code not in RETRIABLE:
        raise Violation(f"{tp}: a producer was told {code.name}")
    return False


class Producer:
    """Produces values one batch at a time, and each until it is acknowledged (acks=all, idempotent)."""

    def __init__(
        self,
        number: int,
        client: ClusterClient,
        history: History,
        partitions: list[TopicPartition],
        interval: float,
        acks: int = -1,
    ) -> None:
        self.number = number
        self.acks = acks
        """-1: all. With 1 the leader's word counts for nothing: the history is not told, and nothing is idempotent."""
        self.interval = interval
        """Seconds between two batches, on average."""
        self.stopped = False
        self._client = client
        self._history = history
        self._partitions = partitions
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._count = 0

    async def run(self) -> None:
        """Produce until ``stopped``; what is not acknowledged then is left open."""
        rng = self._client.rng
        while not self.stopped:
            if self._producer_id < 0 and self.acks == -1:
                await self._begin()
                continue
            tp = rng.choice(self._partitions)
            values = [make_value(self.number, self._count + n) for n in range(rng.choice((1, 1, 1, 3, 10)))]
            self._count += len(values)
            await self._produce(tp, values)
            await sim_clock().sleep(rng.expovariate(1 / self.interval))

    async def _begin(self) -> None:
        found = await new_producer_id(self._client)
        if found is None:
            return
        self._producer_id, self._producer_epoch = found
        self._sequences.clear()

    async def _produce(self, tp: TopicPartition, values: list[bytes]) -> None:
        client, history = self._client, self._history
        sequence = self._sequences.get(tp, 0)
        batch = make_batch(values, self._producer_id, self._producer_epoch, sequence if self._producer_id >= 0 else -1)
        retried = False
        while not self.stopped:
            found = await client.leader(tp)
            if found is None:
                await trio.sleep(0.1)
                continue
            node_id = found[0]
            request = produce_request(tp, batch, acks=self.acks)
            authority = client.authority(tp)
            response = await client.ask(node_id, request, version=PRODUCE_VERSION, timeout=6.0)
            if response is None:
                retried = True
                client.forget(tp)
                await trio.sleep(0.05)
                if self.acks != -1:
                    return
                continue
            answer = response.responses[0].partition_responses[0]
            if self.acks != -1 and not answer.error_code:
                return
            if is_stored(client, history, tp, answer, values, node_id, authority, retried=retried):
                self._sequences[tp] = sequence + len(values)
                return
            retried = True
            client.forget(tp)
            await trio.sleep(0.1)
            if self.acks != -1:
                return
