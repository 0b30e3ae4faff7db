"""AlterClientQuotas: quotas of users, client ids and addresses are set and removed (KIP-546).

Served: 0 to 1. 1: flexible.
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may_on_cluster
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.metadata_common import standard_message
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.client_quotas import Entity, QuotaAlteration, alter_client_quotas
from kbroker.security.authorizer.types import AclOperation
from kbroker.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    ResponseEntityData,
    ResponseEntryData,
)


@handler(AlterClientQuotasRequest)
async def handle(request: AlterClientQuotasRequest, ctx: RequestContext) -> AlterClientQuotasResponse:
    """Change each entity's quotas, or say why not."""
    alterations = [
        QuotaAlteration(_entity(entry), [(op.key, None if op.remove else op.value) for op in entry.ops])
        for entry in request.entries
    ]
    if not may_on_cluster(ctx, AclOperation.ALTER_CONFIGS):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return AlterClientQuotasResponse(
            entries=[_answer(each.entity, ApiError(code, standard_message(code))) for each in alterations]
        )
    outcomes: Mapping[Entity, ApiError | None]
    try:
        outcomes = await ctx.services.metadata.submit(
            lambda view: alter_client_quotas(view, alterations, validate_only=request.validate_only)
        )
    except ApiError as error:
        outcomes = dict.fromkeys((each.entity for each in alterations), error)
    return AlterClientQuotasResponse(entries=[_answer(entity, error) for entity, error in outcomes.items()])


def _entity(entry: EntryData) -> Entity:
    """An entry's entity; of a type that is named twice the last name counts, as in Kafka."""
    return tuple(sorted({each.entity_type: each.entity_name for each in entry.entity}.items()))


def _answer(entity: Entity, error: ApiError | None) -> ResponseEntryData:
    return ResponseEntryData(
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.message,
        entity=[ResponseEntityData(entity_type=kind, entity_name=name) for kind, name in entity],
    )
