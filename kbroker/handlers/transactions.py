"""A producer's requests about its transaction: its id, partitions, groups and end.

InitProducerId (key 22): an id and epoch for an idempotent or transactional producer.
Served: 0 to 5. 2: flexible; 3: producer_id and epoch (KIP-360); 4: PRODUCER_FENCED; 5: as 4. With
``unstable.api.versions.enable`` also 6: two-phase commit (KIP-939), as far as Apache Kafka 4.3 and 4.4 have it.

Without a transactional id a fresh id is given, from a block that the controller has granted this broker. With one,
the transaction coordinator decides.

AddPartitionsToTxn (key 24): partitions become part of a transaction before they are written to.
Served: 0 to 5. 2: PRODUCER_FENCED; 3: flexible; 4: from brokers, several transactions, to add or to verify (KIP-890);
5: TRANSACTION_ABORTABLE.

AddOffsetsToTxn (key 25): the offsets of a group become part of a transaction.
Served: 0 to 4. 2: PRODUCER_FENCED; 3: flexible; 4: TRANSACTION_ABORTABLE. Clients of transaction version 2 do without.

EndTxn (key 26): commit or abort.
Served: 0 to 5. 2: PRODUCER_FENCED; 3: flexible; 4: TRANSACTION_ABORTABLE; 5: transaction version 2, with the epoch of
the next transaction in the response (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from kbroker.cores.coordinator.result import CoordinatorResult
from kbroker.cores.transactions.coordinator import ProducerIdAndEpoch, TransactionCoordinator
from kbroker.cores.transactions.transaction import NO_TIMEOUT_MS, TV_0, TV_2, partitions_by_topic
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import (
    May,
    may,
    may_act_as_node,
    may_each,
    may_on_any,
    may_on_cluster,
    prefetch_permissions,
    require_group,
    require_transactional_id,
    would_allow,
)
from kbroker.handlers.common.context import CloseConnection, RequestContext
from kbroker.handlers.common.internal_topics import ensure_internal_topic
from kbroker.handlers.common.transactions import fenced_for
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.topics import INTERNAL_TOPICS
from kbroker.runtime.later import Later
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.types import TopicPartition
from kbroker.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)


@handler(InitProducerIdRequest)
async def handle_init_producer_id(request: InitProducerIdRequest, ctx: RequestContext) -> InitProducerIdResponse:
    """Give a producer id and epoch (``TransactionCoordinator.handleInitProducerId``)."""
    try:
        producer = await _initialize(request, ctx)
    except ApiError as error:
        code = fenced_for(error.code, ctx.api_version >= 4)
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)


def _authorize(request: InitProducerIdRequest, ctx: RequestContext) -> None:
    """`ApiError` if the principal may not write: with the transactional id, or idempotently to any topic (KIP-679)."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        require_transactional_id(ctx, AclOperation.WRITE, transactional_id)
        if request.enable2_pc:
            require_transactional_id(ctx, AclOperation.TWO_PHASE_COMMIT, transactional_id)
    elif not (
        may_on_cluster(ctx, AclOperation.IDEMPOTENT_WRITE, audits_denial=False)
        or may_on_any(ctx, AclOperation.WRITE, ResourceType.TOPIC)
        or may_on_cluster(ctx, AclOperation.IDEMPOTENT_WRITE)  # for the audit log
    ):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


async def _initialize(request: InitProducerIdRequest, ctx: RequestContext) -> ProducerIdAndEpoch:
    if ctx.services.authorizer is not None:
        _authorize(request, ctx)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise ApiError(ErrorCode.INVALID_REQUEST)
    transactional_id = request.transactional_id
    if transactional_id is None:
        return ProducerIdAndEpoch(await ctx.services.producer_ids.next_id(), 0)
    if transactional_id == "":
        raise ApiError(ErrorCode.INVALID_REQUEST)
    if request.enable2_pc and not ctx.services.config.transaction_two_phase_commit_enable:
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.keep_prepared_txn:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)  # Apache Kafka's answer too
    expected = None
    if request.producer_id != -1:
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    timeout_ms = NO_TIMEOUT_MS if request.enable2_pc else request.transaction_timeout_ms
    transactions = ctx.services.transactions
    if not request.enable2_pc and not transactions.settings.allows_timeout(timeout_ms):
        raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    await ctx.services.producer_ids.ensure()
    await transactions.until_loaded(transactional_id)
    return await transactions.run(
        transactional_id, lambda core, now_ms: core.init_producer_id(transactional_id, timeout_ms, expected, now_ms)
    )


_FROM_BROKERS = 4

_TopicResults = list[AddPartitionsToTxnTopicResult]


async def _prefetch_permissions(request: AddPartitionsToTxnRequest, ctx: RequestContext) -> None:
    if ctx.api_version >= _FROM_BROKERS:
        return
    transactional_id = request.v3_and_below_transactional_id
    if would_allow(ctx, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        names = (topic.name for topic in request.v3_and_below_topics if topic.name not in INTERNAL_TOPICS)
        await prefetch_permissions(ctx, AclOperation.WRITE, ResourceType.TOPIC, names)


@handler(AddPartitionsToTxnRequest, prefetch_permissions=_prefetch_permissions)
def handle_add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, ctx: RequestContext
) -> AddPartitionsToTxnResponse | Later[AddPartitionsToTxnResponse]:
    """Answer for each transaction; below version 4 there is one, in the request's own fields."""
    if ctx.api_version < _FROM_BROKERS:
        transactions = [
            AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]
    else:
        if not may_act_as_node(ctx):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        transactions = request.transactions
        if not transactions:
            raise CloseConnection("AddPartitionsToTxn without a transaction, which Kafka never answers")
    results: dict[int, _TopicResults] = {}

    def answered(reply: Later[AddPartitionsToTxnResponse], index: int, topics: _TopicResults) -> None:
        results[index] = topics
        if len(results) < len(transactions):
            return
        if ctx.api_version < _FROM_BROKERS:
            reply.set(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0]))
            return
        reply.set(
            AddPartitionsToTxnResponse(
                results_by_transaction=[
                    AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=results[number])
                    for number, each in enumerate(transactions)
                ]
            )
        )

    def begin(reply: Later[AddPartitionsToTxnResponse]) -> None:
        for index, transaction in enumerate(transactions):
            _answer(transaction, ctx, partial(answered, reply, index))

    return Later(begin)


def _answer(
    transaction: AddPartitionsToTxnTransaction, ctx: RequestContext, on_answered: Callable[[_TopicResults], None]
) -> None:
    partitions = list(
        dict.fromkeys(TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions)
    )
    may_write: May | None = None
    if ctx.services.authorizer is not None and ctx.api_version < _FROM_BROKERS:
        if not may(ctx, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id):
            on_answered(_same_for_all(transaction, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
            return
        may_write = may_each(ctx, AclOperation.WRITE, ResourceType.TOPIC)
    refused = _refused(partitions, ctx, may_write)
    if refused:
        # One that cannot be added keeps the others from being added too.
        on_answered(_by_partition({each: refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions}))
        return
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        _verify(transaction.transactional_id, producer, partitions, ctx, on_answered)
        return
    client_version = TV_2 if ctx.api_version >= _FROM_BROKERS else TV_0

    added: Later[None] = Later()

    def on_added() -> None:
        code = ErrorCode.NONE if added.error is None else fenced_for(added.error.code, ctx.api_version >= 2)
        on_answered(_same_for_all(transaction, code))

    added.on_done(on_added)
    # Another broker tries again by itself, after its backoff; a client waits longer than that.
    transactions = ctx.services.transactions
    settings = transactions.settings
    from_client = ctx.api_version < _FROM_BROKERS
    patience_ms = settings.client_patience_ms if from_client else settings.add_partitions_retry_backoff_ms
    transactions.add_partitions(
        transaction.transactional_id, producer, partitions, client_version, added, patience_ms=patience_ms
    )


def _same_for_all(transaction: AddPartitionsToTxnTransaction, code: ErrorCode) -> _TopicResults:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                for index in topic.partitions
            ],
        )
        for topic in transaction.topics
    ]


def _refused(
    partitions: list[TopicPartition], ctx: RequestContext, may_write: May | None
) -> dict[TopicPartition, ErrorCode]:
    """Partitions that do not exist or that the principal may not write to, and those of internal topics, which no
    client may write to."""
    from_client = ctx.api_version < _FROM_BROKERS
    exists = ctx.services.metadata.image.topics.partition
    refused = {}
    for each in partitions:
        if (from_client and each.topic in INTERNAL_TOPICS) or (may_write is not None and not may_write(each.topic)):
            refused[each] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif exists(*each) is None:
            refused[each] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _verify(
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: list[TopicPartition],
    ctx: RequestContext,
    on_answered: Callable[[_TopicResults], None],
) -> None:
    def verify(core: TransactionCoordinator, now_ms: int) -> CoordinatorResult[dict[TopicPartition, ErrorCode]]:
        return CoordinatorResult(core.verify_partitions(transactional_id, producer, partitions))

    verified: Later[dict[TopicPartition, ErrorCode]] = Later()

    def on_verified() -> None:
        error = verified.error
        on_answered(_by_partition(verified.value if error is None else dict.fromkeys(partitions, error.code)))

    verified.on_done(on_verified)
    ctx.services.transactions.run_when_free(transactional_id, verify, verified, patience_ms=0)


def _by_partition(errors: Mapping[TopicPartition, ErrorCode]) -> list[AddPartitionsToTxnTopicResult]:
    """Each partition once, however often it was named."""
    return [
        AddPartitionsToTxnTopicResult(
            name=topic,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=errors[TopicPartition(topic, index)]
                )
                for index in indexes
            ],
        )
        for topic, indexes in partitions_by_topic(errors).items()
    ]


@handler(AddOffsetsToTxnRequest)
async def handle_add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, ctx: RequestContext
) -> AddOffsetsToTxnResponse | Later[AddOffsetsToTxnResponse]:
    """Add the group's partition of ``__consumer_offsets`` to the transaction, as any other partition."""
    services = ctx.services
    transactions = services.transactions

    def answer(error: ApiError | None) -> AddOffsetsToTxnResponse:
        code = ErrorCode.NONE if error is None else fenced_for(error.code, ctx.api_version >= 2)
        return AddOffsetsToTxnResponse(error_code=code)

    try:
        require_transactional_id(ctx, AclOperation.WRITE, request.transactional_id)
        require_group(ctx, AclOperation.READ, request.group_id)
        if not request.transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        await transactions.until_loaded(request.transactional_id)  # a refused request creates no topic
        await ensure_internal_topic(services, services.groups.TOPIC)
    except ApiError as error:
        return answer(error)
    index = services.groups.partition_for(request.group_id)
    if index is None:  # the topic has been deleted since
        return answer(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    partition = TopicPartition(services.groups.TOPIC, index)

    def begin(reply: Later[AddOffsetsToTxnResponse]) -> None:
        added: Later[None] = Later()
        added.on_done(lambda: reply.set(answer(added.error)))
        transactions.add_partitions(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            [partition],
            TV_0,
            added,
            patience_ms=transactions.settings.client_patience_ms,
        )

    return Later(begin)


_VERSION_2 = 5


@handler(EndTxnRequest)
def handle_end_txn(request: EndTxnRequest, ctx: RequestContext) -> EndTxnResponse | Later[EndTxnResponse]:
    """Answer when the decision is stored; the markers are written after that."""
    if not may(ctx, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    client_version = TV_2 if ctx.api_version >= _VERSION_2 else TV_0

    def end(core: TransactionCoordinator, now_ms: int) -> CoordinatorResult[ProducerIdAndEpoch]:
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        return core.end_transaction(request.transactional_id, producer, request.committed, client_version, now_ms)

    def begin(reply: Later[EndTxnResponse]) -> None:
        decided: Later[ProducerIdAndEpoch] = Later()

        def on_decided() -> None:
            if decided.error is not None:
                reply.set(EndTxnResponse(error_code=fenced_for(decided.error.code, ctx.api_version >= 2)))
            else:
                next_id, next_epoch = decided.value
                reply.set(EndTxnResponse(producer_id=next_id, producer_epoch=next_epoch))

        decided.on_done(on_decided)
        ctx.services.transactions.run_when_free(request.transactional_id, end, decided, patience_ms=0)

    return Later(begin)
