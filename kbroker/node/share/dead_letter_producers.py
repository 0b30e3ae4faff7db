"""Producer ids of dead letters: a batch that is sent again is in its topic once, as an idempotent producer's is.

Apache Kafka's letters have no producer id, so that an attempt whose answer was lost doubles them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

from kbroker.cores.share_partitions.dead_letters import Source
from kbroker.errors import ApiError
from kbroker.types import Uuid
from kbroker.wire.batch_header import HEADER_SIZE, NO_PRODUCER_ID, parse_header
from kbroker.wire.record_batch import assemble

logger = logging.getLogger(__name__)

_MOST_KEPT = 1000
"""Share partitions whose producer id is kept for their next letters; another one gets a new id."""
_SEQUENCES = 1 << 31
_ID_SECONDS = 5.0
"""The time in which the controller grants an id."""


class Target(NamedTuple):
    """The partition of a dead-letter topic that a batch goes to."""

    topic_id: Uuid
    partition: int


class DeadLetterProducer:
    """The producer id of one sender. Sequences begin anew with each target, so each has an id of its own."""

    def __init__(self, new_id: Callable[[], Awaitable[int]]) -> None:
        """``new_id`` gives a producer id that nobody else has; it may raise `ApiError`."""
        self._new_id = new_id
        self._id = NO_PRODUCER_ID
        self._target: Target | None = None
        self._next_sequence = 0

    async def sign(self, batch: bytes, target: Target) -> bytes:
        """The batch as it is sent to a target: the same each time, until `written` or `forget`.

        Where the controller grants no id now, it has none: a letter that may be there twice is better than none.
        """
        if self._id == NO_PRODUCER_ID or self._target != target:
            self.forget()
            try:
                with trio.fail_after(_ID_SECONDS):
                    self._id, self._target = await self._new_id(), target
            except (ApiError, trio.TooSlowError) as error:
                logger.info(
                    "dead letters are sent without a producer id: %s", error or "the controller does not answer"
                )
                return batch
        header = parse_header(batch, 0)._replace(
            producer_id=self._id, producer_epoch=0, base_sequence=self._next_sequence
        )
        return assemble(header, memoryview(batch)[HEADER_SIZE:])

    def written(self, count: int) -> None:
        """The last batch, of so many letters, is in the topic."""
        if self._id != NO_PRODUCER_ID:
            self._next_sequence = (self._next_sequence + count) % _SEQUENCES

    def forget(self) -> None:
        """The leader does not know the sequence: the next batch has a new id."""
        self._id, self._target, self._next_sequence = NO_PRODUCER_ID, None, 0


class DeadLetterProducers:
    """The producers of senders, kept from batch to batch. Two senders never have one at the same time."""

    def __init__(self, new_id: Callable[[], Awaitable[int]]) -> None:
        """``new_id`` as in `DeadLetterProducer`."""
        self._new_id = new_id
        self._idle: dict[Source, DeadLetterProducer] = {}

    def take(self, source: Source) -> DeadLetterProducer:
        """The producer of a share partition's last letters, or a new one."""
        return self._idle.pop(source, None) or DeadLetterProducer(self._new_id)

    def give_back(self, source: Source, producer: DeadLetterProducer) -> None:
        """Keep a producer all of whose batches are in the topic. One whose batch is in doubt is not given back."""
        self._idle[source] = producer
        if len(self._idle) > _MOST_KEPT:
            del self._idle[next(iter(self._idle))]
