"""The properties of a share group (KIP-932), and the settings in force that follow from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from kbroker.config.config_key import ConfigDef, InvalidConfig, OneOf, Range
from kbroker.config.group_bounds import Bounds, check_broker_values, check_group_values, effective_value
from kbroker.config.table import BOOLEAN, INT, MEDIUM, STRING, Table
from kbroker.value_types import NamedTuple

_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", re.IGNORECASE | re.ASCII
)


def duration_ms(text: str) -> int:
    """Milliseconds of a duration as Java writes it, such as ``P2DT3H4M5.5S``; ``ValueError`` if it is none."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is not a duration such as PT1H30M")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return round(((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000)


class _OffsetReset:
    """Validator of ``share.auto.offset.reset`` (Kafka's ``ShareGroupAutoOffsetResetStrategy``)."""

    def __call__(self, name: str, value: Any) -> None:
        if value in ("earliest", "latest"):
            return
        try:
            if not str(value).startswith(_BY_DURATION):
                raise ValueError(value)
            duration_ms(value.removeprefix(_BY_DURATION))
        except ValueError:
            raise InvalidConfig(
                f"Invalid value {value} for configuration {name}: Invalid value `{value}` for configuration {name}. "
                "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
            ) from None

    def __str__(self) -> str:
        return "[latest, earliest, by_duration:PnDTnHnMn.nS]"


_SESSION_TIMEOUT = "share.session.timeout.ms"
_HEARTBEAT_INTERVAL = "share.heartbeat.interval.ms"
_ASSIGNMENT_INTERVAL = "share.assignment.interval.ms"
_LOCK_DURATION = "share.record.lock.duration.ms"
_DELIVERY_LIMIT = "share.delivery.count.limit"
_RECORD_LOCKS = "share.partition.max.record.locks"
_RESET = "share.auto.offset.reset"
_ISOLATION = "share.isolation.level"
_RENEW = "share.renew.acknowledge.enable"
_DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
_DEAD_LETTER_COPY = "errors.deadletterqueue.copy.record.enable"


class ShareGroupProperties(Table):
    """Properties that may be set for one group."""

    errors_deadletterqueue_copy_record_enable = BOOLEAN("false", MEDIUM)
    """Copy key and value of a record to the dead-letter topic."""
    errors_deadletterqueue_topic_name = STRING("", MEDIUM)
    """Topic that takes what the group rejects, and what was delivered too often; without one, that is dropped."""
    share_assignment_interval_ms = INT("1000", MEDIUM, Range(0))
    """Shortest time between two assignments of the group, in milliseconds."""
    share_auto_offset_reset = STRING("latest", MEDIUM, _OffsetReset())
    """Where the group begins to read a partition: `earliest`, `latest`, or `by_duration:` and an ISO 8601 duration
    before now."""
    share_delivery_count_limit = INT("5", MEDIUM, Range(2))
    """Times that a record is delivered at most."""
    share_heartbeat_interval_ms = INT("5000", MEDIUM, Range(1))
    """Interval at which members of the group are told to send heartbeats, in milliseconds."""
    share_isolation_level = STRING("read_uncommitted", MEDIUM, OneOf(("read_committed", "read_uncommitted")))
    """Whether members get records of transactions that are open or aborted (`read_uncommitted`) or not
    (`read_committed`)."""
    share_partition_max_record_locks = INT("2000", MEDIUM, Range(100))
    """Most records of a partition that are in delivery."""
    share_record_lock_duration_ms = INT("30000", MEDIUM, Range(1000))
    """Milliseconds that a member has to process a record."""
    share_renew_acknowledge_enable = BOOLEAN("true", MEDIUM)
    """Whether a member may renew the time that it has for a record."""
    share_session_timeout_ms = INT("45000", MEDIUM, Range(1))
    """Silence after which a member is taken out of the group, in milliseconds."""


WITHOUT_SYNONYM = frozenset({_RESET, _ISOLATION, _RENEW, _DEAD_LETTER_TOPIC, _DEAD_LETTER_COPY})
"""Those of them for which no broker property stands."""

_CONFIGS = ConfigDef("share group", ShareGroupProperties.KEYS)

SHARE_GROUP_BOUNDS: Bounds = {
    name: (f"group.share.min.{rest}", f"group.share.max.{rest}")
    for name in (
        _HEARTBEAT_INTERVAL,
        _SESSION_TIMEOUT,
        _LOCK_DURATION,
        _DELIVERY_LIMIT,
        _RECORD_LOCKS,
        _ASSIGNMENT_INTERVAL,
    )
    for rest in [name.removeprefix("share.")]
}


class ShareGroupConfig(NamedTuple):
    """The settings in force for one share group; times in milliseconds."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    partition_max_record_locks: int = 2_000
    auto_offset_reset: str = "latest"
    """Where a partition without a state begins: ``earliest``, ``latest``, or ``by_duration:`` and an ISO 8601 time."""
    isolation_level: str = "read_uncommitted"
    renew_acknowledge_enable: bool = True
    dead_letter_topic: str = ""
    """Empty: what is given up is dropped."""
    dead_letter_copy: bool = False

    @property
    def reset_duration_ms(self) -> int | None:
        """The time before now at which a partition without a state begins; None unless it is ``by_duration``."""
        kind, _, duration = self.auto_offset_reset.partition(":")
        return duration_ms(duration) if kind == "by_duration" else None


def validate_share_group(configs: Mapping[str, str], broker: Mapping[str, Any]) -> None:
    """Judge what is set for a share group; :class:`InvalidConfig`.

    ``broker``: the broker's typed properties by name, which bound the group's and stand for those it has not set.
    Kafka's ``GroupConfig.validate``.
    """
    own = {name: _CONFIGS.parse(name, text) for name, text in configs.items() if name in _CONFIGS}
    values = {name: own.get(name, broker[f"group.{name}"]) for name in SHARE_GROUP_BOUNDS}
    check_group_values(SHARE_GROUP_BOUNDS, values, broker)
    if values[_SESSION_TIMEOUT] <= values[_HEARTBEAT_INTERVAL]:
        raise InvalidConfig(f"{_SESSION_TIMEOUT} must be greater than {_HEARTBEAT_INTERVAL}")
    if own.get(_DEAD_LETTER_TOPIC, "").startswith("__"):
        raise InvalidConfig(f"{_DEAD_LETTER_TOPIC}: DLQ topic name must not start with '__'")


def check_share_group_bounds(broker: Mapping[str, Any]) -> None:
    """Judge the broker's own ``group.share.*`` against one another (Kafka's ``ShareGroupConfig``)."""
    check_broker_values(SHARE_GROUP_BOUNDS, broker, heartbeat=_HEARTBEAT_INTERVAL, session=_SESSION_TIMEOUT)


def effective_share_group(configs: Mapping[str, str], broker: Mapping[str, Any]) -> ShareGroupConfig:
    """The settings in force for a group with ``configs``; ``broker`` as for :func:`validate_share_group`."""
    values: dict[str, Any] = {}
    for key in ShareGroupProperties.KEYS:
        name = key.name
        default = _CONFIGS.parse(name, str(key.default)) if name in WITHOUT_SYNONYM else broker[f"group.{name}"]
        values[name] = effective_value(name, configs, default, _CONFIGS.parse, SHARE_GROUP_BOUNDS, broker)
    return ShareGroupConfig(
        session_timeout_ms=values[_SESSION_TIMEOUT],
        heartbeat_interval_ms=values[_HEARTBEAT_INTERVAL],
        assignment_interval_ms=values[_ASSIGNMENT_INTERVAL],
        record_lock_duration_ms=values[_LOCK_DURATION],
        delivery_count_limit=values[_DELIVERY_LIMIT],
        partition_max_record_locks=values[_RECORD_LOCKS],
        auto_offset_reset=values[_RESET],
        isolation_level=values[_ISOLATION],
        renew_acknowledge_enable=values[_RENEW],
        dead_letter_topic=values[_DEAD_LETTER_TOPIC],
        dead_letter_copy=values[_DEAD_LETTER_COPY],
    )
