"""IncrementalAlterConfigs: set, delete, append to and subtract from single properties (KIP-339).

Served: 0 to 1. 1: flexible.
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may_on_cluster
from kbroker.handlers.common.broker_loggers import alter_log_levels
from kbroker.handlers.common.config_changes import answers, change, is_forwarded, preprocess, resource_key
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.common.metadata_common import standard_message
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.configs import DELETE, ConfigChange, incremental_alter_configs
from kbroker.security.authorizer.types import AclOperation
from kbroker.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


@handler(IncrementalAlterConfigsRequest)
async def handle(request: IncrementalAlterConfigsRequest, ctx: RequestContext) -> IncrementalAlterConfigsResponse:
    """Change each resource wholly or not at all."""
    good, errors = await preprocess(
        request.resources,
        ctx,
        lambda config: getattr(config, "config_operation", DELETE) != DELETE,
        lambda resource: _alter_loggers(resource, ctx, validate_only=request.validate_only),
    )
    changes = {
        resource_key(resource): [
            ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs
        ]
        for resource in good
    }
    results = await change(
        changes,
        IncrementalAlterConfigsRequest(resources=good, validate_only=request.validate_only),
        ctx,
        lambda view, some: incremental_alter_configs(
            view, some, validate_only=request.validate_only, forwarded=is_forwarded(ctx)
        ),
    )
    return IncrementalAlterConfigsResponse(
        responses=await answers(ctx, request.resources, errors, results, AlterConfigsResourceResponse)
    )


def _alter_loggers(resource: AlterConfigsResource, ctx: RequestContext, *, validate_only: bool) -> None:
    """Levels are the node's own, so it asks the authorizer itself: as in Kafka, for one thing on a listener of brokers,
    and for another on one of controllers. ``ApiError``."""
    is_controller = ctx.connection.is_controller
    if not may_on_cluster(ctx, AclOperation.CLUSTER_ACTION if is_controller else AclOperation.ALTER_CONFIGS):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        # A controller says it in words too, a broker does not.
        raise ApiError(code, standard_message(code) if is_controller else None)
    alter_log_levels(resource, ctx.services.node_id, validate_only=validate_only)
