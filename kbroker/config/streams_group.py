"""The properties of a streams group (KIP-1071), and the settings in force that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbroker.config.assignors import STREAMS_ASSIGNORS, assignor_names
from kbroker.config.config_key import ConfigDef, InvalidConfig, Range
from kbroker.config.group_bounds import Bounds, check_broker_values, check_group_values, effective_value
from kbroker.config.table import INT, LIST, LONG, LOW, MEDIUM, STRING, Table
from kbroker.value_types import NamedTuple

ASSIGNOR_NAME = "streams.assignor.name"


class StreamsGroupProperties(Table):
    """Properties that may be set for one group."""

    streams_acceptable_recovery_lag = LONG("10000", MEDIUM, Range(0), internal=True)
    """Offsets that a warm-up task may lack to count as caught up."""
    streams_assignment_interval_ms = INT("1000", MEDIUM, Range(0))
    """Shortest time between two assignments of the group, in milliseconds."""
    streams_assignor_name = STRING(None, MEDIUM)
    """The assignor of the group's tasks, by its name in `group.streams.assignors`."""
    streams_heartbeat_interval_ms = INT("5000", MEDIUM, Range(1))
    """Interval at which members of the group are told to send heartbeats, in milliseconds."""
    streams_initial_rebalance_delay_ms = INT("3000", MEDIUM, Range(0))
    """Milliseconds for which the group, when new, waits for more members."""
    streams_num_standby_replicas = INT("0", MEDIUM, Range(0))
    """Standby replicas of each task."""
    streams_rack_aware_assignment_tags = LIST("", LOW)
    """Client tags by which standby tasks are spread."""
    streams_session_timeout_ms = INT("45000", MEDIUM, Range(1))
    """Silence after which a member is taken out of the group, in milliseconds."""
    streams_task_offset_interval_ms = INT("60000", MEDIUM, Range(1), internal=True)
    """Milliseconds between two reports of task offsets."""


_CONFIGS = ConfigDef("streams group", StreamsGroupProperties.KEYS)
_SESSION_TIMEOUT = "streams.session.timeout.ms"
_HEARTBEAT_INTERVAL = "streams.heartbeat.interval.ms"
_ASSIGNMENT_INTERVAL = "streams.assignment.interval.ms"
_STANDBY_REPLICAS = "streams.num.standby.replicas"
_OFFSET_INTERVAL = "streams.task.offset.interval.ms"
_WITH_DEFAULT = [name for name in _CONFIGS if name != ASSIGNOR_NAME]
"""Those whose default is the broker property of the same name behind ``group.``."""
_TAGS = "streams.rack.aware.assignment.tags"

STREAMS_GROUP_BOUNDS: Bounds = {
    _HEARTBEAT_INTERVAL: ("group.streams.min.heartbeat.interval.ms", "group.streams.max.heartbeat.interval.ms"),
    _SESSION_TIMEOUT: ("group.streams.min.session.timeout.ms", "group.streams.max.session.timeout.ms"),
    _STANDBY_REPLICAS: (None, "group.streams.max.standby.replicas"),
    _ASSIGNMENT_INTERVAL: ("group.streams.min.assignment.interval.ms", "group.streams.max.assignment.interval.ms"),
    _OFFSET_INTERVAL: ("group.streams.min.task.offset.interval.ms", None),
}


class StreamsGroupConfig(NamedTuple):
    """The settings in force for one streams group; times in milliseconds."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    initial_rebalance_delay_ms: int = 3_000
    num_standby_replicas: int = 0
    rack_aware_assignment_tags: tuple[str, ...] = ()
    task_offset_interval_ms: int = 60_000
    acceptable_recovery_lag: int = 10_000
    assignor: str = "sticky"
    missing_assignor: str | None = None
    """The one that the group names, if the broker has it no more: the default is in its place."""


def validate_streams_group(configs: Mapping[str, str], broker: Mapping[str, Any]) -> None:
    """Judge the ``streams.`` properties that are set for a group; :class:`InvalidConfig`.

    ``broker``: the broker's typed properties by name, which bound the group's and stand for those it has not set.
    Kafka's ``GroupConfig.validate``.
    """
    own = {name: _CONFIGS.parse(name, text) for name, text in configs.items() if name in _CONFIGS}
    values = {name: own.get(name, broker[f"group.{name}"]) for name in _WITH_DEFAULT}
    check_group_values(STREAMS_GROUP_BOUNDS, values, broker)
    _check_assignor(own.get(ASSIGNOR_NAME), broker)
    tags = values[_TAGS]
    if len(set(tags)) < len(tags):
        raise InvalidConfig(f"{_TAGS} must not contain duplicate tag keys.")
    if values[_SESSION_TIMEOUT] <= values[_HEARTBEAT_INTERVAL]:
        raise InvalidConfig(f"{_SESSION_TIMEOUT} must be greater than {_HEARTBEAT_INTERVAL}")


def _check_assignor(name: str | None, broker: Mapping[str, Any]) -> None:
    """:class:`InvalidConfig` unless the broker has the assignor that a group names."""
    registered = assignor_names(broker[STREAMS_ASSIGNORS])
    if name is not None and name not in registered:
        raise InvalidConfig(
            f"{ASSIGNOR_NAME} '{name}' is not a registered task assignor. Registered assignors are: "
            f"[{', '.join(registered)}]."
        )


def check_streams_group_bounds(broker: Mapping[str, Any]) -> None:
    """Judge the broker's own ``group.streams.*`` against one another (Kafka's ``GroupCoordinatorConfig``)."""
    check_broker_values(STREAMS_GROUP_BOUNDS, broker, heartbeat=_HEARTBEAT_INTERVAL, session=_SESSION_TIMEOUT)


def effective_streams_group(configs: Mapping[str, str], broker: Mapping[str, Any]) -> StreamsGroupConfig:
    """The settings in force for a group with ``configs``; ``broker`` as for :func:`validate_streams_group`."""
    values = {
        name: effective_value(name, configs, broker[f"group.{name}"], _CONFIGS.parse, STREAMS_GROUP_BOUNDS, broker)
        for name in _WITH_DEFAULT
    }
    registered = assignor_names(broker[STREAMS_ASSIGNORS])
    named = configs.get(ASSIGNOR_NAME)
    is_missing = named is not None and named not in registered
    return StreamsGroupConfig(
        session_timeout_ms=values[_SESSION_TIMEOUT],
        heartbeat_interval_ms=values[_HEARTBEAT_INTERVAL],
        assignment_interval_ms=values[_ASSIGNMENT_INTERVAL],
        initial_rebalance_delay_ms=values["streams.initial.rebalance.delay.ms"],
        num_standby_replicas=values[_STANDBY_REPLICAS],
        rack_aware_assignment_tags=tuple(values[_TAGS]),
        task_offset_interval_ms=values[_OFFSET_INTERVAL],
        acceptable_recovery_lag=values["streams.acceptable.recovery.lag"],
        assignor=registered[0] if named is None or is_missing else named,
        missing_assignor=named if is_missing else None,
    )
