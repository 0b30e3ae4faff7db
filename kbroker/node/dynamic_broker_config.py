"""A node's properties with those that were set at run time (Kafka's ``DynamicBrokerConfig``)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kbroker.config import BrokerConfig, InvalidConfig, effective_topic_config
from kbroker.config.broker import BROKER_CONFIGS
from kbroker.config.broker_checks import CORDONED
from kbroker.errors import ApiError, ErrorCode, FatalError
from kbroker.log.log_config import LogConfig
from kbroker.raft_metadata.image import MetadataDelta, MetadataImage

if TYPE_CHECKING:
    from kbroker.config.config_key import ConfigKey
    from kbroker.log.manager import LogManager

logger = logging.getLogger(__name__)


class DynamicBrokerConfig:
    """Follows the metadata, where properties set at run time are; none before the first image."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._image = MetadataImage()
        self._told: dict[str, str] = {}
        """Properties that are set at run time without effect, of which was told."""
        self._reconfigured: dict[str, tuple[dict[str, str], BrokerConfig]] = {}
        """By what they are about: properties set at run time, and the node's own with them."""

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow the metadata."""
        self._image = image
        if delta.changed_configs:
            self._tell_of_no_effect()

    def _tell_of_no_effect(self) -> None:
        """Warn of what is stored without effect, once for each value.

        Names that only an authorizer knows are taken from anybody who may alter a broker, as in Apache Kafka, whose
        ``StandardAuthorizer`` is configured once and is not ``Reconfigurable``. Numbers of threads and the like are
        taken, too, where kbroker has no such thing.
        """
        # What the node has anyway, as min.insync.replicas, which formatting writes, needs none of these modules.
        changed = {
            name: each for name, each in self._changed().items() if not self._has(BROKER_CONFIGS.get(name), each)
        }
        if not changed:
            self._told = {}
            return
        from kbroker.config.not_at_run_time import run_time_key, why_without_effect
        from kbroker.config.security.authorization import OF_AUTHORIZER

        found = {}
        for name in sorted(changed):
            if name in OF_AUTHORIZER:
                reason = "the authorizer takes it from the node's own file, at its start"
            elif self._has(run_time_key(name), changed[name], name):
                continue
            else:
                reason = why_without_effect(name)
            if reason:
                found[name] = changed[name]
                if self._told.get(name) != changed[name]:
                    logger.warning("%s is set at run time, without effect: %s", name, reason)
        self._told = found

    def _has(self, key: ConfigKey | None, value: str, name: str | None = None) -> bool:
        return key is not None and key.format(self._config.values.get(name or key.name, key.default_value())) == value

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
        together with this node's file of today, that is logged once, and a change has no effect: as in Apache Kafka,
        which keeps the properties before a change that a broker cannot apply.
        """
        return self._with(prefix, lambda name: name.startswith(prefix))

    def of_listeners(self) -> BrokerConfig:
        """The node's properties, with those set at run time that are about its listeners and their security.

        A controller takes of these what no broker has judged: this node does.
        """
        return self._with("listeners", _is_of_listeners, _check_listeners)

    def check(self, changes: Mapping[str, tuple[int, str]]) -> BrokerConfig | None:
        """Returns the properties of ``of_listeners`` and ``cordoned.log.dirs`` after changes of them; None without any.

        Each change has the operation and the value of IncrementalAlterConfigs. ``ApiError`` INVALID_REQUEST if this
        node cannot have them.
        """
        from kbroker.config.not_at_run_time import run_time_key
        from kbroker.config.reconfiguration import check_values, refused_names
        from kbroker.raft_metadata.controller.configs import APPEND, DELETE, SET, SUBTRACT

        refused = refused_names(name for name, (operation, _) in changes.items() if operation != DELETE)
        if refused:  # here, as a controller of Apache Kafka takes any
            raise ApiError(ErrorCode.INVALID_REQUEST, refused)
        changed = self._changed()
        after = {name: value for name, value in changed.items() if name == CORDONED or _is_of_listeners(name)}
        concerned = [name for name in changes if name == CORDONED or _is_of_listeners(name)]
        for name in concerned:
            operation, value = changes[name]
            key = run_time_key(name)
            old = after.pop(name, None) or (key.default if key is not None else None) or ""
            parts = [part for part in old.split(",") if part]
            if operation == SET:
                after[name] = value
            elif operation == APPEND:
                after[name] = ",".join(dict.fromkeys([*parts, *value.split(",")]))
            elif operation == SUBTRACT:
                after[name] = ",".join(part for part in parts if part not in value.split(","))
        if not concerned:
            return None
        try:
            check_values(after, changed)
            return self._config.with_properties(after)
        except InvalidConfig as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, error.message) from None
        except FatalError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"requirement failed: {error}") from None

    def _with(
        self,
        what: str,
        is_meant: Callable[[str], bool],
        judge: Callable[[BrokerConfig, BrokerConfig, BrokerConfig], None] = lambda own, before, after: None,
    ) -> BrokerConfig:
        changed = {name: value for name, value in self._changed().items() if is_meant(name)}
        if not changed:
            self._reconfigured.pop(what, None)
            return self._config
        known, config = self._reconfigured.get(what, ({}, self._config))
        if known == changed:
            return config
        try:
            after = self._config.with_properties(changed)
            judge(self._config, config, after)
            config = after
        except (FatalError, InvalidConfig) as error:
            logger.error("set at run time, but without effect on this node: %s: %s", ", ".join(sorted(changed)), error)
        self._reconfigured[what] = changed, config
        return config


def _check_listeners(own: BrokerConfig, before: BrokerConfig, after: BrokerConfig) -> None:
    from kbroker.config.reconfiguration import check_listeners

    check_listeners(own, before, after)


def _is_of_listeners(name: str) -> bool:
    if name in BROKER_CONFIGS and not name.startswith("listener"):
        return False  # none of security's is among these
    from kbroker.config.not_at_run_time import why_refused, why_without_effect
    from kbroker.config.security import security_key

    if name not in ("listeners", "listener.security.protocol.map") and security_key(name) is None:
        return False
    return not (why_without_effect(name) or why_refused(name))


class CordonedLogDirs:
    """Marks the node's log dirs, and has the controller told of changes."""

    def __init__(self, config: DynamicBrokerConfig, log_manager: LogManager, on_change: Callable[[], None]) -> None:
        self._config = config
        self._log_manager = log_manager
        self._on_change = on_change
        self._mark()

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow the metadata, after the configuration has."""
        if delta.changed_configs and self._mark():
            self._on_change()

    def _mark(self) -> bool:
        """Whether anything has changed."""
        config = self._config.with_prefix(CORDONED)
        changed = False
        for path, log_dir in zip(config.log_dirs, self._log_manager.log_dirs, strict=True):
            cordoned = path in config.cordoned_log_dirs
            changed |= cordoned is not log_dir.cordoned
            log_dir.cordoned = cordoned
        return changed
