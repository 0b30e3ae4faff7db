"""DeleteTopics, by name or by id.

Served: 1 to 6. 3: TOPIC_DELETION_DISABLED; 4: flexible; 5: error messages; 6: topic ids (KIP-516).
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import RequestContext
from kbroker.handlers.metadata_common import standard_message
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.image import MetadataImage
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse


@handler(DeleteTopicsRequest)
async def handle(request: DeleteTopicsRequest, ctx: RequestContext) -> DeleteTopicsResponse:
    """Delete topics; each has its own result."""
    image: MetadataImage = ctx.services.metadata.image
    response = DeleteTopicsResponse()

    def answer(name: str | None, topic_id: Uuid, code: ErrorCode, message: str | None = None) -> None:
        response.responses.append(
            DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
        )

    if not ctx.services.config.delete_topic_enable:
        code = ErrorCode.TOPIC_DELETION_DISABLED if ctx.api_version >= 3 else ErrorCode.INVALID_REQUEST
        for name in request.topic_names:
            answer(name, ZERO_UUID, code, standard_message(code))
        for topic in request.topics:
            answer(topic.name, Uuid(topic.topic_id), code, standard_message(code))
        return response

    names: list[str] = list(request.topic_names)
    ids: list[Uuid] = []
    for topic in request.topics:
        if topic.name is None and topic.topic_id == ZERO_UUID:
            answer(None, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        elif topic.name is None:
            ids.append(Uuid(topic.topic_id))
        elif topic.topic_id == ZERO_UUID:
            names.append(topic.name)
        else:
            answer(
                topic.name,
                Uuid(topic.topic_id),
                ErrorCode.INVALID_REQUEST,
                "You may not specify both topic name and topic id.",
            )
    chosen: dict[Uuid, str] = {}
    for topic_id in dict.fromkeys(ids):
        found = image.topics.by_id.get(topic_id)
        if ids.count(topic_id) > 1:
            answer(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
        elif found is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
            answer(None, topic_id, code, standard_message(code))
        else:
            chosen[topic_id] = found.name
    twice: set[Uuid] = set()
    for name in dict.fromkeys(names):
        found = image.topics.by_name.get(name)
        if names.count(name) > 1:
            answer(name, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif found is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer(name, ZERO_UUID, code, standard_message(code))
        elif found.id in ids:
            twice.add(found.id)
            answer(
                name,
                found.id,
                ErrorCode.INVALID_REQUEST,
                "The provided topic name maps to an ID that was already supplied.",
            )
        else:
            chosen[found.id] = name
    for topic_id in twice:
        chosen.pop(topic_id, None)
    if chosen:
        try:
            results = await ctx.services.metadata.submit(
                lambda controller, now_ms: controller.topics.delete_topics(list(chosen))
            )
        except ApiError as failure:
            results = dict.fromkeys(chosen, failure)
        for topic_id, error in results.items():
            if error is None:
                answer(chosen[topic_id], topic_id, ErrorCode.NONE)
            else:
                answer(chosen[topic_id], topic_id, error.code, error.message)
    return response
