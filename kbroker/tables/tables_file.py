"""The file that names many tables, for ``kbroker table run``::

quota = "20MiB"                        # fetched a second, by all of them; without it as fast as it goes
command-config = "client.properties"   # of a client, for a cluster with TLS or SASL

[[table]]
topic = "orders"
to = "delta:lake/orders"
value = "json"            # bytes without it
registry = "http://..."   # where the schemas of avro, protobuf and json-schema are
flatten = true            # address.city is address_city
partition-by = "day(_timestamp)"
cluster-by = "customer"
schema = "orders.json"    # the fields of JSON values; those that come without it
every = "30s"
memory = "16MiB"
upsert = true             # the latest row of each key; or changes = "debezium"
merge = false             # small files stay as they are
keep = "2d"               # versions that stay
store-options = "store.properties"
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from kbroker.errors import FatalError
from kbroker.tables.follower import USUAL_SECONDS, Settings
from kbroker.tables.formats import FORMATS, REGISTERED
from kbroker.tables.json_kinds import parse_kinds
from kbroker.tables.layout import Layout
from kbroker.value_types import NamedTuple

_NAMES: Final = {"topic", "to", "catalog", "value", "schema", "every", "memory"} | {
    *("registry", "flatten", "partition-by", "cluster-by", "upsert", "changes", "merge", "keep", "store-options")
}
_FLAGS: Final = {"flatten", "upsert", "merge"}
"""They are true or false, and all others texts."""
_OPTIONS: Final = re.compile(rf"--(?=(?:{'|'.join(_NAMES)})\b)")
_COMMON: Final = {"quota", "command-config"}


class Entry(NamedTuple):
    """A table of the file."""

    topic: str
    to: str
    settings: Settings
    catalog: str | None = None
    registry: str | None = None
    """The address of the registry that has the schemas of its values."""
    store_options: Path | None = None
    """The file of options for its store."""


class TablesFile(NamedTuple):
    """A file: its tables, and what holds for all of them."""

    tables: list[Entry]
    quota: int | None
    """Bytes a second."""
    command_config: Path | None


def read_tables(file: Path, readers: Mapping[str, Callable[[str], Any]]) -> TablesFile:
    """Read a file; ``FatalError`` with the name of what is wrong.

    ``readers`` read the values of some names as the command's options do; ``ValueError`` says what is wrong with one.
    """
    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FatalError(f"{file}: {error}") from None
    tables = document.pop("table", None)
    if not (isinstance(tables, list) and tables and all(isinstance(each, dict) for each in tables)):
        raise FatalError(f"{file}: it has a [[table]] for each table")
    for name, value in document.items():
        if name not in _COMMON or not isinstance(value, str):
            raise FatalError(f"{file}: {name} is none of {', '.join(sorted(_COMMON))}, or no text")
    try:
        quota = readers["quota"](document["quota"]) if "quota" in document else None
    except ValueError as error:
        raise FatalError(f"{file}: quota: {error}") from None
    config = document.get("command-config")
    entries: list[Entry] = []
    for number, table in enumerate(tables, 1):
        try:
            entries.append(_entry(table, file, readers))
        except (ValueError, OSError, FatalError) as error:
            topic = f", of topic {table['topic']}" if "topic" in table else ""
            raise FatalError(f"{file}: table {number}{topic}: {in_file(str(error))}") from None
    places = [(entry.to, entry.catalog) for entry in entries]
    for place in places:
        if places.count(place) > 1:
            raise FatalError(f"{file}: {place[0]} is there twice")
    return TablesFile(entries, quota, None if config is None else file.parent / config)


def _entry(table: Mapping[str, Any], file: Path, readers: Mapping[str, Callable[[str], Any]]) -> Entry:
    for name in ("topic", "to"):
        if name not in table:
            raise ValueError(f"{name} is missing")
    for name, value in table.items():
        if name not in _NAMES:
            raise ValueError(f"{name} is none of {', '.join(sorted(_NAMES))}")
        if not isinstance(value, bool if name in _FLAGS else str):
            raise ValueError(f"{name} is {'true or false' if name in _FLAGS else 'a text in quotes'}")
    if table.get("value", FORMATS[0]) not in FORMATS:
        raise ValueError(f"value is one of {', '.join(FORMATS)}")
    given = {**table, **{name: file.parent / table[name] for name in ("schema", "store-options") if name in table}}
    for name in table.keys() & readers.keys():
        try:
            given[name] = readers[name](table[name])
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    named = (given.get(name) for name in ("catalog", "registry", "store-options"))
    return Entry(table["topic"], given["to"], settings_from(given), *named)


def settings_from(given: Mapping[str, Any]) -> Settings:
    """Returns the settings that are named as the options of `follow`; ``ValueError`` says what goes not together.

    ``to`` is among them; what is None is as if it were not there.
    """
    given = {name: each for name, each in given.items() if each is not None}
    value, declared = given.get("value"), ""
    if "schema" in given:
        if value not in (None, "json"):
            raise ValueError("--schema is of values that are JSON: leave out --value, or let it be json")
        value = "json"
        try:
            declared = given["schema"].read_text("utf-8")
            parse_kinds(declared.encode())
        except ValueError as error:
            raise FatalError(f"{given['schema']}: {error}") from None
    if "registry" in given and value not in (None, *REGISTERED):
        raise ValueError(f"--registry is of values that are {', '.join(REGISTERED)}: let --value be one of them")
    usual = Settings()
    return Settings(
        value_format=value,
        declared=declared,
        interval=given.get("every", USUAL_SECONDS[given["to"].partition(":")[0]]),
        max_bytes=given.get("memory", usual.max_bytes),
        accept_loss=given.get("accept-loss", False),
        new_topic=given.get("new-topic", False),
        layout=Layout(given.get("flatten", False), given.get("partition-by", ""), given.get("cluster-by", "")),
        upsert=given.get("upsert", False),
        changes=given.get("changes"),
        merging=usual.merging if given.get("merge", True) else None,
        keep_hours=given.get("keep"),
    )


def in_file(text: str) -> str:
    """Returns what is said of options with the names that the file has for them."""
    return _OPTIONS.sub("", text)
