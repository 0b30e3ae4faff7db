"""Dynamic configurations by what they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from kbroker.wire.records import metadata as rec


class ConfigResource(NamedTuple):
    """What a configuration belongs to: ``type`` is one of ``ResourceType``'s numbers; an empty broker name is the
    cluster-wide default."""

    type: int
    name: str


class ResourceType:
    """``ConfigResource.Type`` ids of Kafka."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    NAMES: Mapping[int, str] = MappingProxyType(
        {
            0: "UNKNOWN",
            2: "TOPIC",
            4: "BROKER",
            8: "BROKER_LOGGER",
            16: "CLIENT_METRICS",
            32: "GROUP",
        }
    )


_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ConfigsImage:
    """Dynamic configurations: what was set, never defaults."""

    by_resource: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)

    def get(self, resource: ConfigResource) -> Mapping[str, str]:
        """What is set for the resource (empty if nothing)."""
        return self.by_resource.get(resource, _NOTHING)

    def for_topic(self, name: str) -> Mapping[str, str]:
        """The topic's overrides."""
        return self.by_resource.get(ConfigResource(ResourceType.TOPIC, name), _NOTHING)

    def for_broker(self, broker_id: int | None) -> Mapping[str, str]:
        """The broker's own dynamic configs; of all brokers' default with None."""
        name = "" if broker_id is None else str(broker_id)
        return self.by_resource.get(ConfigResource(ResourceType.BROKER, name), _NOTHING)

    def records(self) -> Iterator[rec.ConfigRecord]:
        """The configs as records."""
        for resource, configs in self.by_resource.items():
            for name, value in configs.items():
                yield rec.ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)


class ConfigsDelta:
    """What records change in the configs: ``changed`` are the resources that are others now, or have none left."""

    def __init__(self, image: ConfigsImage) -> None:
        self.changed: dict[ConfigResource, None] = {}
        self._image = image
        self._configs: dict[ConfigResource, Mapping[str, str]] | None = None
        self._own: set[ConfigResource] = set()

    def apply(self) -> ConfigsImage:
        """The next image."""
        return self._image if self._configs is None else ConfigsImage(self._configs)

    def forget(self, resource: ConfigResource) -> None:
        """The resource is gone, and what was set for it."""
        if resource in (self._image.by_resource if self._configs is None else self._configs):
            self._mutable().pop(resource)
            self._own.discard(resource)
            self.changed[resource] = None

    def _mutable(self) -> dict[ConfigResource, Mapping[str, str]]:
        if self._configs is None:
            self._configs = dict(self._image.by_resource)
        return self._configs

    def on_config(self, record: rec.ConfigRecord) -> None:
        """Set a config; one without a value is taken away."""
        configs = self._mutable()
        resource = ConfigResource(record.resource_type, record.resource_name)
        if resource not in self._own:
            configs[resource] = dict(configs.get(resource, _NOTHING))
            self._own.add(resource)
        own = configs[resource]
        assert isinstance(own, dict)
        if record.value is None:
            own.pop(record.name, None)
        else:
            own[record.name] = record.value
        if not own:
            del configs[resource]
            self._own.discard(resource)
        self.changed[resource] = None
