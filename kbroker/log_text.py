"""Text of others in log lines."""

from __future__ import annotations


def in_log(text: str) -> str:
    """Text that came over the wire, on one line: letters that do not print, line ends first of all, are escaped."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )
