"""DescribeConfigs: the properties of a resource and the sources of their values; levels of this node's loggers.

Each node reads its own metadata; a controller serves clients of its own listener too (KIP-919).
Served: 1 to 4. 1: synonyms and sources; 3: types and documentation; 4: flexible.
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may, may_on_cluster
from kbroker.handlers.common.context import RequestContext, Services
from kbroker.handlers.common.fair_share import FairShare
from kbroker.handlers.common.metadata_common import standard_message
from kbroker.handlers.registration import handler
from kbroker.raft_metadata.config_entries import (
    DYNAMIC_BROKER_LOGGER_CONFIG,
    ConfigEntry,
    broker_default_entries,
    broker_entries,
    client_metrics_entries,
    group_entries,
    topic_entries,
)
from kbroker.raft_metadata.image import ConfigResource, ResourceType
from kbroker.raft_metadata.topics import validate_topic_name
from kbroker.security.authorizer.types import AclOperation
from kbroker.security.authorizer.types import ResourceType as AclResourceType
from kbroker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

_PARTS = 8
"""The time that a resource takes, in parts of other requests."""


@handler(DescribeConfigsRequest)
async def handle(request: DescribeConfigsRequest, ctx: RequestContext) -> DescribeConfigsResponse:
    """Describe each resource, or report the error of one that cannot be described.

    As in Kafka, resources that the principal may not see come last.
    """
    response = DescribeConfigsResponse()
    denied: list[DescribeConfigsResult] = []
    # Most properties of all resources have their defaults: each of these is shaped once.
    shaped: dict[ConfigEntry, DescribeConfigsResourceResult] = {}
    room = most = ctx.budgets.described_properties
    share = FairShare(ctx)
    for resource in request.resources:
        await share.next(_PARTS)
        result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        code = _denial(resource, ctx)
        if code is not None:
            result.error_code, result.error_message = code, standard_message(code)
            denied.append(result)
            continue
        response.results.append(result)
        try:
            if room <= 0:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"More than {most} properties in one request")
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
    response.results += denied
    return response


def _denial(resource: DescribeConfigsResource, ctx: RequestContext) -> ErrorCode | None:
    """The error of a resource whose properties the principal may not see; None if they may."""
    if ctx.services.authorizer is None:
        return None
    kind, operation = resource.resource_type, AclOperation.DESCRIBE_CONFIGS
    if kind == ResourceType.TOPIC:
        allowed = may(ctx, operation, AclResourceType.TOPIC, resource.resource_name)
        return None if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if kind == ResourceType.GROUP:
        allowed = may(ctx, operation, AclResourceType.GROUP, resource.resource_name)
        return None if allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED
    # Of unknown kinds nothing is told but that they are unknown.
    is_known = kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER, ResourceType.CLIENT_METRICS)
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED if is_known and not may_on_cluster(ctx, operation) else None


def _entries(resource: DescribeConfigsResource, services: Services, *, documentation: bool) -> list[ConfigEntry]:
    image = services.metadata.image
    schema = services.metadata.schema
    name = resource.resource_name
    if resource.resource_type == ResourceType.TOPIC:
        validate_topic_name(name)
        if name not in image.topics.by_name:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic_entries(schema, image.configs, image.configs.for_topic(name), documentation=documentation)
    if resource.resource_type == ResourceType.BROKER:
        if not name:
            return broker_default_entries(schema, image.configs, documentation=documentation)
        if _broker_id(name) != services.node_id:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {services.node_id} or empty string, but received {name}",
            )
        return broker_entries(schema, image.configs, documentation=documentation)
    if resource.resource_type == ResourceType.GROUP:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        overrides = image.configs.get(ConfigResource(ResourceType.GROUP, name))
        return group_entries(schema, image.configs, overrides, documentation=documentation)
    if resource.resource_type == ResourceType.CLIENT_METRICS:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        overrides = image.configs.get(ConfigResource(ResourceType.CLIENT_METRICS, name))
        return client_metrics_entries(overrides, documentation=documentation)
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        if _broker_id(name) != services.node_id:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {services.node_id} but received {name}"
            )
        return _logger_entries()
    raise ApiError(
        ErrorCode.INVALID_REQUEST,
        f"Unsupported resource type: {ResourceType.NAMES.get(resource.resource_type, 'UNKNOWN')}",
    )


def _logger_entries() -> list[ConfigEntry]:
    from kbroker.handlers.common.broker_loggers import log_levels

    return [
        ConfigEntry(name, level, DYNAMIC_BROKER_LOGGER_CONFIG, False, False, (), 0, "")
        for name, level in log_levels().items()
    ]


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
