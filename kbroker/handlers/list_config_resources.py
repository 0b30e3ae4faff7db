"""ListConfigResources: which resources there are to describe (KIP-1142; version 0 was ListClientMetricsResources).

Served: 0 to 1. 1: all kinds of resources.
"""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.handlers.common.authorization import may_on_cluster
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.image import MetadataImage, ResourceType
from kbroker.security.authorizer.types import AclOperation
from kbroker.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_KINDS = (
    ResourceType.GROUP,
    ResourceType.CLIENT_METRICS,
    ResourceType.BROKER_LOGGER,
    ResourceType.BROKER,
    ResourceType.TOPIC,
)
"""In the order in which Kafka lists them, whatever that of the request."""


@handler(ListConfigResourcesRequest)
async def handle(request: ListConfigResourcesRequest, ctx: RequestContext) -> ListConfigResourcesResponse:
    """List the resources of the kinds asked for; of all kinds, if none is."""
    if not may_on_cluster(ctx, AclOperation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    kinds = [ResourceType.CLIENT_METRICS] if ctx.api_version == 0 else list(request.resource_types)
    if any(kind not in _KINDS for kind in kinds):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    image: MetadataImage = ctx.services.metadata.image
    found = [
        ConfigResource(resource_name=name, resource_type=kind)
        for kind in _KINDS
        if not kinds or kind in kinds
        for name in _names(image, kind)
    ]
    return ListConfigResourcesResponse(config_resources=found)


def _names(image: MetadataImage, kind: int) -> list[str]:
    if kind == ResourceType.TOPIC:
        return sorted(image.topics.by_name)
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(broker_id) for broker_id in sorted(image.brokers)]
    return sorted(resource.name for resource in image.configs.by_resource if resource.type == kind)
