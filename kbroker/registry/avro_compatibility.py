"""Tells whether data of one Avro schema can be read by another: the schema resolution of Avro's specification. Pure.

Schemas are as fastavro parses them: names are full, and a type that has a name is written out once, and named from then
on. Names of records, enums and fixed match without their namespaces, as the specification has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kbroker.value_types import NamedTuple

_PROMOTIONS: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
"""Type of the writer -> other types by which its data can be read."""

_NAMED: Final = ("record", "error", "enum", "fixed")


class AvroSchema(NamedTuple):
    """A parsed schema, and the types that have names, by their full names."""

    schema: Any
    names: Mapping[str, Any]

    def resolved(self, schema: Any) -> Any:
        """The type itself: text for a primitive one, a list for a union, a mapping for all others."""
        while True:
            if isinstance(schema, str) and schema in self.names:
                schema = self.names[schema]
            elif isinstance(schema, Mapping) and not isinstance(schema["type"], str):
                schema = schema["type"]
            else:
                return schema


def kind_of(schema: Any) -> str:
    """The name of a resolved type's kind."""
    if isinstance(schema, list):
        return "union"
    return str(schema["type"] if isinstance(schema, Mapping) else schema)


class Misfit(NamedTuple):
    """A reason why a reader cannot read what a writer has written, and where in the reader it is."""

    kind: str
    path: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.path or '/'}: {self.detail}"


def misfits(reader: AvroSchema, writer: AvroSchema) -> list[Misfit]:
    """Returns why ``reader`` cannot read all that ``writer`` may write; nothing if it can."""
    comparison = _Comparison(reader, writer)
    while True:
        found = list(comparison.of(reader.schema, writer.schema, ""))
        if not comparison.goes_on():
            return found


class _Comparison:
    """Compares two schemas, each pair of types with names once: types may contain themselves.

    A pair is taken to fit until it turns out not to. What was judged by such a pair is judged again after that.
    """

    def __init__(self, reader: AvroSchema, writer: AvroSchema) -> None:
        self._reader = reader
        self._writer = writer
        self._failed: dict[tuple[str, str], list[Misfit]] = {}
        self._met: set[tuple[str, str]] = set()
        self._unions: dict[int, dict[str, list[Any]]] = {}
        self._known = 0

    def goes_on(self) -> bool:
        """Whether more pairs have failed since the last round, so that there is to be another."""
        before, self._known = self._known, len(self._failed)
        self._met.clear()
        return self._known > before

    def of(self, reader: Any, writer: Any, path: str) -> Iterator[Misfit]:
        """Returns why a type cannot read another."""
        reader, writer = self._reader.resolved(reader), self._writer.resolved(writer)
        if isinstance(writer, list):
            for branch in writer:
                yield from self.of(reader, branch, path)
        elif isinstance(reader, list):
            if not any(self._fits(branch, writer) for branch in self._branches(reader, writer)):
                yield Misfit("MISSING_UNION_BRANCH", path, f"no branch reads {_shown(writer)}")
        elif kind_of(reader) in _NAMED and kind_of(writer) in _NAMED:
            yield from self._named(reader, writer, path)
        else:
            yield from self._unnamed(reader, writer, path)

    def _branches(self, union: list[Any], writer: Any) -> list[Any]:
        """Returns the branches of a reader that may read a type. Of thousands, few have its name, or other names."""
        if id(union) not in self._unions:
            by_name: dict[str, list[Any]] = {}
            for branch in map(self._reader.resolved, union):
                is_named = kind_of(branch) in _NAMED and not branch.get("aliases")
                by_name.setdefault(_last_name(branch) if is_named else "", []).append(branch)
            self._unions[id(union)] = by_name
        found = self._unions[id(union)]
        named = found.get(_last_name(writer), []) if kind_of(writer) in _NAMED else []
        return [*named, *found.get("", [])]

    def _fits(self, reader: Any, writer: Any) -> bool:
        return next(self.of(reader, writer, ""), None) is None

    def _once(self, reader: Any, writer: Any, path: str) -> Iterator[Misfit]:
        """All that is wrong with a pair is told where it is met first, and one thing wherever it is met again.

        Told everywhere, it would be multiplied at each level of types that use others in several places.
        """
        pair = (reader["name"], writer["name"])
        is_first = pair not in self._met
        self._met.add(pair)
        if pair in self._failed:
            yield from self._failed[pair][: None if is_first else 1]
        elif is_first:
            found = list(self._content(reader, writer, path))
            if found:
                self._failed[pair] = found
            yield from found

    def _unnamed(self, reader: Any, writer: Any, path: str) -> Iterator[Misfit]:
        kind, written = kind_of(reader), kind_of(writer)
        if kind != written:
            if kind not in _PROMOTIONS.get(written, ()):
                yield Misfit("TYPE_MISMATCH", path, f"{_shown(reader)} does not read {_shown(writer)}")
        elif kind == "array":
            yield from self.of(reader["items"], writer["items"], f"{path}/items")
        elif kind == "map":
            yield from self.of(reader["values"], writer["values"], f"{path}/values")
        else:
            yield from _decimals(reader, writer, path)

    def _named(self, reader: Any, writer: Any, path: str) -> Iterator[Misfit]:
        kind = kind_of(reader)
        if kind != kind_of(writer):
            yield Misfit("TYPE_MISMATCH", path, f"{_shown(reader)} does not read {_shown(writer)}")
        elif not _names_match(reader, writer):
            yield Misfit("NAME_MISMATCH", path, f"{_shown(reader)} is not named as {_shown(writer)}")
        else:  # only such pairs are kept: two unions may have millions of others
            yield from self._once(reader, writer, path)

    def _content(self, reader: Any, writer: Any, path: str) -> Iterator[Misfit]:
        kind = kind_of(reader)
        if kind == "fixed":
            if reader["size"] != writer["size"]:
                yield Misfit("FIXED_SIZE_MISMATCH", path, f"{reader['size']} bytes do not read {writer['size']}")
            yield from _decimals(reader, writer, path)
        elif kind == "enum":
            known = set(reader["symbols"])
            missing = [each for each in writer["symbols"] if each not in known]
            if missing and "default" not in reader:
                text = f"{_shown(reader)} has no default and lacks {', '.join(missing)}"
                yield Misfit("MISSING_ENUM_SYMBOLS", path, text)
        else:
            yield from self._fields(reader, writer, path)

    def _fields(self, reader: Any, writer: Any, path: str) -> Iterator[Misfit]:
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            place = f"{path}/fields/{field['name']}"
            name = next((each for each in (field["name"], *field.get("aliases", ())) if each in written), None)
            if name is not None:
                yield from self.of(field["type"], written[name]["type"], f"{place}/type")
            elif "default" not in field:
                text = f"the field {field['name']} has no default, and {_shown(writer)} lacks it"
                yield Misfit("READER_FIELD_MISSING_DEFAULT_VALUE", place, text)


def _last_name(schema: Any) -> str:
    return str(schema["name"].rpartition(".")[2])


def _names_match(reader: Any, writer: Any) -> bool:
    namespace = reader["name"].rpartition(".")[0]
    if _last_name(reader) == _last_name(writer):
        return True
    aliases = (each if "." in each or not namespace else f"{namespace}.{each}" for each in reader.get("aliases", ()))
    return writer["name"] in aliases


def _decimals(reader: Any, writer: Any, path: str) -> Iterator[Misfit]:
    """Two decimals match if their precisions and scales do; a decimal and plain bytes match as bytes."""
    both = [each for each in (reader, writer) if isinstance(each, Mapping) and each.get("logicalType") == "decimal"]
    sizes = [(each.get("precision"), each.get("scale", 0)) for each in both]
    if len(sizes) == 2 and sizes[0] != sizes[1]:
        yield Misfit(
            "TYPE_MISMATCH", path, "decimal({}, {}) does not read decimal({}, {})".format(*sizes[0], *sizes[1])
        )


def _shown(schema: Any) -> str:
    return f"{kind_of(schema)} {schema['name']}" if kind_of(schema) in _NAMED else kind_of(schema)
