"""TxnOffsetCommit (key 28): commit a group's offsets as part of a transaction.

Served: 0 to 5. 2: leader epoch; 3: member and generation (KIP-447), flexible; 4: TRANSACTION_ABORTABLE; 5: transaction
version 2, without AddOffsetsToTxn before (KIP-890).
"""

from __future__ import annotations

import trio

from kbroker.coordinator.core import append_error_for_client
from kbroker.coordinator.result import TransactionalWriter
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.authorization import may_each, require_group, require_transactional_id
from kbroker.handlers.context import RequestContext
from kbroker.handlers.fair_share import FairShare
from kbroker.handlers.registration import handler
from kbroker.handlers.transactions import ClientSupport, begin_verification, verification_errors
from kbroker.log.producer_state import VerificationGuard
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.transactions.coordinator import ProducerIdAndEpoch
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import NO_SEQUENCE
from kbroker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


@handler(TxnOffsetCommitRequest)
async def handle(request: TxnOffsetCommitRequest, ctx: RequestContext) -> TxnOffsetCommitResponse:
    """Commit for the partitions that exist; the others get their error, the rest is served."""
    answers: dict[str, TxnOffsetCommitResponseTopic] = {}
    try:
        require_transactional_id(ctx, AclOperation.WRITE, request.transactional_id)
        require_group(ctx, AclOperation.READ, request.group_id)
    except ApiError as error:
        for topic in request.topics:
            for each in topic.partitions:
                _add(answers, topic.name, each.partition_index, error.code)
        return TxnOffsetCommitResponse(topics=list(answers.values()))
    may_read = may_each(ctx, AclOperation.READ, ResourceType.TOPIC)
    valid = []
    topics = ctx.services.metadata.image.topics
    share = FairShare()
    for topic in request.topics:
        known = []
        allowed = may_read is None or may_read(topic.name)
        if not allowed or topic.name not in topics.by_name:
            answers.setdefault(topic.name, TxnOffsetCommitResponseTopic(name=topic.name))
        for each in topic.partitions:
            await share.next()
            if not allowed:
                _add(answers, topic.name, each.partition_index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif topics.partition(topic.name, each.partition_index) is None:
                _add(answers, topic.name, each.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                known.append(each)
        if known:
            valid.append(TxnOffsetCommitRequestTopic(name=topic.name, partitions=known))
    if valid:
        request.topics = valid
        try:
            response = await _commit(request, ctx)
        except ApiError as error:
            code = _for_client(error.code, ctx.api_version)
            for topic in valid:
                for each in topic.partitions:
                    _add(answers, topic.name, each.partition_index, code)
        else:
            for answer in response.topics:
                for result in answer.partitions:
                    _add(answers, answer.name, result.partition_index, result.error_code)
    return TxnOffsetCommitResponse(topics=list(answers.values()))


def _add(answers: dict[str, TxnOffsetCommitResponseTopic], name: str, index: int, code: int) -> None:
    answer = answers.setdefault(name, TxnOffsetCommitResponseTopic(name=name))
    answer.partitions.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=code))


async def _commit(request: TxnOffsetCommitRequest, ctx: RequestContext) -> TxnOffsetCommitResponse:
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    groups = ctx.services.groups
    index = groups.partition_for(request.group_id)
    if index is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # as for a record for the group's partition
    await groups.until_loaded(request.group_id)
    index = groups.partition_for(request.group_id)
    assert index is not None, "a shard is loaded"
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    guard = await _verify(request, producer, TopicPartition(groups.TOPIC, index), ctx)
    await groups.until_loaded(request.group_id)
    return await groups.run(
        request.group_id,
        lambda core, now_ms: core.commit_offsets_in_transaction(request, now_ms),
        writer=TransactionalWriter(request.producer_id, request.producer_epoch, guard),
    )


async def _verify(
    request: TxnOffsetCommitRequest, producer: ProducerIdAndEpoch, key: TopicPartition, ctx: RequestContext
) -> VerificationGuard | None:
    """Have the coordinator of the transaction confirm that the group's partition is in it; the guard to append with."""
    services = ctx.services
    support = ClientSupport.VERIFY
    if ctx.api_version > 4:
        support = ClientSupport.ADD_PARTITIONS
    elif ctx.api_version > 3:
        support = ClientSupport.ABORTABLE_ERRORS
    partition = services.replica_manager.get_partition(*key)
    guard, is_asked = begin_verification(services, partition, producer, NO_SEQUENCE, support)
    if not is_asked:
        return guard
    answer = services.transactions.add_or_verify(request.transactional_id, producer, [key], support.adds_partitions)
    if answer.done:
        await trio.lowlevel.checkpoint()  # other connections have a turn between the commits of this one
    failed = verification_errors(await answer, support)
    if failed:
        raise ApiError(failed[key])
    return guard


def _for_client(code: ErrorCode, api_version: int) -> ErrorCode:
    if code is ErrorCode.NETWORK_EXCEPTION:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    code = append_error_for_client(code)
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and api_version < 2:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE  # Producers before 2.0 fail on the other (KAFKA-7296).
    return code
