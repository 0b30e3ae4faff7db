"""docs/compatibility.md is made from whole runs; what it says of answers that differ needs none, and is the code's."""

from __future__ import annotations

from compat_tests.report import DOCUMENT, answer_differences


def test_the_page_tells_of_every_answer_that_differs() -> None:
    assert "\n".join(answer_differences()) in DOCUMENT.read_text("utf-8"), "run python -m compat_tests.report"
