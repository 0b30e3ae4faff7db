"""Configs of topics, brokers, groups: reading them with their sources, and changing them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from kbroker.client.cluster import Client, refuse
from kbroker.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)


class ResourceType(IntEnum):
    """The kinds of resources that have configs; the numbers are those of the protocol (``ConfigResource.Type``)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value comes from (``DescribeConfigsResponse.ConfigSource``)."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class Operation(IntEnum):
    """The effect of an alteration on a value (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_RESOURCES = 500
"""Resources in one request: a broker answers for so many at once."""

_TYPES = ("unknown", "boolean", "string", "int", "short", "long", "double", "list", "class", "password")


@dataclass(frozen=True, slots=True)
class Synonym:
    """A value that would be used if those before it were not set."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A config as a broker describes it. ``value`` is None when it is sensitive, or null."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    type: str
    documentation: str | None
    synonyms: tuple[Synonym, ...]

    @property
    def is_default(self) -> bool:
        return self.source == ConfigSource.DEFAULT_CONFIG.name


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """The change of a property. ``value`` has no meaning when ``operation`` deletes the property."""

    name: str
    operation: Operation
    value: str | None = None


def describe_configs(
    client: Client, kind: ResourceType, name: str, *, keys: Sequence[str] | None = None, documentation: bool = False
) -> list[ConfigEntry]:
    """The configs of one resource by name; an empty ``name`` is the default of all brokers."""

    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
            )
        ],
        include_synonyms=True,
        include_documentation=documentation,
    )

    def check(response: DescribeConfigsResponse) -> None:
        for result in response.results:
            refuse(result.error_code, f"{_label(kind)} {name}".strip(), result.error_message)

    deadline = client.deadline()

    def ask() -> DescribeConfigsResponse:
        connection = (
            client.node(int(name), deadline)
            if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and name
            else client.any_broker(deadline)
        )
        version = connection.version_for(DescribeConfigsRequest)
        if version < 3:
            request.include_documentation = False
        response = connection.request(request, deadline, version=version)
        check(response)
        return response

    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and name:
        client.refresh((), deadline)
    response = client.retrying(ask, deadline) if kind is not ResourceType.TOPIC else ask()
    entries = [_entry(config) for result in response.results for config in result.configs]
    return sorted(entries, key=lambda entry: entry.name)


def describe_many(
    client: Client, kind: ResourceType, names: Sequence[str], *, keys: Sequence[str], node_id: int | None = None
) -> dict[str, dict[str, str]]:
    """Resource -> some of its configs; null and secret ones, and resources that cannot be seen, are left out.

    ``node_id``: the broker to ask, which has to be the resource itself if that is a broker.
    """
    found: dict[str, dict[str, str]] = {}
    for start in range(0, len(names), _RESOURCES):
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys))
                for name in names[start : start + _RESOURCES]
            ]
        )
        response = client.ask_any(request) if node_id is None else client.ask_node(node_id, request)
        for result in response.results:
            if not result.error_code:
                values = {config.name: config.value for config in result.configs}
                found[result.resource_name] = {name: value for name, value in values.items() if value is not None}
    return found


def _entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        config.name,
        config.value,
        source_name(config.config_source),
        config.read_only,
        config.is_sensitive,
        _TYPES[config.config_type] if 0 <= config.config_type < len(_TYPES) else "unknown",
        config.documentation,
        tuple(Synonym(synonym.name, synonym.value, source_name(synonym.source)) for synonym in config.synonyms),
    )


def source_name(source: int) -> str:
    """Kafka's name of a source; ``UNKNOWN`` for one that is newer than this package."""
    try:
        return ConfigSource(source).name
    except ValueError:
        return ConfigSource.UNKNOWN.name


def alter_configs(
    client: Client, kind: ResourceType, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
) -> None:
    """Change some configs of one resource, all or none; ``ResponseError`` says why they cannot be."""
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    IncrementalAlterableConfig(
                        name=change.name,
                        config_operation=change.operation,
                        value=None if change.operation is Operation.DELETE else change.value,
                    )
                    for change in changes
                ],
            )
        ],
        validate_only=validate_only,
    )

    def check(response: IncrementalAlterConfigsResponse) -> None:
        for result in response.responses:
            refuse(result.error_code, f"{_label(kind)} {name}".strip(), result.error_message)

    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and name:
        client.refresh(())
        response = client.ask_node(int(name), request)
        check(response)
    else:
        client.ask_controller(request, check)


def _label(kind: ResourceType) -> str:
    return kind.name.lower().replace("_", " ")


__all__ = [
    "ConfigChange",
    "ConfigEntry",
    "ConfigSource",
    "Operation",
    "ResourceType",
    "Synonym",
    "alter_configs",
    "describe_configs",
    "source_name",
]
