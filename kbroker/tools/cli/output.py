"""Tables, sizes, times and JSON for people and programs.

``rich`` draws tables and progress bars; it is imported when one is drawn, since it takes longer to import than most
commands take. Without a terminal there are no colours and lines are as long as they need to be.
"""

from __future__ import annotations

import functools
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import IO, TYPE_CHECKING, Any, Final

from kbroker.errors import FatalError

if TYPE_CHECKING:
    from rich.console import Console

NOTHING: Final = "-"
"""Stands for what there is not in a table."""

_SUSPECT: Final = re.compile(r"[^ -~]")

_CONTROLS_OF_JSON: Final = re.compile(rb"\x7f|\xc2[\x80-\x9f]")

_UNWRAPPED: Final = 100_000


def write(data: bytes) -> None:
    """All of some bytes to standard output, now; ``FatalError`` if that cannot be, ``BrokenPipeError`` if nobody reads.

    With PYTHONUNBUFFERED standard output takes only as much as the pipe has room for, and says how much.
    """
    sys.stdout.flush()
    out, rest = sys.stdout.buffer, memoryview(data)
    try:
        while rest:
            written = out.write(rest)
            rest = rest[written:]
        out.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FatalError(f"cannot write: {error.strerror}") from None


def print_json(document: object) -> None:
    """Print a JSON document, indented, with keys in the order given."""
    text = json.dumps(document, indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace")
    write(harmless_json(text) + b"\n")


def print_documents(documents: Sequence[Mapping[str, Any]], show: Callable[[Mapping[str, Any]], None] | None) -> None:
    """Each as ``show`` prints it, with an empty line between them; without ``show``, all as one JSON document."""
    if show is None:
        print_json(documents)
        return
    for index, document in enumerate(documents):
        if index:
            print()
        show(document)


def console(file: IO[str] | None = None) -> Console:
    """A console on standard output, or another stream: plain and unwrapped unless it is a terminal."""
    from rich.console import Console

    stream = sys.stdout if file is None else file
    terminal = stream.isatty()
    return Console(
        file=stream,
        width=None if terminal else _UNWRAPPED,
        no_color=None if terminal else True,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numbers: Iterable[str] = (),
    wrap: Iterable[str] = (),
    styles: Mapping[int, str] | None = None,
    total: Sequence[object] | None = None,
) -> None:
    """A table with a line of headings. ``numbers``: columns that are aligned to the right; ``wrap``: those whose text
    may go on in a next line of the cell on a narrow terminal. ``styles``: row -> rich style.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    target = console()
    table = Table(box=SIMPLE_HEAD if target.is_terminal else None, pad_edge=False, show_footer=total is not None)
    right, wrapping = set(numbers), set(wrap)
    for index, name in enumerate(columns):
        table.add_column(
            Text(name),
            footer=Text("" if total is None else _cell(total[index])),
            justify="right" if name in right else "left",
            no_wrap=name not in wrapping,
            overflow="fold",
        )
    for index, row in enumerate(rows):
        table.add_row(*(Text(_cell(value)) for value in row), style=(styles or {}).get(index))
    if target.is_terminal:
        target.print(table)
        return
    drawn = io.StringIO()
    target.file = drawn
    target.print(table)
    lines = "".join(f"{line.rstrip()}\n" for line in drawn.getvalue().splitlines())
    write(lines.encode("utf-8", "backslashreplace"))


def _cell(value: object) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or NOTHING
    return printable(str(value))


def printable(text: str) -> str:
    """Text without control characters, which could play tricks with a terminal."""
    return text if text.isprintable() else _SUSPECT.sub(_escape, text)


def printable_lines(text: str) -> str:
    """The text as ``printable`` makes it, line by line."""
    return "\n".join(map(printable, text.split("\n")))


def harmless_json(document: bytes) -> bytes:
    """JSON in UTF-8 for a terminal: the control characters that JSON takes as they are (from DEL on) are escaped."""
    return _CONTROLS_OF_JSON.sub(lambda match: b"\\u00%02x" % match[0][-1], document)


def _escape(match: re.Match[str]) -> str:
    letter = match[0]
    if letter.isprintable():
        return letter
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(letter)
    if short:
        return short
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def plain(value: object) -> str:
    """A number that is a name (a broker's id, an epoch): without separators of thousands."""
    return NOTHING if value is None else str(value)


def size(count: int | None) -> str:
    """Bytes for people: ``1.5 MiB``."""
    if count is None:
        return NOTHING
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} PiB"


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp(milliseconds: int) -> str:
    """A record's time, in UTC: ``2026-01-31T12:00:00.000Z``; the number itself where no calendar reaches."""
    if milliseconds < 0:
        return NOTHING
    seconds, rest = divmod(milliseconds, 1000)
    prefix = _second(seconds)
    return f"{prefix}.{rest:03d}Z" if prefix else str(milliseconds)


@functools.lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    try:
        return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}"
    except OverflowError:
        return ""
