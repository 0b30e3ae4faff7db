"""The shortcut of a ListOffsets of one partition, for its earliest or latest offset.

A consumer asks for both again and again, Spark's for every batch. All but the timestamp is remembered, and the bytes
around offset and leader epoch of the response. The look-up itself is the handler's.
"""

from __future__ import annotations

from copy import deepcopy
from typing import ClassVar, Final

from kbroker.handlers.common.authorization import would_allow
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.list_offsets import EARLIEST, LATEST, look_up
from kbroker.node.shortcuts.cache import Shortcut
from kbroker.node.shortcuts.template import PLACEHOLDER, RequestTemplate, request_template, response_template
from kbroker.runtime.round import Round
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_EPOCH_PLACEHOLDER: Final = -0x6E6D6C6B
"""For the leader epoch, which follows the offset in every version that has it."""


class ListOffsetsShortcut(Shortcut):
    """One connection's ListOffsets of one partition."""

    __slots__ = ("_ctx", "_has_epoch", "_reply", "_request", "_template", "_topic", "_wanted")

    grows: ClassVar[bool] = False

    def __init__(self, template: RequestTemplate, request: ListOffsetsRequest, ctx: RequestContext) -> None:
        self._template = template
        self._request = request
        self._ctx = ctx
        topic = request.topics[0]
        partition = topic.partitions[0]
        self._topic = topic.name
        self._wanted = {
            timestamp: ListOffsetsPartition(
                partition_index=partition.partition_index,
                current_leader_epoch=partition.current_leader_epoch,
                timestamp=timestamp,
            )
            for timestamp in (LATEST, EARLIEST)
        }
        version = ctx.header.api_version
        self._has_epoch = version >= 4
        answer = ListOffsetsPartitionResponse(partition_index=partition.partition_index, offset=PLACEHOLDER)
        form, placeholders = "q", [PLACEHOLDER]
        if self._has_epoch:
            answer.leader_epoch = _EPOCH_PLACEHOLDER
            form, placeholders = "qi", [PLACEHOLDER, _EPOCH_PLACEHOLDER]
        response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic.name, partitions=[answer])])
        self._reply = response_template(ctx.header.api_key, version, response, form, placeholders)

    def try_serve(self, frame: memoryview, round: Round | None = None) -> bytes | None:
        """Look the offset up. Other timestamps, and every refusal, are let through to the handler."""
        found = self._template.match(frame)
        if found is None:
            return None
        correlation_id, timestamp = found
        wanted = self._wanted.get(timestamp)
        if wanted is None:
            return None
        answer = ListOffsetsPartitionResponse()
        try:
            look_up(answer, self._topic, wanted, self._request, self._ctx)
        except Exception:
            return None  # the handler meets the same error, and answers it
        if self._has_epoch:
            return self._reply(correlation_id, answer.offset, answer.leader_epoch)
        return self._reply(correlation_id, answer.offset)


def remember(
    frame: memoryview, request: ListOffsetsRequest, response: object, ctx: RequestContext, known: object
) -> ListOffsetsShortcut | None:
    """The shortcut for requests like ``request``; ``None`` if it is not for one partition's earliest or latest."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    if request.topics[0].partitions[0].timestamp not in (LATEST, EARLIEST):
        return None
    if not would_allow(ctx, AclOperation.DESCRIBE, ResourceType.TOPIC, request.topics[0].name):
        return None
    varied = deepcopy(request)
    varied.topics[0].partitions[0].timestamp = PLACEHOLDER
    template = request_template(frame, request, varied, ctx.header.api_version, [PLACEHOLDER])
    return None if template is None else ListOffsetsShortcut(template, request, ctx)
