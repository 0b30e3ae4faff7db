"""A node's configuration and its directories, before it is started."""

from __future__ import annotations

from collections.abc import Iterator

from kbroker.tools.diagnosis.findings import Finding, Severity
from kbroker.tools.doctor.facts import Facts
from kbroker.tools.doctor.findings import check
from kbroker.tools.doctor.hosts import is_everywhere, is_loopback


@check("configuration", "A node would not start with this configuration, or ignores a part of it", see="start")
def configuration(facts: Facts) -> Iterator[Finding]:
    """Report what ``kbroker start`` would say."""
    found = facts.configuration
    if found is None:
        return
    if found.problem:
        yield Finding(
            Severity.ERROR,
            found.source,
            f"A node does not start with this configuration: {found.problem}.",
            "kbroker start checks it so.",
            "Correct the property; docs/configuration.md has the valid values.",
        )
    if found.unknown:
        yield Finding(
            Severity.WARNING,
            found.source,
            f"Unknown properties, which have no effect: {', '.join(found.unknown)}.",
            "Neither Apache Kafka nor kbroker has a property of this name.",
            "Look for a typing error.",
        )
    for reason, names in found.absent.items():
        yield Finding(
            Severity.WARNING,
            found.source,
            f"Properties without effect: {', '.join(names)}.",
            f"{reason}.",
            "Take them out, or use Apache Kafka where you need them.",
        )


@check("advertised-config", "advertised.listeners name an address that clients cannot use", see="start")
def advertised_config(facts: Facts) -> Iterator[Finding]:
    """Judge the advertised hosts of a configuration: unknown names, and loopback for a listener that others reach."""
    found = facts.configuration
    if found is None:
        return
    for each in found.listeners:
        if is_loopback(each.advertised_host, each.resolved) and not is_loopback(each.host):
            yield Finding(
                Severity.WARNING,
                f"listener {each.name}",
                f"Listener {each.name} is open to other machines and advertises {each.advertised_host}: they come"
                " in, and are then sent to themselves.",
                f"listeners has {each.host or 'all interfaces'}, advertised.listeners {each.advertised_host}.",
                "Advertise the name by which other machines reach this one, or listen on 127.0.0.1.",
            )
        elif not each.resolved and not is_everywhere(each.advertised_host):
            yield Finding(
                Severity.ERROR,
                f"listener {each.name}",
                f"Listener {each.name} advertises {each.advertised_host}, a name that this machine does not know.",
                "It does not resolve here.",
                "Correct advertised.listeners, or make the name known to DNS: to clients as well.",
            )


@check("directories", "A data directory cannot be used, or belongs to another node", see="disks-and-log-directories")
def directories(facts: Facts) -> Iterator[Finding]:
    """Judge data directories by what is on the disk."""
    found = facts.configuration
    if found is None:
        return
    for each in found.directories:
        if each.problem:
            yield Finding(
                Severity.ERROR,
                each.path,
                f"The data directory {each.path} cannot be used: {each.problem}.",
                "The system says so.",
                "Make the directory for the user who runs the node, or correct log.dirs.",
            )
        elif each.node_id is not None and each.node_id != found.node_id:
            yield Finding(
                Severity.ERROR,
                each.path,
                f"{each.path} belongs to node {each.node_id}, and node.id is {found.node_id}: the node does not start.",
                "meta.properties in it says so.",
                "Correct node.id or log.dirs.",
            )
        if each.path.startswith(("/tmp/", "/var/tmp/", "/dev/shm/")) and found.values.get("log.dirs"):
            yield Finding(
                Severity.WARNING,
                each.path,
                f"{each.path} is a place for temporary files: the system may delete them.",
                "Its name says so.",
                "Set log.dirs to a directory that stays.",
            )
    clusters = sorted({each.cluster_id for each in found.directories if each.cluster_id is not None})
    if len(clusters) > 1:
        yield Finding(
            Severity.ERROR,
            found.source,
            f"The data directories belong to different clusters: {', '.join(clusters)}.",
            "meta.properties in each says so.",
            "Put the directories of one node together.",
        )
