"""TxnOffsetCommit (key 28): commit a group's offsets as part of a transaction.

Served: 0 to 6. 2: leader epoch; 3: member and generation (KIP-447), flexible; 4: TRANSACTION_ABORTABLE; 5: transaction
version 2, without AddOffsetsToTxn before (KIP-890); 6: topics by id, GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH
(KIP-1319).
"""

from __future__ import annotations

import trio

from kbroker.cores.coordinator.result import TransactionalWriter, append_error_for_client
from kbroker.cores.transactions.coordinator import ProducerIdAndEpoch
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may_each, require_group, require_transactional_id
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.common.transactions import ClientSupport, begin_verification, verification_errors
from kbroker.handlers.registration import handler
from kbroker.log.producer_entry import VerificationGuard
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import TopicPartition
from kbroker.wire.batch_header import NO_SEQUENCE
from kbroker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_BY_ID_VERSION = 6
"""Topics have ids instead of names from this version on."""


@handler(TxnOffsetCommitRequest)
async def handle(request: TxnOffsetCommitRequest, ctx: RequestContext) -> TxnOffsetCommitResponse:
    """Commit for the partitions that exist; the others get their error, the rest is served."""
    answers = _Answers(by_id=ctx.api_version >= _BY_ID_VERSION)
    try:
        require_transactional_id(ctx, AclOperation.WRITE, request.transactional_id)
        require_group(ctx, AclOperation.READ, request.group_id)
    except ApiError as error:
        for topic in request.topics:
            answers.add_all(topic, error.code)
        return answers.response()
    valid = await _existing(request.topics, answers, ctx)
    if valid:
        request.topics = valid
        try:
            response = await _commit(request, ctx)
        except ApiError as error:
            code = _for_client(error.code, ctx.api_version)
            for topic in valid:
                answers.add_all(topic, code)
        else:
            for answer in response.topics:
                answers.of(answer).partitions += answer.partitions
    return answers.response()


async def _existing(
    asked: list[TxnOffsetCommitRequestTopic], answers: _Answers, ctx: RequestContext
) -> list[TxnOffsetCommitRequestTopic]:
    """The partitions that exist and may be read, their topics with names and ids; the others are answered."""
    may_read = may_each(ctx, AclOperation.READ, ResourceType.TOPIC)
    topics = ctx.services.metadata.image.topics
    share = FairShare(ctx)
    valid = []
    for topic in asked:
        found = topics.by_id.get(topic.topic_id) if answers.by_id else topics.by_name.get(topic.name)
        refusal = None
        if found is None:
            refusal = ErrorCode.UNKNOWN_TOPIC_ID if answers.by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            topic.name, topic.topic_id = found.name, found.id
        if may_read is not None and topic.name and not may_read(topic.name):
            refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED  # whether it exists is not told
        if refusal is not None:
            answers.of(topic)
        known = []
        for each in topic.partitions:
            await share.next()
            if refusal is not None:
                answers.add(topic, each.partition_index, refusal)
            elif found is not None and each.partition_index in found.partitions:
                known.append(each)
            else:
                answers.add(topic, each.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if known:
            valid.append(TxnOffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=known))
    return valid


class _Answers:
    """The topics of a response in the order in which they are answered first. ``by_id``: the client names ids."""

    def __init__(self, *, by_id: bool) -> None:
        self.by_id = by_id
        self._topics: dict[str | bytes, TxnOffsetCommitResponseTopic] = {}

    def of(self, topic: TxnOffsetCommitRequestTopic | TxnOffsetCommitResponseTopic) -> TxnOffsetCommitResponseTopic:
        """The answer for a topic."""
        key = bytes(topic.topic_id) if self.by_id else topic.name
        answer = self._topics.get(key)
        if answer is None:
            answer = self._topics[key] = TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        return answer

    def add(self, topic: TxnOffsetCommitRequestTopic, index: int, code: int) -> None:
        """Answer one partition."""
        self.of(topic).partitions.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=code))

    def add_all(self, topic: TxnOffsetCommitRequestTopic, code: int) -> None:
        """Answer all partitions of a topic alike."""
        for each in topic.partitions:
            self.add(topic, each.partition_index, code)

    def response(self) -> TxnOffsetCommitResponse:
        """All of them."""
        return TxnOffsetCommitResponse(topics=list(self._topics.values()))


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
        lambda core, now_ms: core.commit_offsets_in_transaction(
            request, ctx.api_version, groups.commit_time_ms(now_ms)
        ),
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
