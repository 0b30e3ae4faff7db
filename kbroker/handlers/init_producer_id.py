"""InitProducerId (key 22): an id and epoch for an idempotent or transactional producer.

Served: 0 to 5. 2: flexible; 3: producer_id and epoch (KIP-360); 4: PRODUCER_FENCED; 5: as 4. With
``unstable.api.versions.enable`` also 6: two-phase commit (KIP-939), as far as Apache Kafka 4.3 and 4.4 have it.

Without a transactional id a fresh id is given, from a block that the controller has granted this broker. With one,
the transaction coordinator decides.
"""

from __future__ import annotations

from kbroker.cores.transactions.coordinator import ProducerIdAndEpoch
from kbroker.cores.transactions.transaction import NO_TIMEOUT_MS
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may_on_any, may_on_cluster, require_transactional_id
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.transactions import fenced_for
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation, ResourceType
from kbroker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


@handler(InitProducerIdRequest)
async def handle(request: InitProducerIdRequest, ctx: RequestContext) -> InitProducerIdResponse:
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
