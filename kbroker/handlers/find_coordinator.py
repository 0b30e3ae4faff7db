"""FindCoordinator (key 10): which node coordinates a group, a transactional id or the state of a share partition.

Served: 0 to 6. 1: key type; 4: several keys at once (KIP-699); 5, 6: newer error codes and share groups.
A key type that the broker does not know is answered with INVALID_REQUEST.
"""

from __future__ import annotations

from typing import Protocol

from kbroker.cores.share_state import SharePartitionKey
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may_act_as_node, require_group, require_transactional_id
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.common.internal_topics import ensure_internal_topic
from kbroker.handlers.common.metadata_common import standard_message
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation
from kbroker.value_types import NamedTuple
from kbroker.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_GROUP = 0
_TRANSACTION = 1
_SHARE = 2

_SHARE_SINCE = 6
"""The first version with share groups."""


class Coordinates(Protocol):
    """A coordinator, as the question for it sees it."""

    @property
    def TOPIC(self) -> str: ...

    def partition_for(self, key: str) -> int | None: ...


class _Node(NamedTuple):
    id: int = -1
    host: str = ""
    port: int = -1


@handler(FindCoordinatorRequest)
async def handle(request: FindCoordinatorRequest, ctx: RequestContext) -> FindCoordinatorResponse:
    """Find each key's coordinator; the topic that holds its records is made at the first question."""
    keys = request.coordinator_keys if ctx.api_version >= 4 else [request.key]
    coordinators = []
    share = FairShare(ctx)
    for key in keys:
        await share.next()
        node, error = _Node(), ErrorCode.NONE
        message: str | None = ""
        try:
            node = await _coordinator(request.key_type, key, ctx)
        except ApiError as failure:
            error, message = failure.code, failure.message
        coordinators.append(
            Coordinator(
                key=key, node_id=node.id, host=node.host, port=node.port, error_code=error, error_message=message
            )
        )
    if ctx.api_version >= 4:
        return FindCoordinatorResponse(coordinators=coordinators)
    only = coordinators[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        # Kafka's answer to one key spells out that there is no error.
        error_message=only.error_message if only.error_code else ErrorCode.NONE.name,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _authorize(key_type: int, key: str, ctx: RequestContext) -> None:
    """`ApiError` if the principal may not know of the key. As in Kafka, it has a message below version 4, and where all
    keys are refused together."""
    try:
        if key_type == _GROUP:
            require_group(ctx, AclOperation.DESCRIBE, key)
        elif key_type == _TRANSACTION:
            require_transactional_id(ctx, AclOperation.DESCRIBE, key)
        elif key_type == _SHARE and ctx.api_version >= _SHARE_SINCE:
            if not may_act_as_node(ctx):
                raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    except ApiError as error:
        raise ApiError(
            error.code, standard_message(error.code) if ctx.api_version < 4 or key_type == _SHARE else ""
        ) from None


async def _coordinator(key_type: int, key: str, ctx: RequestContext) -> _Node:
    _authorize(key_type, key, ctx)
    services = ctx.services
    coordinator: Coordinates
    if key_type == _SHARE:
        if services.share_groups is None or ctx.api_version < _SHARE_SINCE:
            raise ApiError(ErrorCode.INVALID_REQUEST, "")
        try:
            key = str(SharePartitionKey.parse(key))
        except ValueError:
            raise ApiError(ErrorCode.INVALID_REQUEST, "") from None
        coordinator = services.share_groups().coordinators
    elif key_type == _GROUP:
        coordinator = services.groups
    elif key_type == _TRANSACTION:
        coordinator = services.transactions
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, "this broker has no coordinator of that type")
    await ensure_internal_topic(services, coordinator.TOPIC)
    if services.replica_manager.fetchers is not None:
        await services.replica_manager.fetchers.until_clear()
    topic = services.metadata.image.topics.by_name.get(coordinator.TOPIC)
    if topic is None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    index = coordinator.partition_for(key)
    assigned = None if index is None else topic.partitions.get(index)
    if assigned is None or assigned.leader < 0:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    broker = services.metadata.image.brokers.get(assigned.leader)
    endpoint = broker.endpoints.get(ctx.connection.listener_name) if broker is not None else None
    if endpoint is None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _Node(assigned.leader, endpoint.host, endpoint.port)
