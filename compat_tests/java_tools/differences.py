"""Where Kafka's tools print something else about kbroker than about Apache Kafka, and why: as little as can be.

docs/compatibility.md shows this list. A line that one of the two prints and the other does not must be covered by an
entry of its test; an entry that covers nothing fails its test, so that the list cannot outlive its reasons.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

CORDONED = "log directories are not cordoned"


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


DIFFERENCES: dict[str, tuple[Difference, ...]] = {
    "test_configs::test_broker_loggers": (
        Difference(
            "each has loggers of its own; the root is the one that both have",
            r"(?!root=)\S+=[A-Z]+ sensitive=false synonyms=\{\}",
            r"kbroker\S*=[A-Z]+ sensitive=false synonyms=\{\}",
        ),
    ),
    "test_dump_log::test_active_indexes": (
        Difference(
            "the index of the segment that is written to is as long as its entries, while Apache Kafka's is full of "
            "zeros up to its greatest size",
            r".*\.index passed sanity check\.",
            r".*\.index is empty\.",
        ),
    ),
    "test_dump_log::test_metadata": (
        Difference(CORDONED, r'.*"type":"BROKER_REGISTRATION_CHANGE_RECORD","version":3.*"cordonedLogDirs":\[\]}}'),
    ),
}
"""File and name of a test -> the differences allowed in it."""
