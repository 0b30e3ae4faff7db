"""Cells, columns and tables of ``kbroker top``: how a figure is shown, sorted and coloured. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from kbroker.tools.cli.output import NOTHING, size
from kbroker.tools.top.history import Age

GOOD: Final = "good"
BAD: Final = "bad"
WARN: Final = "warn"
PLAIN: Final = ""


class Cell(NamedTuple):
    """A cell. ``key`` is what rows are sorted by, ``style`` one of the words above."""

    text: str
    key: float | str
    style: str = PLAIN


Row = tuple[Cell, ...]


class Column(NamedTuple):
    """A column; numbers are aligned to the right."""

    title: str
    is_number: bool = True


class Table(NamedTuple):
    """A view. ``sort`` is the column by which it is sorted unless somebody chooses another; numbers descend.

    ``note`` tells what is not in it; ``empty`` stands in its place without rows.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    sort: int
    empty: str
    note: str = ""


def text(value: str | None, style: str = PLAIN) -> Cell:
    """A name; ``None`` comes last."""
    return Cell(NOTHING, "\uffff", style) if value is None else Cell(value, value.lower(), style)


def number(value: float | None, shown: Callable[[float], str] | None = None, style: str = PLAIN) -> Cell:
    """A number; one that is not known counts as the smallest."""
    if value is None:
        return Cell(NOTHING, -1.0)
    return Cell(f"{value:,.0f}" if shown is None else shown(value), float(value), style)


def rate(value: float | None) -> Cell:
    """Records, requests and the like in a second."""
    return number(value, lambda each: f"{each:,.1f}" if 0 < each < 10 else f"{each:,.0f}")


def bytes_rate(value: float | None) -> Cell:
    """Bytes in a second."""
    return number(value, lambda each: f"{size(round(each))}/s")


def milliseconds(value: float | None) -> Cell:
    """A duration of a request; from half a second on it stands out."""
    if value is None:
        return number(None)
    shown = f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.1 else f"{value:.2f}"
    return Cell(shown, value, WARN if value >= 500 else PLAIN)


def seconds(value: float) -> str:
    """A length of time in its largest unit: ``0 s``, ``2.5 s``, ``90 s``, ``12 min``, ``3.2 h``, ``4 d``."""
    if value < 10:
        return f"{value:.1f} s" if value >= 0.05 else "0 s"
    if value < 120:
        return f"{value:.0f} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h" if value < 172_800 else f"{value / 86_400:.0f} d"


def age(value: Age | None) -> Cell:
    """The time that a record has waited; ``>`` stands before one that is longer."""
    if value is None:
        return number(None)
    style = WARN if value.seconds >= 60 else PLAIN
    return Cell(f"{'' if value.exact else '> '}{seconds(value.seconds)}", value.seconds, style)
