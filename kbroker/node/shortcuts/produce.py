"""The shortcut of a Produce of one batch, like an earlier one of its connection in all that comes before the records.

A producer that writes to a partition sends the same bytes around its records, and gets the same bytes around three
offsets and times. Decoding the request and encoding the response costs more than the append itself, so both are
remembered, for each partition that the connection writes to. The rules are not repeated here: a batch that is refused
goes to `kbroker.handlers.produce`, and so does one whose transaction must be verified elsewhere first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import would_allow
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.transactions import is_transactional, verified_at_once
from kbroker.node.shortcuts.cache import Shortcut
from kbroker.node.shortcuts.template import CORRELATION_ID_END, PLACEHOLDER, response_template
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import HEADER_SIZE
from kbroker.wire.errors import WireError
from kbroker.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kbroker.wire.primitives import decode_uvarint, encode_uvarint

if TYPE_CHECKING:
    from kbroker.handlers.services.partitions import Partition
    from kbroker.runtime.round import Round

_FIRST_VERSION: Final = 7
"""The first version whose records are not judged by the version, and whose answer ends with log_start_offset."""

_FLEXIBLE_VERSION: Final = 9

_LENGTH = Struct(">i")
_NO_TAGS: Final = b"\0\0\0"
"""The end of a flexible request: no tagged fields of the partition, of the topic, of the request."""
_TAGS = Struct(f"{len(_NO_TAGS)}s")

_PLACEHOLDERS: Final = (PLACEHOLDER, PLACEHOLDER + 1, PLACEHOLDER + 2)
"""For base_offset, log_append_time_ms and log_start_offset, adjacent in every version."""

MOST_FORMS: Final = 256
"""Partitions remembered for one connection. With more, a newly remembered one replaces them all."""

_MAX_PREFIX: Final = 512
"""Bytes before the records, kept for each partition: names, and unknown tagged fields."""


@dataclass(slots=True)
class _Form:
    """The common part of requests for one partition, and of the responses to them."""

    partition: Partition
    key: TopicPartition
    acks: int
    transactional_id: str | None
    response: ProduceResponse
    reply: Callable[..., bytes]


class ProduceShortcut(Shortcut):
    """One connection's Produce requests of one version, by the bytes before their records."""

    __slots__ = (
        "_before",
        "_behind",
        "_connection",
        "_flexible",
        "_forms",
        "_key_and_version",
        "_length_at",
        "_partitions",
        "_peer",
        "_produce_queue",
        "_services",
        "_version",
        "_wall_clock_ms",
    )

    grows: ClassVar[bool] = True

    def __init__(self, frame: memoryview, length_at: int, form: _Form, ctx: RequestContext) -> None:
        self._flexible = ctx.header.api_version >= _FLEXIBLE_VERSION
        self._length_at = length_at
        self._before = Struct(f">4si{length_at - CORRELATION_ID_END}s").unpack_from
        self._key_and_version, _, prefix = self._before(frame)
        self._forms: dict[bytes, _Form] = {prefix: form}
        self._partitions = ctx.services.replica_manager.partitions
        self._behind = ctx.services.replica_manager.behind
        self._produce_queue = ctx.services.produce_queue.waiting
        self._connection = ctx.connection
        self._peer = ctx.connection.peer
        self._version = ctx.header.api_version
        self._services = ctx.services
        self._wall_clock_ms = ctx.services.env.wall_clock_ms

    def add(self, other: ProduceShortcut) -> bool:
        """Remember the forms of ``other``, too; false if version or prefix length differ, or there are too many."""
        if (
            other._key_and_version != self._key_and_version
            or other._length_at != self._length_at
            or len(self._forms) + len(other._forms) > MOST_FORMS
        ):
            return False
        self._forms.update(other._forms)
        return True

    def try_serve(self, frame: memoryview, round: Round | None = None) -> bytes | None:
        """Append the batch. Every refusal lets the request through to its handler, with nothing done.

        In a crowded ``round`` small batches for a partition are written together, at the round's end, and the reply is
        replaced if that fails.
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
            or (self._behind and form.key in self._behind)
            or not partition.acknowledges_at_once(acks)
            or (self._produce_queue and self._peer in self._produce_queue)
            or self._connection.refused_batches
        ):
            return None
        guard = None
        if is_transactional(records):
            try:
                guard = verified_at_once(self._services, form.transactional_id, partition, records, self._version)
            except ApiError:
                return None
        elif round is not None:
            try:
                placed = partition.gather(records, acks, self._wall_clock_ms(), round)
            except ApiError:
                return None
            if placed is not None:
                first_offset, _, log_append_time_ms, log_start_offset = placed
                reply = form.reply(correlation_id, first_offset, log_append_time_ms, log_start_offset)
                partition.on_write_failed.append(partial(self._replace, reply, form.response))
                return reply
        header = records[:HEADER_SIZE].tobytes()
        try:
            info = partition.append(records, acks, self._wall_clock_ms(), guard)
        except ApiError:
            records[:HEADER_SIZE] = header  # the log writes offset and time there before it knows all that it refuses
            return None
        return form.reply(correlation_id, info.first_offset, info.log_append_time_ms, info.log_start_offset)

    def _replace(self, reply: bytes, response: ProduceResponse, error: ApiError) -> None:
        self._connection.replace_unsent(reply, _failure(response, error.code), self._version)


def _failure(response: ProduceResponse, code: ErrorCode) -> ProduceResponse:
    """The response for a batch that was judged but could not be written."""
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


def _may_write(ctx: RequestContext, topic: str, request: ProduceRequest) -> bool:
    """Whether later requests like this one are allowed, with a transaction or without."""
    transactional_id = request.transactional_id
    return would_allow(ctx, AclOperation.WRITE, ResourceType.TOPIC, topic) and (
        transactional_id is None
        or would_allow(ctx, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    )


def remember(
    frame: memoryview, request: ProduceRequest, response: Any, ctx: RequestContext, known: Any
) -> ProduceShortcut | None:
    """The shortcut for requests like ``request``: ``known``, with one more form, or a new one.

    ``None`` if it was refused, does not have exactly one batch, or is not acknowledged as soon as that is written.
    """
    version, acks = ctx.header.api_version, request.acks
    if version < _FIRST_VERSION or acks not in (1, -1) or len(request.topic_data) != 1:
        return None
    topic = request.topic_data[0]
    if len(topic.partition_data) != 1:
        return None
    # A response that comes later, at the end of the round, may still be an error: the next batch is judged anew.
    if isinstance(response, ProduceResponse) and response.responses[0].partition_responses[0].error_code:
        return None
    index = topic.partition_data[0].index
    manager = ctx.services.replica_manager
    name = topic.name or manager.topic_name(topic.topic_id)
    partition = None if name is None else manager.find(name, index)
    if partition is None or partition.is_internal or not partition.acknowledges_at_once(acks):
        return None
    if ctx.services.authorizer is not None and not _may_write(ctx, partition.topic_partition.topic, request):
        return None
    length = len(topic.partition_data[0].records or b"")
    if version >= _FLEXIBLE_VERSION:
        length_at = len(frame) - len(_NO_TAGS) - length - len(encode_uvarint(length + 1))
    else:
        length_at = len(frame) - length - _LENGTH.size
    records = _records_of(frame, length_at, version >= _FLEXIBLE_VERSION)
    if records is None or len(records) != length or length_at > _MAX_PREFIX:
        return None  # tagged fields around them: only the handler knows those
    varied = PartitionProduceResponse(
        index=index,
        base_offset=_PLACEHOLDERS[0],
        log_append_time_ms=_PLACEHOLDERS[1],
        log_start_offset=_PLACEHOLDERS[2],
    )
    response = ProduceResponse(
        responses=[TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[varied])]
    )
    reply = response_template(ctx.header.api_key, version, response, "qqq", _PLACEHOLDERS)
    form = _Form(partition, partition.topic_partition, acks, request.transactional_id, response, reply)
    shortcut = ProduceShortcut(frame, length_at, form, ctx)
    return known if known is not None and known.add(shortcut) else shortcut
