"""Where kbroker's answers may differ from Apache Kafka's, each with its reason. A difference that is not here is a
bug."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Allowed:
    """A difference at `path` (a pattern) of the answers of `api` (a pattern), because of `why`."""

    api: str
    path: str
    why: str
    value: str = ".*"
    """Further, both values must match this."""

    def covers(self, api: str, path: str, ours: Any, theirs: Any) -> bool:
        """Whether this difference is the one."""
        if re.fullmatch(self.api, api) is None or re.fullmatch(self.path, path) is None:
            return False
        return all(re.fullmatch(self.value, str(value), re.DOTALL) is not None for value in (ours, theirs))


ALLOWED: Sequence[Allowed] = (
    Allowed("ApiVersions", r"finalized_features_epoch", "an offset of the metadata log"),
    Allowed(
        "Produce",
        r"responses\[\]\.partition_responses\[\]\.(error_message|record_errors\[\].*message)",
        "our own words",
    ),
    Allowed(
        "Produce",
        r"responses\[\]\.partition_responses\[\]\.log_append_time_ms",
        "of a batch that was there already, in a topic that does not stamp: to a client it is the time of each record",
        "-1|1717.*",
    ),
    Allowed("Fetch", r"responses(\[\])*\.aborted_transactions", "null or empty where there is nothing to tell"),
    Allowed(
        "Fetch",
        r"responses(\[\])*\.records\.cut off",
        "a Fetch that its limit ends stops where a batch does: every client throws the beginning of another one away, "
        "and asks for it again",
    ),
    Allowed("Fetch", r"session_id", "a session of no partitions is not kept"),
    Allowed(
        "ConsumerGroupHeartbeat",
        r"heartbeat_interval_ms",
        "while there is something to come for a member it is told a second, if that is less than the group's interval",
    ),
    Allowed("DescribeConfigs", r"results\[\]\.configs\[\]\.documentation", "our own words"),
    Allowed(
        "DescribeConfigs",
        r"results\[\]\.configs\[\]\.read_only",
        "properties that have no effect in kbroker, or that it reads once, are described as fixed",
    ),
    Allowed(
        ".*Configs|CreateTopics",
        r".*\.error_message",
        "of a list with one wrong entry kbroker shows the list, Apache Kafka the entry",
        "Invalid value .* for configuration cleanup.policy: String must be one of: .*",
    ),
)
