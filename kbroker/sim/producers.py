"""The common part of a simulated cluster's producers, and the producer that sends batch after batch."""

from __future__ import annotations

import trio

from kbroker.errors import ErrorCode
from kbroker.sim.clients import BROKEN_SEQUENCE, RETRIABLE, ClusterClient
from kbroker.sim.clock import sim_clock
from kbroker.sim.history import History, make_value
from kbroker.sim.produce_stream import PRODUCE_VERSION, make_batch, produce_request
from kbroker.sim.sender import Sender
from kbroker.sim.world import Violation
from kbroker.types import TopicPartition
from kbroker.wire.messages.produce import PartitionProduceResponse
from kbroker.wire.messages.transactions import InitProducerIdRequest


async def new_producer_id(client: ClusterClient) -> tuple[int, int] | None:
    """Producer id and epoch from any node; None, after a while, if it has none to give."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    response = await client.ask(client.any_node(), request)
    if response is None or response.error_code:
        await trio.sleep(0.2)
        return None
    return response.producer_id, response.producer_epoch


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


class SimProducer:
    """A simulated client that produces to some of its partitions at a time.

    With acks=all it does as stock clients do (idempotent, in order). With acks=1 it sends batch by batch; the history
    does not record the acknowledgements, which promise nothing.
    """

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
        self.interval = interval
        """Seconds between two times, on average."""
        self.stopped = False
        self._client = client
        self._history = history
        self._partitions = partitions
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._known: set[TopicPartition] = set()
        self._count = 0

    async def run(self) -> None:
        """Produce until ``stopped``; what is not acknowledged then is left open."""
        rng = self._client.rng
        while not self.stopped:
            if self.acks != -1:
                await self._produce_unsafely(rng.choice(self._partitions), self._make_values())
            elif self._producer_id < 0:
                await self._begin()
                continue
            else:
                await self._produce_some()
            await sim_clock().sleep(rng.expovariate(1 / self.interval))

    async def _begin(self) -> None:
        found = await new_producer_id(self._client)
        if found is None:
            return
        self._producer_id, self._producer_epoch = found
        self._sequences.clear()
        self._known.clear()

    def _make_values(self) -> list[bytes]:
        count = self._client.rng.choice((1, 1, 1, 3, 10))
        values = [make_value(self.number, self._count + n) for n in range(count)]
        self._count += count
        return values

    async def _produce_some(self) -> None:
        sender = Sender(self._client, self._history, PRODUCE_VERSION, known=self._known)
        for _ in range(self._client.rng.choice((1, 1, 2, 3 * len(self._partitions)))):
            tp = self._client.rng.choice(self._partitions)
            values = self._make_values()
            sequence = self._sequences.get(tp, 0)
            self._sequences[tp] = sequence + len(values)
            sender.append(tp, make_batch(values, self._producer_id, self._producer_epoch, sequence), values)
        if not await sender.flush():
            self._producer_id = -1

    async def _produce_unsafely(self, tp: TopicPartition, values: list[bytes]) -> None:
        found = await self._client.leader(tp)
        if found is None:
            await trio.sleep(0.1)
            return
        request = produce_request({tp: make_batch(values, -1, -1, -1)}, acks=self.acks)
        response = await self._client.ask(found[0], request, version=PRODUCE_VERSION, timeout=6.0)
        if response is None or response.responses[0].partition_responses[0].error_code:
            self._client.forget(tp)
            await trio.sleep(0.05)
