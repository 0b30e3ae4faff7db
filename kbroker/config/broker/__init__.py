"""The properties of a node, as in ``server.properties``: a table for each subject, and all of them as one.

Names, types, defaults, limits and update modes are Apache Kafka 4.4.0's (a test compares them with a table of
its facts); the descriptions are kbroker's.
"""

from __future__ import annotations

from kbroker.config.broker import (
    groups,
    logs,
    network,
    node,
    quorum,
    replication,
    share_groups,
    streams_groups,
    topics,
    transactions,
)
from kbroker.config.definition import ConfigDef

BROKER_CONFIGS = ConfigDef(
    "broker",
    [
        *node.KEYS,
        *network.KEYS,
        *quorum.KEYS,
        *topics.KEYS,
        *logs.KEYS,
        *replication.KEYS,
        *groups.KEYS,
        *share_groups.KEYS,
        *streams_groups.KEYS,
        *transactions.KEYS,
    ],
)
"""Every property of a node but for those of what kbroker does not have (``config.absent``)."""
