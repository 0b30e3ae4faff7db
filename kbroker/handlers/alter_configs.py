"""AlterConfigs: replace all properties of a resource (deprecated, old clients use it).

Served: 0 to 2. 2: flexible.
"""

from __future__ import annotations

from kbroker.errors import ApiError
from kbroker.handlers.config_changes import forward, preprocess, resource_key
from kbroker.handlers.context import RequestContext
from kbroker.handlers.metadata_common import error_fields
from kbroker.handlers.registration import BOTH, Versions, handler
from kbroker.raft_metadata.controller.configs import ConfigErrors
from kbroker.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

VERSIONS = Versions(0, 2)


@handler(AlterConfigsRequest, versions=VERSIONS, listeners=BOTH, forwards=True)
async def handle(request: AlterConfigsRequest, ctx: RequestContext) -> AlterConfigsResponse:
    """Replace each resource's properties wholly or not at all."""
    good, errors = preprocess(request.resources, ctx, lambda config: True)
    wanted = {resource_key(resource): {config.name: config.value for config in resource.configs} for resource in good}
    results: ConfigErrors | None = {}
    if wanted:
        left = AlterConfigsRequest(resources=good, validate_only=request.validate_only)
        results = await forward(left, ctx)
    if results is None:
        try:
            results = await ctx.services.metadata.submit(
                lambda controller, now_ms: controller.configs.legacy_alter(wanted, validate_only=request.validate_only)
            )
        except ApiError as error:
            results = dict.fromkeys(wanted, error)
    response = AlterConfigsResponse()
    for position, resource in enumerate(request.resources):
        code, message = error_fields(errors.get(position) or results.get(resource_key(resource)))
        response.responses.append(
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return response
