"""Kafka's properties of groups of the kinds that kbroker does not have: described with their defaults, never set."""

from __future__ import annotations

from kbroker.config.absent.missing import missing
from kbroker.config.definition import ConfigDef, ConfigKey, OneOf, Range
from kbroker.config.group import GROUP_CONFIGS
from kbroker.config.shorthand import BOOLEAN, INT, MEDIUM, STRING

_OFFSET_RESET = OneOf(("latest", "earliest", "by_duration:PnDTnHnMn.nS"))

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
        ),
        *missing(
            "kbroker has no share groups",
            ConfigKey(
                "errors.deadletterqueue.copy.record.enable",
                BOOLEAN,
                "false",
                MEDIUM,
                "Copy key and value of a record to the dead-letter topic.",
            ),
            ConfigKey(
                "errors.deadletterqueue.topic.name",
                STRING,
                "",
                MEDIUM,
                "Topic that takes what the group cannot process.",
            ),
            ConfigKey(
                "share.assignor.offload.enable",
                BOOLEAN,
                "true",
                MEDIUM,
                "Make assignments beside the coordinator's thread.",
                internal=True,
            ),
            ConfigKey(
                "share.assignment.interval.ms",
                INT,
                "1000",
                MEDIUM,
                "Shortest time between two assignments of the group, in milliseconds.",
                validator=Range(0),
            ),
            ConfigKey(
                "share.auto.offset.reset",
                STRING,
                "latest",
                MEDIUM,
                "Where the group begins in a partition: at its end, its beginning, or a duration ago.",
                validator=_OFFSET_RESET,
            ),
            ConfigKey(
                "share.delivery.count.limit",
                INT,
                "5",
                MEDIUM,
                "Times that a record is delivered at most.",
                validator=Range(2),
            ),
            ConfigKey(
                "share.heartbeat.interval.ms",
                INT,
                "5000",
                MEDIUM,
                "How often members of the group are told to send heartbeats, in milliseconds.",
                validator=Range(1),
            ),
            ConfigKey(
                "share.isolation.level",
                STRING,
                "read_uncommitted",
                MEDIUM,
                "Whether records of open and aborted transactions are delivered.",
                validator=OneOf(("read_committed", "read_uncommitted")),
            ),
            ConfigKey(
                "share.partition.max.record.locks",
                INT,
                "2000",
                MEDIUM,
                "Most records of a partition that are in delivery.",
                validator=Range(100),
            ),
            ConfigKey(
                "share.record.lock.duration.ms",
                INT,
                "30000",
                MEDIUM,
                "Milliseconds that a member has to process a record.",
                validator=Range(1000),
            ),
            ConfigKey(
                "share.renew.acknowledge.enable",
                BOOLEAN,
                "true",
                MEDIUM,
                "Let members ask for more time to process a record.",
            ),
            ConfigKey(
                "share.session.timeout.ms",
                INT,
                "45000",
                MEDIUM,
                "Silence after which a member is taken out of the group, in milliseconds.",
                validator=Range(1),
            ),
        ),
        *missing(
            "sticky is the only assignor",
            ConfigKey(
                "streams.assignor.name",
                STRING,
                None,
                MEDIUM,
                "The server-side assignor of the group.",
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

OTHER_SYNONYMS = {"streams.assignor.name": "group.streams.assignors"}
"""The broker property that gives the default of a group's, where it is not of the same name behind ``group.``."""

ALL_GROUP_CONFIGS = ConfigDef("group", [*GROUP_CONFIGS.values(), *ABSENT_GROUP_CONFIGS.values()])
"""Every property of a group that Apache Kafka has."""
