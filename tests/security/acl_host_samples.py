"""Addresses and hosts of ACLs from a seed, right and wrong ones: what Apache Kafka says of them is in ``tests/facts``.

None has a zone (``fe80::1%eth0``): Java reads a range with one if the machine has an interface of that name.

``tests/facts/acl_hosts.txt`` has a digit for each sample. To write it anew, with the jars of Apache Kafka 4.4 and its
commons-net in CLASSPATH:

    python -m tests.security.acl_host_samples | java tests/facts/AclHostFacts.java > tests/facts/acl_hosts.txt
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Iterator

COUNT = 6000

_WRONG = (
    "",
    "/",
    "host/8",
    "10.0.0.0/8/8",
    "10.0.0/8",
    "::/x",
    ":/1",
    "10.0.0.0/ 8",
    "1.2.3.4/+8",
    "*/8",
    "0/0",
    "::1/+8",
    "::00001/8",
)


def samples(count: int = COUNT, seed: int = 1) -> Iterator[tuple[str, str]]:
    """An address as Java prints it, and the host of an ACL."""
    rng = random.Random(seed)
    for _ in range(count):
        is_ipv6 = rng.random() < 0.5
        bits = 128 if is_ipv6 else 32
        number = rng.getrandbits(bits)
        prefix = rng.choice((rng.randrange(bits + 1), bits, bits - 1, 0, 8))
        near = number ^ (1 << rng.randrange(bits)) if rng.random() < 0.7 else rng.getrandbits(bits)
        pattern = f"{_text(number, is_ipv6, rng)}/{prefix}"
        if rng.random() < 0.25:
            pattern = _damaged(pattern, rng)
        host = _java(near, is_ipv6 if rng.random() < 0.9 else not is_ipv6)
        yield (host if rng.random() < 0.97 else _damaged(host, rng)), pattern


def _java(number: int, is_ipv6: bool) -> str:
    if not is_ipv6:
        return str(ipaddress.IPv4Address(number & 0xFFFFFFFF))
    return ":".join(f"{number >> shift & 0xFFFF:x}" for shift in range(112, -1, -16))


def _text(number: int, is_ipv6: bool, rng: random.Random) -> str:
    if not is_ipv6:
        return str(ipaddress.IPv4Address(number))
    address = ipaddress.IPv6Address(number & rng.choice((-1, -1 << 64, -1 << 96, 0xFFFF)) & (1 << 128) - 1)
    mapped = f"::ffff:{ipaddress.IPv4Address(number & 0xFFFFFFFF)}"
    return rng.choice((str(address), address.exploded, str(address).upper(), mapped))


def _damaged(text: str, rng: random.Random) -> str:
    if rng.random() < 0.2:
        return rng.choice(_WRONG)
    at = rng.randrange(len(text))
    piece = rng.choice("0123456789abcfg.:/-+ *")
    return text[:at] + rng.choice((piece, piece + text[at], "")) + text[at + 1 :]


if __name__ == "__main__":
    for host, pattern in samples():
        print(host, pattern, sep="\t")
