"""A node for each core of a machine: the properties of each, out of those of one node; a file is written for one node.

The first node is the one that the properties describe. The others are brokers alone, with the ids and the ports after
it, with log directories inside its own, and with its rack, so that replicas of a partition go to other machines. What a
machine has once, they share.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Final

from kbroker.config.listeners import EXPLORER_LISTENER, METRICS_LISTENER, OTHER_METRICS
from kbroker.errors import FatalError

DIRECTORY: Final = re.compile(r"core([0-9]+)")
"""The directory of a further node in a log directory of the first. Apache Kafka takes it for no partition's."""

_DEFAULT_LISTENERS: Final = "PLAINTEXT://:9092"
_ADDRESS: Final = re.compile(r"(?P<name>[^:/]*)://(?P<host>.*):(?P<port>[0-9]+)/?")
_ALL_ADDRESSES: Final = ("", "0.0.0.0", "[::]")
_HTTP: Final = (METRICS_LISTENER, EXPLORER_LISTENER)
_DIRECTORIES: Final = ("log.dirs", "metadata.log.dir", "cordoned.log.dirs")
_SHARED: Final = {
    "queued.max.request.bytes": None,
    "log.cleaner.dedupe.buffer.size": 128 << 20,
    "log.cleaner.io.max.bytes.per.second": None,
    "log.scrub.bytes.per.second": 10 << 20,
}
"""Properties about the memory and the disks of the machine, and their defaults, where those are bounds."""


def core_properties(properties: Mapping[str, str], core: int, cores: int, machine: str) -> dict[str, str]:
    """The properties of the node ``core``, from 1 on, of ``cores``, out of those of one node; checked by nobody yet.

    ``machine`` is the rack unless the properties name one. :class:`FatalError` if they have no id.
    """
    found = dict(properties)
    found.setdefault("broker.rack", machine)
    found |= _shares(properties, cores)
    if core == 1:
        others = [
            (node_id(properties) + other - 1, *ports[METRICS_LISTENER])
            for other in range(2, cores + 1)
            if METRICS_LISTENER in (ports := _addresses(properties, other))
        ]
        if others:
            found[OTHER_METRICS] = ",".join(
                f"{number}@{'127.0.0.1' if host in _ALL_ADDRESSES else host}:{port}" for number, host, port in others
            )
        return found
    found["process.roles"] = "broker"
    found["node.id"] = str(node_id(properties) + core - 1)
    for name in ("broker.id", "log.dir", "controller.quorum.auto.join.enable"):
        found.pop(name, None)
    for name in _DIRECTORIES:
        text = properties.get(name) or (properties.get("log.dir", "/tmp/kafka-logs") if name == "log.dirs" else "")
        if text and text.strip() != "*":
            found[name] = ",".join(os.path.join(each.strip(), f"core{core}") for each in text.split(","))
    addresses = _addresses(properties, core)
    for name in _HTTP:
        if name in addresses:
            host, port = addresses[name]
            found[name] = f"http://{host}:{port}"
    found["listeners"] = ",".join(
        f"{name}://{addresses[name][0]}:{addresses[name][1]}" for name in _brokers(properties)
    )
    if "advertised.listeners" in properties:
        found["advertised.listeners"] = ",".join(_advertised(properties, addresses))
    return found


def node_id(properties: Mapping[str, str]) -> int:
    """The id of the first node. :class:`FatalError` if there is none."""
    text = (properties.get("node.id") or properties.get("broker.id") or "").strip()
    if not (text.isascii() and text.isdigit()):
        raise FatalError("node.id is required and has no default")
    return int(text)


def _shares(properties: Mapping[str, str], cores: int) -> Iterator[tuple[str, str]]:
    for name, default in _SHARED.items():
        value = float(properties.get(name) or default or 0)
        if value <= 0:
            continue
        share = value / cores
        if name == "queued.max.request.bytes":  # one request has to have room
            share = max(share, min(value, float(properties.get("socket.request.max.bytes") or 100 << 20)))
        elif name == "log.cleaner.dedupe.buffer.size":
            share = max(share, min(value, (2 << 20) * float(properties.get("log.cleaner.threads") or 1)))
        yield name, repr(share) if name.endswith("io.max.bytes.per.second") else str(int(share))


def _entries(properties: Mapping[str, str], name: str, default: str = "") -> dict[str, tuple[str, int]]:
    """Listeners by name. What is no listener is left out: who parses the properties says so."""
    found = (_ADDRESS.fullmatch(each.strip()) for each in properties.get(name, default).split(","))
    return {each["name"].strip().upper(): (each["host"], int(each["port"])) for each in found if each is not None}


def _brokers(properties: Mapping[str, str]) -> list[str]:
    controllers = {name.strip().upper() for name in properties.get("controller.listener.names", "").split(",")}
    return [name for name in _entries(properties, "listeners", _DEFAULT_LISTENERS) if name not in controllers]


def _addresses(properties: Mapping[str, str], core: int) -> dict[str, tuple[str, int]]:
    """The addresses that the node ``core`` listens at, by name: each port is the next one after that of the node before
    which neither the properties name nor a node before has."""
    found = _entries(properties, "listeners", _DEFAULT_LISTENERS)
    taken = {port for _, port in found.values()}
    own = {name: found[name] for name in _brokers(properties)}
    for name in _HTTP:
        for address in _entries(properties, name).values():
            own[name] = address
    taken |= {port for _, port in own.values()}
    for _ in range(core - 1):
        for name, (host, port) in own.items():
            if port:
                port = next(each for each in range(port + 1, 1 << 17) if each not in taken)
                taken.add(port)
                own[name] = host, port
    return own


def _advertised(properties: Mapping[str, str], addresses: Mapping[str, tuple[str, int]]) -> Iterator[str]:
    first = _entries(properties, "listeners", _DEFAULT_LISTENERS)
    for name, (host, port) in _entries(properties, "advertised.listeners").items():
        if name in addresses:  # the same distance from the first node's as the port that is listened at
            yield f"{name}://{host}:{port + addresses[name][1] - first[name][1]}"
