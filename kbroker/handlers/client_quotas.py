"""Clients' quotas: described and altered.

DescribeClientQuotas: the quotas that are set for users, client ids and addresses (KIP-546).
Served: 0 to 1. 1: flexible.

AlterClientQuotas: quotas of users, client ids and addresses are set and removed (KIP-546).
Served: 0 to 1. 1: flexible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may_on_cluster
from kbroker.handlers.common.cluster_permission import cluster_denial
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.metadata_common import standard_message
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.client_quotas import Entity, QuotaAlteration, alter_client_quotas
from kbroker.security.authorizer.types import AclOperation
from kbroker.security.quotas.entities import CLIENT_ID, IP, USER
from kbroker.wire.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedEntryData,
    EntityData,
    ResponseEntryData,
    ValueData,
)

_EXACT = 0
_DEFAULT = 1
_SPECIFIED = 2

Matches = Callable[["str | None"], bool]


@handler(DescribeClientQuotasRequest)
async def handle_describe_client_quotas(
    request: DescribeClientQuotasRequest, ctx: RequestContext
) -> DescribeClientQuotasResponse:
    """List the entities that have all the components of the filter; only those, if it is strict."""
    denial = cluster_denial(ctx)
    if denial is not None:
        return _refused(denial.code, None)
    try:
        wanted = _filter(request.components)
    except ApiError as error:
        return _refused(error.code, error.message)
    entries = []
    for entity, quotas in sorted(ctx.services.metadata.image.principals.client_quotas.items(), key=_order):
        names = dict(entity)
        if request.strict and names.keys() != wanted.keys():
            continue
        if all(kind in names and matches(names[kind]) for kind, matches in wanted.items()):
            entries.append(
                DescribedEntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    values=[ValueData(key=key, value=value) for key, value in quotas.items()],
                )
            )
    return DescribeClientQuotasResponse(error_message="", entries=entries)  # as Kafka, which sets none


def _order(item: tuple[tuple[tuple[str, str | None], ...], object]) -> list[tuple[str, str]]:
    return [(kind, name or "") for kind, name in item[0]]


def _filter(components: list[ComponentData]) -> dict[str, Matches]:
    """Entity type -> the names that are meant (``ClientQuotasImage.describe``).

    ``ApiError`` for a filter that means nothing.
    """
    wanted: dict[str, Matches] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in wanted:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        wanted[kind] = _matches(component)
    if IP in wanted and len(wanted) > 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component.",
        )
    return wanted


def _matches(component: ComponentData) -> Matches:
    match = component.match
    if component.match_type == _EXACT:
        if match is None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null."
            )
        return lambda name: name == match
    if component.match_type not in (_DEFAULT, _SPECIFIED):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
    if match is not None:
        kind = "DEFAULT" if component.match_type == _DEFAULT else "SPECIFIED"
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Request specified MATCH_TYPE_{kind}, but also specified a match string."
        )
    return (lambda name: name is None) if component.match_type == _DEFAULT else (lambda name: True)


def _refused(code: ErrorCode, message: str | None) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


@handler(AlterClientQuotasRequest)
async def handle_alter_client_quotas(
    request: AlterClientQuotasRequest, ctx: RequestContext
) -> AlterClientQuotasResponse:
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


def _entity(entry: AlteredEntryData) -> Entity:
    """An entry's entity; of a type that is named twice the last name counts, as in Kafka."""
    return tuple(sorted({each.entity_type: each.entity_name for each in entry.entity}.items()))


def _answer(entity: Entity, error: ApiError | None) -> ResponseEntryData:
    return ResponseEntryData(
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.message,
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
    )
