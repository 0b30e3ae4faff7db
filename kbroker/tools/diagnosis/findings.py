"""A finding: something that is wrong, how severe it is, and what to do; and since when each has been seen. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    """An error keeps somebody from working, a warning will; a note is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Link(NamedTuple):
    """A part of the cluster that tells more, with the words of its link.

    ``kind``: ``record``, ``broken`` (values that are not JSON, from an offset on), ``client`` (its requests),
    ``transaction``, ``blocked`` (what blocks readers of a topic), ``topic``, ``topics`` (in trouble) or ``broker``.
    """

    kind: str
    text: str = ""
    topic: str = ""
    partition: int = -1
    offset: int = -1
    transactional_id: str = ""
    client_id: str = ""
    broker: int = -1


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong: ``text`` says what, ``evidence`` how it is known, ``advice`` what to do.

    ``kind`` names the rule, ``about`` the part of the cluster. ``since`` is in ms where the cluster itself tells it,
    None where only the observer can.
    """

    severity: Severity
    about: str
    text: str
    evidence: str
    advice: str
    kind: str = ""
    links: tuple[Link, ...] = ()
    since: int | None = None

    @property
    def key(self) -> str:
        """The name that tells the finding from others for as long as it lasts."""
        return f"{self.kind} {self.about}"

    def document(self) -> dict[str, str]:
        """Returns what a program reads."""
        return {"severity": self.severity.value, "text": self.text, "advice": self.advice}


def by_severity(finding: Finding) -> int:
    """Returns the place of a finding in a list with the most severe first."""
    return list(Severity).index(finding.severity)


class FindingHistory:
    """Remembers when each finding was first seen: Kafka does not tell."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._is_first = True

    def update(self, findings: Iterable[Finding], now_ms: int) -> dict[str, tuple[int, bool]]:
        """Returns key -> (since when in ms, whether it began then).

        A finding of the first look may be older, unless the cluster itself dates it.
        """
        current = {finding.key: finding for finding in findings}
        self._seen = {key: since for key, since in self._seen.items() if key in current}
        result: dict[str, tuple[int, bool]] = {}
        for key, finding in current.items():
            since = self._seen.setdefault(key, -now_ms if self._is_first else now_ms)
            result[key] = (finding.since, True) if finding.since is not None else (abs(since), since > 0)
        self._is_first = False
        return result
