"""The properties of a group (resource type GROUP of DescribeConfigs)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbroker.config.assignors import STREAMS_ASSIGNORS
from kbroker.config.config_key import ConfigDef, InvalidConfig, Range
from kbroker.config.group_bounds import Bounds, check_broker_values, check_group_values, effective_value
from kbroker.config.share_group import (
    WITHOUT_SYNONYM,
    ShareGroupConfig,
    ShareGroupProperties,
    check_share_group_bounds,
    effective_share_group,
    validate_share_group,
)
from kbroker.config.streams_group import (
    ASSIGNOR_NAME,
    StreamsGroupConfig,
    StreamsGroupProperties,
    check_streams_group_bounds,
    effective_streams_group,
    validate_streams_group,
)
from kbroker.config.table import INT, MEDIUM, Table
from kbroker.value_types import NamedTuple


class ConsumerGroupProperties(Table):
    """Properties of a consumer group (KIP-848)."""

    consumer_assignment_interval_ms = INT("1000", MEDIUM, Range(0))
    """Shortest time between two assignments of the group, in milliseconds."""
    consumer_heartbeat_interval_ms = INT("5000", MEDIUM, Range(1))
    """Interval at which members of the group are told to send heartbeats, in milliseconds; every second, if that is
    less, while they wait for partitions."""
    consumer_session_timeout_ms = INT("45000", MEDIUM, Range(1))
    """Silence after which a member is taken out of the group, in milliseconds."""


GROUP_CONFIGS = ConfigDef(
    "group", [*ConsumerGroupProperties.KEYS, *ShareGroupProperties.KEYS, *StreamsGroupProperties.KEYS]
)
"""Properties that may be set for one group."""

OTHER_SYNONYMS: Mapping[str, str] = {ASSIGNOR_NAME: STREAMS_ASSIGNORS}
"""The broker property that gives the default of a group's, where it is not of the same name behind ``group.``."""

_SESSION_TIMEOUT = "consumer.session.timeout.ms"
_HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
_ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"

GROUP_CONFIG_SYNONYMS: Mapping[str, str] = {
    name: OTHER_SYNONYMS.get(name, f"group.{name}") for name in GROUP_CONFIGS if name not in WITHOUT_SYNONYM
}
"""The broker property that stands for a group which has not set its own."""

GROUP_CONFIG_BOUNDS: Bounds = {
    name: (f"group.consumer.min.{rest}", f"group.consumer.max.{rest}")
    for name in (_HEARTBEAT_INTERVAL, _SESSION_TIMEOUT, _ASSIGNMENT_INTERVAL)
    for rest in [name.removeprefix("consumer.")]
}

_NOT_SERVED = {
    "share.assignor.offload.enable": "this broker makes assignments on its event loop",
    "streams.num.warmup.replicas": "this broker assigns no warm-up tasks",
    "streams.assignor.offload.enable": "this broker makes assignments on its event loop",
}
"""The beginnings of names of Kafka's properties that are refused, and why."""


class GroupConfig(NamedTuple):
    """The settings in force for one group; times in milliseconds."""

    consumer_session_timeout_ms: int
    consumer_heartbeat_interval_ms: int
    consumer_assignment_interval_ms: int
    streams: StreamsGroupConfig = StreamsGroupConfig()
    share: ShareGroupConfig = ShareGroupConfig()


def validate_group_configs(configs: Mapping[str, str], broker: Mapping[str, Any]) -> None:
    """Judge all that is set for a group; :class:`InvalidConfig` (Kafka's ``GroupConfig.validate``).

    ``broker``: the broker's typed properties by name, which bound the group's and stand for those it has not set.
    """
    for name in configs:
        if name not in GROUP_CONFIGS:
            for beginning, reason in _NOT_SERVED.items():
                if name.startswith(beginning):
                    raise InvalidConfig(f"{name}: {reason}")
            raise InvalidConfig(f"Unknown group config name: {name}")
    values = {name: broker[synonym] for name, synonym in GROUP_CONFIG_SYNONYMS.items()}
    values.update((name, GROUP_CONFIGS.parse(name, text)) for name, text in configs.items())
    validate_streams_group(configs, broker)
    validate_share_group(configs, broker)
    check_group_values(GROUP_CONFIG_BOUNDS, values, broker)
    if values[_SESSION_TIMEOUT] <= values[_HEARTBEAT_INTERVAL]:
        raise InvalidConfig(f"{_SESSION_TIMEOUT} must be greater than {_HEARTBEAT_INTERVAL}")


def check_group_bounds(broker: Mapping[str, Any]) -> None:
    """Judge the broker's own ``group.consumer.*``, ``group.share.*`` and ``group.streams.*`` against one another.

    Kafka's ``GroupCoordinatorConfig``.
    """
    check_streams_group_bounds(broker)
    check_share_group_bounds(broker)
    check_broker_values(GROUP_CONFIG_BOUNDS, broker, heartbeat=_HEARTBEAT_INTERVAL, session=_SESSION_TIMEOUT)


def effective_group_config(configs: Mapping[str, str], broker: Mapping[str, Any]) -> GroupConfig:
    """The settings in force for a group with ``configs``; ``broker`` as for :func:`validate_group_configs`."""
    values: dict[str, int] = {
        name: effective_value(
            name, configs, broker[GROUP_CONFIG_SYNONYMS[name]], GROUP_CONFIGS.parse, GROUP_CONFIG_BOUNDS, broker
        )
        for name in GROUP_CONFIG_BOUNDS
    }
    return GroupConfig(
        values[_SESSION_TIMEOUT],
        values[_HEARTBEAT_INTERVAL],
        values[_ASSIGNMENT_INTERVAL],
        effective_streams_group(configs, broker),
        effective_share_group(configs, broker),
    )
