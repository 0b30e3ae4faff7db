"""The batches of a connection that were refused and will come again: those behind them have to wait for them.

A partition takes any sequence number for the first of a producer that it does not know: what the producer wrote before
may have expired, or may have been deleted, or the topic may be a new one of its name. But a producer has several
batches under way, and a leader that is about to lead, or lacks replicas, refuses the first and takes the next. The
first would then be out of order for ever, and its records be lost (KAFKA-15591). Apache Kafka 4.5 has each log begin
with 0; that ends librdkafka's producers for good when a topic is deleted and made anew, and lets the second of two
producers lose its first batch still. What a connection remembers tells both cases apart.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Final

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.topics import MAX_NAME_LENGTH
from kbroker.types import Uuid
from kbroker.value_types import NamedTuple
from kbroker.wire.batch_header import BatchHeader, parse_header
from kbroker.wire.errors import WireError

if TYPE_CHECKING:
    from kbroker.wire.schema import Records

_SENT_AGAIN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
    }
)
"""Errors of a partition after which a producer sends the same batch once more."""

MOST_REFUSED: Final = 256
"""Batches that are remembered for one connection."""

PATIENCE_SECONDS: Final = 60.0
"""The time that others wait for a batch: a producer may have given it up, and go on without it."""


Key = tuple[str | Uuid, int]
"""A partition, its topic by the name or the id that the request has."""


class _RefusedBatch(NamedTuple):
    epoch: int
    sequence: int
    until: float


class RefusedBatches:
    """The first of each producer's batches that were refused, by partition."""

    __slots__ = ("_first",)

    def __init__(self) -> None:
        self._first: dict[tuple[Key, int], _RefusedBatch] = {}
        """By partition and producer; in the order in which they are given up."""

    def __len__(self) -> int:
        return len(self._first)

    def note(self, partition: Key, records: Records | None, code: ErrorCode, now: float) -> None:
        """Remember a batch that was refused, if it is one that comes again."""
        header = _header(records) if code in _SENT_AGAIN else None
        topic, _ = partition
        if header is None or (isinstance(topic, str) and len(topic) > MAX_NAME_LENGTH):
            return
        self._give_up(now)
        key = partition, header.producer_id
        known = self._first.get(key)
        if known is None and len(self._first) >= MOST_REFUSED:
            return
        if known is None or known.epoch != header.producer_epoch or header.base_sequence <= known.sequence:
            self._first.pop(key, None)
            self._first[key] = _RefusedBatch(header.producer_epoch, header.base_sequence, now + PATIENCE_SECONDS)

    def check(self, partition: Key, records: Records | None, now: float, known_producers: Container[int] = ()) -> None:
        """Let a batch through that comes again. ``ApiError`` OUT_OF_ORDER_SEQUENCE_NUMBER for one that is behind it.

        The log itself judges the batches of producers that it knows: what was refused may have come by another leader.
        """
        self._give_up(now)
        header = _header(records)
        known = None if header is None else self._first.get((partition, header.producer_id))
        if header is None or known is None:
            return
        if (
            known.epoch == header.producer_epoch
            and known.sequence < header.base_sequence
            and header.producer_id not in known_producers
        ):
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {header.base_sequence}, and {known.sequence} was refused"
                " a moment ago and comes first",
            )
        del self._first[partition, header.producer_id]

    def _give_up(self, now: float) -> None:
        while self._first and (first := next(iter(self._first.items())))[1].until <= now:
            del self._first[first[0]]


def _header(records: Records | None) -> BatchHeader | None:
    """The header of an idempotent producer's batch."""
    try:
        header = parse_header(records or b"")
    except WireError:
        return None  # the log refuses it with the right error
    return header if header.has_producer_id else None
