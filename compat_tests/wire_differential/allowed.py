"""Where kbroker's answers may differ from Apache Kafka's, each with its reason. A difference that is not here is a bug."""

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

    def covers(self, api: str, path: str, ours: Any, theirs: Any) -> bool:
        return re.fullmatch(self.api, api) is not None and re.fullmatch(self.path, path) is not None


ALLOWED: Sequence[Allowed] = (
    Allowed("ApiVersions", r"api_keys", "what is not served is not advertised"),
    Allowed("ApiVersions", r"(supported|finalized)_features.*", "features of what is not served are not finalized"),
    Allowed("Produce", r"responses\[\]\.partition_responses\[\]\.(error_message|record_errors\[\].*message)", "our own words"),
    Allowed("Fetch", r"responses\[\]\.partitions\[\]\.records(\..*)?", "how many batches fit is the broker's choice"),
)
