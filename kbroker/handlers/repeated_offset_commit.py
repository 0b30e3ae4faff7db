"""The short way of an OffsetCommit that repeats the connection's last one but for the offsets.

A member that commits as it reads names the same partitions each time, and is told each time that all is well. To
decode the one into objects and to encode the other costs as much as to store the offsets, so `learn` keeps a request
and its answer, and `RepeatedOffsetCommit.answer` takes from a repetition only its offsets. Who may commit is still
asked of the group each time; whatever is refused goes the long way, `kbroker.handlers.offset_commit`.
"""

from __future__ import annotations

from copy import deepcopy
from struct import Struct
from typing import Any, Final

from kbroker.errors import ApiError, ErrorCode
from kbroker.groups.offset_requests import OffsetsToCommit
from kbroker.handlers.context import Defer, DelayedResponse, RequestContext
from kbroker.wire.compiler import encode
from kbroker.wire.framing import response_parts
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_CORRELATION_ID_END: Final = 8
_SIZE_AND_CORRELATION_ID = Struct(">ii")
_OFFSET = Struct(">q")
_STAND_IN: Final = -0x7E7D_7C7B_7A79_7877
"""An offset that no client commits, of bytes that no name has; the next partition's is one more."""

_MOST_PARTITIONS: Final = 100


class RepeatedOffsetCommit:
    """What one connection's commits and their answers have in common."""

    __slots__ = ("_commit", "_ctx", "_form", "_group_id", "_key_and_version", "_reply", "_same", "_size", "_topics")

    def __init__(self, frame: memoryview, form: Struct, commit: OffsetsToCommit, ctx: RequestContext) -> None:
        header = ctx.header
        self._ctx = ctx
        self._key_and_version = bytes(frame[:4])
        self._form = form
        self._same = form.unpack_from(frame, _CORRELATION_ID_END)[::2]
        self._size = len(frame)
        self._commit = commit
        self._group_id = commit.request.group_id
        self._topics = ctx.services.metadata.image.topics
        reply = b"".join(response_parts(header.api_key, header.api_version, 0, commit.response))  # type: ignore[arg-type]
        self._reply = reply[_SIZE_AND_CORRELATION_ID.size :]

    def answer(
        self, frame: memoryview, correlation_id: int, _: Defer | None = None
    ) -> bytes | DelayedResponse | None:
        """Have the offsets stored; the whole response frame, now or later. ``None`` leaves it to ``handle``.

        In that case nothing has happened yet, but that the member has been heard.
        """
        if len(frame) != self._size or frame[:4] != self._key_and_version:
            return None
        fields = self._form.unpack_from(frame, _CORRELATION_ID_END)
        services = self._ctx.services
        if fields[::2] != self._same or services.metadata.image.topics is not self._topics:
            return None
        commit, offsets = self._commit, fields[1::2]
        reply = _SIZE_AND_CORRELATION_ID.pack(len(self._reply) + 4, correlation_id) + self._reply
        delayed = DelayedResponse()

        def on_stored(_: None, error: ApiError | None) -> None:
            delayed.complete(reply if error is None else all_failed(commit.request.topics, error.code))

        try:
            services.groups.submit_gathered(
                self._group_id, lambda shard, now_ms: shard.commit_offsets_again(commit, offsets, now_ms), on_stored
            )
        except ApiError:
            return None
        return reply if delayed.response is reply else delayed


def learn(
    frame: memoryview, request: OffsetCommitRequest, response: Any, ctx: RequestContext
) -> RepeatedOffsetCommit | None:
    """What the next commits of the connection may repeat; ``None`` if this one was not of the kind."""
    version = ctx.api_version
    commit = OffsetsToCommit(request, version, metadata_limit=0)
    asked = sum(len(topic.partitions) for topic in request.topics)
    if not 0 < len(commit.places) == asked <= _MOST_PARTITIONS:
        return None  # with metadata, whose limit may change
    if isinstance(response, OffsetCommitResponse) and response != commit.response:
        return None
    body = encode(request, version)
    start = len(frame) - len(body)
    if frame[start:] != body:
        return None  # tagged fields, or partitions that do not exist: not for the short way
    alike = deepcopy(request)
    for number, partition in enumerate(each for topic in alike.topics for each in topic.partitions):
        partition.committed_offset = _STAND_IN + number
    body = encode(alike, version)
    form, end = ">", _CORRELATION_ID_END
    for number in range(asked):
        at = start + body.index(_OFFSET.pack(_STAND_IN + number))
        form += f"{at - end}sq"
        end = at + _OFFSET.size
    return RepeatedOffsetCommit(frame, Struct(f"{form}{len(frame) - end}s"), commit, ctx)


def all_failed(asked: list[OffsetCommitRequestTopic], error: ErrorCode) -> OffsetCommitResponse:
    """The same error for every partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in asked
        ]
    )
