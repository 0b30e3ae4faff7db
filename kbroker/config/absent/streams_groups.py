"""Properties of streams groups (KIP-1071)."""

from __future__ import annotations

from kbroker.config.absent.missing import missing
from kbroker.config.definition import ConfigKey, Range
from kbroker.config.shorthand import CLUSTER_WIDE, INT, MEDIUM

KEYS = missing(
    "kbroker has no streams groups",
    ConfigKey(
        "group.streams.assignment.interval.ms",
        INT,
        "1000",
        MEDIUM,
        "Shortest time between two assignments of a streams group, in milliseconds.",
        validator=Range(0),
        update_mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "group.streams.heartbeat.interval.ms",
        INT,
        "5000",
        MEDIUM,
        "Heartbeat interval given to members, in milliseconds.",
        validator=Range(1),
    ),
    ConfigKey(
        "group.streams.initial.rebalance.delay.ms",
        INT,
        "3000",
        MEDIUM,
        "Milliseconds for which a new group waits for more members.",
        validator=Range(0),
    ),
    ConfigKey(
        "group.streams.max.assignment.interval.ms",
        INT,
        "15000",
        MEDIUM,
        "Upper limit of a group's own assignment interval, in milliseconds.",
        validator=Range(0),
    ),
    ConfigKey(
        "group.streams.max.heartbeat.interval.ms",
        INT,
        "15000",
        MEDIUM,
        "Upper limit of a group's own heartbeat interval, in milliseconds.",
        validator=Range(1),
    ),
    ConfigKey(
        "group.streams.max.session.timeout.ms",
        INT,
        "60000",
        MEDIUM,
        "Upper limit of a group's own session timeout, in milliseconds.",
        validator=Range(1),
    ),
    ConfigKey(
        "group.streams.max.size",
        INT,
        "2147483647",
        MEDIUM,
        "Most members in one streams group.",
        validator=Range(1),
    ),
    ConfigKey(
        "group.streams.max.standby.replicas",
        INT,
        "2",
        MEDIUM,
        "Upper limit of a group's own number of standby replicas.",
        validator=Range(0),
    ),
    ConfigKey(
        "group.streams.min.assignment.interval.ms",
        INT,
        "0",
        MEDIUM,
        "Lower limit of a group's own assignment interval, in milliseconds.",
        validator=Range(0),
    ),
    ConfigKey(
        "group.streams.min.heartbeat.interval.ms",
        INT,
        "5000",
        MEDIUM,
        "Lower limit of a group's own heartbeat interval, in milliseconds.",
        validator=Range(1),
    ),
    ConfigKey(
        "group.streams.min.session.timeout.ms",
        INT,
        "45000",
        MEDIUM,
        "Lower limit of a group's own session timeout, in milliseconds.",
        validator=Range(1),
    ),
    ConfigKey(
        "group.streams.num.standby.replicas",
        INT,
        "0",
        MEDIUM,
        "Standby replicas of each task.",
        validator=Range(0),
    ),
    ConfigKey(
        "group.streams.session.timeout.ms",
        INT,
        "45000",
        MEDIUM,
        "Silence after which a member is taken out of its group, in milliseconds.",
        validator=Range(1),
    ),
)
