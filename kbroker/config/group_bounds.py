"""The limits that a broker's properties set to the properties of its groups, for groups of all types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kbroker.config.config_key import InvalidConfig

Bounds = Mapping[str, tuple[str | None, str | None]]
"""By a group's property: the names of the broker's that are its lower and its upper limit.

In the order in which Kafka checks them.
"""


def check_group_values(bounds: Bounds, values: Mapping[str, Any], broker: Mapping[str, Any]) -> None:
    """Judge a group's values by the limits of ``broker``, its typed properties by name; :class:`InvalidConfig`."""
    for name, (low, high) in bounds.items():
        value = values[name]
        if low is not None and high is not None and not broker[low] <= value <= broker[high]:
            raise InvalidConfig(f"{name} must be in the range {broker[low]} to {broker[high]} inclusive.")
        if low is not None and value < broker[low]:
            raise InvalidConfig(f"{name} must be greater than or equal to {low}")
        if high is not None and value > broker[high]:
            raise InvalidConfig(f"{name} must be less than or equal to {high}")


def check_broker_values(bounds: Bounds, broker: Mapping[str, Any], *, heartbeat: str, session: str) -> None:
    """Judge what the broker gives to groups by its own limits; :class:`InvalidConfig`.

    ``heartbeat`` and ``session`` are the group's properties with the interval of one and the timeout of the other.
    """
    for name, (low, high) in bounds.items():
        value = broker[f"group.{name}"]
        if low is not None and high is not None and broker[high] < broker[low]:
            raise InvalidConfig(f"{high} must be greater than or equal to {low}")
        if low is not None and value < broker[low]:
            raise InvalidConfig(f"group.{name} must be greater than or equal to {low}")
        if high is not None and value > broker[high]:
            raise InvalidConfig(f"group.{name} must be less than or equal to {high}")
    if broker[f"group.{heartbeat}"] >= broker[f"group.{session}"]:
        raise InvalidConfig(f"group.{heartbeat} must be less than group.{session}")


def effective_value(
    name: str,
    configs: Mapping[str, str],
    default: Any,
    parse: Callable[[str, str], Any],
    bounds: Bounds,
    broker: Mapping[str, Any],
) -> Any:
    """The value in force of a group's property: its own among ``configs``, or the default.

    A value that was set under other bounds is moved within today's; one that cannot be read gives way to the default.
    """
    value = default
    if name in configs:
        try:
            value = parse(name, configs[name])
        except InvalidConfig:
            pass  # stored by another release
    low, high = bounds.get(name, (None, None))
    if low is not None:
        value = max(value, broker[low])
    if high is not None:
        value = min(value, broker[high])
    return value
