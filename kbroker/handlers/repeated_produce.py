"""The short way of a Produce that repeats an earlier one of its connection but for its records.

A producer that writes to a partition, one request after another, sends the same bytes again and again around the
records, and gets the same bytes around three offsets and times. To decode the one into objects and to encode the
other from objects costs more than the append itself, so what stays the same is remembered, for each partition that it
writes to: `learn` takes it from a request that `kbroker.handlers.produce` has served, and `RepeatedProduce.answer`
serves its repetitions. Whatever is not as it was then, and whatever is refused, goes the long way, which has all the
rules; this one has none of its own. So does a batch whose transaction is to be looked at elsewhere first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from struct import Struct
from struct import error as StructError
from typing import Any, ClassVar, Final

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import Defer, RequestContext
from kbroker.handlers.transactional_produce import verified_at_once
from kbroker.types import TopicPartition
from kbroker.wire.alike import STAND_IN, responses_like
from kbroker.wire.batch_header import HEADER_SIZE
from kbroker.wire.errors import WireError
from kbroker.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kbroker.wire.primitives import decode_uvarint, encode_uvarint

_FIRST_VERSION: Final = 7
"""From here on records need no look of the version's own, and an answer ends its offsets with log_start_offset."""

_FLEXIBLE_VERSION: Final = 9

_LENGTH = Struct(">i")
_CORRELATION_ID_END: Final = 8
_NO_TAGS: Final = b"\0\0\0"
"""After the records of a flexible request: no tagged fields of the partition, of the topic, of the request."""
_TAGS = Struct(f"{len(_NO_TAGS)}s")

_STAND_INS: Final = (STAND_IN, STAND_IN + 1, STAND_IN + 2)
"""For base_offset, log_append_time_ms and log_start_offset, adjacent in every version."""

_ATTRIBUTES_AT: Final = 22
"""The low byte of a batch's attributes."""

_TRANSACTIONAL: Final = 0x10

_MOST_FORMS: Final = 256
"""Partitions that are known for one connection. Where there are more, what was known gives way to what comes."""

_MOST_BEFORE: Final = 512
"""Bytes before the records, kept for each partition: names, and what is in tagged fields that nobody knows."""

_SMALL: Final = 16 * 1024
"""Bytes of a batch that costs less to write, and to copy, than a system call."""


def is_transactional(records: memoryview) -> bool:
    """Whether the first batch says that it belongs to a transaction."""
    return len(records) > _ATTRIBUTES_AT and bool(records[_ATTRIBUTES_AT] & _TRANSACTIONAL)


@dataclass(slots=True)
class _Form:
    """What requests for one partition have in common, and the answers to them."""

    partition: Any
    key: TopicPartition
    acks: int
    transactional_id: str | None
    response: ProduceResponse
    reply: Callable[..., bytes]


class RepeatedProduce:
    """What one connection's requests and their answers have in common, by what comes before the records."""

    __slots__ = (
        "_before",
        "_connection",
        "_flexible",
        "_forms",
        "_key_and_version",
        "_length_at",
        "_long_produces",
        "_partitions",
        "_peer",
        "_services",
        "_version",
        "_wall_clock_ms",
    )

    collects: ClassVar[bool] = True

    def __init__(self, frame: memoryview, length_at: int, form: _Form, ctx: RequestContext) -> None:
        self._flexible = ctx.header.api_version >= _FLEXIBLE_VERSION
        self._length_at = length_at
        self._before = Struct(f">4si{length_at - _CORRELATION_ID_END}s").unpack_from
        self._key_and_version, _, prefix = self._before(frame)
        self._forms: dict[bytes, _Form] = {prefix: form}
        self._partitions = ctx.services.replica_manager.partitions
        self._long_produces = ctx.services.long_produces.waiting
        self._connection = ctx.connection
        self._peer = ctx.connection.peer
        self._version = ctx.header.api_version
        self._services = ctx.services
        self._wall_clock_ms = ctx.services.env.wall_clock_ms

    def add(self, other: RepeatedProduce) -> bool:
        """Know as well what the other knows; false if their requests differ in more than what comes before records."""
        if (
            other._key_and_version != self._key_and_version
            or other._length_at != self._length_at
            or len(self._forms) + len(other._forms) > _MOST_FORMS
        ):
            return False
        self._forms.update(other._forms)
        return True

    def answer(self, frame: memoryview, defer: Defer | None = None) -> bytes | None:
        """Append; the whole response frame. ``None`` if it is not a repetition that succeeds.

        In that case nothing has happened yet. In a crowd small batches for a partition are written together, at the
        end of the turn, and the answer is taken back if that fails.
        """
        try:
            key_and_version, correlation_id, prefix = self._before(frame)
        except StructError:
            return None  # too short
        form = self._forms.get(prefix)
        if form is None or key_and_version != self._key_and_version:
            return None
        partition, acks = form.partition, form.acks
        records = _records_of(frame, self._length_at, self._flexible)
        if (
            records is None
            or self._partitions.get(form.key) is not partition
            or not partition.acknowledges_at_once(acks)
            or (self._long_produces and self._peer in self._long_produces)
        ):
            return None
        guard = None
        if is_transactional(records):
            try:
                guard = verified_at_once(self._services, form.transactional_id, partition, records, self._version)
            except ApiError:
                return None
        elif defer is not None and len(records) <= _SMALL:
            gathered = self._gather(form, records, correlation_id, defer)
            if gathered is not None:
                return gathered
        header = records[:HEADER_SIZE].tobytes()
        try:
            info = partition.append(records, acks, self._wall_clock_ms(), guard)
        except ApiError:
            records[:HEADER_SIZE] = header  # the log writes offset and time there before it knows all that it refuses
            return None
        return form.reply(correlation_id, info.first_offset, info.log_append_time_ms, info.log_start_offset)

    def _gather(self, form: _Form, records: memoryview, correlation_id: int, defer: Defer) -> bytes | None:
        partition = form.partition
        try:
            # A copy: what is refused is served again, and must be as it came.
            placed = partition.gather(bytearray(records), form.acks, self._wall_clock_ms(), defer)
        except ApiError:
            return None
        if placed is None:
            return None
        reply = form.reply(correlation_id, *placed)
        partition.when_unwritten.append(partial(self._take_back, reply, form.response))
        return reply

    def _take_back(self, reply: bytes, response: ProduceResponse, error: ApiError) -> None:
        self._connection.take_back(reply, _failure(response, error.code), self._version)


def _failure(response: ProduceResponse, code: ErrorCode) -> ProduceResponse:
    """The answer to a batch that was judged but could not be written."""
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    failed = replace(partition, error_code=code, base_offset=-1, log_append_time_ms=-1, log_start_offset=-1)
    return ProduceResponse(responses=[replace(topic, partition_responses=[failed])])


def _records_of(frame: memoryview, length_at: int, flexible: bool) -> memoryview | None:
    """The records whose length is told at ``length_at``, if they are a batch and nothing comes after them."""
    try:
        if flexible:
            length, start = decode_uvarint(frame, length_at)
            end = start + length - 1
            if end + _TAGS.size != len(frame) or _TAGS.unpack_from(frame, end)[0] != _NO_TAGS:
                return None
        else:
            (length,) = _LENGTH.unpack_from(frame, length_at)
            start = length_at + _LENGTH.size
            end = start + length
            if end != len(frame):
                return None
    except (WireError, StructError):
        return None
    return frame[start:end] if end - start >= HEADER_SIZE else None


def learn(frame: memoryview, request: ProduceRequest, response: Any, ctx: RequestContext) -> RepeatedProduce | None:
    """What the next requests of the connection may repeat, with what was known before if that is alike.

    ``None`` if this one was not of the kind.
    """
    version = ctx.header.api_version
    if (
        not isinstance(response, ProduceResponse)
        or version < _FIRST_VERSION
        or request.acks == 0
        or len(response.responses) != 1
        or len(response.responses[0].partition_responses) != 1
        or response.responses[0].partition_responses[0].error_code != ErrorCode.NONE
    ):
        return None
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return None  # topics without partitions, which have no answer
    topic, answer = response.responses[0], response.responses[0].partition_responses[0]
    manager = ctx.services.replica_manager
    name = topic.name or manager.topic_name(topic.topic_id)
    partition = manager.partitions.get(TopicPartition(name, answer.index))
    if partition is None or partition.is_internal:
        return None
    length = len(request.topic_data[0].partition_data[0].records or b"")
    if version >= _FLEXIBLE_VERSION:
        length_at = len(frame) - len(_NO_TAGS) - length - len(encode_uvarint(length + 1))
    else:
        length_at = len(frame) - length - _LENGTH.size
    records = _records_of(frame, length_at, version >= _FLEXIBLE_VERSION)
    if records is None or len(records) != length or length_at > _MOST_BEFORE:
        return None  # tagged fields around them, which are not for the short way
    alike = PartitionProduceResponse(
        index=answer.index,
        base_offset=_STAND_INS[0],
        log_append_time_ms=_STAND_INS[1],
        log_start_offset=_STAND_INS[2],
    )
    response = ProduceResponse(
        responses=[TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[alike])]
    )
    reply = responses_like(ctx.header.api_key, version, response, "qqq", _STAND_INS)
    form = _Form(partition, partition.topic_partition, request.acks, request.transactional_id, response, reply)
    learned = RepeatedProduce(frame, length_at, form, ctx)
    earlier = ctx.connection.repeated.get(ctx.header.api_key)
    if isinstance(earlier, RepeatedProduce) and earlier.add(learned):
        return earlier
    return learned
