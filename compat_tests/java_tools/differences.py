"""Where Kafka's tools print something else about kbroker than about Apache Kafka, and why: as little as can be.

docs/compatibility.md shows this list. A line that one of the two prints and the other does not must be covered by an
entry of its test; an entry that covers nothing fails its test, so that the list cannot outlive its reasons.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


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


#: File and name of a test -> what may differ in it.
DIFFERENCES: dict[str, tuple[Difference, ...]] = {}
