"""DescribeConfigs: every property of topics, of this broker, of groups, and where each value comes from.

Served: 1 to 4. 1: synonyms and sources; 3: types and documentation; 4: flexible.
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.registration import handler
from kbroker.handlers.turns import Turns
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

MOST_ENTRIES = 200_000
"""Properties in one answer: those of five thousand topics (an eighth of them with their documentation). Six bytes of a
request ask for all those of a broker, of which there are hundreds, and may do so again and again."""

_PARTS = 8
"""A resource takes as long as so many parts of other requests."""


@handler(DescribeConfigsRequest)
async def handle(request: DescribeConfigsRequest, ctx: RequestContext) -> DescribeConfigsResponse:
    """Describe each resource; one that cannot be described says why, and the others go on."""
    response = DescribeConfigsResponse()
    # Most properties have their defaults, of one resource as of the next: these are shaped once.
    shaped: dict[ConfigEntry, DescribeConfigsResourceResult] = {}
    room = MOST_ENTRIES
    turns = Turns()
    for resource in request.resources:
        await turns.next(_PARTS)
        result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        response.results.append(result)
        try:
            if room <= 0:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"More than {MOST_ENTRIES} properties in one request")
            entries = _entries(resource, ctx.services, documentation=request.include_documentation)
        except ApiError as error:
            result.error_code = error.code
            result.error_message = error.message or ""
            continue
        keys = set(resource.configuration_keys or ())
        configs = result.configs
        for entry in entries:
            if not keys or entry.name in keys:
                one = shaped.get(entry)
                if one is None:
                    one = shaped[entry] = _shape(entry, synonyms=request.include_synonyms)
                configs.append(one)
        room -= len(configs) * (8 if request.include_documentation else 1)
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
