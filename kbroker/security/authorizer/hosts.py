"""The hosts of ACLs: addresses as Java prints them, and ranges of addresses (KIP-1276)."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address

from kbroker.security.authorizer.types import WILDCARD

_IPV4_BITS = 32
_IPV6_BITS = 128
_OCTET = r"([0-9]{1,3})"
_IPV4 = re.compile(rf"{_OCTET}\.{_OCTET}\.{_OCTET}\.{_OCTET}")
_IPV4_RANGE = re.compile(rf"(?P<address>{_IPV4.pattern})/(?P<prefix>[0-9]{{1,2}})")
_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")
_MAX_INT = 2**31 - 1


class AddressRange:
    """A range of addresses, as ``10.0.0.0/8`` or ``2001:db8::/32``. Bits behind the prefix do not matter.

    ``ValueError`` if the text is none, in the words of Kafka's answer (``CidrUtils``, from Commons Net).
    """

    def __init__(self, text: str) -> None:
        self._is_ipv6 = ":" in text
        if self._is_ipv6:
            network, prefix = _parse_ipv6_range(text)
            self._shift = _IPV6_BITS - prefix
        else:
            network, prefix = _parse_ipv4_range(text)
            self._shift = _IPV4_BITS - prefix
        self._network = network >> self._shift

    def __contains__(self, host: str) -> bool:
        """Whether an address, without a port, is in the range. The first and the last one are."""
        try:
            if self._is_ipv6:
                value = _ipv6_value(host)
            else:
                value = _ipv4_value(host)
        except ValueError:
            return False
        return value >> self._shift == self._network


@lru_cache(maxsize=1024)
def _range(text: str) -> AddressRange | None:
    try:
        return AddressRange(text)
    except ValueError:
        return None


def host_matches(pattern: str, host: str) -> bool:
    """Whether an ACL's host stands for an address, which is to be in `java_text`'s form.

    A range that cannot be read stands for none (``StandardAuthorizerData.findResult``).
    """
    if pattern in (WILDCARD, host):
        return True
    if "/" not in pattern:
        return False
    found = _range(pattern)
    return found is not None and host in found


def java_text(host: str) -> str:
    """An address as Java prints it, which is what Kafka compares with ACLs: ``::1`` is ``0:0:0:0:0:0:0:1``.

    IPv4 addresses in IPv6 ones are IPv4 addresses. Text that is no address stays as it is.
    """
    if ":" not in host:
        return host
    bare, percent, zone = host.strip("[]").partition("%")
    try:
        address = IPv6Address(bare)
    except AddressValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":")) + percent + zone


def _parse_ipv4_range(text: str) -> tuple[int, int]:
    found = _IPV4_RANGE.fullmatch(text)
    if found is None:
        raise ValueError(f"Could not parse [{text}]")
    return _ipv4_value(found["address"]), _in_range(int(found["prefix"]), _IPV4_BITS)


def _ipv4_value(text: str) -> int:
    found = _IPV4.fullmatch(text)
    if found is None:
        raise ValueError(f"Could not parse [{text}]")
    value = 0
    for octet in found.groups():
        value = value << 8 | _in_range(int(octet), 255)
    return value


def _in_range(value: int, last: int) -> int:
    if value > last:
        raise ValueError(f"Value [{value}] not in range [0,{last}]")
    return value


def _parse_ipv6_range(text: str) -> tuple[int, int]:
    address, slash, prefix_text = text.partition("/")
    if not slash:
        raise ValueError(f"Could not parse [{text}] - missing prefix length")
    if _INTEGER.fullmatch(prefix_text) is None or not -_MAX_INT <= (prefix := int(prefix_text)) <= _MAX_INT:
        raise ValueError(f"Could not parse [{text}] - invalid prefix length")
    if not 0 <= prefix <= _IPV6_BITS:
        raise ValueError(f"Could not parse [{text}] - prefix length must be between 0 and {_IPV6_BITS}")
    return _ipv6_value(address), prefix


def _ipv6_value(text: str) -> int:
    groups = text.partition("%")[0].split(":")
    try:
        # Java takes any number of leading zeros.
        address = IPv6Address(":".join(group.lstrip("0") or "0" if len(group) > 4 else group for group in groups))
    except AddressValueError:
        raise ValueError(f"Could not parse [{text}]") from None
    if address.ipv4_mapped is not None:
        # Java makes an IPv4 address of it.
        raise ValueError(f"Could not parse [{text}] - not an IPv6 address")
    return int(address)
