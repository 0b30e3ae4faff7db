"""The short way of an OffsetCommit that repeats the connection's last one but for the offsets.

A member that commits as it reads names the same partitions each time, and is told each time that all is well. To
decode the one into objects and to encode the other costs as much as to store the offsets, so `learn` keeps a request
and its answer, and `RepeatedOffsetCommit.answer` takes from a repetition only its offsets. Who may commit is still
asked of the group each time; whatever is refused goes the long way, `kbroker.handlers.offset_commit`.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, ClassVar, Final

from kbroker.errors import ApiError, ErrorCode
from kbroker.groups.offset_requests import OffsetsToCommit
from kbroker.handlers.context import Defer, DelayedResponse, RequestContext
from kbroker.wire.alike import STAND_IN, AlikeRequests, requests_like, responses_like
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_MOST_PARTITIONS: Final = 100


class RepeatedOffsetCommit:
    """What one connection's commits and their answers have in common."""

    __slots__ = ("_alike", "_commit", "_ctx", "_group_id", "_reply", "_topics")

    collects: ClassVar[bool] = False

    def __init__(self, alike: AlikeRequests, commit: OffsetsToCommit, ctx: RequestContext) -> None:
        self._alike = alike
        self._ctx = ctx
        self._commit = commit
        self._group_id = commit.request.group_id
        self._topics = ctx.services.metadata.image.topics
        self._reply = responses_like(ctx.header.api_key, ctx.header.api_version, commit.response)

    def answer(self, frame: memoryview, defer: Defer | None = None) -> bytes | DelayedResponse | None:
        """Have the offsets stored; the whole response frame, now or later. ``None`` leaves it to ``handle``.

        In that case nothing has happened yet, but that the member has been heard.
        """
        found = self._alike.match(frame)
        services = self._ctx.services
        if found is None or services.metadata.image.topics is not self._topics:
            return None
        correlation_id, *offsets = found
        commit, reply = self._commit, self._reply(correlation_id)
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
    varied = deepcopy(request)
    stand_ins = range(STAND_IN, STAND_IN + asked)
    for partition, stand_in in zip(
        (each for topic in varied.topics for each in topic.partitions), stand_ins, strict=True
    ):
        partition.committed_offset = stand_in
    alike = requests_like(frame, request, varied, version, stand_ins)
    # Where partitions do not exist, the request that is left says less than the frame.
    return None if alike is None else RepeatedOffsetCommit(alike, commit, ctx)


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
