"""Properties of transactions and idempotent producers."""

from __future__ import annotations

from kbroker.config.definition import ConfigKey, Range
from kbroker.config.shorthand import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LOW, SHORT

KEYS = [
    ConfigKey(
        "add.partitions.to.txn.retry.backoff.max.ms",
        INT,
        "100",
        HIGH,
        "How long, in milliseconds, a Produce request of a new transaction waits at most for the producer's last "
        "one to be complete.",
        validator=Range(0),
    ),
    ConfigKey(
        "add.partitions.to.txn.retry.backoff.ms",
        INT,
        "20",
        HIGH,
        "Milliseconds between two looks whether the last transaction of a producer is complete.",
        validator=Range(1),
    ),
    ConfigKey(
        "producer.id.expiration.check.interval.ms",
        INT,
        "600000",
        LOW,
        "Milliseconds between two looks for idle producer ids.",
        validator=Range(1),
        internal=True,
    ),
    ConfigKey(
        "producer.id.expiration.ms",
        INT,
        "86400000",
        LOW,
        "Idle time after which a partition forgets a producer id, in milliseconds.",
        validator=Range(1),
        update_mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        "10000",
        LOW,
        "Milliseconds between two looks for transactions out of time.",
        validator=Range(1),
    ),
    ConfigKey(
        "transaction.max.timeout.ms",
        INT,
        "900000",
        HIGH,
        "Longest transaction timeout that a producer may ask for, in milliseconds.",
        validator=Range(1),
    ),
    ConfigKey(
        "transaction.partition.verification.enable",
        BOOLEAN,
        "true",
        LOW,
        "Check with the coordinator that a partition belongs to the transaction before it is written to.",
        update_mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        "3600000",
        LOW,
        "Milliseconds between two looks for expired transactional ids.",
        validator=Range(1),
    ),
    ConfigKey(
        "transaction.state.log.load.buffer.size",
        INT,
        "5242880",
        HIGH,
        "Bytes read at a time when a coordinator loads transactions.",
        validator=Range(1),
        no_effect="a coordinator loads with reads of its own size",
    ),
    ConfigKey(
        "transaction.state.log.min.isr",
        INT,
        "2",
        HIGH,
        "min.insync.replicas of the transaction topic.",
        validator=Range(1),
    ),
    ConfigKey(
        "transaction.state.log.num.partitions",
        INT,
        "50",
        HIGH,
        "Partitions of the transaction topic.",
        validator=Range(1),
    ),
    ConfigKey(
        "transaction.state.log.replication.factor",
        SHORT,
        "3",
        HIGH,
        "Replication factor of the transaction topic.",
        validator=Range(1),
    ),
    ConfigKey(
        "transaction.state.log.segment.bytes",
        INT,
        "104857600",
        HIGH,
        "Segment size of the transaction topic, in bytes.",
        validator=Range(1),
    ),
    ConfigKey(
        "transaction.two.phase.commit.enable",
        BOOLEAN,
        "false",
        LOW,
        "Allow producers that take part in two-phase commit, whose transactions have no timeout. They ask with "
        "InitProducerId 6, which is served with `unstable.api.versions.enable` only.",
    ),
    ConfigKey(
        "transactional.id.expiration.ms",
        INT,
        "604800000",
        HIGH,
        "Idle time after which a transactional id is forgotten, in milliseconds.",
        validator=Range(1),
    ),
]
