"""A node's properties with those that were set at run time (Kafka's ``DynamicBrokerConfig``)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kbroker.config import BROKER_CONFIGS, BrokerConfig, effective_topic_config
from kbroker.errors import FatalError
from kbroker.log.log_config import LogConfig
from kbroker.raft_metadata.image import MetadataDelta, MetadataImage

logger = logging.getLogger(__name__)


class DynamicBrokerConfig:
    """Follows the metadata, where properties set at run time are; none before the first image."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._image = MetadataImage()
        self._told: dict[str, str] = {}
        """Properties that are set at run time without effect, of which was told."""
        self._reconfigured: dict[str, tuple[dict[str, str], BrokerConfig]] = {}
        """By prefix of their names: properties set at run time, and the node's own with them."""

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow the metadata."""
        self._image = image
        if delta.changed_configs:
            self._tell_of_no_effect()

    def _tell_of_no_effect(self) -> None:
        """Warn of what is stored without effect, once for each value.

        Names that only an authorizer knows are taken from anybody who may alter a broker, as in Apache Kafka, whose
        ``StandardAuthorizer`` is configured once and is not ``Reconfigurable``. Numbers of threads and the like are
        refused by kbroker's controllers; a node of Apache Kafka may be the active one.
        """
        changed = self._changed()
        if not changed:
            self._told = {}
            return
        from kbroker.config.fixed import why_fixed
        from kbroker.config.security.authorization import OF_AUTHORIZER

        found = {}
        for name in sorted(changed):
            if name in OF_AUTHORIZER:
                reason = "the authorizer takes it from the node's own file, at its start"
            else:
                reason = why_fixed(name) if name in BROKER_CONFIGS else ""
            if reason:
                found[name] = changed[name]
                if self._told.get(name) != changed[name]:
                    logger.warning("%s is set at run time, without effect: %s", name, reason)
        self._told = found

    def _changed(self) -> dict[str, str]:
        """Properties that were set at run time, for this node or for all; its own win."""
        configs = self._image.configs
        return {**configs.for_broker(None), **configs.for_broker(self._config.node_id)}

    @property
    def limits_connection_rate(self) -> bool:
        """Whether ``max.connection.creation.rate`` is set, for the node or for a listener."""
        suffix = "max.connection.creation.rate"
        return any(name.endswith(suffix) for names in (self._config.raw, self._changed()) for name in names)

    @property
    def producer_id_expiration_ms(self) -> int:
        """The time after which a log forgets a producer that has written nothing."""
        return self.with_prefix("producer.id.").producer_id_expiration_ms

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """The configuration of a topic's logs, given the topic's own configs."""
        return LogConfig.from_values(effective_topic_config(self._config, overrides, self._changed()))

    def with_prefix(self, prefix: str) -> BrokerConfig:
        """The node's properties, with those set at run time whose names begin with ``prefix``.

        Those were judged by the properties file that the active controller had at the time. Where they do not go
        together with this node's file of today, that is logged once, and they have no effect: as in Apache Kafka, which
        keeps the properties before a change that a broker cannot apply.
        """
        changed = {name: value for name, value in self._changed().items() if name.startswith(prefix)}
        if not changed:
            return self._config
        known = self._reconfigured.get(prefix)
        if known is not None and known[0] == changed:
            return known[1]
        try:
            config = self._config.with_properties(changed)
        except FatalError as error:
            config = self._config
            logger.error("set at run time, but without effect on this node: %s: %s", ", ".join(sorted(changed)), error)
        self._reconfigured[prefix] = changed, config
        return config
