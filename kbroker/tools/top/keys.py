"""Keys of ``kbroker top``: which there are, and what each does to what is shown. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from kbroker.tools.top.tables import VIEWS

_SEQUENCES: Final = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
    "\x1b[5~": "pageup",
    "\x1b[6~": "pagedown",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\x1b[Z": "backtab",
    "\t": "tab",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x0c": "redraw",
}
_KEY: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.)|.", re.DOTALL)

INTERVALS: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds from look to look that the keys choose from."""

HELP: Final = (
    ("1 ... 7, Tab", "views: overview, nodes, topics, groups, partitions, transactions, requests"),
    ("s, S", "sort by the next, the previous column"),
    ("r", "sort the other way round"),
    ("/", "filter by words in the names; Enter keeps it, Esc ends it"),
    ("arrows, Page", "scroll; also j and k, Home and End, g and G"),
    ("space", "pause, and go on"),
    ("+, -", "look more often, less often"),
    ("?", "this help, and back"),
    ("q", "quit"),
)


class Sort(NamedTuple):
    """A chosen order: the column, and whether it goes the other way round than columns of its kind do."""

    column: int
    flipped: bool = False


@dataclass(frozen=True, slots=True)
class Ui:
    """The choices of whoever looks. ``view`` is the place of the view in ``VIEWS``, ``scroll`` the first row."""

    view: int = 0
    sorts: Mapping[int, Sort] = field(default_factory=dict)
    filter: str = ""
    is_typing: bool = False
    is_paused: bool = False
    has_help: bool = False
    scroll: int = 0
    interval: float = 2.0
    is_over: bool = False


def keys_of(text: str) -> list[str]:
    """The keys in what a terminal has sent: letters as they are, others by their names."""
    found = []
    for match in _KEY.finditer(text):
        key = match[0]
        if key in _SEQUENCES:
            found.append(_SEQUENCES[key])
        elif key == "\x1b":
            found.append("escape")
        elif key.isprintable():
            found.append(key)
    return found


def press(ui: Ui, key: str, columns: int, default_sort: int, page: int) -> Ui:
    """The next ``ui``. ``columns`` and ``default_sort`` are those of the view, ``page`` its rows on the screen."""
    if ui.is_typing:
        return _type(ui, key)
    if ui.has_help and key in ("escape", "enter"):
        return replace(ui, has_help=False)
    match key:
        case "q":
            return replace(ui, is_over=True)
        case "?":
            return replace(ui, has_help=not ui.has_help)
        case " " | "p":
            return replace(ui, is_paused=not ui.is_paused)
        case "/":
            return replace(ui, is_typing=True, has_help=False)
        case "escape":
            return replace(ui, filter="", scroll=0)
        case "tab" | "right":
            return _turn_to(ui, (ui.view + 1) % len(VIEWS))
        case "backtab" | "left":
            return _turn_to(ui, (ui.view - 1) % len(VIEWS))
        case "s" | "S" | "r":
            return _sort(ui, key, columns, default_sort)
        case "+" | "-":
            return _pace(ui, faster=key == "+")
        case _ if key.isdecimal() and 1 <= int(key) <= len(VIEWS):
            return _turn_to(ui, int(key) - 1)
    return replace(ui, scroll=_scrolled(ui.scroll, key, page))


def _type(ui: Ui, key: str) -> Ui:
    match key:
        case "enter":
            return replace(ui, is_typing=False)
        case "escape":
            return replace(ui, is_typing=False, filter="", scroll=0)
        case "backspace":
            return replace(ui, filter=ui.filter[:-1], scroll=0)
    return replace(ui, filter=ui.filter + key, scroll=0) if len(key) == 1 else ui


def _turn_to(ui: Ui, view: int) -> Ui:
    return replace(ui, view=view, scroll=0, has_help=False)


def _sort(ui: Ui, key: str, columns: int, default_sort: int) -> Ui:
    if not columns:
        return ui
    sort = ui.sorts.get(ui.view, Sort(default_sort))
    if key == "r":
        sort = sort._replace(flipped=not sort.flipped)
    else:
        sort = Sort((sort.column + (1 if key == "s" else -1)) % columns)
    return replace(ui, sorts={**ui.sorts, ui.view: sort})


def _pace(ui: Ui, *, faster: bool) -> Ui:
    if faster:
        shorter = [each for each in INTERVALS if each < ui.interval]
        return replace(ui, interval=max(shorter, default=ui.interval))
    longer = [each for each in INTERVALS if each > ui.interval]
    return replace(ui, interval=min(longer, default=ui.interval))


def _scrolled(scroll: int, key: str, page: int) -> int:
    match key:
        case "down" | "j":
            return scroll + 1
        case "up" | "k":
            return max(scroll - 1, 0)
        case "pagedown":
            return scroll + page
        case "pageup":
            return max(scroll - page, 0)
        case "home" | "g":
            return 0
        case "end" | "G":
            return 1 << 30  # the screen stops at the last row
    return scroll
