"""Configs of topics, brokers, groups and client metrics: described, listed and altered.

DescribeConfigs: the properties of a resource and the sources of their values; levels of this node's loggers.

Each node reads its own metadata; a controller serves clients of its own listener too (KIP-919).
Served: 1 to 4. 1: synonyms and sources; 3: types and documentation; 4: flexible.

AlterConfigs: replace all properties of a resource (deprecated; old clients use it).
Served: 0 to 2. 2: flexible.

IncrementalAlterConfigs: set, delete, append to and subtract from single properties (KIP-339).
Served: 0 to 1. 1: flexible.

ListConfigResources: which resources there are to describe (KIP-1142; version 0 was ListClientMetricsResources).
Served: 0 to 1. 1: all kinds of resources.
"""

from __future__ import annotations

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may, may_on_cluster
from kbroker.handlers.common.broker_loggers import alter_log_levels
from kbroker.handlers.common.config_changes import answers, change, is_forwarded, preprocess, resource_key
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
from kbroker.raft_metadata.controller.configs import (
    DELETE,
    ConfigChange,
    incremental_alter_configs,
    legacy_alter_configs,
)
from kbroker.raft_metadata.image import ConfigResource, MetadataImage, ResourceType
from kbroker.raft_metadata.topics import validate_topic_name
from kbroker.security.authorizer.types import AclOperation
from kbroker.security.authorizer.types import ResourceType as AclResourceType
from kbroker.wire.messages import configs as wire
from kbroker.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_PARTS = 8
"""The time that a resource takes, in parts of other requests."""


@handler(DescribeConfigsRequest)
async def handle_describe_configs(request: DescribeConfigsRequest, ctx: RequestContext) -> DescribeConfigsResponse:
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


@handler(AlterConfigsRequest)
async def handle_alter_configs(request: AlterConfigsRequest, ctx: RequestContext) -> AlterConfigsResponse:
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


@handler(IncrementalAlterConfigsRequest)
async def handle_incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, ctx: RequestContext
) -> IncrementalAlterConfigsResponse:
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


def _alter_loggers(resource: IncrementalAlterConfigsResource, ctx: RequestContext, *, validate_only: bool) -> None:
    """Levels are the node's own, so it asks the authorizer itself: as in Kafka, for one thing on a listener of brokers,
    and for another on one of controllers. ``ApiError``."""
    is_controller = ctx.connection.is_controller
    if not may_on_cluster(ctx, AclOperation.CLUSTER_ACTION if is_controller else AclOperation.ALTER_CONFIGS):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        # A controller says it in words too, a broker does not.
        raise ApiError(code, standard_message(code) if is_controller else None)
    alter_log_levels(resource, ctx.services.node_id, validate_only=validate_only)


_KINDS = (
    ResourceType.GROUP,
    ResourceType.CLIENT_METRICS,
    ResourceType.BROKER_LOGGER,
    ResourceType.BROKER,
    ResourceType.TOPIC,
)
"""In the order in which Kafka lists them, whatever that of the request."""


@handler(ListConfigResourcesRequest)
async def handle_list_config_resources(
    request: ListConfigResourcesRequest, ctx: RequestContext
) -> ListConfigResourcesResponse:
    """List the resources of the kinds asked for; of all kinds, if none is."""
    if not may_on_cluster(ctx, AclOperation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    kinds = [ResourceType.CLIENT_METRICS] if ctx.api_version == 0 else list(request.resource_types)
    if any(kind not in _KINDS for kind in kinds):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    image: MetadataImage = ctx.services.metadata.image
    found = [
        wire.ConfigResource(resource_name=name, resource_type=kind)
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
