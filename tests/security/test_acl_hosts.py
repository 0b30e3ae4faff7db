"""Hosts of ACLs: ranges of addresses (KIP-1276), and addresses as Java prints them."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.security.authorizer.hosts import AddressRange, host_matches, java_text
from tests.security.acl_host_samples import samples


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("10.0.0.0/8", ["10.0.0.0", "10.255.255.255", "10.1.2.3"], ["9.255.255.255", "11.0.0.0", "::1", "host"]),
        ("10.1.2.3/8", ["10.200.0.1"], ["11.0.0.1"]),
        ("192.168.1.7/32", ["192.168.1.7"], ["192.168.1.8"]),
        ("192.168.1.6/31", ["192.168.1.6", "192.168.1.7"], ["192.168.1.8"]),
        ("0.0.0.0/0", ["1.2.3.4"], ["0:0:0:0:0:0:0:1"]),
        ("2001:db8::/32", ["2001:db8:0:0:0:0:0:1", "2001:db8:ffff:0:0:0:0:0"], ["2001:db9:0:0:0:0:0:0", "1.2.3.4"]),
        ("::1/128", ["0:0:0:0:0:0:0:1", "::1"], ["::2"]),
        ("::/0", ["fe80:0:0:0:0:0:0:1%eth0", "::"], ["1.2.3.4", "host"]),
    ],
)
def test_ranges(text: str, inside: list[str], outside: list[str]) -> None:
    found = AddressRange(text)
    assert all(host in found and host_matches(text, host) for host in inside)
    assert not any(host in found or host_matches(text, host) for host in outside)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("10.0.0/8", "Could not parse [10.0.0/8]"),
        ("10.0.0.0/", "Could not parse [10.0.0.0/]"),
        ("10.0.0.0/8/8", "Could not parse [10.0.0.0/8/8]"),
        ("host/8", "Could not parse [host/8]"),
        ("10.0.0.0/33", "Value [33] not in range [0,32]"),
        ("10.0.0.256/8", "Value [256] not in range [0,255]"),
        ("2001:db8::/129", "Could not parse [2001:db8::/129] - prefix length must be between 0 and 128"),
        ("2001:db8::/-1", "Could not parse [2001:db8::/-1] - prefix length must be between 0 and 128"),
        ("2001:db8::/x", "Could not parse [2001:db8::/x] - invalid prefix length"),
        ("2001:db8::/99999999999", "Could not parse [2001:db8::/99999999999] - invalid prefix length"),
        ("2001:xyz::/32", "Could not parse [2001:xyz::]"),
        ("::ffff:1.2.3.4/120", "Could not parse [::ffff:1.2.3.4] - not an IPv6 address"),
    ],
)
def test_what_is_no_range(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as caught:
        AddressRange(text)
    assert str(caught.value) == problem
    assert not host_matches(text, "10.0.0.1")


@given(st.ip_addresses(v=4), st.integers(0, 32), st.ip_addresses(v=4))
def test_ranges_of_ipv4(network: ipaddress.IPv4Address, prefix: int, host: ipaddress.IPv4Address) -> None:
    expected = host in ipaddress.ip_network((network, prefix), strict=False)
    assert (str(host) in AddressRange(f"{network}/{prefix}")) is expected
    assert str(network) in AddressRange(f"{network}/{prefix}")


def test_ranges_are_apache_kafkas() -> None:
    """Right and wrong ranges of both families, with addresses in them, near them and elsewhere."""
    facts = (Path(__file__).parent.parent / "facts" / "acl_hosts.txt").read_text().strip()
    found = [
        (host, pattern, fact)
        for (host, pattern), fact in zip(samples(), facts, strict=True)
        if host != pattern and host_matches(pattern, host) is not (fact == "1")
    ]
    assert not found
    assert len(facts) / 10 < facts.count("1")


def test_addresses_as_java_prints_them() -> None:
    assert java_text("10.0.0.1") == "10.0.0.1"
    assert java_text("::1") == java_text("[::1]") == "0:0:0:0:0:0:0:1"
    assert java_text("2001:0DB8::00ff") == "2001:db8:0:0:0:0:0:ff"
    assert java_text("::ffff:10.0.0.1") == "10.0.0.1"
    assert java_text("fe80::1%eth0") == "fe80:0:0:0:0:0:0:1%eth0"
    assert java_text("this node") == "this node"
    assert java_text("no:address") == "no:address"


def test_any_other_host_is_compared_as_text() -> None:
    assert host_matches("*", "10.0.0.1") and host_matches("10.0.0.1", "10.0.0.1")
    assert not host_matches("10.0.0.1", "10.0.0.10") and not host_matches("example.org", "10.0.0.1")
    assert not host_matches("::1", java_text("::1"))  # as in Kafka, which would print it as 0:0:0:0:0:0:0:1
