"""Points in time and lengths of time as people write them. Pure: the present is an argument.

Times without a zone are in UTC, as Kafka's own tools read them and as this command prints them.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_RELATIVE: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhdw]))+")
_RELATIVE_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_ISO_DURATION: Final = re.compile(
    r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_duration(text: str) -> int:
    """Milliseconds of ``1h30m``, ``7d``, ``500ms`` or ISO-8601's ``P1DT2H``; ``ValueError`` if it is neither."""
    stripped = text.strip()
    if _RELATIVE.fullmatch(stripped):
        return round(sum(float(number) * _UNITS[unit] for number, unit in _RELATIVE_PART.findall(stripped)))
    match = _ISO_DURATION.fullmatch(stripped)
    if match is None or not any(match.groups()) or stripped.upper().endswith("T"):
        raise ValueError(f"{text!r} is not a length of time, such as 1h30m, 7d or P1DT2H")
    weeks, days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return round((((weeks * 7 + days) * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000)


def parse_moment(text: str, now_ms: int) -> int:
    """Milliseconds since 1970 of a point in time; ``ValueError`` says what is wrong.

    ISO-8601 (``2026-01-31``, ``2026-01-31T12:00``, ``...12:00:00.5Z``, ``...+02:00``), ``now``, a length of time before
    now (``-1h``), or ``@`` and a number of seconds (``@1700000000``), up to milliseconds (``@1700000000.123``).
    """
    stripped = text.strip()
    if stripped == "now":
        return now_ms
    if stripped.startswith("-"):
        try:
            return max(now_ms - parse_duration(stripped[1:]), 0)
        except ValueError:
            raise ValueError(f"{text!r} is not a time before now, such as -1h30m or -7d") from None
    if stripped.startswith("@"):
        if not re.fullmatch(r"\d{1,15}(\.\d{1,3})?", stripped[1:], re.ASCII):
            raise ValueError(f"{text!r} is not a number of seconds since 1970")
        seconds, _, fraction = stripped[1:].partition(".")
        return int(seconds) * 1000 + int(fraction.ljust(3, "0") or 0)
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time, such as 2026-01-31T12:00:00Z, 2026-01-31 (UTC), -1h or @1700000000"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    milliseconds = (moment - _EPOCH) // timedelta(milliseconds=1)
    if milliseconds < 0:
        raise ValueError(f"{text!r} is before 1970")
    return milliseconds
