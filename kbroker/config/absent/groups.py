"""Kafka's properties of groups of the kinds that kbroker does not have: described with their defaults, never set."""

from __future__ import annotations

from kbroker.config.absent.missing import missing
from kbroker.config.definition import ConfigDef, ConfigKey, Range
from kbroker.config.group import GROUP_CONFIGS
from kbroker.config.shorthand import BOOLEAN, INT, MEDIUM

ABSENT_GROUP_CONFIGS = ConfigDef(
    "group",
    [
        *missing(
            "assignments are made on the event loop",
            ConfigKey(
                "consumer.assignor.offload.enable",
                BOOLEAN,
                "true",
                MEDIUM,
                "Make assignments of the group beside the coordinator's thread.",
                internal=True,
            ),
            ConfigKey(
                "share.assignor.offload.enable",
                BOOLEAN,
                "true",
                MEDIUM,
                "Make assignments beside the coordinator's thread.",
                internal=True,
            ),
        ),
        *missing(
            "kbroker's coordinators run on the one event loop",
            ConfigKey(
                "streams.assignor.offload.enable",
                BOOLEAN,
                "true",
                MEDIUM,
                "Make assignments beside the coordinator's thread.",
                internal=True,
            ),
        ),
        *missing(
            "no warm-up tasks are assigned, as in Apache Kafka 4.4.0",
            ConfigKey(
                "streams.num.warmup.replicas",
                INT,
                "2",
                MEDIUM,
                "Warm-up tasks of the group at most.",
                validator=Range(0),
                internal=True,
            ),
        ),
    ],
)
"""Names, types, defaults and limits are Apache Kafka 4.4.0's; ``no_effect`` says what is missing."""

ALL_GROUP_CONFIGS = ConfigDef("group", [*GROUP_CONFIGS.values(), *ABSENT_GROUP_CONFIGS.values()])
"""Every property of a group that Apache Kafka has."""
