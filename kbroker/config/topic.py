"""The properties of a topic.

Names, types, defaults, limits and update modes are Apache Kafka 4.3.1's (a test compares them with a table of
its facts); the descriptions are kbroker's.
"""

from __future__ import annotations

from kbroker.config.definition import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    ListOf,
    OneOf,
    Range,
    ThrottledReplicas,
)

BOOLEAN = ConfigType.BOOLEAN
DOUBLE = ConfigType.DOUBLE
INT = ConfigType.INT
LIST = ConfigType.LIST
LONG = ConfigType.LONG
STRING = ConfigType.STRING
MEDIUM = Importance.MEDIUM

TOPIC_CONFIGS = ConfigDef(
    "topic",
    [
        ConfigKey(
            "cleanup.policy",
            LIST,
            "delete",
            MEDIUM,
            "What happens to old segments: `delete` drops them by time and size, `compact` keeps the last "
            "record of each key, both may be combined, an empty list keeps everything.",
            validator=ListOf(("compact", "delete")),
        ),
        ConfigKey(
            "compression.gzip.level",
            INT,
            "-1",
            MEDIUM,
            "Level of gzip when the broker itself compresses; -1 is zlib's own default.",
            validator=Range(1, 9, also=-1),
        ),
        ConfigKey(
            "compression.lz4.level",
            INT,
            "9",
            MEDIUM,
            "Level of lz4 when the broker itself compresses.",
            validator=Range(1, 17),
        ),
        ConfigKey(
            "compression.zstd.level",
            INT,
            "3",
            MEDIUM,
            "Level of zstd when the broker itself compresses.",
            validator=Range(-131072, 22),
        ),
        ConfigKey(
            "compression.type",
            STRING,
            "producer",
            MEDIUM,
            "Codec that batches are stored in; `producer` keeps what the producer chose.",
            validator=OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        ),
        ConfigKey(
            "delete.retention.ms",
            LONG,
            "86400000",
            MEDIUM,
            "How long a compacted topic keeps a tombstone after it has been cleaned once, in milliseconds.",
            validator=Range(0),
        ),
        ConfigKey(
            "file.delete.delay.ms",
            LONG,
            "60000",
            MEDIUM,
            "How long a removed segment's files stay on disk under a `.deleted` name, in milliseconds.",
            validator=Range(0),
        ),
        ConfigKey(
            "flush.messages",
            LONG,
            "9223372036854775807",
            MEDIUM,
            "Number of records after which a partition is flushed to disk; by default left to the "
            "operating system.",
            validator=Range(1),
        ),
        ConfigKey(
            "flush.ms",
            LONG,
            "9223372036854775807",
            MEDIUM,
            "Milliseconds after which unflushed records are flushed to disk; by default left to the "
            "operating system.",
            validator=Range(0),
        ),
        ConfigKey(
            "follower.replication.throttled.replicas",
            LIST,
            "",
            MEDIUM,
            "Replicas whose fetching counts against the follower throttle: `*`, or `partition:broker` pairs.",
            validator=ThrottledReplicas(),
        ),
        ConfigKey(
            "leader.replication.throttled.replicas",
            LIST,
            "",
            MEDIUM,
            "Replicas whose serving counts against the leader throttle: `*`, or `partition:broker` pairs.",
            validator=ThrottledReplicas(),
        ),
        ConfigKey(
            "index.interval.bytes",
            INT,
            "4096",
            MEDIUM,
            "Bytes of records between two entries of the offset index.",
            validator=Range(0),
        ),
        ConfigKey(
            "local.retention.bytes",
            LONG,
            "-2",
            MEDIUM,
            "With tiered storage, bytes kept on local disk; -2 follows retention.bytes.",
            validator=Range(-2),
            no_effect="kbroker has no tiered storage",
        ),
        ConfigKey(
            "local.retention.ms",
            LONG,
            "-2",
            MEDIUM,
            "With tiered storage, milliseconds kept on local disk; -2 follows retention.ms.",
            validator=Range(-2),
            no_effect="kbroker has no tiered storage",
        ),
        ConfigKey(
            "max.compaction.lag.ms",
            LONG,
            "9223372036854775807",
            MEDIUM,
            "Longest time a record may stay uncompacted, in milliseconds.",
            validator=Range(1),
        ),
        ConfigKey(
            "min.compaction.lag.ms",
            LONG,
            "0",
            MEDIUM,
            "Shortest time a record stays uncompacted, in milliseconds.",
            validator=Range(0),
        ),
        ConfigKey(
            "max.message.bytes",
            INT,
            "1048588",
            MEDIUM,
            "Largest batch that a producer may append, after compression, in bytes.",
            validator=Range(0),
        ),
        ConfigKey(
            "message.timestamp.after.max.ms",
            LONG,
            "3600000",
            MEDIUM,
            "How far a record's timestamp may lie ahead of the broker's clock, in milliseconds; only for "
            "CreateTime.",
            validator=Range(0),
        ),
        ConfigKey(
            "message.timestamp.before.max.ms",
            LONG,
            "9223372036854775807",
            MEDIUM,
            "How far a record's timestamp may lie behind the broker's clock, in milliseconds; only for "
            "CreateTime.",
            validator=Range(0),
        ),
        ConfigKey(
            "message.timestamp.type",
            STRING,
            "CreateTime",
            MEDIUM,
            "Whose clock stamps records: the producer's (`CreateTime`) or the broker's (`LogAppendTime`).",
            validator=OneOf(("CreateTime", "LogAppendTime")),
        ),
        ConfigKey(
            "min.cleanable.dirty.ratio",
            DOUBLE,
            "0.5",
            MEDIUM,
            "Uncompacted share of a log at which the compactor takes it up.",
            validator=Range(0, 1),
        ),
        ConfigKey(
            "min.insync.replicas",
            INT,
            "1",
            MEDIUM,
            "Replicas that must be in sync for a produce request with acks=all to be accepted.",
            validator=Range(1),
        ),
        ConfigKey(
            "preallocate",
            BOOLEAN,
            "false",
            MEDIUM,
            "Reserve a new segment's disk space when it is created.",
        ),
        ConfigKey(
            "remote.log.copy.disable",
            BOOLEAN,
            "false",
            MEDIUM,
            "With tiered storage, stop copying to the remote tier.",
            no_effect="kbroker has no tiered storage",
        ),
        ConfigKey(
            "remote.log.delete.on.disable",
            BOOLEAN,
            "false",
            MEDIUM,
            "With tiered storage, delete remote data when the topic leaves the tier.",
            no_effect="kbroker has no tiered storage",
        ),
        ConfigKey(
            "remote.storage.enable",
            BOOLEAN,
            "false",
            MEDIUM,
            "Keep older segments in tiered storage.",
            no_effect="kbroker has no tiered storage",
        ),
        ConfigKey(
            "retention.bytes",
            LONG,
            "-1",
            MEDIUM,
            "Size at which a partition drops its oldest segments, in bytes; -1 is without limit.",
        ),
        ConfigKey(
            "retention.ms",
            LONG,
            "604800000",
            MEDIUM,
            "Age at which records may be dropped, in milliseconds; -1 keeps them for ever.",
            validator=Range(-1),
        ),
        ConfigKey(
            "segment.bytes",
            INT,
            "1073741824",
            MEDIUM,
            "Size at which a new segment is begun, in bytes.",
            validator=Range(1048576),
        ),
        ConfigKey(
            "segment.index.bytes",
            INT,
            "10485760",
            MEDIUM,
            "Largest size of a segment's index file, in bytes; a full index begins a new segment.",
            validator=Range(4),
        ),
        ConfigKey(
            "segment.jitter.ms",
            LONG,
            "0",
            MEDIUM,
            "Random share taken off segment.ms, so that partitions do not roll all at once, in milliseconds.",
            validator=Range(0),
        ),
        ConfigKey(
            "segment.ms",
            LONG,
            "604800000",
            MEDIUM,
            "Age at which a new segment is begun even if it is not full, in milliseconds.",
            validator=Range(1),
        ),
        ConfigKey(
            "internal.segment.bytes",
            INT,
            None,
            MEDIUM,
            "As segment.bytes without its lower limit; for tests.",
            internal=True,
        ),
        ConfigKey(
            "unclean.leader.election.enable",
            BOOLEAN,
            "false",
            MEDIUM,
            "Let a replica that is out of sync become leader when no other is left, at the price of lost "
            "records.",
        ),
    ],
)
"""Every property that a topic may have."""
