"""AlterConfigs: replace all properties of a resource (deprecated; old clients use it).

Served: 0 to 2. 2: flexible.
"""

from __future__ import annotations

from kbroker.handlers.common.config_changes import answers, change, is_forwarded, preprocess, resource_key
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.controller.configs import legacy_alter_configs
from kbroker.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse


@handler(AlterConfigsRequest)
async def handle(request: AlterConfigsRequest, ctx: RequestContext) -> AlterConfigsResponse:
    """Replace each resource's properties wholly or not at all."""
    good, errors = await preprocess(request.resources, ctx, lambda config: True)
    wanted = {resource_key(resource): {config.name: config.value for config in resource.configs} for resource in good}
    results = await change(
        wanted,
        AlterConfigsRequest(resources=good, validate_only=request.validate_only),
        ctx,
        lambda view, some: legacy_alter_configs(
            view, some, validate_only=request.validate_only, forwarded=is_forwarded(ctx)
        ),
    )
    return AlterConfigsResponse(
        responses=await answers(ctx, request.resources, errors, results, AlterConfigsResourceResponse)
    )
