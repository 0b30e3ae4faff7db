"""Where Kafka's tools print something else about kbroker than about Apache Kafka, and why: as little as can be.

docs/compatibility.md shows this list. A line that one of the two prints and the other does not must be covered by an
entry of its test; an entry that covers nothing fails its test, so that the list cannot outlive its reasons.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SECURITY = "authentication, authorization, delegation tokens and SCRAM are not there yet"
QUOTAS = "quotas are not there yet"
SHARE_GROUPS = "share groups are not there yet"
STREAMS_GROUPS = "streams groups are not there yet"
TIERED_STORAGE = "there is no tiered storage"
TELEMETRY = "there is no client telemetry"
CORDONED = "log directories are not cordoned"
JAVA_CLASSES = "properties that name Java classes"


@dataclass(frozen=True, slots=True)
class Difference:
    """Lines that only one of the brokers has: regular expressions for whole lines without their indentation."""

    reason: str
    apache: str | None = None
    kbroker: str | None = None

    def covers(self, who: str, line: str) -> bool:
        """Whether `line`, which only `who` ("apache" or "kbroker") has, is one of these."""
        pattern = self.apache if who == "apache" else self.kbroker
        return pattern is not None and re.fullmatch(pattern, line.strip()) is not None


def _apis(reason: str, *names: str) -> tuple[Difference, ...]:
    return tuple(
        Difference(reason, rf"{name}\(\d+\): .*\[usable: \d+\]", rf"{name}\(\d+\): UNSUPPORTED") for name in names
    )


def _configs(reason: str, *names: str) -> tuple[Difference, ...]:
    """Properties that are not known; a name that ends in a dot is the beginning of some."""
    return tuple(Difference(reason, re.escape(name) + (r"\S+=.*" if name.endswith(".") else "=.*")) for name in names)


_UNSUPPORTED = r"\(error\) .*UnsupportedVersionException: The node does not support {}|\(error\) Error while .*|exit 1"

#: File and name of a test -> what may differ in it.
DIFFERENCES: dict[str, tuple[Difference, ...]] = {
    "test_cluster::test_broker_api_versions": (
        *_apis(SECURITY, "SaslHandshake", "SaslAuthenticate"),
        *_apis(
            SECURITY,
            *("CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken"),
        ),
        *_apis(SECURITY, "DescribeUserScramCredentials", "AlterUserScramCredentials"),
        *_apis(QUOTAS, "DescribeClientQuotas", "AlterClientQuotas"),
        *_apis(SHARE_GROUPS, "ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch", "ShareAcknowledge"),
        *_apis(
            SHARE_GROUPS,
            *("InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState", "DeleteShareGroupState"),
            *("ReadShareGroupStateSummary", "DescribeShareGroupOffsets", "AlterShareGroupOffsets"),
            "DeleteShareGroupOffsets",
        ),
        *_apis(STREAMS_GROUPS, "StreamsGroupHeartbeat", "StreamsGroupDescribe"),
    ),
    "test_cluster::test_features": (
        Difference(SHARE_GROUPS, r"Feature: share\.version .*"),
        Difference(STREAMS_GROUPS, r"Feature: streams\.version .*"),
        Difference(
            "an upgrade to all features of 4.3 at once asks for those of share and streams groups too",
            r"\S+\.version can be upgraded to \d+\.|exit 0",
            r"Can not upgrade \S+ to \d+\. The update failed .*|\(error\) 7 out of 7 operation\(s\) failed\.|exit 1",
        ),
    ),
    "test_configs::test_all_broker": (
        *_configs(SECURITY, "sasl.", "ssl.", "delegation.token.", "security.providers", "authorizer.class.name"),
        *_configs(SECURITY, "principal.builder.class", "connections.max.reauth.ms"),
        *_configs(SECURITY, "connection.failed.authentication.delay.ms"),
        *_configs(QUOTAS, "controller.quota.", "client.quota.callback.class"),
        *_configs(SHARE_GROUPS, "group.share.", "share."),
        *_configs(STREAMS_GROUPS, "group.streams."),
        *_configs(TIERED_STORAGE, "remote.", "follower.fetch.last.tiered.offset.enable"),
        *_configs(TELEMETRY, "telemetry.max.bytes"),
        *_configs(JAVA_CLASSES, "alter.config.policy.class.name", "create.topic.policy.class.name", "config.providers"),
        *_configs(CORDONED, "cordoned.log.dirs"),
        *_configs("a node alone authorizes its own controller", "early.start.listeners"),
        *_configs("coordinators run in one event loop", "group.coordinator.background.threads"),
        *_configs("coordinators keep no buffers", "group.coordinator.cached.buffer.max.bytes"),
    ),
    "test_configs::test_broker_loggers": (
        Difference(
            "the levels of loggers are not shown and changed at run time; they are not Java's loggers anyway",
            r"Dynamic configs for broker-logger 1 are:|\S+=\w+ sensitive=false synonyms=\{\}|\(error\) .*|exit [01]",
            r"\(error\) .*|exit 1",
        ),
    ),
    "test_configs::test_groups": (
        *_configs(SHARE_GROUPS, "share."),
        *_configs(STREAMS_GROUPS, "streams."),
    ),
    "test_dump_log::test_active_indexes": (
        Difference(
            "indexes of the segment that is written to come into files when it is full or the node stops, while Apache "
            "Kafka maps them, full of zeros",
            r".* passed sanity check\.|exit 0",
            r"\(error\) java\.lang\.IllegalArgumentException: Invalid max index size: N|exit 1",
        ),
    ),
    "test_dump_log::test_metadata": (
        Difference(SHARE_GROUPS, r'.*"name":"share\.version","featureLevel":1}}'),
        Difference(STREAMS_GROUPS, r'.*"name":"streams\.version","featureLevel":1}}'),
        Difference(
            "registrations name the features that a node has",
            *[r'.*"type":"REGISTER_(BROKER|CONTROLLER)_RECORD".*'] * 2,
        ),
        Difference(
            "records without eligible leader replicas are written in the version before, which says the same",
            r'.*"type":"PARTITION_RECORD","version":2.*',
            r'.*"type":"PARTITION_RECORD","version":1.*',
        ),
        Difference(CORDONED, r'.*"type":"BROKER_REGISTRATION_CHANGE_RECORD","version":3.*"cordonedLogDirs":\[\]}}'),
    ),
    "test_refused::test_client_metrics": (
        Difference(
            TELEMETRY,
            r"Altered client metrics config for m\.|exit 0",
            r"Error while executing client metrics command : Unknown resource type 16|\(error\) .*|exit 1",
        ),
    ),
    "test_configs::test_quotas": (
        Difference(
            QUOTAS,
            r"Completed updating config for .*|exit 0",
            _UNSUPPORTED.format("DESCRIBE_CLIENT_QUOTAS"),
        ),
    ),
}
