"""Fetch (key 1): read record batches, waiting for them if the client wishes.

Served: 4 (isolation level, aborted transactions) to 18. 5: log_start_offset; 7: incremental sessions (KIP-227);
9: current_leader_epoch; 11: rack_id, preferred_read_replica; 12: flexible, last_fetched_epoch, diverging_epoch,
current_leader; 13: topic ids (KIP-516); 14: as 13 (tiered storage's error); 15: replica_state; 16: node_endpoints
(KIP-951); 17: replica directory id (KIP-853); 18: high_watermark of the replica (KIP-1166).

The session cache says which partitions a request reads (``cores.replication.fetch_session``),
``node.replicas.fetch_reader`` reads them and waits, and this module shapes the answer.
"""

from __future__ import annotations

from collections.abc import Hashable

import trio

from kbroker.cores.replication.fetch_params import CONSUMER_REPLICA_ID, FetchParams, FetchResult
from kbroker.cores.replication.fetch_session import FetchPlan
from kbroker.cores.replication.fetch_view import PartitionKey, ViewedPartition, key_of
from kbroker.cores.replication.replica_selector import RACK_AWARE_SELECTOR, ReplicaSelector, rack_selector
from kbroker.errors import ErrorCode
from kbroker.handlers.common.authorization import may_act_as_node, may_each_now, rules_version
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.leaders import current_leader
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.compiler import encode_parts
from kbroker.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

READ_COMMITTED = 1
_DECODED_AT_ONCE = 256
"""Partitions of a request that are taken up in one go; then other requests have their turn."""


@handler(FetchRequest)
async def handle(request: FetchRequest, ctx: RequestContext) -> FetchResponse:
    """On a controller listener the metadata log, from the Raft core (KIP-595); topics on all others."""
    if ctx.connection.is_controller:
        from kbroker.handlers import quorum

        response: FetchResponse = await quorum.handle(request, ctx)
        return response
    return await fetch_topics(request, ctx)


async def fetch_topics(request: FetchRequest, ctx: RequestContext) -> FetchResponse:
    """Read now; if that is less than ``min_bytes``, wait for events of the requested partitions and read again."""
    version, services = ctx.header.api_version, ctx.services
    uses_topic_ids = version >= 13
    requested: dict[PartitionKey, ViewedPartition] = {}
    taken = 0
    for topic in request.topics:
        name, topic_id = ("", Uuid(topic.topic_id)) if uses_topic_ids else (topic.topic, ZERO_UUID)
        for partition in topic.partitions:
            # One that is named again is asked for once, as the last has it (FetchRequest.fetchData).
            key = PartitionKey(name, topic_id, partition.partition)
            requested[key] = ViewedPartition(key, partition)
            taken += 1
            if not taken % _DECODED_AT_ONCE:
                await trio.lowlevel.checkpoint()
    forgotten = [
        key_of("" if uses_topic_ids else topic.topic, topic.topic_id if uses_topic_ids else ZERO_UUID, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    params = _params(request, ctx)
    if services.authorizer is not None:
        _authorize(params, ctx)
    elif params.replica_id >= 0:
        ctx.connection.is_of_node = True
    is_follower = params.replica_id >= 0 and params.may_read is None
    meter = None if services.quotas.clients is None else ctx.meter
    if meter is not None:
        if is_follower:
            meter.is_exempt, meter = True, None
        else:
            params.max_bytes = meter.cap_fetch(params.max_bytes)
            params.min_bytes = min(params.min_bytes, params.max_bytes)
    if is_follower:
        _doubt(request, ctx)
    plan = services.fetch_sessions.plan(
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        uses_topic_ids=uses_topic_ids,
        requested=requested,
        forgotten=forgotten,
        by_follower=params.replica_id >= 0,
        now_ms=int(services.env.now() * 1000),
    )
    if plan.error:
        return FetchResponse(error_code=plan.error)
    if params.replica_id >= 0 and not is_follower:  # such a session would end those of the true one, and others'
        plan = plan._replace(may_create=False)
    result = await services.fetch_reader().fetch(params, plan.view, ctx.connection)
    if meter is not None:
        throttle_ms = meter.fetched(_response_size(plan, result, version))
        if throttle_ms:  # the client asks for the same again afterwards
            session_id = 0 if plan.session is None else plan.session.session_id
            return FetchResponse(throttle_time_ms=throttle_ms, session_id=session_id)
    return _respond(params, plan, result, ctx)


def _params(request: FetchRequest, ctx: RequestContext) -> FetchParams:
    version, config = ctx.header.api_version, ctx.services.config
    replica_id, replica_epoch = request.replica_id, -1
    if version >= 15:
        replica_id, replica_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
    is_consumer = replica_id == CONSUMER_REPLICA_ID
    select, selection = None, None
    if is_consumer and version >= 11 and config.replica_selector_class:
        select, selection = _selector(request, ctx)
    max_bytes = min(request.max_bytes, config.fetch_max_bytes)
    return FetchParams(
        replica_id,
        replica_epoch,
        request.max_wait_ms,
        min(request.min_bytes, max_bytes),
        max_bytes,
        request.isolation_level == READ_COMMITTED,
        # Any replica serves a consumer that could be sent to it (KIP-392).
        replica_id >= 0 or (is_consumer and version < 11),
        select,
        version >= 13,
        ctx.connection.listener_name,
        selection,
    )


def _selector(request: FetchRequest, ctx: RequestContext) -> tuple[ReplicaSelector | None, Hashable]:
    """The selector of a consumer's replica by ``replica.selector.class``, None for the leader; its ``selection``."""
    services = ctx.services
    if services.replica_selector is not None:
        return services.replica_selector(ctx, request.rack_id)
    is_by_rack = bool(request.rack_id) and services.config.replica_selector_class == RACK_AWARE_SELECTOR
    return (rack_selector(request.rack_id) if is_by_rack else None), None


def _authorize(params: FetchParams, ctx: RequestContext) -> None:
    """Have the reader refuse what the principal may not read: followers act for the cluster, consumers for a topic.

    A consumer that waits for records may lose its right meanwhile, and is then refused.
    """
    params.reader = rules_version(ctx), ctx.principal, ctx.host
    if params.replica_id >= 0:
        if not may_act_as_node(ctx):
            params.may_read = lambda name: False
        return
    may_read = may_each_now(ctx, AclOperation.READ, ResourceType.TOPIC)
    params.may_read = None if may_read is None else lambda name: name is None or may_read(name)


def _doubt(request: FetchRequest, ctx: RequestContext) -> None:
    """Have what followers were sent verified, where it cannot be right."""
    partitions = ctx.services.replica_manager
    for topic in request.topics:
        for partition in topic.partitions:
            if partition.is_doubted:
                name = topic.topic or partitions.topic_name(Uuid(topic.topic_id))
                found = partitions.find(name or "", partition.partition)
                if found is not None:
                    found.doubt(partition.fetch_offset)


def _response_size(plan: FetchPlan, result: FetchResult, version: int) -> int:
    """The bytes of the answer, without a new high watermark that is told although there is nothing else."""
    topics: dict[tuple[str, Uuid], FetchableTopicResponse] = {}
    for wanted, data in zip(result.partitions, result.results, strict=True):
        if plan.session is None or data.records or data.error_code:
            key = wanted.key.topic, wanted.key.topic_id
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = FetchableTopicResponse(topic=key[0], topic_id=key[1], partitions=[])
            topic.partitions.append(data)
    return sum(map(len, encode_parts(FetchResponse(responses=list(topics.values())), version)))


def _respond(params: FetchParams, plan: FetchPlan, result: FetchResult, ctx: RequestContext) -> FetchResponse:
    """Shape the response: every partition for a full fetch, those with news for an incremental one."""
    services, session, is_full = ctx.services, plan.session, plan.session is None
    if plan.may_create:
        # Before the partitions are looked at: a new session remembers what they are told here.
        session = services.fetch_sessions.maybe_create(
            plan.view,
            replica_id=max(params.replica_id, -1),
            uses_topic_ids=params.uses_topic_ids,
            now_ms=int(services.env.now() * 1000),
        )
    endpoints: dict[int, NodeEndpoint] = {}
    topics: list[FetchableTopicResponse] = []
    last: FetchableTopicResponse | None = None
    for wanted, name, data in zip(result.partitions, result.names, result.results, strict=True):
        key = wanted.key
        if session is not None:
            has_records = len(data.records) > 0  # type: ignore[arg-type]
            has_news = wanted.update_response(data, has_records)
            if not is_full:
                if not has_news:
                    continue
                if has_records:
                    plan.view.sent_records(key)
        if data.error_code:
            _add_leader(data, name or "", endpoints, ctx)
        if last is None or last.topic != key.topic or last.topic_id != key.topic_id:
            last = FetchableTopicResponse(topic=key.topic, topic_id=key.topic_id, partitions=[])
            topics.append(last)
        last.partitions.append(data)
    response = FetchResponse(responses=topics)
    if endpoints:
        response.node_endpoints = list(endpoints.values())
    if session is not None:
        response.session_id = session.session_id
    return response


def _add_leader(data: PartitionData, topic: str, endpoints: dict[int, NodeEndpoint], ctx: RequestContext) -> None:
    """Tell a client that asked the wrong broker who leads (KIP-951), and an old client an error that it knows."""
    version, code = ctx.header.api_version, data.error_code
    if version >= 16 and code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
        leader = current_leader(ctx, topic, data.partition_index)
        data.current_leader = LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)
        if leader.host is not None:
            endpoints[leader.leader_id] = NodeEndpoint(
                node_id=leader.leader_id, host=leader.host, port=leader.port, rack=leader.rack
            )
    elif version <= 5 and code == ErrorCode.KAFKA_STORAGE_ERROR:
        data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
