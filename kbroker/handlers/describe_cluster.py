"""DescribeCluster: the nodes, and who controls them.

Served: 0 to 2. 1: of brokers or of controllers (KIP-919); 2: fenced brokers too (KIP-1073).
"""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.handlers.common.authorization import cluster_operations
from kbroker.handlers.common.cluster_permission import cluster_refusal
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.metadata_common import NOT_ASKED, reachable_brokers, some_broker_id
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.image import MetadataImage
from kbroker.raft_metadata.metadata_version import CONTROLLER_REGISTRATION
from kbroker.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_ENDPOINT_TYPES = {1: "BROKER", 2: "CONTROLLER"}


@handler(DescribeClusterRequest)
async def handle(request: DescribeClusterRequest, ctx: RequestContext) -> DescribeClusterResponse:
    """Describe the brokers to a client of a broker listener, the controllers to one of a controller listener."""
    refused = _refusal(request, ctx)
    if refused is not None:
        return refused
    image: MetadataImage = ctx.services.metadata.image
    if ctx.connection.is_controller:
        controller_id, nodes = image.controller_id, _controllers(image, ctx)
    else:
        controller_id, nodes = some_broker_id(image, ctx.services.node_id), _brokers(image, request, ctx)
    return DescribeClusterResponse(
        endpoint_type=request.endpoint_type,
        cluster_id=ctx.services.cluster_id,
        controller_id=controller_id,
        brokers=nodes,
        cluster_authorized_operations=(
            cluster_operations(ctx) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _refusal(request: DescribeClusterRequest, ctx: RequestContext) -> DescribeClusterResponse | None:
    """The answer to a client that may not ask, or asks a listener of the other kind."""
    wanted, here = request.endpoint_type, 2 if ctx.connection.is_controller else 1
    if here == 2:
        refused: DescribeClusterResponse | None = cluster_refusal(ctx, request)
        if refused is not None:
            return refused
    if wanted not in _ENDPOINT_TYPES:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=f"Unsupported endpoint type {wanted}"
        )
    if wanted != here:
        return DescribeClusterResponse(
            # Version 0 knows of no types, and it is the client's mistake to ask a controller in it.
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if ctx.api_version else ErrorCode.INVALID_REQUEST,
            error_message=f"The request was sent to an endpoint of type {_ENDPOINT_TYPES[here]}, but we wanted an "
            f"endpoint of type {_ENDPOINT_TYPES[wanted]}",
        )
    if here == 2 and ctx.services.metadata.image.features.metadata_version < CONTROLLER_REGISTRATION:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            error_message="Direct-to-controller communication is not supported with the current MetadataVersion.",
        )
    return None


def _controllers(image: MetadataImage, ctx: RequestContext) -> list[DescribeClusterBroker]:
    """The controllers that have the listener of the connection."""
    listener = ctx.connection.listener_name
    return [
        DescribeClusterBroker(
            broker_id=node_id,
            host=image.controllers[node_id].endpoints[listener].host,
            port=image.controllers[node_id].endpoints[listener].port,
        )
        for node_id in sorted(image.controllers)
        if listener in image.controllers[node_id].endpoints
    ]


def _brokers(image: MetadataImage, request: DescribeClusterRequest, ctx: RequestContext) -> list[DescribeClusterBroker]:
    """The brokers that have the listener of the connection, fenced ones if the request wants them."""
    return [
        DescribeClusterBroker(
            broker_id=found.broker.id,
            host=found.endpoint.host,
            port=found.endpoint.port,
            rack=found.broker.rack,
            is_fenced=found.broker.fenced,
        )
        for found in reachable_brokers(image, ctx.connection.listener_name, with_fenced=request.include_fenced_brokers)
    ]
