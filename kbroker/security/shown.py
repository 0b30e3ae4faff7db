"""Text of a client's, made fit for a line of the log: a name may not begin a line of its own, or fill the disk."""

from __future__ import annotations

MAX_SHOWN = 255
"""Characters that are shown of it."""


def shown(text: str, most: int = MAX_SHOWN) -> str:
    """The text on one line, without control characters, and cut off after ``most`` characters."""
    short = text if len(text) <= most else f"{text[:most]}..."
    return short if short.isprintable() else repr(short)
