"""Listeners: ``NAME://host:port``, their security protocols, and what may stand beside what; addresses for HTTP."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kbroker.errors import FatalError
from kbroker.value_types import NamedTuple

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SERVED_PROTOCOLS = SECURITY_PROTOCOLS
"""Those that a listener of kbroker may have."""

METRICS_LISTENER: Final = "prometheus.metrics.reporter.listener"
"""The property that asks for metrics; the name and the form are those of Strimzi's Metrics Reporter."""
EXPLORER_LISTENER: Final = "kbroker.explorer.listener"
"""The property that asks for the protocol explorer. DescribeConfigs shows neither: to Kafka they are not a node's."""
OTHER_METRICS: Final = "kbroker.metrics.others"
"""Pages of metrics of other nodes, as ``id@host:port``, that a node's own page shows, too."""
LISTENER_PREFIX: Final = re.compile(r"listener\.name\.[^.]+\.")
"""Begins the name of a property that is for one listener."""

_ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")


class Listener(NamedTuple):
    """A listener's name, address and protocol. ``host`` is empty for all interfaces; ``port`` 0 asks for a free one."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        return self.host == "localhost" or self.host == "::1" or self.host.startswith("127.")


class QuorumVoter(NamedTuple):
    """One entry ``id@host:port`` of ``controller.quorum.voters``."""

    node_id: int
    host: str
    port: int


def is_loopback(host: str) -> bool:
    """Whether an address, or the name of one, is for this machine alone."""
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_security_protocol_map(text: str) -> dict[str, str]:
    """``listener.security.protocol.map``: listener name (upper case) to protocol."""
    name = "listener.security.protocol.map"
    result: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        listener, colon, protocol = entry.rpartition(":")
        if not colon:
            raise FatalError(f"{name}: {entry!r} is not of the form NAME:PROTOCOL")
        if protocol.strip().upper() not in SECURITY_PROTOCOLS:
            raise FatalError(f"{name}: {protocol.strip()!r} is not one of {', '.join(SECURITY_PROTOCOLS)}")
        result[listener.strip().upper()] = protocol.strip().upper()
    return result


def parse_listeners(property_name: str, entries: Iterable[str], protocols: Mapping[str, str]) -> list[Listener]:
    """The listeners of ``listeners`` or ``advertised.listeners``; names become upper case as in Kafka."""
    result: list[Listener] = []
    for entry in entries:
        match = _ENDPOINT.fullmatch(entry)
        if match is None:
            raise FatalError(f"{property_name}: {entry!r} is not of the form NAME://host:port")
        name, host, port = match[1].strip().upper(), match[2], int(match[3])
        if port > 65535:
            raise FatalError(
                f"{property_name}: {port} in {entry!r} is no port: give one from 0 (any free one) to 65535"
            )
        if not name or port < -1:
            raise FatalError(f"{property_name}: {entry!r} is not of the form NAME://host:port")
        if name not in protocols:
            raise FatalError(
                f"{property_name}: listener {name} has no security protocol in listener.security.protocol.map"
            )
        result.append(Listener(name, host, port, protocols[name]))
    names = [listener.name for listener in result]
    if len(set(names)) != len(names):
        raise FatalError(f"{property_name}: each listener must have a different name: {','.join(map(str, result))}")
    return result


def check_ports(listeners: Sequence[Listener]) -> None:
    """Check that each listener's port can be bound, and that no two share one.

    A listener at an IPv4 address may share its port with one at an IPv6 address (KIP-797).
    """
    by_port: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.port < 0:
            raise FatalError(f"listeners: {listener} names no port that can be listened at; 0 picks a free one")
        if listener.port > 0:
            by_port.setdefault(listener.port, []).append(listener)
    for port, sharing in by_port.items():
        families = sorted(ip_version(listener.host) for listener in sharing)
        if len(sharing) > 1 and families != [4, 6]:
            raise FatalError(
                f"listeners: port {port} is used more than once, which one IPv4 and one IPv6 address may:"
                f" {','.join(map(str, sharing))}"
            )


def ip_version(host: str) -> int:
    """4, 6, or 0 when ``host`` is a name or empty."""
    for version, family in ((4, socket.AF_INET), (6, socket.AF_INET6)):
        try:
            socket.inet_pton(family, host.partition("%")[0])
            return version
        except OSError:
            continue
    return 0


def parse_host_port(property_name: str, entry: str) -> tuple[str, int]:
    """``host:port`` or ``[v6]:port``."""
    match = re.fullmatch(r"\[?([0-9a-zA-Z\-%._:]+?)\]?:([0-9]{1,5})", entry)
    if match is None or int(match[2]) > 65535:
        raise FatalError(f"{property_name}: {entry!r} is not of the form host:port")
    return match[1], int(match[2])


def parse_voters(entries: Iterable[str], name: str = "controller.quorum.voters") -> list[QuorumVoter]:
    """``controller.quorum.voters``, or another property of its form."""
    voters: list[QuorumVoter] = []
    for entry in entries:
        node_id, at, address = entry.partition("@")
        if not at or not node_id.isascii() or not node_id.isdigit():
            raise FatalError(f"{name}: {entry!r} is not of the form id@host:port")
        host, port = parse_host_port(name, address)
        voters.append(QuorumVoter(int(node_id), host, port))
    return voters


def http_address(raw: Mapping[str, str], name: str) -> tuple[str, int] | None:
    """The address in a property of the form ``http://HOST:PORT``; None if it is not set.

    An empty host stands for all interfaces, port 0 for a free one. ``FatalError`` names the property if it has another
    form.
    """
    value = raw.get(name, "").strip()
    if not value:
        return None
    found = re.fullmatch(r"http://(?:\[([0-9a-fA-F:.]*)\]|([^:/\[\]]*)):([0-9]{1,5})/?", value)
    if found is None or int(found[3]) > 65535:
        raise FatalError(f"{name}: {value!r} is not of the form http://HOST:PORT")
    return found[1] or found[2] or "", int(found[3])
