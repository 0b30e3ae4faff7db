"""What IncrementalAlterConfigs and AlterConfigs share: all but what the change is. Not an API itself.

The broker that is asked makes checks of its own, and passes on to the active controller what is left
(``ConfigAdminManager``): the properties of a broker are changed by asking that broker, or a controller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import trio

from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers.context import RequestContext
from kbroker.handlers.forwarding import by_controller
from kbroker.handlers.metadata_common import error_fields
from kbroker.handlers.turns import Turns, portions
from kbroker.raft_metadata.controller.configs import ConfigControl, ConfigErrors
from kbroker.raft_metadata.controller.result import ControllerResult
from kbroker.raft_metadata.image import ConfigResource, ResourceType


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

_CHANGEABLE = frozenset({ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP})


def resource_key(resource: _Key) -> ConfigResource:
    """What a request's entry is about."""
    return ConfigResource(resource.resource_type, resource.resource_name)


async def change(
    changes: Mapping[ConfigResource, C],
    request: Any,
    ctx: RequestContext,
    operation: Callable[[ConfigControl, Mapping[ConfigResource, C]], ControllerResult[ConfigErrors]],
) -> ConfigErrors:
    """Have the active controller change resources, by ``request`` or, if this node is it, by ``operation``.

    That is done in portions, between which others have a turn: no resource has to do with another.
    """
    if not changes:
        return {}

    async def change_some(some: Mapping[ConfigResource, C]) -> ConfigErrors:
        done: ConfigErrors = await ctx.services.metadata.submit(
            lambda controller, now_ms: operation(controller.configs, some)
        )
        return done

    async def change_here() -> ConfigErrors:
        results: ConfigErrors = {}
        for resources in portions(changes):
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


def _codes(results: ConfigErrors) -> list[int]:
    return [ErrorCode.NONE if error is None else error.code for error in results.values()]


async def answers(
    resources: Iterable[_Key],
    errors: Mapping[int, ApiError],
    results: ConfigErrors,
    response_class: Callable[..., A],
) -> list[A]:
    """The entries of a response: for each resource the error of ``preprocess``, or what the controller said."""
    entries = []
    turns = Turns()
    for position, resource in enumerate(resources):
        await turns.next()
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
    """What the active controller, another node, says to each resource; None if it cannot be had."""
    response = await ctx.services.metadata.forward(request, ctx.header.api_version)
    if response is None:
        return None
    return {
        resource_key(each): ApiError(ErrorCode.of(each.error_code), each.error_message) if each.error_code else None
        for each in response.responses
    }


async def preprocess(
    resources: Iterable[R], ctx: RequestContext, needs_value: Callable[[_Named], bool]
) -> tuple[list[R], dict[int, ApiError]]:
    """The entries that may go to the controller, and the errors of the others by their position in the request."""
    listed = list(resources)
    node_id = None if ctx.connection.is_controller else ctx.services.node_id
    counts = Counter(resource_key(resource) for resource in listed)
    good: list[R] = []
    errors: dict[int, ApiError] = {}
    turns = Turns()
    for position, resource in enumerate(listed):
        await turns.next()
        try:
            if counts[resource_key(resource)] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            _check(resource, node_id, needs_value)
        except ApiError as error:
            errors[position] = error
        else:
            good.append(resource)
    return good, errors


def _check(resource: _Resource, node_id: int | None, needs_value: Callable[[_Named], bool]) -> None:
    names = [config.name for config in resource.configs]
    if len(set(names)) != len(names):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    null = [config.name for config in resource.configs if config.value is None and needs_value(config)]
    if null:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Null value not supported for : " + ", ".join(null))
    if resource.resource_type not in _CHANGEABLE:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    if resource.resource_type == ResourceType.BROKER and resource.resource_name:
        name = resource.resource_name
        try:
            broker_id = int(name)
        except ValueError:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None
        if node_id is not None and broker_id != node_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}")
