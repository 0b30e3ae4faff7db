"""The declared formats as ``construct`` layouts: for people who look at bytes, and a second opinion in tests.

A layout is derived from the same declaration as the compiled codec, but reads a frame on its own: nothing here
uses ``compiler.py``. It is slow (half a millisecond a message), and remembers where each field lay.
Nothing on the broker's start path imports this module.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import construct

from kbroker.wire.errors import WireError
from kbroker.wire.registry import API_KEYS, request_header_version, response_header_version
from kbroker.wire.schema import MISSING, FieldSpec, TypeSpec, VersionRange, struct_spec

M = TypeVar("M")


@dataclasses.dataclass(slots=True)
class Node:
    """A field with its place: bytes ``start`` to ``stop`` of the buffer, length prefix included."""

    name: str
    type: str
    start: int
    stop: int
    value: Any
    """The value of a leaf; ``None`` for null."""
    children: list[Node] | None = None
    """The fields of a struct or the elements of a list; ``None`` for a leaf and for null."""
    field: FieldSpec | None = None


class _Damage(construct.ConstructError):  # type: ignore[misc]
    """A field cannot be read; carries what came before it."""

    def __init__(self, nodes: list[Node], reason: str) -> None:
        super().__init__(reason)
        self.nodes = nodes
        self.reason = reason


class DamagedFrame(WireError):
    """A frame that ends early or contradicts itself. ``tree``: what could be read of it, as text."""

    def __init__(self, reason: str, nodes: list[Node], tree: str = "") -> None:
        super().__init__(reason)
        self.nodes = nodes
        self.tree = tree


class _Located(construct.Subconstruct):  # type: ignore[misc]
    """Wraps what a subconstruct reads into a ``Node``."""

    def __init__(self, name: str, type_name: str, subcon: Any, field: FieldSpec | None = None) -> None:
        super().__init__(subcon)
        self.node_name = name
        self.type_name = type_name
        self.field = field

    def _parse(self, stream: Any, context: Any, path: str) -> Node:
        start = stream.tell()
        try:
            value = self.subcon._parsereport(stream, context, path)
        except _Damage as damage:
            partial = self._node(start, stream.tell(), damage.nodes)
            raise _Damage([partial], damage.reason) from None
        except (construct.ConstructError, OverflowError) as error:
            reason = str(error).split("\n")[-1]
            raise _Damage([], f"{self.node_name} at byte {start}: {reason}") from None
        return self._node(start, stream.tell(), value)

    def _node(self, start: int, stop: int, value: Any) -> Node:
        if isinstance(value, list):
            return Node(self.node_name, self.type_name, start, stop, None, value, self.field)
        return Node(self.node_name, self.type_name, start, stop, value, None, self.field)


class _Fields(construct.Construct):  # type: ignore[misc]
    """Fields one after the other, then tagged fields if there is a set of them; gives a list of nodes."""

    def __init__(self, fields: Iterable[_Located], tagged: _Tagged | None) -> None:
        super().__init__()
        self.fields = list(fields)
        self.tagged = tagged

    def _parse(self, stream: Any, context: Any, path: str) -> list[Node]:
        nodes: list[Node] = []
        try:
            for field in self.fields:
                nodes.append(field._parsereport(stream, context, path))  # noqa: PERF401  # kept if the next fails
            if self.tagged is not None:
                nodes += self.tagged._parsereport(stream, context, path)
        except _Damage as damage:
            raise _Damage(nodes + damage.nodes, damage.reason) from None
        return nodes


class _Items(construct.Construct):  # type: ignore[misc]
    """A list: its count, then as many elements."""

    def __init__(self, count: Any, element: Callable[[int], _Located], nullable: bool) -> None:
        super().__init__()
        self.count = count
        self.element = element
        self.nullable = nullable

    def _parse(self, stream: Any, context: Any, path: str) -> list[Node] | None:
        count = self.count._parsereport(stream, context, path)
        if count < 0:
            if not self.nullable:
                raise construct.ValidationError("null is not allowed", path)
            return None
        nodes: list[Node] = []
        try:
            for index in range(count):
                nodes.append(self.element(index)._parsereport(stream, context, path))  # noqa: PERF401
        except _Damage as damage:
            raise _Damage(nodes + damage.nodes, damage.reason) from None
        return nodes


class _Tagged(construct.Construct):  # type: ignore[misc]
    """A set of tagged fields; unknown ones become leaves of bytes."""

    def __init__(self, known: dict[int, _Located]) -> None:
        super().__init__()
        self.known = known

    def _parse(self, stream: Any, context: Any, path: str) -> list[Node]:
        start = stream.tell()
        nodes: list[Node] = []
        count = _Located("tagged fields", "count", construct.VarInt)._parsereport(stream, context, path)
        if count.value > 64:
            raise _Damage([], f"more than 64 tagged fields in one struct, at byte {start}")
        if count.value:
            nodes.append(count)
        try:
            for _ in range(count.value):
                nodes.append(self._one(stream, context, path))  # noqa: PERF401
        except _Damage as damage:
            raise _Damage(nodes + damage.nodes, damage.reason) from None
        return nodes

    def _one(self, stream: Any, context: Any, path: str) -> Node:
        start = stream.tell()
        head = _Located("tag", "VarInt", _TAG_AND_SIZE)._parsereport(stream, context, path)
        tag, size = head.value
        body = stream.tell()
        known = self.known.get(tag)
        if known is None:
            known = _Located(f"unknown tag {tag}", "Bytes", construct.Bytes(size))
        node: Node = known._parsereport(stream, context, path)
        if stream.tell() != body + size:
            raise _Damage([node], f"tagged field {node.name} at byte {start} does not fill its {size} bytes")
        node.start = start
        return node


_FIXED: Final[dict[str, Any]] = {
    "Int8": construct.Int8sb,
    "Int16": construct.Int16sb,
    "Int32": construct.Int32sb,
    "Int64": construct.Int64sb,
    "UInt16": construct.Int16ub,
    "UInt32": construct.Int32ub,
    "Float64": construct.Float64b,
    "Bool": construct.Flag,
    "UuidField": construct.Bytes(16),
}

_VARINT32: Final = construct.ExprValidator(construct.VarInt, lambda value, _: value < 1 << 32)
_TAG_AND_SIZE: Final = construct.ExprAdapter(
    construct.Sequence(_VARINT32, _VARINT32), lambda pair, _: tuple(pair), lambda pair, _: list(pair)
)
_COMPACT_LENGTH: Final = construct.ExprAdapter(_VARINT32, lambda value, _: value - 1, lambda value, _: value + 1)


def _blob(length: Any, kind: str, nullable: bool) -> Any:
    """A string, bytes or records behind a length, -1 for null."""
    longest = 0x7FFF if kind == "Str" else (1 << 31) - 1
    shortest = -1 if nullable else 0
    content = construct.Bytes(construct.this.length)
    if kind == "Str":
        content = construct.ExprAdapter(
            content, lambda raw, _: raw.decode("utf-8", "replace"), lambda text, _: text.encode("utf-8")
        )
    return construct.FocusedSeq(
        "content",
        # Old forms have any negative number for null.
        "length" / construct.ExprValidator(length, lambda size, _: max(size, -1) >= shortest and size <= longest),
        "content" / construct.IfThenElse(construct.this.length < 0, construct.Computed(None), content),
    )


_layouts: Final[dict[tuple[type[Any], int, bool], _Fields]] = {}


def _layout(cls: type[Any], version: int, flexible: bool) -> _Fields:
    """The layout of a class's fields as they are in that version of the message around it."""
    known_layout = _layouts.get((cls, version, flexible))
    if known_layout is not None:
        return known_layout
    plain: list[_Located] = []
    known: dict[int, _Located] = {}
    for field in struct_spec(cls).fields:
        if version not in field.versions:
            continue
        is_tagged = version in field.tagged
        located = _Located(
            field.name,
            repr(field.type),
            _subcon(field.type, version, flexible, version in field.nullable, is_tagged),
            field,
        )
        if is_tagged and field.tag is not None:
            known[field.tag] = located
        else:
            plain.append(located)
    made = _Fields(plain, _Tagged(known) if flexible else None)
    _layouts[cls, version, flexible] = made
    return made


def _subcon(type_spec: TypeSpec, version: int, flexible: bool, nullable: bool, tagged: bool) -> Any:
    if type_spec.name in _FIXED:
        return _FIXED[type_spec.name]
    if type_spec.struct is not None:
        fields = _layout(type_spec.struct, version, flexible)
        if not nullable:
            return fields
        # Presence is a byte (-1 or 1), but a varint (0 or 1) inside a tagged field.
        return construct.FocusedSeq(
            "value",
            "present" / (_COMPACT_LENGTH if tagged else construct.Int8sb),
            "value" / construct.IfThenElse(construct.this.present < 0, construct.Computed(None), fields),
        )
    if type_spec.element is not None:
        element = type_spec.element
        inner = _subcon(element, version, flexible, False, False)
        count = _COMPACT_LENGTH if flexible else construct.Int32sb
        return _Items(count, lambda index: _Located(f"[{index}]", repr(element), inner), nullable)
    old = construct.Int16sb if type_spec.name == "Str" else construct.Int32sb
    return _blob(_COMPACT_LENGTH if flexible else old, type_spec.name, nullable)


def layout(cls: type[Any], version: int) -> Any:
    """The ``construct`` layout of a message; it parses into a list of ``Node``.

    ``KeyError`` if the class has no such version.
    """
    spec = struct_spec(cls)
    if version not in spec.versions:
        raise KeyError(f"{cls.__name__} has versions {spec.versions}, not {version}")
    return _layout(cls, version, version in spec.flexible)


def parse(
    cls: type[Any], version: int, data: bytes | bytearray | memoryview, offset: int = 0
) -> tuple[list[Node], int]:
    """``(fields, offset after them)`` of a message at ``offset``; ``DamagedFrame`` if it is not one."""
    stream = io.BytesIO(data)
    stream.seek(offset)
    try:
        nodes: list[Node] = layout(cls, version).parse_stream(stream)
    except _Damage as damage:
        raise DamagedFrame(f"{cls.__name__} v{version}: {damage.reason}", damage.nodes) from None
    return nodes, stream.tell()


def decode_by_layout(
    cls: type[M], version: int, data: bytes | bytearray | memoryview, offset: int = 0
) -> tuple[M, int]:
    """The message that ``compiler.decode`` returns, found the other way. Records are ``bytes``."""
    nodes, offset = parse(cls, version, data, offset)
    message: M = _message(cls, nodes)
    return message, offset


def _message(cls: type[Any], nodes: list[Node]) -> Any:
    values = {node.field.name: _value(node.field.type, node) for node in nodes if node.field is not None}
    for field in struct_spec(cls).fields:
        if field.name in values:
            continue
        if field.default is MISSING:
            assert field.type.struct is not None
            values[field.name] = field.type.struct()
        else:
            values[field.name] = [] if isinstance(field.default, list) else field.default
    return cls(**values)


def _value(type_spec: TypeSpec, node: Node) -> Any:
    if node.children is None:
        return node.value
    if type_spec.struct is not None:
        return _message(type_spec.struct, node.children)
    assert type_spec.element is not None
    return [_value(type_spec.element, child) for child in node.children]


_REQUEST_HEADER: Final = (
    _Located("api_key", "Int16", construct.Int16sb),
    _Located("api_version", "Int16", construct.Int16sb),
    _Located("correlation_id", "Int32", construct.Int32sb),
    _Located(
        "client_id",
        "Str",
        construct.ExprAdapter(
            _blob(construct.Int16sb, "Bytes", True),
            lambda raw, _: None if raw is None else raw.decode("utf-8", "replace"),
            lambda text, _: text,
        ),
    ),
)

_RESPONSE_HEADER: Final = (_Located("correlation_id", "Int32", construct.Int32sb),)


def parse_frame(data: bytes, *, response_to: tuple[int, int] | None = None) -> list[Node]:
    """A whole frame, with or without its four bytes of size, as a tree.

    A response does not say what it answers: ``response_to`` is the request's API key and version.
    ``DamagedFrame`` if the bytes are no such frame; what could be read is in its ``nodes``.
    """
    if len(data) < 8 or int.from_bytes(data[:4], "big") != len(data) - 4:
        return _parse_frame(data, response_to, sized=False)
    try:
        return _parse_frame(data, response_to, sized=True)
    except DamagedFrame as damage:
        try:
            # What looked like a size may have been a correlation id, or a key and a version.
            return _parse_frame(data, response_to, sized=False)
        except DamagedFrame:
            raise damage from None


def _parse_frame(data: bytes, response_to: tuple[int, int] | None, *, sized: bool) -> list[Node]:
    nodes: list[Node] = []
    stream = io.BytesIO(data)
    try:
        if sized:
            nodes.append(_Located("size", "Int32", construct.Int32sb).parse_stream(stream))
        if response_to is None:
            _append(nodes, "request header", _Fields(_REQUEST_HEADER[:2], None), stream)
            header = nodes[-1].children or []
            key, version = header[0].value, header[1].value
            if key not in API_KEYS:
                raise _Damage([], f"unknown API key {key}")
            header[0].type += f" {API_KEYS[key].name}"
            tagged = _Tagged({}) if request_header_version(key, version) == 2 else None
            rest = nodes.pop()
            _append(nodes, "request header", _Fields(_REQUEST_HEADER[2:], tagged), stream, rest)
            cls = API_KEYS[key].request
        else:
            key, version = response_to
            if key not in API_KEYS:
                raise _Damage([], f"unknown API key {key}")
            tagged = _Tagged({}) if response_header_version(key, version) else None
            _append(nodes, "response header", _Fields(_RESPONSE_HEADER, tagged), stream)
            cls = API_KEYS[key].response
        versions: VersionRange = API_KEYS[key].valid_versions
        if version not in versions:
            raise _Damage([], f"{API_KEYS[key].name} has versions {versions}, not {version}")
        _append(nodes, f"{cls.__name__} v{version}", layout(cls, version), stream)
        left = len(data) - stream.tell()
        if left:
            nodes.append(Node("left over", "Bytes", stream.tell(), len(data), data[stream.tell() :]))
    except _Damage as damage:
        raise DamagedFrame(damage.reason, nodes + damage.nodes) from None
    return nodes


def _append(nodes: list[Node], name: str, fields: Any, stream: io.BytesIO, begun: Node | None = None) -> None:
    """Parse one more top-level node, or the rest of one that has begun; kept even if it breaks off."""
    start = stream.tell() if begun is None else begun.start
    before = [] if begun is None else begun.children or []
    node = Node(name, "", start, start, None, before)
    nodes.append(node)
    try:
        node.children = before + fields.parse_stream(stream)
    except _Damage as damage:
        node.children = before + damage.nodes
        raise _Damage([], damage.reason) from None
    finally:
        node.stop = stream.tell()
