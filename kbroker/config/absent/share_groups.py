"""Properties of share groups (KIP-932) that kbroker does not have."""

from __future__ import annotations

from kbroker.config.absent.missing import missing
from kbroker.config.definition import ConfigKey, Range
from kbroker.config.shorthand import BOOLEAN, CLUSTER_WIDE, HIGH, INT, MEDIUM, STRING

KEYS = [
    *missing(
        "a Java class; kbroker has its own",
        ConfigKey(
            "group.share.persister.class.name",
            STRING,
            "org.apache.kafka.server.share.persister.DefaultStatePersister",
            MEDIUM,
            "Java class that keeps the state of deliveries.",
            internal=True,
        ),
        ConfigKey(
            "group.share.dlq.manager.class.name",
            STRING,
            "org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager",
            MEDIUM,
            "Java class that writes to dead-letter topics.",
            internal=True,
        ),
    ),
    *missing(
        "kbroker's coordinators run on the one event loop",
        ConfigKey(
            "share.coordinator.cached.buffer.max.bytes",
            INT,
            "1048588",
            MEDIUM,
            "Bytes of a buffer that the coordinator keeps to write the next records with.",
            validator=Range(524288),
            update_mode=CLUSTER_WIDE,
        ),
        ConfigKey(
            "share.coordinator.load.buffer.size",
            INT,
            "5242880",
            HIGH,
            "Bytes read at once when the coordinator loads its state.",
            validator=Range(1),
        ),
        ConfigKey(
            "share.coordinator.threads",
            INT,
            "1",
            MEDIUM,
            "Threads of the coordinator.",
            validator=Range(1),
        ),
        ConfigKey(
            "group.share.assignor.offload.enable",
            BOOLEAN,
            "true",
            MEDIUM,
            "Make assignments beside the coordinator's thread.",
            update_mode=CLUSTER_WIDE,
            internal=True,
        ),
    ),
    *missing(
        "a request that is answered leaves at once",
        ConfigKey(
            "share.fetch.purgatory.purge.interval.requests",
            INT,
            "1000",
            MEDIUM,
            "Waiting requests after which finished ones are swept out.",
        ),
    ),
]
