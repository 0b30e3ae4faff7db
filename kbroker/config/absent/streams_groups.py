"""Properties of streams groups (KIP-1071) that kbroker does not have."""

from __future__ import annotations

from kbroker.config.absent.missing import missing
from kbroker.config.definition import ConfigKey, Range
from kbroker.config.shorthand import BOOLEAN, CLUSTER_WIDE, INT, MEDIUM

KEYS = [
    *missing(
        "no warm-up tasks are assigned, as in Apache Kafka 4.4.0",
        ConfigKey(
            "group.streams.max.warmup.replicas",
            INT,
            "20",
            MEDIUM,
            "Upper limit of a group's own number of warm-up tasks.",
            validator=Range(0),
            internal=True,
        ),
        ConfigKey(
            "group.streams.num.warmup.replicas",
            INT,
            "2",
            MEDIUM,
            "Warm-up tasks of a group at most.",
            validator=Range(0),
            internal=True,
        ),
    ),
    *missing(
        "kbroker's coordinators run on the one event loop",
        ConfigKey(
            "group.streams.assignor.offload.enable",
            BOOLEAN,
            "true",
            MEDIUM,
            "Make assignments beside the coordinator's thread.",
            update_mode=CLUSTER_WIDE,
            internal=True,
        ),
    ),
]
