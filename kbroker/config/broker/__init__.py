"""The properties of a node, as in ``server.properties``: tables by subject, and all of them as one.

Those of security, which few nodes have, are in `kbroker.config.security`, those of what kbroker does not have in
`kbroker.config.absent`, and rules between properties in `kbroker.config.broker_checks`. Begin in a subject's module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from kbroker.config.broker.groups import (
    GroupProperties,
    ShareGroupProperties,
    StreamsGroupProperties,
    TransactionProperties,
)
from kbroker.config.broker.logs import LogProperties, ReplicationProperties
from kbroker.config.broker.node import NetworkProperties, NodeProperties
from kbroker.config.broker.quorum import QuorumProperties
from kbroker.config.config_key import ConfigDef, OneOf, Range
from kbroker.config.listeners import Listener
from kbroker.config.table import BOOLEAN, LONG, LOW, MEDIUM, STRING, Table


class OwnProperties(Table):
    """Properties that Apache Kafka does not have. DescribeConfigs shows none: to Kafka they are not a node's."""

    log_hand_over_enable = BOOLEAN("true", LOW)
    """A replica that moves to another node of the machine has its log handed over on the file system, and does not copy
    it."""
    log_recovery_on_damage = STRING("hole", MEDIUM, OneOf(("hole", "cut")))
    """Place of a log that is damaged: `hole` keeps all that is whole before and behind it, `cut` ends the log there, as
    Apache Kafka does."""
    log_scrub_bytes_per_second = LONG("10485760", LOW, Range(0))
    """Bytes a second that a node reads of its logs to verify them, at the most; a tenth of them while it is
    busy. All are read once a week. 0 is off."""
    unclean_recovery_timeout_ms = LONG("10000", LOW, Range(0))
    """Longest wait for what a broker has of a partition of which no replica is known to have everything, in
    milliseconds, while that broker does not verify its logs; thirty times as long where all that have answered are
    damaged, and without end where they have lost everything. 0: the last leader leads again, as in Apache Kafka."""


class BrokerProperties(
    NodeProperties,
    NetworkProperties,
    QuorumProperties,
    LogProperties,
    ReplicationProperties,
    GroupProperties,
    ShareGroupProperties,
    StreamsGroupProperties,
    TransactionProperties,
    OwnProperties,
):
    """A node's properties, typed: the tables' attributes with its values. ``BrokerConfig`` makes and checks them.

    Attributes that end in ``_ms`` are milliseconds. Immutable.
    """

    raw: dict[str, str]
    """The properties that the user set, by name, unknown names included."""
    values: dict[str, Any]
    """Every known property, typed, by name, defaults included."""
    unknown: tuple[str, ...]
    """Names in ``raw`` that neither kbroker nor Kafka knows."""
    absent: Mapping[str, str]
    """Names in ``raw`` with another value than the default, of features that kbroker does not have -> the feature."""
    without_effect: tuple[str, ...]
    """Names in ``raw`` that Kafka acts on and kbroker does not."""
    advertised_controller_listeners: tuple[Listener, ...]
    """Derived, as Kafka derives them."""
    _defaults_for_topics: dict[str, Any]

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self.__dict__.update(attributes)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name}: a node's properties do not change")

    @property
    def is_broker(self) -> bool:
        """Whether the node serves clients."""
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        """Whether the node takes part in the metadata quorum."""
        return "controller" in self.process_roles

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """The listeners that clients and brokers use."""
        return tuple(entry for entry in self.listeners if entry.name not in self.controller_listener_names)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """The listeners that the controller answers on."""
        return tuple(entry for entry in self.listeners if entry.name in self.controller_listener_names)

    def topic_defaults(self) -> dict[str, Any]:
        """Every topic property, typed, as a topic without own properties has it."""
        return dict(self._defaults_for_topics)


BROKER_CONFIGS = ConfigDef("broker", [key for key in BrokerProperties.KEYS if key not in OwnProperties.KEYS])
"""Every property of a node but for those of security, and of what kbroker or Kafka does not have."""
OWN_CONFIGS = ConfigDef("broker", OwnProperties.KEYS)
"""Properties of a node of kbroker alone."""
