"""A report's bounds become the source's options, and a script's errors one line."""

from __future__ import annotations

import argparse

import pytest

pytest.importorskip("confluent_kafka", reason="the `spark` extra is not installed")

from kbroker.testing.spark import SetupError
from spark_examples.batch_report import bounds
from spark_examples.command import readable_errors


def arguments(**given: object) -> argparse.Namespace:
    absent = dict.fromkeys(("start", "end", "starting_offsets", "ending_offsets"))
    return argparse.Namespace(**{**absent, "disorder": 24, **given})


def test_bounds() -> None:
    assert bounds(arguments()) == {}
    assert bounds(arguments(start=5, end=1_000, disorder=0.5)) == {
        "startingTimestamp": "5",
        "startingOffsetsByTimestampStrategy": "latest",
        "endingTimestamp": "1801000",
    }
    assert bounds(arguments(starting_offsets="earliest", ending_offsets='{"t":{"0":3}}')) == {
        "startingOffsets": "earliest",
        "endingOffsets": '{"t":{"0":3}}',
    }


@pytest.mark.parametrize(("error", "code"), [(SetupError("no Java"), "error: no Java"), (KeyboardInterrupt(), 130)])
def test_expected_errors_are_one_line(error: BaseException, code: object) -> None:
    @readable_errors
    def main(argv: list[str] | None = None) -> None:
        raise error

    with pytest.raises(SystemExit) as exit:
        main()
    assert exit.value.code == code


def test_an_error_from_java_is_told_without_its_stack() -> None:
    text = "An error occurred while calling o1.load.\n: a.b.C: No such topic.\nUse another.\n\tat a.b.D(D.java:1)\n"
    error = type("Py4JJavaError", (Exception,), {"__module__": "py4j.protocol"})(text)

    @readable_errors
    def main(argv: list[str] | None = None) -> None:
        raise error

    with pytest.raises(SystemExit, match=r"^error: a.b.C: No such topic. Use another.$"):
        main([])


def test_a_bug_is_not_hidden() -> None:
    @readable_errors
    def main(argv: list[str] | None = None) -> None:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        main([])
