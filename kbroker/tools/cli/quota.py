"""``kbroker quota``: how much clients may ask of each broker, in the words of ``kafka-configs``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from kbroker.errors import FatalError
from kbroker.security.quotas.entities import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)
from kbroker.tools.cli.common import add_cluster_arguments, cluster
from kbroker.tools.cli.output import print_json, print_table
from kbroker.tools.cli.parser import Action, UsageError

DEFAULT = "default"

_KEYS: Mapping[str, str] = {
    PRODUCER_BYTE_RATE: "bytes a second that may be produced to each broker",
    CONSUMER_BYTE_RATE: "bytes a second that may be fetched from each broker",
    REQUEST_PERCENTAGE: "share of each broker's time, in percent",
    CONTROLLER_MUTATION_RATE: "partitions a second that may be created or deleted",
    CONNECTION_CREATION_RATE: "new connections a second to each broker, of an address",
}

_DETAILS = """\
Of the quotas that fit a client the most particular one holds: a user with a client id, then the user, then
the client id. What has no name of its own has the default. Examples:

  kbroker quota set --user alice --producer-byte-rate 1000000
  kbroker quota set --user default --client-id default --request-percentage 50
  kbroker quota set --ip 10.0.0.7 --connection-creation-rate 20"""


def _add_entity(parser: argparse.ArgumentParser) -> None:
    for option, what in ((USER, "user"), (CLIENT_ID, "client id"), (IP, "address")):
        parser.add_argument(
            f"--{option}", metavar="NAME", help=f"a {what}, or {DEFAULT} for every one without a quota of its own"
        )


def _entity(arguments: argparse.Namespace) -> dict[str, str | None]:
    names = {kind: getattr(arguments, kind.replace("-", "_")) for kind in (USER, CLIENT_ID, IP)}
    found = {kind: None if name == DEFAULT else name for kind, name in names.items() if name is not None}
    if IP in found and len(found) > 1:
        raise UsageError("--ip goes with no --user and no --client-id")
    return found


def _told(entity: Mapping[str, str | None]) -> str:
    return " with ".join(
        f"every {_NOUNS[kind]} without its own" if name is None else f"{_NOUNS[kind]} {name}"
        for kind, name in sorted(entity.items(), reverse=True)
    )


_NOUNS: Mapping[str, str] = {USER: "user", CLIENT_ID: "client id", IP: "address"}


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    _add_entity(parser)
    add_cluster_arguments(parser)


def _list(arguments: argparse.Namespace) -> int:
    from kbroker.client.quotas import describe_quotas

    entity = _entity(arguments)
    with cluster(arguments) as client:
        found = describe_quotas(client, entity)
    if arguments.json:
        print_json([{"entity": each.entity, "quotas": each.values} for each in found])
        return 0
    rows = [
        [*(_cell(each.entity, kind) for kind in (USER, CLIENT_ID, IP)), key, f"{value:.15g}"]
        for each in found
        for key, value in each.values.items()
    ]
    print_table(["user", "client id", "address", "quota", "a second"], rows, wrap=("user", "client id"))
    return 0


def _cell(entity: Mapping[str, str | None], kind: str) -> str:
    return (entity[kind] or DEFAULT) if kind in entity else ""


def _set_arguments(parser: argparse.ArgumentParser) -> None:
    _add_entity(parser)
    for key, text in _KEYS.items():
        parser.add_argument(f"--{key.replace('_', '-')}", type=_rate, metavar="NUMBER", help=text)
    add_cluster_arguments(parser)


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def _set(arguments: argparse.Namespace) -> int:
    from kbroker.client.quotas import alter_quotas

    entity = _required(arguments)
    changes = {key: value for key in _KEYS if (value := getattr(arguments, key)) is not None}
    if not changes:
        raise UsageError("give a quota: --producer-byte-rate, --consumer-byte-rate ...")
    with cluster(arguments) as client:
        alter_quotas(client, entity, changes)
    if arguments.json:
        print_json({"entity": entity, "quotas": changes})
    for key, value in () if arguments.json else changes.items():
        print(f"{_told(entity)}: {key} is {value:.15g}")
    return 0


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    _add_entity(parser)
    for key in _KEYS:
        parser.add_argument(f"--{key.replace('_', '-')}", action="store_true", help="only this one")
    add_cluster_arguments(parser)


def _delete(arguments: argparse.Namespace) -> int:
    from kbroker.client.quotas import alter_quotas, describe_quotas

    entity = _required(arguments)
    chosen = [key for key in _KEYS if getattr(arguments, key)] or list(_KEYS)
    with cluster(arguments) as client:
        found = [each for each in describe_quotas(client, entity) if each.entity == entity]
        gone = [key for each in found for key in each.values if key in chosen]
        if not gone:
            raise FatalError(f"there is no such quota for {_told(entity)}")
        alter_quotas(client, entity, dict.fromkeys(gone))
    if arguments.json:
        print_json({"entity": entity, "quotas": dict.fromkeys(gone)})
    for key in () if arguments.json else gone:
        print(f"{_told(entity)}: {key} is not limited any more")
    return 0


def _required(arguments: argparse.Namespace) -> dict[str, str | None]:
    entity = _entity(arguments)
    if not entity:
        raise UsageError("give whom it is for: --user, --client-id or --ip")
    return entity


ACTIONS = {
    "list": Action("list quotas, all or those of some clients", _list_arguments, _list),
    "set": Action("limit what clients may ask of each broker", _set_arguments, _set, _DETAILS),
    "delete": Action("delete quotas", _delete_arguments, _delete),
}
