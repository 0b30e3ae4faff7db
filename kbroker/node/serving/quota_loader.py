"""Keeps a node's quotas up to date with the metadata (Kafka's ``ClientQuotaMetadataManager``).

Made with the first quota, or limit to the rate of connections: a node without any does not import what counts them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kbroker.node.serving.client_quotas import ClientQuotas
from kbroker.node.serving.connection_rates import ConnectionRates
from kbroker.security.quotas.entities import IP, QuotaTable, address_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.config import BrokerConfig
    from kbroker.node.dynamic_broker_config import DynamicBrokerConfig
    from kbroker.raft_metadata.image import MetadataImage

logger = logging.getLogger(__name__)

RATE = "max.connection.creation.rate"
LISTENER_PREFIX = "listener.name."


class QuotaLoader:
    """Reads the quotas of each image."""

    def __init__(
        self,
        config: BrokerConfig,
        dynamic_config: DynamicBrokerConfig,
        now: Callable[[], float],
        clients: ClientQuotas | None = None,
    ) -> None:
        """``now`` gives seconds. ``clients`` counts for quotas that there are whether any is set or not."""
        self._config = config
        self._dynamic_config = dynamic_config
        self._is_rule = clients is not None
        self._clients = ClientQuotas(config, now) if clients is None else clients
        self._rates = ConnectionRates(config, now)
        self._known: object = None

    def load(self, image: MetadataImage) -> tuple[ClientQuotas | None, ConnectionRates | None]:
        """Take over the quotas of an image, and the limits to connections in its configs.

        Returns the quotas of users and client ids, None as long as nobody has one; and the rates of connections, None
        as long as these may come as fast as they like: requests and connections cost nothing more then.
        """
        quotas = image.principals.client_quotas
        if quotas is not self._known:
            self._known = quotas
            self._clients.table = self._rates.table = QuotaTable(quotas)
            for name in (dict(entity).get(IP) for entity in quotas):
                if name is not None and address_of(name) is None:
                    logger.warning("the quota of the host %s has no effect: only addresses are limited", name)
        rates = self._rates
        rates.node_bound = self._dynamic_config.with_prefix(RATE).max_connection_creation_rate
        of_listeners = self._dynamic_config.with_prefix(LISTENER_PREFIX).values
        rates.listener_bounds = {
            listener.name: bound
            for listener in self._config.listeners
            if (bound := of_listeners.get(f"{LISTENER_PREFIX}{listener.name.lower()}.{RATE}")) is not None
        }
        limits_clients = self._is_rule or self._clients.table.limits_clients
        return self._clients if limits_clients else None, rates if rates.is_limited else None
