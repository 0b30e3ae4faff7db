"""The sending half of a simulated producer, as stock clients have it (Kafka's ``Sender`` and ``RecordAccumulator``).

Batches wait for each partition. To each leader goes one connection with five requests under way, and a request has a
batch of several partitions: some that the transaction has already, some that are new to it.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import trio

from kbroker.errors import ErrorCode
from kbroker.sim.clients import BROKEN_SEQUENCE, BROKER_PORT, RETRIABLE, ClusterClient
from kbroker.sim.history import History
from kbroker.sim.produce_stream import IN_FLIGHT, ProduceStream, produce_request
from kbroker.sim.world import Violation
from kbroker.types import TopicPartition
from kbroker.wire.errors import WireError
from kbroker.wire.messages.produce import ProduceRequest, ProduceResponse

GIVE_UP = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""The coordinator has ended the transaction for being too long, or is about to."""

_TRY_AGAIN = RETRIABLE | {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR}

VERSION_2 = 12
"""From this version of Produce on a transaction is of version 2."""

_JOINS = 0.7
"""The probability that a batch that is ready goes into the next request."""


@dataclass(slots=True, eq=False)
class _Batch:
    """Sent until it is acknowledged, byte for byte."""

    values: list[bytes]
    data: bytes
    sent: int = 0
    refused: bool = False
    """It may be stored all the same: replicas were too few, or too slow."""
    earlier: bool = False
    """It went out on an earlier connection, so it may be stored without an answer."""


@dataclass(slots=True, eq=False)
class _UnderWay:
    """A request that is not answered yet."""

    request: ProduceRequest
    began: float
    batches: dict[TopicPartition, tuple[_Batch, tuple[int, int] | None]]
    """Each with the leader and its epoch at the time of sending, as far as there was one."""


class Sender:
    """Sends the batches of one transaction, or of an idempotent producer."""

    def __init__(
        self,
        client: ClusterClient,
        history: History,
        version: int,
        *,
        transactional_id: str | None = None,
        note: Callable[[int, Any, int | None], None] | None = None,
        known: set[TopicPartition] | None = None,
    ) -> None:
        """``version`` is that of Produce.

        ``note`` hears of each request that is answered, or the first that will not be, with the node that it went to.
        Those behind it cannot arrive without it. If it has them sent again, a transaction of version 1 may be told of a
        broken sequence: its leader waits for the batch that came late, Apache Kafka's too.

        With a ``transactional_id`` the history hears nothing of what is stored before the transaction is committed, and
        the coordinator may end it at any time. Otherwise what is stored is acknowledged, and ``known`` has the
        partitions that have stored something of the producer: of an unknown one a leader takes any sequence for the
        first, Apache Kafka's too, so a partition's first batch is sent alone.
        """
        self._client = client
        self._history = history
        self._version = version
        self._transactional_id = transactional_id
        self._note = note
        self._known = known
        self._queues: dict[TopicPartition, list[_Batch]] = {}
        self._given_up = False

    def append(self, tp: TopicPartition, data: bytes, values: list[bytes]) -> None:
        """Have a batch sent after those that the partition has."""
        self._queues.setdefault(tp, []).append(_Batch(values, data))

    async def flush(self) -> bool:
        """Send until all is stored. False if the producer is to begin anew: what is stored then is not known."""
        while not self._given_up:
            self._queues = {tp: queue for tp, queue in self._queues.items() if queue}
            if not self._queues:
                return True
            by_leader: dict[int, list[TopicPartition]] = {}
            for tp in self._queues:
                found = await self._client.leader(tp)
                if found is not None:
                    by_leader.setdefault(found[0], []).append(tp)
            violations: list[Violation] = []
            async with trio.open_nursery() as nursery:
                for node_id in sorted(by_leader):
                    nursery.start_soon(self._send_to, node_id, by_leader[node_id], violations)
            if violations:
                raise violations[0]
            if any(self._queues.values()):
                for tp in self._queues:
                    self._client.forget(tp)
                await trio.sleep(0.05)
        return False

    async def _send_to(self, node_id: int, partitions: list[TopicPartition], violations: list[Violation]) -> None:
        """Send what waits for a leader's partitions; over when all is stored, or something is not."""
        try:
            connection = await self._client.connect(node_id, BROKER_PORT)
            stream = ProduceStream(connection, self._client.name, self._version)
            try:
                await self._talk(stream, node_id, partitions)
            finally:
                stream.close()
        except (OSError, WireError):
            pass
        except Violation as violation:
            violations.append(violation)

    async def _talk(self, stream: ProduceStream, node_id: int, partitions: list[TopicPartition]) -> None:
        unsent = {tp: deque(self._queues[tp]) for tp in partitions}
        for batch in itertools.chain.from_iterable(unsent.values()):
            batch.earlier = batch.sent > 0
        under_way: deque[_UnderWay] = deque()
        refused = False
        while True:
            while not refused and len(under_way) < IN_FLIGHT and any(unsent.values()):
                ready = [tp for tp, queue in unsent.items() if queue and self._may_send(tp, queue[0])]
                if not ready:
                    break
                chosen = [tp for tp in ready if self._client.rng.random() < _JOINS] or ready[:1]
                batches = {tp: unsent[tp].popleft() for tp in chosen}
                for batch in batches.values():
                    batch.sent += 1
                request = produce_request(
                    {tp: batch.data for tp, batch in batches.items()}, transactional_id=self._transactional_id
                )
                sent = {tp: (batch, self._client.authority(tp)) for tp, batch in batches.items()}
                under_way.append(_UnderWay(request, trio.current_time(), sent))
                await stream.send(request)
            if not under_way:
                return
            response = await stream.receive()
            first = under_way.popleft()
            self._client.promptness.check(first.request, first.began)
            if self._note is not None:
                self._note(node_id, first.request, self._version)
            if response is None:
                return
            refused |= not self._take(first.batches, response, node_id)

    def _may_send(self, tp: TopicPartition, batch: _Batch) -> bool:
        return self._known is None or tp in self._known or batch is self._queues[tp][0]

    def _take(
        self, sent: dict[TopicPartition, tuple[_Batch, tuple[int, int] | None]], response: ProduceResponse, node_id: int
    ) -> bool:
        """Whether all batches of a request are stored.

        :class:`Violation` for what a producer is never told of the first batch of a partition that is not stored yet:
        answers come in order, so nothing is missing before it.
        """
        complete = True
        for topic in response.responses:
            for answer in topic.partition_responses:
                tp = TopicPartition(topic.name, answer.index)
                batch, authority = sent[tp]
                code = ErrorCode(answer.error_code)
                queue = self._queues[tp]
                if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    if any(not before.refused for before in queue[: queue.index(batch)]):
                        raise Violation(f"{tp}: {batch.values} are stored, and what was sent before is not answered")
                    queue.remove(batch)
                    if self._known is not None:
                        self._known.add(tp)
                    if self._transactional_id is None:
                        offset = answer.base_offset if code == ErrorCode.NONE else -1
                        self._history.acknowledged(tp, batch.values, offset, node_id, retried=batch.sent > 1)
                    continue
                complete = False
                batch.refused = True
                self._history.refused(code.name)
                if (code in GIVE_UP and self._transactional_id is not None) or (
                    code in BROKEN_SEQUENCE and self._note is not None and self._version < VERSION_2
                ):
                    self._given_up = True
                elif code in BROKEN_SEQUENCE:
                    leads = authority is not None and authority[0] == node_id
                    if queue[0] is batch and _may_be_forgotten(queue):
                        self._given_up = True
                    elif queue[0] is batch and leads and authority == self._client.authority(tp):
                        raise Violation(
                            f"{tp}: a batch before which nothing is missing was told {code.name} by leader {node_id}"
                        )
                elif code not in _TRY_AGAIN:
                    raise Violation(f"{tp}: a producer was told {code.name}")
        return complete


def _may_be_forgotten(queue: list[_Batch]) -> bool:
    """Whether the first batches of a partition may all be stored, and only the last of them be known to the leader.

    A leader that has restarted reads a producer's state from a snapshot, which has the last batch alone. It then takes
    one before it for out of order, Apache Kafka too, and a stock client hands that error to its caller.
    """
    return len(queue) > 1 and queue[0].earlier and queue[1].earlier
