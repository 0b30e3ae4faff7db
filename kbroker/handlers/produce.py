"""Produce (key 0): append record batches.

Served: 3 (record batch v2) to 13 (topics by id). 5: log_start_offset; 8: record_errors, error_message;
9: flexible; 10: current_leader and node_endpoints (KIP-951); 11: as 10; 12: transactions v2 (KIP-890); 13: topic ids
(KIP-516).

Advertised from 0, as Apache Kafka does on a broker's listeners (KAFKA-18659): librdkafka takes a broker without
Produce 0 for one without the features it needs. A request below 3 is nevertheless refused.

This module says who may write and shapes the answer; ``node.replicas.produce_writer`` writes the batches, and waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may, may_each
from kbroker.handlers.common.context import CloseConnection, RequestContext
from kbroker.handlers.common.leaders import current_leader
from kbroker.handlers.common.transactions import Unverified, is_transactional
from kbroker.handlers.registration import handler
from kbroker.log.validation import NotOneBatch
from kbroker.runtime.later import Later
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from kbroker.handlers.services.partitions import Partition

_WITHOUT_START: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors of an append that are answered without the log start offset (``ReplicaManager.appendToLocalLog``); all others
have it."""


@handler(ProduceRequest)
def handle(request: ProduceRequest, ctx: RequestContext) -> ProduceResponse | Later[ProduceResponse | None] | None:
    """Append each partition's batch; the answer comes later if it has to wait, or would keep others waiting."""
    may_write = refusal = None
    if ctx.services.authorizer is not None:
        may_write = may_each(ctx, AclOperation.WRITE, ResourceType.TOPIC)
    if not _may_write_in_transaction(request, ctx):
        refusal = ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return ctx.services.produce_writer()(request, ctx, may_write, refusal)


def _may_write_in_transaction(request: ProduceRequest, ctx: RequestContext) -> bool:
    """Whether the batches may be those of a transaction, if there is one that is: with its id, and the permission."""
    transactional_id = request.transactional_id
    if transactional_id is not None and ctx.services.authorizer is None:
        return True
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None and is_transactional(data.records):
                return transactional_id is not None and may(
                    ctx, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
                )
    return True


def response(
    request: ProduceRequest, ctx: RequestContext, topics: list[TopicProduceResponse], *, failed: bool
) -> ProduceResponse | None:
    """Returns the response with these answers, some of which are errors if it has ``failed``.

    None for acks=0; there ``CloseConnection`` is the only way to report an error (KafkaApis.handleProduceRequest).
    """
    if request.acks == 0:
        if failed:
            raise CloseConnection(f"error in a produce request with acks=0: {_summary(topics)}")
        return None
    answer = ProduceResponse(responses=topics)
    if failed and ctx.header.api_version >= 10:
        _add_leaders(answer, ctx)
    return answer


def error_answer(index: int, error: ApiError, refused_by: Partition | None) -> PartitionProduceResponse:
    """Returns the answer for a batch that is refused, by its partition if there is one."""
    record_errors = getattr(error, "record_errors", ())
    log_start_offset = -1
    if (
        refused_by is not None
        and error.code not in _WITHOUT_START
        and not isinstance(error, NotOneBatch)
        and refused_by.has_log
        and not refused_by.offline
    ):
        log_start_offset = refused_by.log.log_start_offset
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=log_start_offset,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
            for batch_index, message in record_errors
        ],
        # For what ``ReplicaManager.appendRecordsToLeader`` finds wrong in records, not for what the shape of the
        # request forbids; and for a batch whose transaction could not be verified.
        error_message=error.message if record_errors or isinstance(error, Unverified) else None,
    )


def _add_leaders(response: ProduceResponse, ctx: RequestContext) -> None:
    """Name whoever leads by now, so that the client need not ask."""
    endpoints: dict[int, NodeEndpoint] = {}
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            name = topic.name
            if topic.topic_id != ZERO_UUID:
                name = ctx.services.replica_manager.topic_name(Uuid(topic.topic_id)) or name
            leader = current_leader(ctx, name, partition.index)
            partition.current_leader = LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)
            if leader.host is not None:
                endpoints[leader.leader_id] = NodeEndpoint(
                    node_id=leader.leader_id, host=leader.host, port=leader.port, rack=leader.rack
                )
    response.node_endpoints = list(endpoints.values())


def _summary(topics: list[TopicProduceResponse]) -> str:
    return ", ".join(
        f"{topic.name}-{partition.index}: {ErrorCode(partition.error_code).name}"
        for topic in topics
        for partition in topic.partition_responses
        if partition.error_code
    )
