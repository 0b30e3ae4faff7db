"""The quotas of a node as the metadata have them: what counts for them is imported with the first one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.node.dynamic_broker_config import DynamicBrokerConfig
    from kbroker.node.serving.client_quotas import ClientQuotas
    from kbroker.node.serving.connection_rates import ConnectionRates
    from kbroker.raft_metadata.image import MetadataDelta, MetadataImage

logger = logging.getLogger(__name__)


class NodeQuotas:
    """The quotas of a node, as the latest image has them (Kafka's ``ClientQuotaMetadataManager``).

    A cluster without any does not import what counts them: requests and connections cost nothing more then.
    """

    def __init__(
        self,
        config: BrokerConfig,
        dynamic_config: DynamicBrokerConfig,
        now: Callable[[], float],
        by_rule: ClientQuotas | None,
    ) -> None:
        """``now`` gives seconds. ``by_rule`` counts for the quotas of a rule, whether any is set or not."""
        self._config = config
        self._dynamic_config = dynamic_config
        self._now = now
        self._is_rule = by_rule is not None
        self._known: object = None
        self._made = None if by_rule is None else (by_rule, self._connection_rates())
        self.clients: ClientQuotas | None = None
        """The quotas of users and client ids; None if there is none."""
        self.connections: ConnectionRates | None = None
        """The limits of connections' rates; None if there is none."""

    def _connection_rates(self) -> ConnectionRates:
        from kbroker.node.serving.connection_rates import ConnectionRates

        return ConnectionRates(self._config, self._now)

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take over the quotas of an image, and the limits to connections in its configs."""
        quotas = image.principals.client_quotas
        if self._made is None:
            if not quotas and not self._dynamic_config.limits_connection_rate:
                return
            from kbroker.node.serving.client_quotas import ClientQuotas

            self._made = ClientQuotas(self._config, self._now), self._connection_rates()
        clients, rates = self._made
        if quotas is not self._known:
            from kbroker.security.quotas.entities import IP, QuotaTable, address_of

            self._known = quotas
            clients.table = rates.table = QuotaTable(quotas)
            for name in (dict(entity).get(IP) for entity in quotas):
                if name is not None and address_of(name) is None:
                    logger.warning("the quota of the host %s has no effect: only addresses are limited", name)
        rates.follow(self._dynamic_config.with_prefix)
        self.clients = clients if self._is_rule or clients.table.limits_clients else None
        self.connections = rates if rates.is_limited else None
