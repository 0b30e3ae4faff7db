"""The file that names many tables, for ``kbroker table run``::

[[table]]
topic = "orders"
to = "delta:lake/orders"
value = "json"            # bytes without it
schema = "orders.json"    # the fields of JSON values; those that come without it
every = "30s"
memory = "16MiB"
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from kbroker.errors import FatalError
from kbroker.tables.follower import FORMATS, Settings
from kbroker.tables.json_kinds import parse_kinds
from kbroker.value_types import NamedTuple

_NAMES: Final = {"topic", "to", "value", "schema", "every", "memory"}


class Entry(NamedTuple):
    """A table of the file."""

    topic: str
    path: str
    settings: Settings


def read_tables(
    file: Path, path_of: Callable[[str], str], seconds_of: Callable[[str], float], bytes_of: Callable[[str], int]
) -> list[Entry]:
    """The tables of a file; ``FatalError`` with the name of what is wrong. The functions read values as options do."""
    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FatalError(f"{file}: {error}") from None
    tables = document.get("table")
    if set(document) != {"table"} or not isinstance(tables, list):
        raise FatalError(f"{file}: it has a [[table]] for each table, and nothing else")
    entries: list[Entry] = []
    for number, table in enumerate(tables, 1):
        where = f"{file}: table {number}"
        for name in {"topic", "to"} - set(table):
            raise FatalError(f"{where}: {name} is missing")
        for name, value in table.items():
            if name not in _NAMES or not isinstance(value, str):
                raise FatalError(f"{where}: {name} is none of {', '.join(sorted(_NAMES))}, or no text")
        if table.get("value", FORMATS[0]) not in FORMATS:
            raise FatalError(f"{where}: value is one of {', '.join(FORMATS)}")
        try:
            entries.append(Entry(table["topic"], path_of(table["to"]), _settings(table, file, seconds_of, bytes_of)))
        except (ValueError, OSError) as error:
            raise FatalError(f"{where}: {str(error) or 'to is delta:PATH with the path of a directory'}") from None
    paths = [entry.path for entry in entries]
    for path in paths:
        if paths.count(path) > 1:
            raise FatalError(f"{file}: {path} is there twice")
    return entries


def _settings(
    table: Mapping[str, Any], file: Path, seconds_of: Callable[[str], float], bytes_of: Callable[[str], int]
) -> Settings:
    declared = (file.parent / table["schema"]).read_text("utf-8") if "schema" in table else ""
    if declared:
        parse_kinds(declared.encode())
    return Settings(
        value_format="json" if declared else table.get("value"),
        declared=declared,
        interval=seconds_of(table.get("every", "10s")),
        max_bytes=bytes_of(table.get("memory", "32MiB")),
    )
