"""Properties of topics that are made."""

from __future__ import annotations

from kbroker.config.definition import ConfigKey, Range
from kbroker.config.shorthand import BOOLEAN, HIGH, INT, MEDIUM, SHORT

KEYS = [
    ConfigKey(
        "auto.create.topics.enable",
        BOOLEAN,
        "true",
        HIGH,
        "Create a topic when a client that allows it asks for one that does not exist.",
    ),
    ConfigKey(
        "delete.topic.enable",
        BOOLEAN,
        "true",
        HIGH,
        "Allow topics to be deleted.",
    ),
    ConfigKey(
        "num.partitions",
        INT,
        "1",
        MEDIUM,
        "Partitions of a topic created automatically or without a count.",
        validator=Range(1),
    ),
    ConfigKey(
        "share.coordinator.state.topic.min.isr",
        SHORT,
        "2",
        HIGH,
        "min.insync.replicas of the share state topic.",
        validator=Range(1),
    ),
    ConfigKey(
        "share.coordinator.state.topic.replication.factor",
        SHORT,
        "3",
        HIGH,
        "Replication factor of the share state topic.",
        validator=Range(1),
    ),
]
