"""Properties of a node that exist at run time only (``QuotaConfig.brokerQuotaConfigs``).

In ``server.properties`` they mean nothing, and they are described only where they are set, as Apache Kafka does it.
"""

from __future__ import annotations

from kbroker.config.broker import BROKER_CONFIGS
from kbroker.config.config_key import ConfigDef, ConfigKey, Range
from kbroker.config.table import CLUSTER_WIDE, LONG, MEDIUM, Table

LEADER_THROTTLED_RATE = "leader.replication.throttled.rate"
FOLLOWER_THROTTLED_RATE = "follower.replication.throttled.rate"
ALTER_LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


class ThrottleProperties(Table):
    """Rates at which replicas are copied."""

    leader_replication_throttled_rate = LONG("9223372036854775807", MEDIUM, Range(0), mode=CLUSTER_WIDE)
    """Bytes a second that a broker serves to followers of the partitions that the topics'
    `leader.replication.throttled.replicas` name for it. Followers in sync count and are not held back."""
    follower_replication_throttled_rate = LONG("9223372036854775807", MEDIUM, Range(0), mode=CLUSTER_WIDE)
    """Bytes a second that a broker fetches of the partitions that the topics' `follower.replication.throttled.replicas`
    name for it. Those in sync count and are not held back."""
    replica_alter_log_dirs_io_max_bytes_per_second = LONG("9223372036854775807", MEDIUM, Range(0), mode=CLUSTER_WIDE)
    """Bytes a second that a broker copies from one of its log directories to another."""


DYNAMIC_BROKER_CONFIGS = ConfigDef("broker", ThrottleProperties.KEYS)


def broker_config_key(name: str) -> ConfigKey | None:
    """The key of a node's property, whether a file can set it or only a request at run time; None if there is none."""
    return BROKER_CONFIGS.get(name) or DYNAMIC_BROKER_CONFIGS.get(name) or _rare_key(name)


def _rare_key(name: str) -> ConfigKey | None:
    from kbroker.config.absent import ABSENT_BROKER_CONFIGS
    from kbroker.config.security import SECURITY_CONFIGS

    return SECURITY_CONFIGS.get(name) or ABSENT_BROKER_CONFIGS.get(name)
