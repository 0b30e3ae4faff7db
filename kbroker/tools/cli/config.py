"""``kbroker config``: configs of topics, brokers, groups, with where each value comes from and what it means."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kbroker.tools.cli.common import add_cluster_arguments, cluster, complain
from kbroker.tools.cli.output import print_json, print_table
from kbroker.tools.cli.parser import Action, UsageError

if TYPE_CHECKING:
    from kbroker.client import Client
    from kbroker.client.configs import ConfigChange, ConfigEntry, ResourceType

KINDS = ("topic", "broker", "group", "broker-logger", "client-metrics")
"""The kinds of resources with configs, as the command names them."""

_PROPAGATION_SECONDS = 0.3

_DEFAULT = "default"
"""For brokers: the dynamic default of all of them."""


def _resource_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=KINDS, help="what has the config", metavar="|".join(KINDS))
    parser.add_argument("name", metavar="NAME", help="its name; of a broker its id, or `default` for all brokers")


def _resource(arguments: argparse.Namespace) -> tuple[ResourceType, str]:
    from kbroker.client.configs import ResourceType

    kind = ResourceType[arguments.kind.upper().replace("-", "_")]
    name: str = arguments.name
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        if name == _DEFAULT and kind is ResourceType.BROKER:
            return kind, ""
        if not (name.isascii() and name.isdigit()):
            raise UsageError(f"a broker is named by its id, or `default` for all brokers, not {name!r}")
    return kind, name


# --- describe -------------------------------------------------------------------------------------------------------


def _describe_arguments(parser: argparse.ArgumentParser) -> None:
    _resource_arguments(parser)
    parser.add_argument("keys", nargs="*", metavar="KEY", help="only these configs")
    parser.add_argument("-a", "--all", action="store_true", help="defaults and values of the brokers, too")
    parser.add_argument("-d", "--docs", action="store_true", help="what each config does")
    add_cluster_arguments(parser)


def _describe(arguments: argparse.Namespace) -> int:
    from kbroker.client.configs import describe_configs

    kind, name = _resource(arguments)
    with cluster(arguments) as client:
        entries = describe_configs(
            client, kind, name, keys=arguments.keys or None, documentation=arguments.docs or arguments.json
        )
    missing = set(arguments.keys) - {entry.name for entry in entries}
    if not (arguments.all or arguments.keys):
        entries = [entry for entry in entries if is_own(arguments.kind, entry)]
    if arguments.json:
        print_json([_document(entry) for entry in entries])
    else:
        _print(entries, arguments.docs)
        if not entries and not arguments.keys:
            complain(f"nothing is set for {arguments.kind} {arguments.name}; --all shows the defaults")
    for key in sorted(missing):
        complain(f"{arguments.kind} {arguments.name} has no config {key}")
    return 1 if missing else 0


def is_own(kind: str, entry: ConfigEntry) -> bool:
    """Whether somebody has set it for this very resource; for brokers, in the file or for all brokers too."""
    if kind == "broker":
        return not entry.is_default
    return entry.source == f"DYNAMIC_{kind.upper().replace('-', '_')}_CONFIG"


def _document(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source,
        "type": entry.type,
        "read_only": entry.read_only,
        "sensitive": entry.sensitive,
        "documentation": entry.documentation,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": synonym.source} for synonym in entry.synonyms
        ],
    }


def _print(entries: Sequence[ConfigEntry], docs: bool) -> None:
    if entries:
        print_table(
            ["config", "value", "source", *(["meaning"] if docs else [])],
            [
                [
                    entry.name,
                    "(hidden)" if entry.sensitive else "null" if entry.value is None else entry.value,
                    source_text(entry),
                    *([entry.documentation or ""] if docs else []),
                ]
                for entry in entries
            ],
            wrap=("value", "meaning"),
        )


def source_text(entry: ConfigEntry) -> str:
    """Where a value comes from: ``topic``, ``broker``, ``all brokers``, ``file``, ``default``; and by which name."""
    text = {
        "DYNAMIC_TOPIC_CONFIG": "topic",
        "DYNAMIC_BROKER_CONFIG": "broker",
        "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers",
        "STATIC_BROKER_CONFIG": "file",
        "DEFAULT_CONFIG": "default",
        "DYNAMIC_BROKER_LOGGER_CONFIG": "logger",
        "DYNAMIC_CLIENT_METRICS_CONFIG": "client metrics",
        "DYNAMIC_GROUP_CONFIG": "group",
    }.get(entry.source, entry.source.lower())
    used = next((synonym.name for synonym in entry.synonyms if synonym.source == entry.source), entry.name)
    return text if used == entry.name or entry.is_default else f"{text}: {used}"


# --- set, unset -----------------------------------------------------------------------------------------------------


def _set_arguments(parser: argparse.ArgumentParser) -> None:
    _resource_arguments(parser)
    parser.add_argument(
        "changes",
        nargs="+",
        metavar="KEY=VALUE",
        help="a config and its new value; KEY+=VALUE and KEY-=VALUE add to a list and take from it",
    )
    parser.add_argument("--dry-run", action="store_true", help="only ask whether it could be done")
    add_cluster_arguments(parser)


def parse_change(text: str) -> ConfigChange:
    """``name=value``, ``name+=value`` or ``name-=value``; ``FatalError`` otherwise."""
    from kbroker.client.config_units import in_kafkas_units
    from kbroker.client.configs import ConfigChange, Operation

    name, equals, value = text.partition("=")
    operation = Operation.SET
    if name.endswith(("+", "-")):
        operation = Operation.APPEND if name.endswith("+") else Operation.SUBTRACT
        name = name[:-1]
    if not equals or not name:
        raise UsageError(f"{text!r} is not of the form KEY=VALUE")
    return ConfigChange(name, operation, in_kafkas_units(name, value))


def _set(arguments: argparse.Namespace) -> int:
    return _alter(arguments, [parse_change(text) for text in arguments.changes])


def _unset_arguments(parser: argparse.ArgumentParser) -> None:
    _resource_arguments(parser)
    parser.add_argument("keys", nargs="+", metavar="KEY", help="configs that go back to what they are by default")
    parser.add_argument("--dry-run", action="store_true", help="only ask whether it could be done")
    add_cluster_arguments(parser)


def _unset(arguments: argparse.Namespace) -> int:
    from kbroker.client.configs import ConfigChange, Operation

    return _alter(arguments, [ConfigChange(key, Operation.DELETE) for key in arguments.keys])


def _not_set(client: Client, arguments: argparse.Namespace, keys: Sequence[str]) -> dict[str, str]:
    """The `keys` that have no value of this very resource, and that in words. A broker takes that, whatever the name:
    so does kafka-configs, without a word."""
    from kbroker.client.configs import describe_configs

    kind, name = _resource(arguments)
    told = _missing(arguments, keys, describe_configs(client, kind, name)) if keys else {}
    if told:
        # Brokers hear of what was set a moment after the controller has said that it is.
        time.sleep(_PROPAGATION_SECONDS)
        told = _missing(arguments, keys, describe_configs(client, kind, name))
    return told


def _missing(arguments: argparse.Namespace, keys: Sequence[str], entries: Sequence[ConfigEntry]) -> dict[str, str]:
    known = {entry.name: {entry.source, *(synonym.source for synonym in entry.synonyms)} for entry in entries}
    source = f"DYNAMIC_{arguments.kind.upper().replace('-', '_')}_CONFIG"
    every_broker = arguments.kind == "broker" and arguments.name == _DEFAULT
    if every_broker:
        source = "DYNAMIC_DEFAULT_BROKER_CONFIG"
    told = {}
    for key in keys:
        if key not in known and not every_broker:  # of which only what is set is described
            told[key] = f"{arguments.kind} {arguments.name} has no config {key}: there was nothing to unset"
        elif source not in known.get(key, ()):
            told[key] = f"{key} was not set for {arguments.kind} {arguments.name}"
    return told


def _alter(arguments: argparse.Namespace, changes: Sequence[ConfigChange]) -> int:
    from kbroker.client.configs import Operation, alter_configs
    from kbroker.config.secret_names import is_secret_property

    kind, name = _resource(arguments)
    removed = [change.name for change in changes if change.operation is Operation.DELETE]
    with cluster(arguments) as client:
        not_set = _not_set(client, arguments, removed)
        alter_configs(client, kind, name, changes, validate_only=arguments.dry_run)
    for text in not_set.values():
        complain(text)
    values = {change.name: None if is_secret_property(change.name) else change.value for change in changes}
    if arguments.json:
        print_json(
            {
                "kind": arguments.kind,
                "name": arguments.name,
                "altered": not arguments.dry_run,
                "changes": [
                    {"name": change.name, "operation": change.operation.name.lower(), "value": values[change.name]}
                    for change in changes
                ],
            }
        )
        return 0
    verb = "could be " if arguments.dry_run else ""
    for change in changes:
        if change.name in not_set:
            continue
        done = {
            "SET": f"set to {values[change.name]}" if values[change.name] is not None else "set, and not shown",
            "DELETE": "unset",
            "APPEND": f"extended by {change.value}",
            "SUBTRACT": f"freed from {change.value}",
        }[change.operation.name]
        print(f"{arguments.kind} {arguments.name}: {change.name} {verb}{done}")
    return 0


ACTIONS = {
    "describe": Action("show configs, their sources and their meaning", _describe_arguments, _describe),
    "set": Action("set configs", _set_arguments, _set),
    "unset": Action("put configs back to what they are by default", _unset_arguments, _unset),
}
