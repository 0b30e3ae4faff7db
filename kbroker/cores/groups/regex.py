"""Topic subscriptions by regular expression, matched on the broker (KIP-848, ``SubscribedTopicRegex``).

Kafka takes the syntax of RE2 (by its RE2/J): no look-around, no back-references, and hence time linear in the text
for any pattern. Here it is RE2 itself, by the package ``google-re2``; it is imported with the first pattern, so that a
broker without such subscriptions does not load it.
"""

from __future__ import annotations

import re
from typing import Protocol

from kbroker.errors import ApiError, ErrorCode
from kbroker.value_types import dataclass


class _Compiled(Protocol):
    def fullmatch(self, text: bytes) -> object | None: ...


@dataclass(frozen=True, slots=True)
class TopicRegex:
    """A valid pattern, compiled."""

    pattern: str
    _compiled: _Compiled

    def matches(self, topic: str) -> bool:
        """Whether the pattern matches the topic's whole name."""
        return self._compiled.fullmatch(topic.encode()) is not None


def compile_topic_regex(pattern: str) -> TopicRegex:
    """Compile a pattern in RE2's syntax; :class:`ApiError` with INVALID_REGULAR_EXPRESSION for a bad one."""
    import re2

    options = re2.Options()
    options.log_errors = False
    problem: str | None
    try:
        compiled = re2.compile(pattern, options)
        problem = _unknown_to_re2j(pattern)
    except re2.error as error:
        problem = _description(error)
    if problem is not None:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {problem}.",
        )
    return TopicRegex(pattern, compiled)


_TOKENS = r"""
    \\Q.*?(?:\\E|$)                                       # a literal
    | (?P<escape>\\.)
    | \[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*+\]            # a class
    | \(\?P?<(?P<name>\w+)>
"""
"""Compiled with the first pattern (``re`` keeps it): a node starts without."""


def _unknown_to_re2j(pattern: str) -> str | None:
    """The error of RE2/J for a pattern that RE2 takes: a name given twice, or single bytes (``\\C``)."""
    names: set[str] = set()
    for token in re.finditer(_TOKENS, pattern, re.VERBOSE | re.DOTALL):
        if token["escape"] == "\\C":
            return "invalid escape sequence"
        if token["name"] is not None and token["name"] in names:
            return "duplicate capture group name"
        names.add(token["name"])
    return None


_RE2J_DESCRIPTIONS = {
    "invalid perl operator: (?<": "invalid named capture",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}
"""Error texts of RE2/J, and so of Kafka, by those of RE2 for the same errors."""


def _description(error: Exception) -> str:
    text = error.args[0] if error.args else ""
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    # RE2 adds the part of the pattern that is meant: "missing ): a(".
    for known, description in _RE2J_DESCRIPTIONS.items():
        if text.startswith(known):
            return description
    return str(text).split(": ", 1)[0]
