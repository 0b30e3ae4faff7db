"""The common part of IncrementalAlterConfigs and AlterConfigs, for any kind of change. Not an API itself.

The broker checks a request itself, and passes valid entries on to the active controller (``ConfigAdminManager``). A
broker's own properties are changed through that broker, or through a controller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.common.authorization import may, may_on_cluster
from kbroker.handlers.common.context import ForwardedContext, RequestContext
from kbroker.handlers.common.fair_share import FairShare, portions
from kbroker.handlers.common.forwarding import by_controller
from kbroker.handlers.common.metadata_common import error_fields, standard_message
from kbroker.raft_metadata.controller.configs import SET, ConfigErrors
from kbroker.raft_metadata.controller.view import ControllerResult, ControllerView
from kbroker.raft_metadata.image import ConfigResource, ResourceType
from kbroker.security.authorizer.types import CLUSTER_NAME, AclOperation
from kbroker.security.authorizer.types import ResourceType as Resources


class _Named(Protocol):
    name: str
    value: str | None


class _Key(Protocol):
    resource_type: int
    resource_name: str


class _Resource(_Key, Protocol):
    @property
    def configs(self) -> Sequence[_Named]: ...


A = TypeVar("A")
C = TypeVar("C")
R = TypeVar("R", bound=_Resource)

_CHANGEABLE = frozenset({ResourceType.TOPIC, ResourceType.BROKER, ResourceType.CLIENT_METRICS, ResourceType.GROUP})


_DENIED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.BROKER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.CLIENT_METRICS: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


def resource_key(resource: _Key) -> ConfigResource:
    """The resource of a request's entry."""
    return ConfigResource(resource.resource_type, resource.resource_name)


async def change(
    changes: Mapping[ConfigResource, C],
    request: object,
    ctx: RequestContext,
    operation: Callable[[ControllerView, Mapping[ConfigResource, C]], ControllerResult[ConfigErrors]],
) -> ConfigErrors:
    """Have the active controller change resources: by ``request``, or by ``operation`` if that is this node.

    The operation runs on portions of the resources, which are independent; other tasks run in between. Only the active
    controller asks the authorizer, but for brokers, as in Apache Kafka.
    """
    if not changes:
        return {}

    async def change_some(some: Mapping[ConfigResource, C]) -> ConfigErrors:
        done: ConfigErrors = await ctx.services.metadata.submit(lambda view: operation(view, some))
        return done

    async def change_here() -> ConfigErrors:
        results = _denials(changes, ctx)
        for resources in portions(ctx, [resource for resource in changes if resource not in results]):
            some = {resource: changes[resource] for resource in resources}
            try:
                results |= await change_some(some)
            except ApiError as error:
                results |= dict.fromkeys(some, error)
            if len(some) < len(changes):
                await trio.lowlevel.checkpoint()
        return results

    if ctx.connection.is_controller:
        return await change_here()
    return await by_controller(ctx.services.metadata, lambda: _forward(request, ctx), change_here, _codes)


def is_forwarded(ctx: RequestContext) -> bool:
    """Whether a broker has judged the request: one that has passed it on, or this node's own."""
    return isinstance(ctx, ForwardedContext) or not ctx.connection.is_controller


def _denials(resources: Iterable[ConfigResource], ctx: RequestContext) -> ConfigErrors:
    """The errors of resources that the request's principal may not change (``ControllerApis``)."""
    if ctx.authorizer is None:
        return {}
    denied: ConfigErrors = {}
    for resource in resources:
        if not _may_alter(resource, ctx):
            code = _DENIED[resource.type]
            denied[resource] = ApiError(code, standard_message(code))
    return denied


def _may_alter(resource: ConfigResource, ctx: RequestContext) -> bool:
    operation = AclOperation.ALTER_CONFIGS
    if resource.type == ResourceType.TOPIC:
        return may(ctx, operation, Resources.TOPIC, resource.name)
    if resource.type == ResourceType.GROUP:
        return may(ctx, operation, Resources.GROUP, resource.name)
    return may_on_cluster(ctx, operation)


def _may_alter_brokers(ctx: RequestContext) -> bool:
    return may_on_cluster(ctx, AclOperation.ALTER_CONFIGS)


def _codes(results: ConfigErrors) -> list[int]:
    return [ErrorCode.NONE if error is None else error.code for error in results.values()]


async def answers(
    ctx: RequestContext,
    resources: Iterable[_Key],
    errors: Mapping[int, ApiError],
    results: ConfigErrors,
    response_class: Callable[..., A],
) -> list[A]:
    """The entries of a response: for each resource the error of ``preprocess``, or the controller's."""
    entries = []
    share = FairShare(ctx)
    for position, resource in enumerate(resources):
        await share.next()
        code, message = error_fields(errors.get(position) or results.get(resource_key(resource)))
        entries.append(
            response_class(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return entries


async def _forward(request: Any, ctx: RequestContext) -> ConfigErrors | None:
    """The error of each resource by the active controller, another node; None if it cannot be reached."""
    response = await ctx.services.metadata.forward(request, ctx)
    if response is None:
        return None
    return {
        resource_key(each): ApiError(ErrorCode.of(each.error_code), each.error_message) if each.error_code else None
        for each in response.responses
    }


async def preprocess(
    resources: Iterable[R],
    ctx: RequestContext,
    needs_value: Callable[[_Named], bool],
    alter_loggers: Callable[[R], None] | None = None,
) -> tuple[list[R], dict[int, ApiError]]:
    """The entries for the controller, and the errors of the others by their position in the request.

    ``alter_loggers`` changes a BROKER_LOGGER, which is not the controller's business.
    """
    listed = list(resources)
    node_id = None if ctx.connection.is_controller else ctx.services.node_id
    counts = Counter(resource_key(resource) for resource in listed)
    good: list[R] = []
    errors: dict[int, ApiError] = {}
    share = FairShare(ctx)
    for position, resource in enumerate(listed):
        await share.next()
        try:
            if counts[resource_key(resource)] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            _check_values(resource, needs_value)
            if alter_loggers is not None and resource.resource_type == ResourceType.BROKER_LOGGER:
                alter_loggers(resource)
                continue
            if node_id is not None and resource.resource_type == ResourceType.BROKER and not _may_alter_brokers(ctx):
                # Before anything is judged: the reason would tell of this node's configuration (as from 4.4 on).
                raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            _check_name(resource, node_id)
            if resource.resource_type == ResourceType.BROKER:
                await _check_own(resource, ctx)
        except ApiError as error:
            errors[position] = error
        else:
            good.append(resource)
    return good, errors


async def _check_own(resource: _Resource, ctx: RequestContext) -> None:
    """Have this node judge properties of its own listeners and directories, which others cannot.

    Only for those who may set them: to anybody else it would tell which files there are.
    """
    services = ctx.services
    if services.check_own_configs is None or resource.resource_name != str(services.node_id):
        return
    changes = {
        config.name: (getattr(config, "config_operation", SET), config.value or "") for config in resource.configs
    }
    if changes and may(ctx, AclOperation.ALTER_CONFIGS, Resources.CLUSTER, CLUSTER_NAME, audits_denial=False):
        await services.check_own_configs(changes)


def _check_values(resource: _Resource, needs_value: Callable[[_Named], bool]) -> None:
    names = [config.name for config in resource.configs]
    if len(set(names)) != len(names):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    null = [config.name for config in resource.configs if config.value is None and needs_value(config)]
    if null:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Null value not supported for : " + ", ".join(null))


def _check_name(resource: _Resource, node_id: int | None) -> None:
    if resource.resource_type not in _CHANGEABLE:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    if resource.resource_type == ResourceType.BROKER and resource.resource_name and node_id is not None:
        name = resource.resource_name
        try:
            broker_id = int(name)
        except ValueError:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None
        if broker_id != node_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}")
