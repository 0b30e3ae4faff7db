"""ShareAcknowledge (key 79): a share group's member says what became of records that it holds (KIP-932).

Served: 1 to 2. 2: renewal of locks, and the time that they last, in the answer (KIP-1222).
"""

from __future__ import annotations

from kbroker.cores.share_partitions.requests import TopicIdPartition
from kbroker.cores.share_partitions.sessions import FINAL_EPOCH, INITIAL_EPOCH
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.share_acknowledgements import (
    Leaders,
    Told,
    TopicAccess,
    acknowledge,
    check_member,
    share_partitions,
)
from kbroker.handlers.registration import handler
from kbroker.types import Uuid
from kbroker.wire.messages.share_acknowledge import (
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


@handler(ShareAcknowledgeRequest)
async def handle(request: ShareAcknowledgeRequest, ctx: RequestContext) -> ShareAcknowledgeResponse:
    """Have each decision kept by the share coordinator, then answer. The final epoch ends the session as well."""
    try:
        group_id, member_id = check_member(request.group_id, request.member_id, ctx)
        shares = share_partitions(ctx)
        _take_up(request.share_session_epoch, group_id, member_id, ctx)
        told: Told = {
            TopicIdPartition(Uuid(topic.topic_id), each.partition_index): list(each.acknowledgement_batches)
            for topic in request.topics
            for each in topic.partitions
        }
        answers = await acknowledge(
            group_id, member_id, told, is_renewal=request.is_renew_ack, access=TopicAccess(ctx), ctx=ctx
        )
        if request.share_session_epoch == FINAL_EPOCH:
            shares.close_session(group_id, member_id)
    except ApiError as error:
        return ShareAcknowledgeResponse(error_code=error.code)
    lock_ms = shares.settings(group_id).delivery.record_lock_duration_ms
    return _response(answers, lock_ms, ctx)


def _take_up(epoch: int, group_id: str, member_id: str, ctx: RequestContext) -> None:
    """Take up a request of a session. ``ApiError`` without one, or for another epoch than the next."""
    if epoch == INITIAL_EPOCH:
        raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    session = share_partitions(ctx).sessions.find(group_id, member_id)
    if epoch != FINAL_EPOCH:
        session.advance(epoch)


def _response(
    answers: dict[TopicIdPartition, ApiError | None], lock_ms: int, ctx: RequestContext
) -> ShareAcknowledgeResponse:
    leaders = Leaders(ctx)
    topics: dict[Uuid, ShareAcknowledgeTopicResponse] = {}
    for wanted, error in answers.items():
        data = PartitionData(partition_index=wanted.partition)
        if error is not None:
            data.error_code, data.error_message = error.code, error.message
            leaders.tell(data.current_leader, wanted, error.code)
        topic = topics.get(wanted.topic_id)
        if topic is None:
            topic = topics[wanted.topic_id] = ShareAcknowledgeTopicResponse(topic_id=wanted.topic_id, partitions=[])
        topic.partitions.append(data)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=list(topics.values()),
        node_endpoints=[
            NodeEndpoint(node_id=node, host=host, port=port, rack=rack)
            for node, (host, port, rack) in leaders.endpoints.items()
        ],
    )
