"""The command line's options become facts: which parts are looked at, and how."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker.client.errors import ClientError
from kbroker.tools.cli.common import add_cluster_arguments, apply_profile, bootstrap_addresses
from kbroker.tools.cli.parser import UsageError
from kbroker.tools.cli.progress import progress
from kbroker.tools.cli.start import add_overrides, parse_overrides
from kbroker.tools.doctor.facts import ClientFacts, ClusterFacts, Facts

if TYPE_CHECKING:
    from kbroker.client.properties import ClientProperties

LOOK_AGAIN: Final = 10.0
"""Seconds between two looks at groups: a group is called stuck after so long."""


def add_look_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say what is looked at."""
    parser.add_argument(
        "-c",
        "--config",
        type=Path,
        metavar="FILE",
        help="look at this server.properties, its directories, this machine",
    )
    add_overrides(parser, "set a property of the node, over the file's, as kbroker start does")
    parser.add_argument(
        "--data-dir", metavar="DIR", help="look at the development node that kbroker start --data-dir DIR starts"
    )
    parser.add_argument(
        "--look-again",
        type=float,
        default=LOOK_AGAIN,
        metavar="SECONDS",
        help=f"look at groups with members a second time after so long (default {LOOK_AGAIN:g}, 0: do not)",
    )
    add_cluster_arguments(parser)
    parser.set_defaults(timeout=10.0)


@dataclass(frozen=True, slots=True)
class Scope:
    """The parts that are looked at."""

    configuration: bool
    cluster: bool


def scope_of(arguments: argparse.Namespace) -> Scope:
    """A configuration if one is named, a cluster if one is named or nothing is."""
    configuration = arguments.config is not None or arguments.data_dir is not None
    if arguments.profile or not configuration:
        apply_profile(arguments)
    named = arguments.bootstrap_server is not None or arguments.command_config is not None
    if arguments.override and not configuration:
        raise UsageError("-o goes with --config or --data-dir")
    if arguments.config is not None and arguments.data_dir is not None:
        raise UsageError("--data-dir is for the development node; with --config use -o log.dirs=DIR")
    if arguments.look_again < 0:
        raise UsageError(f"--look-again {arguments.look_again:g}: expected a number of seconds")
    return Scope(configuration, named or not configuration)


def take_look(arguments: argparse.Namespace) -> Facts:
    """Look at what the options name; the facts. ``UsageError`` for options that do not go together."""
    from kbroker.tools.diagnosis.asking import now_ms
    from kbroker.tools.doctor.gather.machine import machine_facts

    parts = scope_of(arguments)
    facts = Facts(now_ms())
    if parts.configuration:
        from kbroker.tools.doctor.gather.configuration import configuration_facts

        found = configuration_facts(arguments.config, parse_overrides(arguments.override), arguments.data_dir)
        facts = replace(facts, configuration=found)
    if parts.configuration or not (arguments.bootstrap_server or arguments.command_config):
        facts = replace(facts, machine=machine_facts())
    if parts.cluster:
        client, cluster = _look_at_cluster(arguments)
        facts = replace(facts, client=client, cluster=cluster)
    return replace(facts, now=now_ms())


def _look_at_cluster(arguments: argparse.Namespace) -> tuple[ClientFacts, ClusterFacts | None]:
    from kbroker.client.properties import ClientProperties
    from kbroker.client.security import security_of
    from kbroker.tools.doctor.gather.client import client_facts
    from kbroker.tools.doctor.gather.cluster import ClusterLook
    from kbroker.tools.doctor.gather.listeners import Probe

    properties: ClientProperties | None = None
    try:
        if arguments.command_config is not None:
            properties = ClientProperties.read(arguments.command_config)
        security = None if properties is None else security_of(properties)
    except ClientError as error:
        source = str(arguments.command_config)
        return ClientFacts(source, problem=str(error).removeprefix(f"{source}: ").rstrip(".")), None
    client = client_facts(properties, arguments.command_config)
    with progress("looking") as shown:
        look = ClusterLook(
            bootstrap_addresses(arguments, properties),
            Probe(properties, security, _client_id(properties), arguments.timeout),
            arguments.timeout,
            arguments.look_again,
            lambda text: shown.turn_to(f"looking at {text}"),
        )
        return client, look.take()


def _client_id(properties: ClientProperties | None) -> str:
    return str((properties and properties["client.id"]) or "kbroker-doctor")


def looked_at(facts: Facts) -> Mapping[str, str]:
    """Part -> what was looked at, for the head of a report."""
    found: dict[str, str] = {}
    if facts.configuration is not None:
        found["configuration"] = facts.configuration.source
    if facts.cluster is not None:
        addresses = ", ".join(each.address for each in facts.cluster.bootstrap)
        brokers = len(facts.cluster.brokers)
        known = f": {facts.cluster.cluster_id}, {brokers} broker{'' if brokers == 1 else 's'}" if brokers else ""
        found["cluster"] = f"{addresses}{known}"
    if facts.client is not None:
        found["client"] = facts.client.source
    if facts.machine is not None:
        found["machine"] = "this one"
    return found
