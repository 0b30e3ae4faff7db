"""The browser in which pages are judged: Chromium, without a window."""

from __future__ import annotations

import shutil

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""Options of a Chromium that keeps to itself."""

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """Path of a Chromium on this machine, or None.

    The headless shell comes first: it draws the same pages without a browser's own windows and menus, which take
    several times as much processor time as they do.
    """
    return next((path for name in _NAMES if (path := shutil.which(name))), None)
