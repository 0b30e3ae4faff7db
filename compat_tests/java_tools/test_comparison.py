"""The comparison itself: what it reports, and what the list of differences may hide."""

from __future__ import annotations

import importlib

from compat_tests.java_tools.comparison import report
from compat_tests.java_tools.differences import DIFFERENCES, Difference

SAME = ["$ kafka-topics --list", "  a", "  b", "  exit 0"]
ALLOWED = Difference("no b yet", apache="b", kbroker="c")


def test_equal_outputs_have_nothing_to_report() -> None:
    assert report(SAME, SAME, ()) == []


def test_a_difference_is_reported_with_its_step() -> None:
    ours = ["$ kafka-topics --list", "  a", "  c", "  exit 0"]
    assert report(ours, SAME, ()) == ["- Apache Kafka   + this broker", "$ kafka-topics --list", "-   b", "+   c"]


def test_what_is_listed_may_differ_and_nothing_else() -> None:
    ours = ["$ kafka-topics --list", "  a", "  c", "  exit 0"]
    assert report(ours, SAME, [ALLOWED]) == []
    ours = ["$ kafka-topics --list", "  x", "  c", "  exit 0"]
    assert report(ours, SAME, [ALLOWED])[2:] == ["-   a", "+   x"]
    # What one side may print is not what the other may.
    assert report(["$ kafka-topics --list", "  a", "  b", "  c", "  exit 0"], SAME, [ALLOWED]) == []
    assert "+   d" in report(["$ kafka-topics --list", "  a", "  b", "  d", "  exit 0"], SAME, [ALLOWED])


def test_a_difference_that_is_no_more_is_reported() -> None:
    assert report(SAME, SAME, [ALLOWED]) == ["no longer so, take it out of differences.py: no b yet"]


def test_every_listed_difference_is_of_a_test() -> None:
    for name in DIFFERENCES:
        module, function = name.split("::")
        assert hasattr(importlib.import_module(f"compat_tests.java_tools.{module}"), function), name
