"""Configs of topics and brokers: each with what it means, takes and would be by default; changed with ``--writes``."""

from __future__ import annotations

from kbroker.client import Client
from kbroker.client.config_units import in_kafkas_units
from kbroker.client.configs import (
    ConfigChange,
    ConfigEntry,
    ConfigSource,
    Operation,
    ResourceType,
    alter_configs,
    describe_configs,
)
from kbroker.client.records_io.json_types import Json
from kbroker.config.absent import ALL_BROKER_CONFIGS
from kbroker.config.secret_names import is_secret_property
from kbroker.config.topic import TOPIC_CONFIGS
from kbroker.tools.console.call import Call, RequestRefused


async def describe_topic_configs(call: Call) -> Json:
    """A topic's configs: each with its value, and where that comes from."""
    name = call.text("name")
    entries = await call.ask(lambda client: describe_configs(client, ResourceType.TOPIC, name, documentation=True))
    return [config_view(entry, ResourceType.TOPIC) for entry in entries]


def config_view(entry: ConfigEntry, kind: ResourceType) -> Json:
    """A config with the values that would hold in place of its own, its default, and the values that it takes."""
    definition = (TOPIC_CONFIGS if kind is ResourceType.TOPIC else ALL_BROKER_CONFIGS).get(entry.name)
    names = {entry.name, f"log.{entry.name}"}
    defaults = [
        each.value for each in entry.synonyms if each.source == ConfigSource.DEFAULT_CONFIG.name and each.name in names
    ]
    if not defaults and definition is not None and definition.has_default:
        defaults = [definition.default]
    return {
        "name": entry.name,
        "value": None if entry.sensitive else entry.value,
        "source": entry.source,
        "default": entry.is_default,
        "default_value": None if entry.sensitive or not defaults else defaults[0],
        "sensitive": entry.sensitive,
        "read_only": entry.read_only,
        "type": entry.type,
        "valid": "" if definition is None or definition.validator is None else str(definition.validator),
        "documentation": entry.documentation,
        "synonyms": [
            {"name": each.name, "value": None if entry.sensitive else each.value, "source": each.source}
            for each in entry.synonyms
        ],
    }


async def change_topic_config(call: Call) -> Json:
    """Set a config of a topic, or return it to its default; the value may have a unit."""
    return await _change(call, ResourceType.TOPIC, call.text("name"), f"topic {call.text('name')}")


async def change_broker_config(call: Call) -> Json:
    """Set a config of a broker while it runs, or of all of them where ``broker`` is empty; or take it back."""
    name = call.text("broker", "")
    if name and not (name.isascii() and name.isdigit()):
        raise RequestRefused(400, "a broker is named by its id")
    return await _change(call, ResourceType.BROKER, name, f"broker {name}" if name else "all brokers")


async def _change(call: Call, kind: ResourceType, name: str, told: str) -> Json:
    config = call.text("config")
    change = ConfigChange(config, Operation.DELETE)
    if call.choice("operation", ("set", "delete"), "set") == "set":
        change = ConfigChange(config, Operation.SET, in_kafkas_units(config, call.text("value", "")))
    # A secret is in no log, nor what may be one: that of a listener, or a config that nobody knows here.
    details: Json = {"config": config, "value": "hidden" if is_secret_property(config) else change.value}

    def alter(client: Client) -> None:
        alter_configs(client, kind, name, [change])

    await call.write(f"change-{kind.name.lower()}-config", name or "all brokers", details, alter)
    return {"done": f"{config} of {told} is {'set' if change.operation is Operation.SET else 'at its default'}"}
