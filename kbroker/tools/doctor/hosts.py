"""Names and addresses of hosts: what means this machine, and what a certificate stands for. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence


def is_everywhere(host: str) -> bool:
    """Whether an address means all interfaces, which nobody can connect to from elsewhere."""
    address = _address(host)
    return host == "" or (address is not None and address.is_unspecified)


def is_loopback(host: str, resolved: Sequence[str] = ()) -> bool:
    """Whether a host is the machine that asks; a name is if all its addresses are."""
    if host.lower() in ("localhost", "localhost.localdomain"):
        return True
    found = [_address(each) for each in ([host] if _address(host) is not None else resolved)]
    return bool(found) and all(each is not None and each.is_loopback for each in found)


def matches(host: str, names: Iterable[str]) -> bool:
    """Whether one of a certificate's names is for a host (RFC 6125: ``*`` may stand for the first label)."""
    address = _address(host)
    wanted = host.lower().rstrip(".")
    for name in names:
        if address is not None:
            if _address(name) == address:
                return True
            continue
        known = name.lower().rstrip(".")
        if known == wanted or (known.startswith("*.") and wanted.partition(".")[2] == known[2:] != ""):
            return True
    return False


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
