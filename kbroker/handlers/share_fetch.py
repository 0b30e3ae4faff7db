"""Records of share partitions: fetched, locked and acknowledged (KIP-932).

ShareFetch (key 78): hand records to a member of a share group, and take its word for those it had (KIP-932).
Served: 1 to 2. 2: renewal of locks (KIP-1222), share_acquire_mode (KIP-1206).

Stored batches go out as they are. ``acquired_records`` says which of their offsets are the member's; it ignores others.

ShareAcknowledge (key 79): a share group's member says what became of records that it holds (KIP-932).
Served: 1 to 2. 2: renewal of locks, and the time that they last, in the answer (KIP-1222).
"""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.cores.share_partitions.requests import ShareFetched, ShareFetchParams, TopicIdPartition
from kbroker.cores.share_partitions.sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import rules_version
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
from kbroker.handlers.services.quotas import RequestMeter
from kbroker.handlers.services.share_groups import SharePartitions
from kbroker.runtime.later import Later
from kbroker.types import Uuid
from kbroker.wire.compiler import encode_parts
from kbroker.wire.messages.share_fetch import (
    AcquiredRecords,
    NodeEndpoint,
    ShareAcknowledgePartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
    ShareFetchableTopicResponse,
    ShareFetchPartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)

RECORD_LIMIT = 1
"""share_acquire_mode in which ``max_records`` holds to the record."""


@handler(ShareFetchRequest)
async def handle_share_fetch(request: ShareFetchRequest, ctx: RequestContext) -> ShareFetchResponse:
    """Take acknowledgements first, then read, then wait for records if there are none."""
    try:
        group_id, member_id = check_member(request.group_id, request.member_id, ctx)
        if ctx.api_version >= 2 and request.is_renew_ack:
            _check_renewal(request)
        return await _Fetch(request, group_id, member_id, ctx).answer()
    except ApiError as error:
        if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            await _wait_in_vain(request.max_wait_ms, ctx)
        return ShareFetchResponse(error_code=error.code)


def _check_renewal(request: ShareFetchRequest) -> None:
    """A request that renews locks waits for nothing, lest they end before its answer is there (KIP-1222)."""
    if request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "a renewal has max_bytes, min_bytes, max_records and max_wait_ms of 0"
        )


async def _wait_in_vain(max_wait_ms: int, ctx: RequestContext) -> None:
    """Have a client for which there is no room wait as for records, so that it does not ask again at once."""
    if max_wait_ms > 0:
        never: Later[None] = Later()
        await ctx.connection.wait_for(never, max_wait_ms / 1000)


class _Fetch:
    """A ShareFetch on its way: acknowledgements first, then records until there are enough or its time is over."""

    def __init__(self, request: ShareFetchRequest, group_id: str, member_id: str, ctx: RequestContext) -> None:
        self._request = request
        self._group_id = group_id
        self._member_id = member_id
        self._ctx = ctx
        self._shares: SharePartitions = share_partitions(ctx)
        self._named: Told = {
            TopicIdPartition(Uuid(topic.topic_id), each.partition_index): list(each.acknowledgement_batches)
            for topic in request.topics
            for each in topic.partitions
        }
        self._acknowledges = any(self._named.values())
        self._access = TopicAccess(ctx)

    async def answer(self) -> ShareFetchResponse:
        """Serve the request. ``ApiError`` if it is refused as a whole."""
        request, ctx = self._request, self._ctx
        session = self._take_up_session()
        acknowledged: dict[TopicIdPartition, ApiError | None] = {}
        if self._acknowledges:
            rules = rules_version(ctx)
            acknowledged = await acknowledge(
                self._group_id,
                self._member_id,
                self._named,
                is_renewal=request.is_renew_ack,
                access=self._access,
                ctx=ctx,
            )
            if rules_version(ctx) != rules:  # while the acknowledgements were kept
                self._check_member()
        fetched: dict[TopicIdPartition, ShareFetched] = {}
        throttle_ms = 0
        if session is not None and not (ctx.api_version >= 2 and request.is_renew_ack):
            meter = None if ctx.services.quotas.clients is None else ctx.meter
            fetched, throttle_ms = await self._fetch(session, meter)
            if request.share_session_epoch != INITIAL_EPOCH:
                fetched = {
                    wanted: part
                    for wanted, part in fetched.items()
                    if session.must_tell(wanted, has_records=bool(part.acquired), has_error=part.error is not None)
                }
        if request.share_session_epoch == FINAL_EPOCH:
            self._shares.close_session(self._group_id, self._member_id)
        response = self._response(fetched, acknowledged)
        response.throttle_time_ms = throttle_ms
        return response

    def _take_up_session(self) -> ShareSession | None:
        """The session that the request opens or goes on with; None if it ends one. ``ApiError``."""
        request, sessions = self._request, self._shares.sessions
        if request.share_session_epoch == INITIAL_EPOCH:
            if self._acknowledges:
                raise ApiError(ErrorCode.INVALID_REQUEST)
            self._shares.open_session(self._group_id, self._member_id, self._named, self._ctx.connection)
            return sessions.find(self._group_id, self._member_id)
        session = sessions.find(self._group_id, self._member_id)
        if request.share_session_epoch == FINAL_EPOCH:
            return None
        session.advance(request.share_session_epoch)
        session.update(
            self._named,
            [
                TopicIdPartition(Uuid(topic.topic_id), index)
                for topic in request.forgotten_topics_data
                for index in topic.partitions
            ],
        )
        return session

    async def _fetch(
        self, session: ShareSession, meter: RequestMeter | None
    ) -> tuple[dict[TopicIdPartition, ShareFetched], int]:
        """Records for the session's partitions, and for how long (ms) the client is throttled instead."""
        refused = self._refused(session.partitions)
        readable = [wanted for wanted in session.partitions if wanted not in refused]
        session.know(readable)
        params = self._params(meter)
        fetched = await self._shares.fetch(params, readable, self._ctx.connection, self._denied)
        if meter is not None:
            throttle_ms = meter.fetched(self._size(fetched))
            if throttle_ms:  # the client asks for the same again afterwards, which has been no delivery
                self._shares.give_back(params, fetched)
                return {}, throttle_ms
        refused |= {wanted: part.error for wanted, part in fetched.items() if part.error is not None}
        return {
            **fetched,
            **{wanted: ShareFetched(error=session.error(wanted, code)) for wanted, code in refused.items()},
        }, 0

    def _check_member(self) -> None:
        """``ApiError`` if the member may not be in the group any more."""
        check_member(self._group_id, self._member_id, self._ctx)

    def _refused(self, partitions: Sequence[TopicIdPartition]) -> dict[TopicIdPartition, ErrorCode]:
        """The partitions that cannot be served, by the rules of the moment."""
        refusals = ((wanted, self._access.refusal(wanted)) for wanted in partitions)
        return {wanted: code for wanted, code in refusals if code is not None}

    def _denied(self, partitions: Sequence[TopicIdPartition]) -> list[TopicIdPartition]:
        """The partitions that the member may not read any more, once rules have changed while it waited.

        ``ApiError`` if it may not be in the group.
        """
        self._check_member()
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return [wanted for wanted, code in self._refused(partitions).items() if code is denied]

    def _params(self, meter: RequestMeter | None) -> ShareFetchParams:
        request, config = self._request, self._ctx.services.config
        max_bytes = min(request.max_bytes, config.fetch_max_bytes)
        if meter is not None:
            max_bytes = meter.cap_fetch(max_bytes)
        return ShareFetchParams(
            group_id=self._group_id,
            member_id=self._member_id,
            session_epoch=request.share_session_epoch,
            max_wait_ms=max(0, request.max_wait_ms),
            min_bytes=min(request.min_bytes, max_bytes),
            max_bytes=max_bytes,
            max_records=request.max_records,
            batch_size=request.batch_size,
            exact=request.share_acquire_mode == RECORD_LIMIT,
        )

    def _size(self, fetched: dict[TopicIdPartition, ShareFetched]) -> int:
        return sum(map(len, encode_parts(self._response(fetched, {}), self._ctx.api_version)))

    def _response(
        self, fetched: dict[TopicIdPartition, ShareFetched], acknowledged: dict[TopicIdPartition, ApiError | None]
    ) -> ShareFetchResponse:
        leaders = Leaders(self._ctx)
        topics: dict[Uuid, ShareFetchableTopicResponse] = {}
        for wanted in {**fetched, **acknowledged}:
            data = _partition(wanted, fetched.get(wanted, ShareFetched()))
            leaders.tell(data.current_leader, wanted, data.error_code)
            error = acknowledged.get(wanted)
            if error is not None:
                data.acknowledge_error_code, data.acknowledge_error_message = error.code, error.message
            topic = topics.get(wanted.topic_id)
            if topic is None:
                topic = topics[wanted.topic_id] = ShareFetchableTopicResponse(topic_id=wanted.topic_id, partitions=[])
            topic.partitions.append(data)
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=self._shares.settings(self._group_id).delivery.record_lock_duration_ms,
            responses=list(topics.values()),
            node_endpoints=[
                NodeEndpoint(node_id=node, host=host, port=port, rack=rack)
                for node, (host, port, rack) in leaders.endpoints.items()
            ],
        )


def _partition(wanted: TopicIdPartition, part: ShareFetched) -> ShareFetchPartitionData:
    return ShareFetchPartitionData(
        partition_index=wanted.partition,
        error_code=ErrorCode.NONE if part.error is None else part.error,
        records=part.records,
        acquired_records=[
            AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in part.acquired
        ],
    )


@handler(ShareAcknowledgeRequest)
async def handle_share_acknowledge(request: ShareAcknowledgeRequest, ctx: RequestContext) -> ShareAcknowledgeResponse:
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
        data = ShareAcknowledgePartitionData(partition_index=wanted.partition)
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
