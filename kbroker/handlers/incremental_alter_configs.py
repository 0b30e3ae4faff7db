"""IncrementalAlterConfigs: set, delete, append to and subtract from single properties (KIP-339).

Served: 0 to 1. 1: flexible.
"""

from __future__ import annotations

from kbroker.errors import ApiError
from kbroker.handlers.config_changes import forward, preprocess, resource_key
from kbroker.handlers.context import RequestContext
from kbroker.handlers.metadata_common import error_fields
from kbroker.handlers.registration import BOTH, Versions, handler
from kbroker.raft_metadata.controller.configs import DELETE, ConfigChange, ConfigErrors
from kbroker.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

VERSIONS = Versions(0, 1)


@handler(IncrementalAlterConfigsRequest, versions=VERSIONS, listeners=BOTH, forwards=True)
async def handle(request: IncrementalAlterConfigsRequest, ctx: RequestContext) -> IncrementalAlterConfigsResponse:
    """Change each resource wholly or not at all."""
    good, errors = preprocess(
        request.resources,
        ctx,
        lambda config: getattr(config, "config_operation", DELETE) != DELETE,
    )
    changes = {
        resource_key(resource): [
            ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs
        ]
        for resource in good
    }
    results: ConfigErrors | None = {}
    if changes:
        left = IncrementalAlterConfigsRequest(resources=good, validate_only=request.validate_only)
        results = await forward(left, ctx)
    if results is None:
        try:
            results = await ctx.services.metadata.submit(
                lambda controller, now_ms: controller.configs.incremental_alter(
                    changes, validate_only=request.validate_only
                )
            )
        except ApiError as error:
            results = dict.fromkeys(changes, error)
    response = IncrementalAlterConfigsResponse()
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
