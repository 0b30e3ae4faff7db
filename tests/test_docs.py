"""The generated pages of docs/ are what the code says."""

from __future__ import annotations

import pytest

from docs.generate import DOCS, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text("utf-8") == PAGES[name](), f"docs/{name} is out of date: run `make docs`"
