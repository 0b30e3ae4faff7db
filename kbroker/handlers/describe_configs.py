"""DescribeConfigs: every property of topics, of this broker, of groups, and where each value comes from.

Served: 1 to 4. 1: synonyms and sources; 3: types and documentation; 4: flexible.
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.registration import BROKER, Versions, handler
from kbroker.raft_metadata.controller.schema import ConfigEntry, ConfigSchema
from kbroker.raft_metadata.controller.topic_names import validate_topic_name
from kbroker.raft_metadata.image import ConfigResource, MetadataImage, ResourceType
from kbroker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

VERSIONS = Versions(1, 4)


@handler(DescribeConfigsRequest, versions=VERSIONS, listeners=BROKER)
async def handle(request: DescribeConfigsRequest, ctx: RequestContext) -> DescribeConfigsResponse:
    """Describe each resource; one that cannot be described says why, and the others go on."""
    response = DescribeConfigsResponse()
    for resource in request.resources:
        result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            entries = _entries(resource, ctx.services, documentation=request.include_documentation)
        except ApiError as error:
            result.error_code = error.code
            result.error_message = error.message or ""
        else:
            keys = set(resource.configuration_keys or ())
            result.configs = [
                _shape(entry, synonyms=request.include_synonyms) for entry in entries if not keys or entry.name in keys
            ]
        response.results.append(result)
    return response


def _entries(resource: DescribeConfigsResource, services: Services, *, documentation: bool) -> list[ConfigEntry]:
    image: MetadataImage = services.metadata.image
    schema: ConfigSchema = services.metadata.schema
    name = resource.resource_name
    if resource.resource_type == ResourceType.TOPIC:
        validate_topic_name(name)
        if name not in image.topics.by_name:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return schema.topic_entries(image.configs, image.configs.for_topic(name), documentation=documentation)
    if resource.resource_type == ResourceType.BROKER:
        if not name:
            return schema.broker_default_entries(image.configs, documentation=documentation)
        if _broker_id(name) != services.node_id:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {services.node_id} or empty string, but received {name}",
            )
        return schema.broker_entries(image.configs, documentation=documentation)
    if resource.resource_type == ResourceType.GROUP:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        overrides = image.configs.get(ConfigResource(ResourceType.GROUP, name))
        return schema.group_entries(image.configs, overrides, documentation=documentation)
    if resource.resource_type == ResourceType.BROKER_LOGGER and not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    raise ApiError(
        ErrorCode.INVALID_REQUEST,
        f"Unsupported resource type: {ResourceType.NAMES.get(resource.resource_type, 'UNKNOWN')}",
    )


def _broker_id(name: str) -> int:
    try:
        return int(name)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None


def _shape(entry: ConfigEntry, *, synonyms: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in (entry.synonyms if synonyms else ())
        ],
        config_type=entry.type,
        documentation=entry.documentation,
    )
