"""Findings as text for people, and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Final

from kbroker.tools.cli.output import printable
from kbroker.tools.diagnosis.findings import Finding, Severity
from kbroker.tools.doctor.findings import Check

Found = Sequence[tuple[Check, Finding]]

_WIDTH: Final = 100


def as_document(found: Found, looked_at: Mapping[str, str], names: Sequence[str]) -> dict[str, object]:
    """The findings as a JSON document. ``names`` are the checks that were made."""
    return {
        "sound": not _count(found, Severity.ERROR) and not _count(found, Severity.WARNING),
        "looked_at": dict(looked_at),
        "findings": [
            {
                "check": check.name,
                "severity": finding.severity.value,
                "about": finding.about,
                "text": finding.text,
                "evidence": finding.evidence,
                "remedy": finding.advice,
                "see": f"docs/{check.see}",
            }
            for check, finding in found
        ],
        "checks": list(names),
    }


def as_lines(found: Found, looked_at: Mapping[str, str], names: Sequence[str]) -> list[tuple[str, Severity | None]]:
    """Lines of text, each with the severity whose colour it may have."""
    lines: list[tuple[str, Severity | None]] = [
        (printable(f"{part}: {what}"), None) for part, what in looked_at.items()
    ]
    for check, finding in found:
        lines.append(("", None))
        lines.append((f"{finding.severity.value.upper()} {printable(finding.about)} ({check.name})", finding.severity))
        for title, text in (
            ("", finding.text),
            ("how it is known: ", finding.evidence),
            ("what to do: ", finding.advice),
        ):
            lines += [(line, None) for line in _wrapped(title + printable(text))]
        lines.append((f"  see docs/{check.see}", None))
    lines.append(("", None))
    lines.append((summary(found, names), None))
    return lines


def summary(found: Found, names: Sequence[str]) -> str:
    """The number of findings of each severity, in one line."""
    counts = [_counted(found, severity) for severity in Severity if _count(found, severity)]
    return f"{', '.join(counts) or 'nothing is wrong'} ({len(names)} checks)"


def _counted(found: Found, severity: Severity) -> str:
    count = _count(found, severity)
    return f"{count} {severity.value}{'' if count == 1 else 's'}"


def _count(found: Found, severity: Severity) -> int:
    return sum(finding.severity is severity for _, finding in found)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent="  ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
