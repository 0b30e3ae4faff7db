"""An idempotent producer with five requests under way in a simulated cluster, which loses each answer up to once.

It may be one like librdkafka (2.16). That at times sends a later batch to a leader before one that has failed, and goes
on after an error with the answers to what else is under way. When it is told of a gap, in whichever partition, it gives
itself a new epoch: what is not acknowledged is sent again as if it had never been sent, and what is stored of it is
there twice.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import trio

from kbroker.errors import ErrorCode
from kbroker.sim.clients import BROKER_PORT, ClusterClient
from kbroker.sim.history import History, make_value
from kbroker.sim.produce_stream import IN_FLIGHT, PRODUCE_VERSION, ProduceStream, make_batch, produce_request
from kbroker.sim.producers import is_stored, new_producer_id
from kbroker.sim.world import Violation
from kbroker.types import TopicPartition
from kbroker.wire.errors import WireError
from kbroker.wire.messages.produce import PartitionProduceResponse, ProduceResponse

_LOST = 0.1
"""The share of the first answers that do not arrive."""

_OVERTAKES = 0.3
_GAP_ELSEWHERE = 0.05
"""The share of times at which it has to begin with what was sent before."""


@dataclass(slots=True)
class _Batch:
    """A batch that is sent until it is acknowledged, byte for byte."""

    values: list[bytes]
    data: bytes
    sent: int = 0
    answer_lost: bool = False


class PipelinedProducer:
    """Sends batch after batch to one partition, whether or not those before are acknowledged."""

    def __init__(
        self,
        number: int,
        client: ClusterClient,
        history: History,
        tp: TopicPartition,
        interval: float,
        *,
        overtakes: bool = False,
    ) -> None:
        self.number = number
        self.stopped = False
        self._client = client
        self._history = history
        self._tp = tp
        self._interval = interval
        self._overtakes = overtakes
        self._is_known = False
        """Something was acknowledged in this epoch. Of an unknown producer any sequence number is taken for the first,
        by Apache Kafka, too, and what librdkafka then takes for acknowledged is not there."""
        self._unacknowledged: deque[_Batch] = deque()
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequence = 0
        self._count = 0

    async def run(self) -> None:
        """Until ``stopped`` and all is acknowledged."""
        while self._producer_id < 0:
            await self._begin()
        while not self.stopped or self._unacknowledged:
            found = await self._client.leader(self._tp)
            if found is not None:
                authority = self._client.authority(self._tp)
                try:
                    connection = await self._client.connect(found[0], BROKER_PORT)
                    stream = ProduceStream(connection, self._client.name, PRODUCE_VERSION)
                    try:
                        await self._talk(stream, found[0], authority)
                    finally:
                        stream.close()
                except (OSError, WireError):
                    pass
                self._client.forget(self._tp)
            await trio.sleep(0.05)

    async def _begin(self) -> None:
        found = await new_producer_id(self._client)
        if found is not None:
            self._producer_id, self._producer_epoch = found

    async def _talk(self, stream: ProduceStream, node_id: int, authority: tuple[int, int] | None) -> None:
        """Send what is not acknowledged, in order, and then more; returns when that cannot go on like this."""
        rng = self._client.rng
        if self._overtakes and self._unacknowledged and rng.random() < _GAP_ELSEWHERE:
            self._begin_epoch()
        to_send = deque(self._unacknowledged)
        under_way: deque[_Batch] = deque()
        if self._overtakes and self._is_known and len(to_send) > 1 and rng.random() < _OVERTAKES:
            for _ in range(rng.randrange(1, len(to_send))):
                to_send.popleft()
        while True:
            if not to_send and len(self._unacknowledged) < IN_FLIGHT and not self.stopped:
                to_send.append(self._make())
            while to_send and len(under_way) < IN_FLIGHT:
                under_way.append(to_send.popleft())
                under_way[-1].sent += 1
                await stream.send(produce_request({self._tp: under_way[-1].data}))
            if not under_way:
                return
            if len(under_way) < IN_FLIGHT and not self.stopped and rng.random() < 0.8:
                await trio.sleep(rng.expovariate(1 / self._interval))
                continue
            answer = _answer(await stream.receive())
            batch = under_way.popleft()
            if answer is None or (not batch.answer_lost and rng.random() < _LOST):
                batch.answer_lost = True
                return
            if not self._take(batch, answer, node_id, authority):
                if self._overtakes and self._is_known:
                    await self._drain(stream, batch, answer, under_way, node_id, authority)
                return

    async def _drain(
        self,
        stream: ProduceStream,
        batch: _Batch,
        answer: PartitionProduceResponse,
        under_way: deque[_Batch],
        node_id: int,
        authority: tuple[int, int] | None,
    ) -> None:
        """After a batch was refused: wait for all answers. A gap behind what comes first makes a new epoch of it."""
        gap = False
        while True:
            behind = batch is not self._unacknowledged[0]
            gap |= behind and answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if not under_way:
                break
            batch = under_way.popleft()
            received = _answer(await stream.receive())
            if received is None:
                break
            answer = received
            if self._take(batch, answer, node_id, authority) and not self._unacknowledged:
                return
        if gap:
            self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._producer_epoch += 1
        self._sequence = 0
        self._is_known = False
        again, self._unacknowledged = self._unacknowledged, deque()
        for batch in again:
            self._history.sent_again(self._tp, batch.values, self._producer_epoch)
            self._append(batch.values)

    def _make(self) -> _Batch:
        count = self._client.rng.choice((1, 1, 3))
        values = [make_value(self.number, self._count + n) for n in range(count)]
        self._count += count
        return self._append(values)

    def _append(self, values: list[bytes]) -> _Batch:
        data = make_batch(values, self._producer_id, self._producer_epoch, self._sequence)
        self._sequence += len(values)
        batch = _Batch(values, data)
        self._unacknowledged.append(batch)
        return batch

    def _take(
        self, batch: _Batch, answer: PartitionProduceResponse, node_id: int, authority: tuple[int, int] | None
    ) -> bool:
        """Whether the batch is stored; if not, it and all after it are sent anew, in order.

        What is stored comes after all before it: who overtakes takes those for acknowledged, as librdkafka does.
        """
        first = self._unacknowledged[0]
        stored = is_stored(
            self._client,
            self._history,
            self._tp,
            answer,
            batch.values,
            node_id,
            authority,
            retried=batch.sent > 1,
            is_next=first is batch,  # what comes after a batch that was refused is out of order
        )
        if stored:
            self._is_known = True
            while self._overtakes and self._unacknowledged[0] is not batch:
                self._history.acknowledged(self._tp, self._unacknowledged.popleft().values, -1, node_id, retried=True)
            if self._unacknowledged[0] is not batch:
                raise Violation(f"{self._tp}: {batch.values} are acknowledged, and {first.values} before are not")
            self._unacknowledged.popleft()
        return stored


def _answer(response: ProduceResponse | None) -> PartitionProduceResponse | None:
    """The answer about the only batch of a request."""
    return None if response is None else response.responses[0].partition_responses[0]
