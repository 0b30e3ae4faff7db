"""The screen of ``kbroker top``: what is known and what is chosen as lines of a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size

from kbroker.tools.cli.output import printable
from kbroker.tools.diagnosis.findings import Severity
from kbroker.tools.top.cells import BAD, PLAIN, WARN, Row, Table
from kbroker.tools.top.history import ClusterHistory
from kbroker.tools.top.keys import HELP, Sort, Ui
from kbroker.tools.top.tables import VIEWS, Views

BOLD: Final = "bold"
DIM: Final = "dim"
REVERSE: Final = "reverse"

_GAP: Final = 2
_LEAST_NAME: Final = 16
"""A first column keeps so many cells when the terminal is narrow."""

_IN_OVERVIEW: Final = (("nodes", 6), ("topics", 6), ("groups", 6), ("transactions", 3), ("requests", 5))
"""Views in the overview, and how many rows of each."""

_TROUBLES: Final = 5

_FOOTER: Final = "?: help  Tab: next view  /: filter  s: sort  space: pause  q: quit"


class Span(NamedTuple):
    """A piece of a line in one style."""

    text: str
    style: str = PLAIN


Line = tuple[Span, ...]


class Shown(NamedTuple):
    """A screen: its lines, as many as the terminal has, and what keys need to know of it."""

    lines: list[Line]
    columns: int
    default_sort: int
    page: int
    scroll: int
    """The first row that is shown: not beyond the last page."""


def draw(views: Views | None, ui: Ui, width: int, height: int, status: str = "") -> Shown:
    """The lines of a terminal of ``width`` times ``height`` cells. ``status`` is told in the last line, if there is."""
    if views is None:
        lines = [_line(("kbroker top", BOLD)), _line((status or "asking the cluster ...", WARN if status else DIM))]
        if ui.has_help:
            lines += [(), *_help()]
        return Shown(_fit(lines, width, height), 0, 0, 1, 0)
    head = [_first(views.history, ui), *islice(_totals(views, width), max(height // 5, 1)), _tabs(ui)]
    if ui.filter or ui.is_typing:
        head.append(_line(("filter: ", DIM), (ui.filter, BOLD), ("_" if ui.is_typing else "", REVERSE)))
    head.append(())
    room = max(height - len(head) - 1, 1)
    table = views.table(ui.view)
    if ui.has_help:
        body, columns, sort, page, scroll = _help(), 0, 0, room, 0
    elif table is None:
        sections = list(_overview(views, ui, width))
        scroll = max(min(ui.scroll, len(sections) - room), 0)
        body, columns, sort, page = sections[scroll:], 0, 0, room
    else:
        page = max(room - 1 - bool(table.note), 1)
        rows = chosen(table, ui)
        scroll = max(min(ui.scroll, len(rows) - page), 0)
        body = table_lines(table, rows, width, scroll, page, ui.sorts.get(ui.view, Sort(table.sort)))
        columns, sort = len(table.columns), table.sort
    lines = _fit([*head, *body][: height - 1], width, height - 1)
    return Shown([*lines, *_fit([_footer(views.history, ui, status)], width, 1)], columns, sort, page, scroll)


def _line(*pieces: tuple[str, str]) -> Line:
    return tuple(Span(text, style) for text, style in pieces if text)


def _first(history: ClusterHistory, ui: Ui) -> Line:
    snapshot = history.snapshot
    at = datetime.fromtimestamp(snapshot.cluster.now_ms / 1000, UTC)
    told = f"  cluster {snapshot.cluster.cluster_id or '?'}  {at:%H:%M:%S} UTC"
    pace = f"  every {ui.interval:g} s, {snapshot.requests} requests"
    return _line(("kbroker top", BOLD), (told, PLAIN), (pace, DIM), ("  paused" if ui.is_paused else "", WARN))


def _totals(views: Views, width: int) -> Iterator[Line]:
    """The totals, in as many lines as they need."""
    line: list[Span] = []
    used = 0
    for name, value, style in views.totals:
        taken = cell_len(name) + cell_len(value) + 1
        if line and used + taken > width:
            yield tuple(line)
            line, used = [], 0
        line += [Span(f"{name} ", DIM), Span(value, style), Span("   ")]
        used += taken + 3
    yield tuple(line)


def _tabs(ui: Ui) -> Line:
    pieces: list[Span] = []
    for index, (name, _) in enumerate(VIEWS):
        pieces += [Span(f" {index + 1} {name} ", REVERSE if index == ui.view else PLAIN)]
    return tuple(pieces)


def _help() -> list[Line]:
    return [_line((f"  {keys:<16}", BOLD), (meaning, PLAIN)) for keys, meaning in HELP]


def _footer(history: ClusterHistory, ui: Ui, status: str) -> Line:
    if status:
        return _line((status, BAD))
    if ui.is_typing:
        return _line(("Enter keeps the filter, Esc ends it", DIM))
    problems = history.snapshot.problems
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return _line((f"{problems[0]}{more}", WARN))
    return _line((_FOOTER, DIM))


# --- Tables ---------------------------------------------------------------------------------------------------------


def chosen(table: Table, ui: Ui) -> list[Row]:
    """The rows that the filter leaves, in the chosen order."""
    words = ui.filter.lower().split()
    names = [index for index, column in enumerate(table.columns) if not column.is_number] or [0]
    rows = [row for row in table.rows if all(any(word in row[at].text.lower() for at in names) for word in words)]
    sort = ui.sorts.get(ui.view, Sort(table.sort))
    column = min(sort.column, len(table.columns) - 1)
    rows.sort(key=lambda row: row[0].key)
    is_number = table.columns[column].is_number and column > 0
    rows.sort(key=lambda row: row[column].key, reverse=is_number != sort.flipped)
    return rows


def table_lines(table: Table, rows: Sequence[Row], width: int, scroll: int, page: int, sort: Sort | None) -> list[Line]:
    """Headings, the rows from ``scroll`` on, and the table's note. The column that rows are sorted by is marked."""
    if not rows:
        return [_line((table.empty if not table.rows else "nothing fits the filter", DIM)), *_note(table)]
    widths = _widths(table, rows, width)
    heading: list[Span] = []
    for index, taken in enumerate(widths):
        title = _aligned(table.columns[index].title, taken, table.columns[index].is_number)
        is_sorted = sort is not None and sort.column == index
        heading += [Span(title, REVERSE if is_sorted else BOLD), Span(" " * _GAP)]
    lines = [tuple(heading)]
    for row in rows[scroll : scroll + page]:
        spans: list[Span] = []
        for index, taken in enumerate(widths):
            spans.append(Span(_aligned(row[index].text, taken, table.columns[index].is_number), row[index].style))
            spans.append(Span(" " * _GAP))
        lines.append(tuple(spans))
    return [*lines, *_note(table)]


def _note(table: Table) -> list[Line]:
    return [_line((table.note, DIM))] if table.note else []


def _widths(table: Table, rows: Sequence[Row], width: int) -> list[int]:
    """Cells of each column that is shown. The first one gives way, then columns at the right are left out."""
    widths = [
        max(len(column.title), *(_cells(row[index].text) for row in rows)) for index, column in enumerate(table.columns)
    ]
    over = sum(widths) + _GAP * (len(widths) - 1) - width
    if over > 0:
        widths[0] = max(widths[0] - over, min(_LEAST_NAME, widths[0]))
    while len(widths) > 1 and sum(widths) + _GAP * (len(widths) - 1) > width:
        widths.pop()
    widths[0] = min(widths[0], width)
    return widths


def _cells(text: str) -> int:
    """Cells that a text takes; quick for what most rows have."""
    return len(text) if text.isascii() and text.isprintable() else cell_len(printable(text))


def _aligned(text: str, width: int, right: bool) -> str:
    shown = printable(text)
    taken = cell_len(shown)
    if taken > width:
        return set_cell_size(shown, width - 1) + "…" if width > 1 else set_cell_size(shown, width)
    return " " * (width - taken) + shown if right else shown + " " * (width - taken)


# --- Overview -------------------------------------------------------------------------------------------------------


def _overview(views: Views, ui: Ui, width: int) -> Iterator[Line]:
    """Troubles in words, then the first rows of the views."""
    found = views.troubles
    for trouble in found[:_TROUBLES]:
        yield _line((trouble.text, BAD if trouble.severity is Severity.ERROR else WARN), (f" {trouble.advice}", DIM))
    if len(found) > _TROUBLES:
        yield _line((f"and {len(found) - _TROUBLES} more", DIM))
    if found:
        yield ()
    for name, most in _IN_OVERVIEW:
        view = next(index for index, (title, _) in enumerate(VIEWS) if title == name)
        table = views.table(view)
        if table is None or (not table.rows and name in ("transactions", "requests")):
            continue
        rows = chosen(table, replace(ui, view=view))
        yield from table_lines(table._replace(note=""), rows, width, 0, most, ui.sorts.get(view, Sort(table.sort)))
        if len(rows) > most:
            yield _line((f"{most} of {len(rows):,} {name}: press {view + 1}", DIM))
        yield ()


# --- Lines ----------------------------------------------------------------------------------------------------------


def _fit(lines: Sequence[Line], width: int, height: int) -> list[Line]:
    """The number of lines that is asked for, none wider than the terminal."""
    fitted = [_cut(line, width) for line in lines[:height]]
    return fitted + [()] * (height - len(fitted))


def _cut(line: Line, width: int) -> Line:
    spans: list[Span] = []
    left = width
    for span in line:
        text = printable(span.text)
        taken = cell_len(text)
        if taken > left:
            text, taken = set_cell_size(text, left), left
        if text:
            spans.append(Span(text, span.style))
        left -= taken
    return tuple(spans)


def plain(lines: Sequence[Line]) -> str:
    """Lines as text without styles."""
    return "".join("".join(span.text for span in line).rstrip() + "\n" for line in lines)
