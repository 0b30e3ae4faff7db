"""Limits the rate of connections: to a node, to one of its listeners, from one address (KIP-612).

The rules are those of Kafka's ``ConnectionQuotas``: a listener that gets too many waits before it takes the next one,
and a client whose address sends too many is kept waiting, and then refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kbroker.security.quotas.entities import QuotaTable, address_of
from kbroker.security.quotas.meters import QuotaRate

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

MAX_RATE = 2**31 - 1
"""No limit."""

RATE = "max.connection.creation.rate"
LISTENER_PREFIX = "listener.name."

KEPT_ADDRESSES = 1024
"""From so many addresses on, those that nothing came from lately are forgotten before another one is counted."""


class ConnectionRates:
    """The connections of one node. Times are milliseconds of the clock that is given."""

    def __init__(self, config: BrokerConfig, now: Callable[[], float]) -> None:
        """``now`` gives seconds."""
        self._config = config
        self._now = now
        self._samples = config.quota_window_num
        self._window_ms = config.quota_window_size_seconds * 1000
        # The brokers' own listener is not to suffer from what clients do to the others.
        self._protected = config.inter_broker_listener_name if len(config.broker_listeners) > 1 else None
        self._node = self._rate()
        self._listeners: dict[str, QuotaRate] = {}
        self._addresses: dict[str, QuotaRate] = {}
        self._sweep_at = KEPT_ADDRESSES
        self.table = QuotaTable({})
        self.node_bound: float = MAX_RATE
        """Connections a second, of all listeners together."""
        self.listener_bounds: Mapping[str, float] = {}
        """Connections a second, by listener name."""

    def _rate(self) -> QuotaRate:
        return QuotaRate(self._samples, self._window_ms)

    @property
    def is_limited(self) -> bool:
        """Whether there is any limit."""
        return self.node_bound < MAX_RATE or bool(self.listener_bounds) or self.table.limits_addresses

    def follow(self, in_force: Callable[[str], BrokerConfig]) -> None:
        """Take over the limits of properties; ``in_force`` gives those of a prefix with what was set at run time."""
        self.node_bound = in_force(RATE).max_connection_creation_rate
        of_listeners = in_force(LISTENER_PREFIX).values
        self.listener_bounds = {
            listener.name: bound
            for listener in self._config.listeners
            if (bound := of_listeners.get(f"{LISTENER_PREFIX}{listener.name.lower()}.{RATE}")) is not None
        }

    def wait_ms(self, listener: str) -> int:
        """Count a connection. For how long its listener is to wait with it; one window at most."""
        now_ms = int(self._now() * 1000)
        throttle_ms = 0
        if listener != self._protected:
            self._node.record(1, now_ms)
            throttle_ms = self._node.throttle_ms(self.node_bound, now_ms)
        bound = self.listener_bounds.get(listener)
        if bound is not None:
            rate = self._listeners.setdefault(listener, self._rate())
            rate.record(1, now_ms)
            throttle_ms = max(throttle_ms, rate.throttle_ms(bound, now_ms))
        return min(throttle_ms, self._window_ms)

    def refusal_ms(self, listener: str, address: str) -> int:
        """Count a connection from an address: 0 if it may be had. Else for how long to keep it before it is closed.

        One that is refused is not counted, neither for the address nor for the listener and the node.
        """
        address = address_of(address.partition("%")[0]) or address
        bound = self.table.by_ip.get(address, self.table.ip_default)
        if bound is None:
            return 0
        now_ms = int(self._now() * 1000)
        rate = self._address_rate(address, now_ms)
        rate.record(1, now_ms)
        throttle_ms = min(rate.throttle_ms(bound, now_ms), self._window_ms)
        if throttle_ms:
            rate.record(-1, now_ms)
            if listener != self._protected:
                self._node.record(-1, now_ms)
            if listener in self._listeners:
                self._listeners[listener].record(-1, now_ms)
        return throttle_ms

    def _address_rate(self, address: str, now_ms: int) -> QuotaRate:
        rate = self._addresses.get(address)
        if rate is None:
            if len(self._addresses) >= self._sweep_at:
                self._addresses = {name: each for name, each in self._addresses.items() if not each.is_idle(now_ms)}
                self._sweep_at = max(KEPT_ADDRESSES, 2 * len(self._addresses))
            rate = self._addresses[address] = self._rate()
        return rate
