"""The quotas that are set, by whom they are for; and which of them holds for a client (``ClientQuotaManager``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

Entity = tuple[tuple[str, "str | None"], ...]
"""Sorted (type, name or None for the default) pairs."""


class Limit(NamedTuple):
    """A quota as it holds for a client: units a second, and the user and client id that share them."""

    bound: float
    sharers: tuple[str, str]
    """"" for any user, or any client id."""


class ClientLimits(NamedTuple):
    """The quotas that hold for a client; None where there is none."""

    produce: Limit | None
    fetch: Limit | None
    request: Limit | None
    mutation: Limit | None


class QuotaTable:
    """All quotas that are set."""

    def __init__(self, quotas: Mapping[Entity, Mapping[str, float]]) -> None:
        bounds: dict[str, dict[Entity, float]] = {}
        for entity, values in quotas.items():
            for key, value in values.items():
                if value != value:
                    continue  # Apache Kafka takes NaN for a quota; it limits nobody there, either
                bounds.setdefault(key, {})[entity] = value
        self._produce = bounds.get(PRODUCER_BYTE_RATE, {})
        self._fetch = bounds.get(CONSUMER_BYTE_RATE, {})
        self._request = bounds.get(REQUEST_PERCENTAGE, {})
        self._mutation = bounds.get(CONTROLLER_MUTATION_RATE, {})
        self.ip_default: float | None = None
        """Connections a second of each address without a quota of its own; None for as many as it likes."""
        self.by_ip: dict[str, float] = {}
        """Connections a second, by address (see :func:`address_of`). Names of hosts are left out."""
        for entity, value in bounds.get(CONNECTION_CREATION_RATE, {}).items():
            name = dict(entity).get(IP)
            if name is None:
                self.ip_default = value
            else:
                address = address_of(name)
                if address is not None:
                    self.by_ip[address] = value

    @property
    def limits_clients(self) -> bool:
        """Whether there is any quota of users or client ids."""
        return bool(self._produce or self._fetch or self._request or self._mutation)

    @property
    def limits_addresses(self) -> bool:
        """Whether there is any quota of addresses."""
        return bool(self.by_ip) or self.ip_default is not None

    def limits(self, user: str, client_id: str) -> ClientLimits | None:
        """The quotas of a client, of each kind the most particular one; None if there is none at all."""
        candidates = list(_candidates(user, client_id))
        found = ClientLimits(
            *(_first(bounds, candidates) for bounds in (self._produce, self._fetch, self._request, self._mutation))
        )
        return found if any(found) else None


def _first(bounds: Mapping[Entity, float], candidates: list[tuple[Entity, tuple[str, str]]]) -> Limit | None:
    if bounds:
        for entity, sharers in candidates:
            bound = bounds.get(entity)
            if bound is not None:
                return Limit(bound, sharers)
    return None


def _candidates(user: str, client_id: str) -> Iterator[tuple[Entity, tuple[str, str]]]:
    """The entities that may have a quota for a client, the most particular one first, and who shares it.

    A default is everybody's own: it is shared only by those who are one and the same. A client without an id has the
    quotas of its user alone.
    """
    both = user, client_id
    if client_id:
        yield ((CLIENT_ID, client_id), (USER, user)), both
        yield ((CLIENT_ID, None), (USER, user)), both
    yield ((USER, user),), (user, "")
    if client_id:
        yield ((CLIENT_ID, client_id), (USER, None)), both
        yield ((CLIENT_ID, None), (USER, None)), both
    yield ((USER, None),), (user, "")
    if client_id:
        yield ((CLIENT_ID, client_id),), ("", client_id)
        yield ((CLIENT_ID, None),), ("", client_id)


def address_of(text: str) -> str | None:
    """An IP address in its one form, IPv4 in IPv6 as IPv4; None if ``text`` is none."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
