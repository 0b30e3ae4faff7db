"""All rules of axe-core, asked about what a page shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

_SETTLE = "() => document.getAnimations().forEach((each) => { try { each.finish(); } catch { /* it has no end */ } })"
"""Colours that are on their way from one theme to the other are no colours of a theme."""

_ASK = """() => axe.run(document, {resultTypes: ["violations"]}).then(({ violations }) =>
  violations.map((each) => [each.id, each.help, ...each.nodes.map((node) => node.html)].join("\\n  ")))"""


def violations(page: Page) -> list[str]:
    """The rules that the page violates, each with the elements. Skips the test without axe-core.

    axe-core is read but once for a document, which takes it as long as all its rules.
    """
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe.Axe().axe_script)
    page.evaluate(_SETTLE)
    found: list[str] = page.evaluate(_ASK)
    return found
