"""The properties of a consumer group (resource type GROUP of DescribeConfigs).

Names, types, defaults, limits and update modes are Apache Kafka 4.3.1's (a test compares them with a table of
its facts); the descriptions are kbroker's.
"""

from __future__ import annotations

from kbroker.config.definition import ConfigDef, ConfigKey, ConfigType, Importance, Range

INT = ConfigType.INT
MEDIUM = Importance.MEDIUM

GROUP_CONFIGS = ConfigDef(
    "group",
    [
        ConfigKey(
            "consumer.assignment.interval.ms",
            INT,
            "1000",
            MEDIUM,
            "Shortest time between two assignments of the group, in milliseconds.",
            validator=Range(0),
        ),
        ConfigKey(
            "consumer.heartbeat.interval.ms",
            INT,
            "5000",
            MEDIUM,
            "How often members of the group are told to send heartbeats, in milliseconds.",
            validator=Range(1),
        ),
        ConfigKey(
            "consumer.session.timeout.ms",
            INT,
            "45000",
            MEDIUM,
            "Silence after which a member is taken out of the group, in milliseconds.",
            validator=Range(1),
        ),
    ],
)
"""Properties that may be set for one group."""
