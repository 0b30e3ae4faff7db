"""Topic patterns: RE2's syntax and whole-name matches, in linear time."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from kbroker.cores.groups.regex import compile_topic_regex
from kbroker.errors import ApiError, ErrorCode


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("foo", "foo", True),
        ("foo", "foobar", False),
        ("foo", "a.foo", False),
        ("foo.*", "foobar", True),
        ("a|ab", "ab", True),
        ("(?i)Foo", "fOO", True),
        ("orders-[0-9]{2}", "orders-07", True),
        ("orders-\\d+", "orders-x", False),
        ("(?P<name>a+)b", "aab", True),
        ("^a$", "a", True),
        ("foo$", "foo\n", False),
        ("", "", True),
        ("(?P<n>a)(?P<m>b)", "ab", True),
        # These only look like a name given twice, or like \\C.
        ("\\(?P<n>(?P<n>a)", "(P<n>a", True),
        ("[[:alpha:](?P<n>]+(?P<n>a)", "(na", True),
        ("\\Q(?P<n>\\E(?P<n>a)", "(?P<n>a", True),
        ("[]\\]a]\\\\C", "a\\C", True),
    ],
)
def test_matches_whole_names(pattern: str, topic: str, expected: bool) -> None:
    assert compile_topic_regex(pattern).matches(topic) is expected


@pytest.mark.parametrize(
    ("pattern", "description"),
    [
        ("a(", "missing closing )"),
        ("a)", "unexpected )"),
        ("[a", "missing closing ]"),
        ("a\\", "trailing backslash at end of expression"),
        ("*a", "missing argument to repetition operator"),
        ("a**", "invalid nested repetition operator"),
        ("a{1001}", "invalid repeat count"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("(a)\\1", "invalid escape sequence"),
        ("[z-a]", "invalid character class range"),
        ("(?<!a)", "invalid named capture"),
        ("(?P<n>a)(?P<n>b)", "duplicate capture group name"),
        ("(?<n>a)(?P<n>b)", "duplicate capture group name"),
        ("a\\C", "invalid escape sequence"),
    ],
)
def test_bad_patterns_are_refused_in_kafkas_words(pattern: str, description: str) -> None:
    with pytest.raises(ApiError) as caught:
        compile_topic_regex(pattern)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert caught.value.message == f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {description}."


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a|aa)+b", "(.*)*(.*)*(.*)*b"])
def test_patterns_that_backtracking_matchers_die_of_take_linear_time(pattern: str) -> None:
    regex = compile_topic_regex(pattern)
    begin = time.process_time()
    assert not regex.matches("a" * 249)
    # A matcher that backtracks takes longer than the age of the universe.
    assert time.process_time() - begin < 1.0


def test_a_broker_without_patterns_does_not_load_the_library() -> None:
    program = "import sys, kbroker.cores.groups.regex; sys.exit('re2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
