"""The file that names many tables, for ``kbroker table run``::

[[table]]
topic = "orders"
to = "delta:lake/orders"
value = "json"            # bytes without it
schema = "orders.json"    # the fields of JSON values; those that come without it
every = "30s"
memory = "16MiB"
store-options = "store.properties"
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from kbroker.errors import FatalError
from kbroker.tables.follower import FORMATS, USUAL_SECONDS, Settings
from kbroker.tables.json_kinds import parse_kinds
from kbroker.value_types import NamedTuple

_NAMES: Final = {"topic", "to", "catalog", "value", "schema", "every", "memory", "store-options"}


class Entry(NamedTuple):
    """A table of the file."""

    topic: str
    to: str
    catalog: str | None
    settings: Settings
    options: Path | None = None


def read_tables(file: Path, readers: Mapping[str, Callable[[str], Any]]) -> list[Entry]:
    """The tables of a file; ``FatalError`` with the name of what is wrong.

    ``readers`` read the values of some names as the command's options do; ``ValueError`` says what is wrong with one.
    """
    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FatalError(f"{file}: {error}") from None
    tables = document.get("table")
    if set(document) != {"table"} or not isinstance(tables, list):
        raise FatalError(f"{file}: it has a [[table]] for each table, and nothing else")
    entries: list[Entry] = []
    for number, table in enumerate(tables, 1):
        try:
            entries.append(_entry(table, file, readers))
        except (ValueError, OSError) as error:
            raise FatalError(f"{file}: table {number}: {error}") from None
    places = [(entry.to, entry.catalog) for entry in entries]
    for place in places:
        if places.count(place) > 1:
            raise FatalError(f"{file}: {place[0]} is there twice")
    return entries


def _entry(table: Mapping[str, Any], file: Path, readers: Mapping[str, Callable[[str], Any]]) -> Entry:
    for name in ("topic", "to"):
        if name not in table:
            raise ValueError(f"{name} is missing")
    for name, value in table.items():
        if name not in _NAMES or not isinstance(value, str):
            raise ValueError(f"{name} is none of {', '.join(sorted(_NAMES))}, or no text")
    if table.get("value", FORMATS[0]) not in FORMATS:
        raise ValueError(f"value is one of {', '.join(FORMATS)}")
    read = {name: readers[name](value) for name, value in table.items() if name in readers}
    declared = (file.parent / table["schema"]).read_text("utf-8") if "schema" in table else ""
    if declared:
        parse_kinds(declared.encode())
    usual = Settings()
    settings = Settings(
        value_format="json" if declared else table.get("value"),
        declared=declared,
        interval=read.get("every", USUAL_SECONDS[read["to"].partition(":")[0]]),
        max_bytes=read.get("memory", usual.max_bytes),
    )
    options = file.parent / table["store-options"] if "store-options" in table else None
    return Entry(table["topic"], read["to"], read.get("catalog"), settings, options)
