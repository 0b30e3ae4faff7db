"""DescribeCluster: the nodes, and who controls them.

Served: 0 to 2. 1: of brokers or of controllers (KIP-919); 2: fenced brokers too (KIP-1073).
"""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.handlers.authorization import cluster_operations
from kbroker.handlers.cluster_permission import cluster_refusal
from kbroker.handlers.context import RequestContext
from kbroker.handlers.metadata_common import NOT_ASKED, reachable_brokers, some_broker_id
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
    expected = 2 if ctx.connection.is_controller else 1
    if expected == 2:
        refused: DescribeClusterResponse | None = cluster_refusal(ctx, request)
        if refused is not None:
            return refused
    wanted = request.endpoint_type
    if wanted not in _ENDPOINT_TYPES:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {wanted}",
        )
    if wanted != expected:
        return DescribeClusterResponse(
            # Version 0 knows of no types, and it is the client's mistake to ask a controller in it.
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if ctx.api_version else ErrorCode.INVALID_REQUEST,
            error_message=f"The request was sent to an endpoint of type {_ENDPOINT_TYPES[expected]}, but we wanted an "
            f"endpoint of type {_ENDPOINT_TYPES[wanted]}",
        )
    image: MetadataImage = ctx.services.metadata.image
    listener = ctx.connection.listener_name
    if expected == 2 and image.features.metadata_version < CONTROLLER_REGISTRATION:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            error_message="Direct-to-controller communication is not supported with the current MetadataVersion.",
        )
    if expected == 2:
        controller_id = image.controller_id
        nodes = [
            DescribeClusterBroker(
                broker_id=node_id,
                host=image.controllers[node_id].endpoints[listener].host,
                port=image.controllers[node_id].endpoints[listener].port,
            )
            for node_id in sorted(image.controllers)
            if listener in image.controllers[node_id].endpoints
        ]
    else:
        controller_id = some_broker_id(image, ctx.services.node_id)
        nodes = [
            DescribeClusterBroker(
                broker_id=found.broker.id,
                host=found.endpoint.host,
                port=found.endpoint.port,
                rack=found.broker.rack,
                is_fenced=found.broker.fenced,
            )
            for found in reachable_brokers(image, listener, with_fenced=request.include_fenced_brokers)
        ]
    return DescribeClusterResponse(
        endpoint_type=wanted,
        cluster_id=ctx.services.cluster_id,
        controller_id=controller_id,
        brokers=nodes,
        cluster_authorized_operations=(
            cluster_operations(ctx) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
