"""Endpoints and feature ranges of a node, and their form in records and requests, which have the same fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from kbroker.value_types import NamedTuple


class Endpoint(NamedTuple):
    """The address of one of a node's listeners. ``security_protocol``: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT,
    3 SASL_SSL."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


Endpoints = Mapping[str, Endpoint]
"""By listener name."""

Features = Mapping[str, tuple[int, int]]
"""The lowest and the highest level that a node supports, by the feature's name."""


class _EndpointEntry(Protocol):
    name: str
    host: str
    port: int
    security_protocol: int


class _FeatureEntry(Protocol):
    name: str
    min_supported_version: int
    max_supported_version: int


E = TypeVar("E")


def endpoint_entries(entry: Callable[..., E], endpoints: Iterable[Endpoint]) -> list[E]:
    """Endpoints as entries of a record or request, of the class ``entry``."""
    return [entry(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol) for e in endpoints]


def feature_entries(entry: Callable[..., E], features: Features) -> list[E]:
    """Features as entries of a record or request, of the class ``entry``."""
    return [
        entry(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in features.items()
    ]


def read_endpoints(entries: Iterable[_EndpointEntry]) -> dict[str, Endpoint]:
    """The endpoints of a record or request, by listener name; the last of two with one name."""
    return {e.name: Endpoint(e.name, e.host, e.port, e.security_protocol) for e in entries}


def read_features(entries: Iterable[_FeatureEntry]) -> dict[str, tuple[int, int]]:
    """The feature ranges of a record or request, by name; the last of two with one name."""
    return {f.name: (f.min_supported_version, f.max_supported_version) for f in entries}
