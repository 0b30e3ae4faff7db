"""Dynamic configurations of topics, brokers, groups and clients' metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from kbroker.value_types import NamedTuple, dataclass, field
from kbroker.wire.records import metadata as rec


class ConfigResource(NamedTuple):
    """The owner of a configuration: ``type`` is one of ``ResourceType``'s numbers; an empty broker name is the
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
        {0: "UNKNOWN", 2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
    )


ALL_BROKERS = ConfigResource(ResourceType.BROKER, "")
"""The resource of the dynamic default configs of all brokers."""

_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ConfigsImage:
    """Dynamic configurations: values that were set, never defaults."""

    by_resource: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)

    def get(self, resource: ConfigResource) -> Mapping[str, str]:
        """The dynamic configs of the resource (empty if it has none)."""
        return self.by_resource.get(resource, _NOTHING)

    def for_topic(self, name: str) -> Mapping[str, str]:
        """The topic's overrides."""
        return self.by_resource.get(ConfigResource(ResourceType.TOPIC, name), _NOTHING)

    def for_broker(self, broker_id: int | None) -> Mapping[str, str]:
        """The broker's own dynamic configs; with None, the default of all brokers."""
        name = "" if broker_id is None else str(broker_id)
        return self.by_resource.get(ConfigResource(ResourceType.BROKER, name), _NOTHING)

    def records(self) -> Iterator[rec.ConfigRecord]:
        """The configs as records."""
        for resource, configs in self.by_resource.items():
            for name, value in configs.items():
                yield config_record(resource, name, value)


def config_record(resource: ConfigResource, name: str, value: str | None) -> rec.ConfigRecord:
    """The record that sets a config; with None, that removes it."""
    return rec.ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)


class ConfigsDelta:
    """The changes of configs; ``changed`` are the resources with other configs than before, or none left."""

    def __init__(self, image: ConfigsImage) -> None:
        self.changed: dict[ConfigResource, None] = {}
        self._image = image
        self._configs: dict[ConfigResource, Mapping[str, str]] | None = None
        self._own: set[ConfigResource] = set()

    def apply(self) -> ConfigsImage:
        """The next image."""
        return self._image if self._configs is None else ConfigsImage(self._configs)

    def forget(self, resource: ConfigResource) -> None:
        """Remove a resource's configs, since the resource is gone."""
        if resource in (self._image.by_resource if self._configs is None else self._configs):
            self._mutable().pop(resource)
            self._own.discard(resource)
            self.changed[resource] = None

    def _mutable(self) -> dict[ConfigResource, Mapping[str, str]]:
        if self._configs is None:
            self._configs = dict(self._image.by_resource)
        return self._configs

    def on_config(self, record: rec.ConfigRecord) -> None:
        """Set a config; a record without a value removes it."""
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
