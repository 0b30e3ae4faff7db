"""Properties of plugins, quotas, telemetry, and single features."""

from __future__ import annotations

from kbroker.config.absent.missing import missing
from kbroker.config.definition import ConfigKey, Range
from kbroker.config.shorthand import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LONG, LOW, MEDIUM

KEYS = [
    *missing(
        "no level of a feature is unstable in kbroker",
        ConfigKey(
            "unstable.feature.versions.enable",
            BOOLEAN,
            "false",
            HIGH,
            "Allow levels of features that Apache Kafka still changes.",
            internal=True,
        ),
    ),
    *missing(
        "assignments are made on the event loop",
        ConfigKey(
            "group.consumer.assignor.offload.enable",
            BOOLEAN,
            "true",
            MEDIUM,
            "Make assignments of consumer groups beside the coordinator's thread.",
            update_mode=CLUSTER_WIDE,
            internal=True,
        ),
    ),
    *missing(
        "kbroker does not report slow events of its controller",
        ConfigKey(
            "controller.performance.always.log.threshold.ms",
            LONG,
            "2000",
            MEDIUM,
            "Milliseconds from which an event of the controller is always reported.",
            validator=Range(0),
            internal=True,
        ),
        ConfigKey(
            "controller.performance.sample.period.ms",
            LONG,
            "60000",
            MEDIUM,
            "Milliseconds of which the slowest events of the controller are reported.",
            validator=Range(100),
            internal=True,
        ),
    ),
    *missing(
        "it is there for Apache Kafka's own tests",
        ConfigKey(
            "internal.metadata.delete.delay.millis",
            LONG,
            "60000",
            LOW,
            "Milliseconds before a segment of the metadata log leaves the disk, for Apache Kafka's own tests.",
            internal=True,
        ),
        ConfigKey(
            "internal.metadata.log.segment.bytes",
            INT,
            None,
            LOW,
            "Size of a segment of the metadata log, for Apache Kafka's own tests.",
            internal=True,
        ),
        ConfigKey(
            "internal.metadata.max.batch.size.in.bytes",
            INT,
            "8388608",
            LOW,
            "Size of a batch of the metadata log, for Apache Kafka's own tests.",
            internal=True,
        ),
        ConfigKey(
            "unclean.leader.election.interval.ms",
            LONG,
            "300000",
            MEDIUM,
            "Milliseconds between two looks for partitions that need an unclean election.",
            validator=Range(1),
            internal=True,
        ),
    ),
]
