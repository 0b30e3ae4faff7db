"""Topic subscriptions by regular expression, matched on the broker (KIP-848, ``SubscribedTopicRegex``).

The syntax is RE2's (`kbroker.base.re2_patterns`), and the words for what is wrong are those of Kafka's RE2/J.
"""

from __future__ import annotations

import re

from kbroker.base.re2_patterns import Re2Error, Re2Pattern, compile_re2
from kbroker.errors import ApiError, ErrorCode
from kbroker.value_types import dataclass


@dataclass(frozen=True, slots=True)
class TopicRegex:
    """A valid pattern, compiled."""

    pattern: str
    _compiled: Re2Pattern

    def matches(self, topic: str) -> bool:
        """Whether the pattern matches the topic's whole name."""
        return self._compiled.fullmatch(topic.encode()) is not None


def compile_topic_regex(pattern: str) -> TopicRegex:
    """Compile a pattern in RE2's syntax; :class:`ApiError` with INVALID_REGULAR_EXPRESSION for a bad one."""
    problem: str | None
    try:
        compiled = compile_re2(pattern)
        problem = _unknown_to_re2j(pattern)
    except Re2Error as error:
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


def _description(error: Re2Error) -> str:
    text = str(error)
    # RE2 adds the part of the pattern that is meant: "missing ): a(".
    for known, description in _RE2J_DESCRIPTIONS.items():
        if text.startswith(known):
            return description
    return text.split(": ", 1)[0]
