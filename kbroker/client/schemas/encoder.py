"""Keys and values encoded by a schema: from JSON to the bytes that serializers of a schema registry write."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kbroker.client.schemas.registry import AVRO, JSON, PROTOBUF, Schema, SchemaRegistry
from kbroker.client.schemas.wire_format import PackageMissing, UndecodableRecord, UnfitValue

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_DEEPEST = 4
"""Levels of messages or objects that a skeleton shows."""


class Writer(Protocol):
    """Writes values by one schema."""

    messages: tuple[str, ...]
    """The names of the messages of a Protobuf file."""

    def encode(self, document: Any) -> bytes:
        """The bytes of a value; ``UnfitValue`` names the place of what does not fit."""
        ...

    def skeleton(self) -> Any:
        """Returns a value to begin with: every field, with its default or an empty value."""
        ...


def writer_of(registry: SchemaRegistry, schema_id: int, message: str = "") -> Writer:
    """The writer of a schema, and of the ``message`` of a Protobuf file, its first unless another is named.

    ``UndecodableRecord`` if the schema cannot be used, ``RegistryError`` and ``PackageMissing`` if nothing can.
    """
    schema = registry.schema(schema_id)
    needed = registry.references(schema)
    match schema.kind:
        case kind if kind == AVRO:
            from kbroker.client.schemas.avro_writer import AvroWriter

            return AvroWriter(schema.text, [each.text for _, each in needed])
        case kind if kind == PROTOBUF:
            return _ProtobufWriter(schema.text, [(name, each.text) for name, each in needed], message)
        case kind if kind == JSON:
            return _JsonWriter(schema, needed)
    raise UndecodableRecord(f"the schema is of the unknown kind {schema.kind}")


def framed(schema_id: int, data: bytes) -> bytes:
    """The bytes of a key or value with the id of its schema before them."""
    return b"\0" + schema_id.to_bytes(4) + data


# --- Protobuf


class _ProtobufWriter:
    def __init__(self, text: str, references: Sequence[tuple[str, str]], message: str) -> None:
        from kbroker.client.schemas.protobuf import pool_of

        self._pool, file = pool_of(text, references)
        from google.protobuf import message_factory

        self.messages = names = tuple(each.name for each in file.message_type)
        if not names or (message and message not in names):
            raise UndecodableRecord(f"the Protobuf file has no message {message}; it has {', '.join(names) or 'none'}")
        self._index = names.index(message) if message else 0
        full = ".".join(filter(None, (file.package, names[self._index])))
        self._class = message_factory.GetMessageClass(self._pool.FindMessageTypeByName(full))

    def encode(self, document: Any) -> bytes:
        from google.protobuf import json_format

        made = self._class()
        if not isinstance(document, dict):
            raise UnfitValue("$", "an object is wanted")
        try:
            json_format.ParseDict(document, made, descriptor_pool=self._pool)
            data: bytes = made.SerializeToString()
        except (json_format.Error, TypeError, ValueError, RecursionError, AttributeError) as error:
            raise UnfitValue("$", " ".join(str(error).split())[:500]) from None
        # The place of the type: one level, or the short form of the first.
        return (b"\0" if not self._index else b"\2" + _varint(2 * self._index)) + data

    def skeleton(self) -> Any:
        return self._example(self._class.DESCRIPTOR, ())

    def _example(self, kind: Descriptor, above: tuple[str, ...]) -> dict[str, Any]:
        from google.protobuf import json_format, message_factory

        empty = message_factory.GetMessageClass(kind)()
        found: dict[str, Any] = json_format.MessageToDict(
            empty, always_print_fields_with_no_presence=True, preserving_proto_field_name=True
        )
        for field in kind.fields:
            others = field.containing_oneof
            if field.name not in found and (others is None or others.fields[0] is field):
                found[field.name] = self._of_field(field, (*above, kind.full_name))
        return {field.name: found[field.name] for field in kind.fields if field.name in found}

    def _of_field(self, field: FieldDescriptor, above: tuple[str, ...]) -> Any:
        """A field that may be left out: null is none."""
        inner = field.message_type
        if inner is None:
            return "" if isinstance(field.default_value, bytes) else field.default_value
        is_shown = not inner.full_name.startswith("google.protobuf.") and inner.full_name not in above
        return self._example(inner, above) if is_shown and len(above) < _DEEPEST else None


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + _varint(number >> 7)


# --- JSON Schema


class _JsonWriter:
    messages: tuple[str, ...] = ()

    def __init__(self, schema: Schema, needed: Sequence[tuple[str, Schema]]) -> None:
        try:
            from jsonschema import validators
            from referencing import Registry, Resource
            from referencing.jsonschema import DRAFT7
        except ImportError:
            raise PackageMissing("JSON Schema", "jsonschema") from None
        try:
            self._document = json.loads(schema.text)
            known: Registry[Any] = Registry().with_resources(
                (name, Resource.from_contents(json.loads(each.text), default_specification=DRAFT7))
                for name, each in needed
            )
            kind = validators.validator_for(self._document, default=validators.Draft7Validator)
            self._validator = kind(self._document, registry=known)
        except Exception as error:  # of JSON, of a specification that is not known
            raise UndecodableRecord(f"the JSON schema cannot be used: {error}") from None

    def encode(self, document: Any) -> bytes:
        try:
            failures = sorted(self._validator.iter_errors(document), key=lambda each: (len(each.path), each.json_path))
        except Exception as error:  # a reference that leads nowhere
            raise UndecodableRecord(f"the JSON schema cannot be used: {error}") from None
        if failures:
            raise UnfitValue(failures[0].json_path, failures[0].message[:500])
        return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")

    def skeleton(self) -> Any:
        return self._example(self._document, 0)

    def _example(self, schema: Any, depth: int) -> Any:
        if not isinstance(schema, Mapping) or depth > 2 * _DEEPEST:
            return None
        for word in ("default", "const"):
            if word in schema:
                return schema[word]
        for word in ("examples", "enum"):
            if schema.get(word):
                return schema[word][0]
        for word in ("oneOf", "anyOf", "allOf"):
            if schema.get(word):
                return self._example(schema[word][0], depth + 1)
        if "$ref" in schema:
            return self._example(self._inner(str(schema["$ref"])), depth + 1)
        kind = schema.get("type")
        kind = kind[0] if isinstance(kind, list) and kind else kind
        if kind == "object" or "properties" in schema:
            return {name: self._example(each, depth + 1) for name, each in schema.get("properties", {}).items()}
        makers: dict[Any, Callable[[], Any]] = {
            "string": str,
            "array": list,
            "boolean": bool,
            "integer": int,
            "number": int,
        }
        return makers[kind]() if kind in makers else None

    def _inner(self, reference: str) -> Any:
        """A schema within this one; a reference that leads elsewhere gives none."""
        found = self._document
        for part in reference.removeprefix("#").strip("/").split("/"):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found if reference.startswith("#") else None
