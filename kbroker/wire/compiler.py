"""Codecs for declared messages: Python source generated per (class, version), compiled on first use.

The code is what one would write by hand: nested structs inline, adjacent fixed-width fields (and the first
byte of whatever follows them) in one ``Struct.unpack_from`` or ``pack``, varints of one byte without a
call. ``source_of`` shows it.

Hostile input: every length and count is compared with what is left of the buffer before anything is
allocated, counts with regard to the smallest element; what slips through to ``struct`` or an index (a fixed
part cut short) is turned into ``WireError`` here. The arrays of a request share a budget of elements. Unknown tagged
fields are skipped, and bytes left over are the caller's to judge.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeVar

from kbroker.types import Part
from kbroker.wire.errors import EncodeError, WireError
from kbroker.wire.primitives import (
    MAX_ELEMENTS,
    MAX_TAGGED_FIELDS,
    Buffer,
    compiled_struct,
    continue_uvarint,
    decode_uvarint,
    encode_uvarint,
    skip_tagged_fields,
)
from kbroker.wire.schema import FIXED_FORMATS, MISSING, FieldSpec, TypeSpec, struct_spec

M = TypeVar("M")

_Decoder = Callable[[Buffer, int], tuple[Any, int]]
_Encoder = Callable[[Any], list[Part]]

MAX_STRING: Final = 0x7FFF
"""Longest string in bytes, in either form, as in Kafka."""

_MALFORMED = (struct.error, IndexError, UnicodeDecodeError)


def decode(cls: type[M], version: int, buffer: Buffer, offset: int = 0) -> tuple[M, int]:
    """Decode one message that starts at ``offset``; returns it and the offset after it.

    ``Records`` fields are views into ``buffer``; all else is copied. ``WireError`` if the bytes are not a
    message of that version; ``KeyError`` if ``cls`` has no such version.
    """
    decoder = cls.__decoders__.get(version)  # type: ignore[attr-defined]
    if decoder is None:
        decoder = compile_decoder(cls, version)
    try:
        return decoder(buffer, offset)  # type: ignore[no-any-return]
    except _MALFORMED as error:
        raise WireError(f"{cls.__name__} v{version}: {error}") from None


def encode(message: Any, version: int) -> bytes:
    """Encode a message, records included, into one ``bytes``.

    ``EncodeError`` if a value does not fit its type, or the version cannot carry it. ``KeyError`` if the
    class has no such version.
    """
    try:
        return b"".join(encode_parts(message, version))  # type: ignore[arg-type]
    except TypeError as error:
        raise EncodeError(f"{type(message).__name__} v{version}: {error}") from error


def encode_parts(message: Any, version: int) -> list[Part]:
    """Encode a message into parts for the socket: each ``Records`` value is passed through as it is.

    The first part is always ``bytes``. Errors as ``encode``.
    """
    cls = type(message)
    encoder = cls.__encoders__.get(version)
    if encoder is None:
        encoder = compile_encoder(cls, version)
    try:
        return encoder(message)  # type: ignore[no-any-return]
    except (struct.error, AttributeError, TypeError, UnicodeEncodeError, OverflowError) as error:
        raise EncodeError(f"{cls.__name__} v{version}: {error}") from error


def compile_decoder(cls: type[Any], version: int) -> _Decoder:
    """Compile the decoder of one version and remember it; ``KeyError`` if there is no such version."""
    generator = _DecoderSource(cls, version)
    decoder: _Decoder = generator.compile()
    cls.__decoders__[version] = decoder
    return decoder


def compile_encoder(cls: type[Any], version: int) -> _Encoder:
    """Compile the encoder of one version and remember it; ``KeyError`` if there is no such version."""
    generator = _EncoderSource(cls, version)
    encoder: _Encoder = generator.compile()
    cls.__encoders__[version] = encoder
    return encoder


def source_of(cls: type[Any], version: int) -> tuple[str, str]:
    """The Python source of decoder and encoder, for people."""
    return _DecoderSource(cls, version).source(), _EncoderSource(cls, version).source()


def minimum_size(type_spec: TypeSpec, version: int, flexible: bool) -> int:
    """The fewest bytes that a non-null value of the type takes."""
    if type_spec.element is not None:
        return 1 if flexible else 4
    if type_spec.struct is not None:
        size = 1 if flexible else 0
        for spec in struct_spec(type_spec.struct).fields:
            if version not in spec.versions or version in spec.tagged:
                continue
            if spec.type.struct is not None and version in spec.nullable:
                size += 1
            else:
                size += minimum_size(spec.type, version, flexible)
        return size
    fixed = FIXED_FORMATS.get(type_spec.name)
    if fixed is not None:
        return struct.calcsize(">" + fixed)
    if flexible:
        return 1
    return 2 if type_spec.name == "Str" else 4


def contains_records(cls: type[Any], version: int) -> bool:
    """Whether that version of a message has a field of record batches."""
    for spec in struct_spec(cls).fields:
        if version not in spec.versions:
            continue
        inner = spec.type.element or spec.type
        if inner.name in ("Records", "ResponseRecords"):
            return True
        if inner.struct is not None and contains_records(inner.struct, version):
            return True
    return False


class _Source:
    """What the two generators share: lines, fresh names, and the namespace the code runs in."""

    def __init__(self, cls: type[Any], version: int) -> None:
        self.cls = cls
        self.spec = struct_spec(cls)
        if version not in self.spec.versions:
            raise KeyError(f"{cls.__name__} has versions {self.spec.versions}, not {version}")
        self.version = version
        self.flexible = version in self.spec.flexible
        self.lines: list[str] = []
        self.indent = 1
        self.namespace: dict[str, Any] = {}
        self._counter = 0

    def emit(self, line: str) -> None:
        self.lines.append(" " * self.indent + line)

    def fresh(self, stem: str) -> str:
        self._counter += 1
        return f"{stem}{self._counter}"

    def constant(self, stem: str, value: Any) -> str:
        """A global of the generated code, one name a value."""
        for name, known in self.namespace.items():
            if known is value:
                return name
        name = f"{stem}_{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def struct_method(self, formats: str, method: str) -> tuple[str, int]:
        compiled = compiled_struct(">" + formats)
        name = f"{method}_{formats}".replace("?", "o")
        self.namespace[name] = getattr(compiled, "unpack_from" if method == "unpack" else "pack")
        return name, compiled.size

    def source(self) -> str:
        raise NotImplementedError

    def compile(self) -> Any:
        code = self.source()
        exec(compile(code, f"<{self.cls.__name__} v{self.version}>", "exec"), self.namespace)
        return self.namespace["codec"]

    def default_expression(self, spec: FieldSpec) -> str:
        if isinstance(spec.default, list):
            return "[]"
        if spec.default is MISSING:
            assert spec.type.struct is not None
            return f"{self.constant(spec.type.name, spec.type.struct)}()"
        if isinstance(spec.default, bytes) and spec.default:
            return self.constant("default", spec.default)
        return repr(spec.default)


class _DecoderSource(_Source):
    """Writes ``codec(buf, p) -> (message, p)``.

    Objects are made bare before their fields are read, so that values go from ``unpack_from`` to their slots
    without a local variable or a call of ``__init__`` in between.
    """

    def __init__(self, cls: type[Any], version: int) -> None:
        super().__init__(cls, version)
        self.namespace.update(
            W=WireError,
            uv=decode_uvarint,
            more=continue_uvarint,
            skip=skip_tagged_fields,
            unpack_any=struct.unpack_from,
            new=object.__new__,
        )
        self.pending: list[tuple[str, str]] = []
        """Fixed-width values (format, where to put it) not yet read."""
        self.is_view = contains_records(cls, version)
        """Whether ``buf`` is a ``memoryview`` (for records, which are not to be copied) or ``bytes``."""
        self.is_request = self.spec.api_key is not None and cls.__name__.endswith("Request")

    def source(self) -> str:
        self.lines = []
        self.indent = 1
        if self.is_view:
            self.emit("if type(buf) is not memoryview: buf = memoryview(buf)")
        else:
            # Reading ``bytes`` is so much faster that the copy pays.
            self.emit("if type(buf) is not bytes: buf = bytes(buf)")
        self.emit("end = len(buf)")
        if self.is_request:
            self.emit(f"room = {MAX_ELEMENTS}")
        result = self.struct(self.cls)
        self.flush()
        self.emit(f"return {result}, p")
        return "def codec(buf, p):\n" + "\n".join(self.lines) + "\n"

    def want(self, fmt: str, target: str) -> None:
        self.pending.append((fmt, target))

    def flush(self) -> None:
        if not self.pending:
            return
        targets = ", ".join(target for _, target in self.pending)
        if [fmt for fmt, _ in self.pending] == ["B"]:
            self.emit(f"{targets} = buf[p]")
            self.emit("p += 1")
        else:
            name, size = self.struct_method("".join(fmt for fmt, _ in self.pending), "unpack")
            if len(self.pending) == 1:
                targets += ","
            self.emit(f"{targets} = {name}(buf, p)")
            self.emit(f"p += {size}")
        self.pending = []

    def struct(self, cls: type[Any]) -> str:
        """Emit the reading of all fields (some may still be pending); returns the object's variable."""
        owner = self.fresh("o")
        self.emit(f"{owner} = new({self.constant(cls.__name__, cls)})")
        tagged: list[FieldSpec] = []
        for spec in struct_spec(cls).fields:
            if self.version not in spec.versions:
                self.emit(f"{owner}.{spec.name} = {self.default_expression(spec)}")
            elif self.version in spec.tagged:
                tagged.append(spec)
            else:
                self.value(spec.type, self.version in spec.nullable, spec.name, f"{owner}.{spec.name}")
        if self.flexible:
            count = self.fresh("t")
            self.want("B", count)
            self.flush()
            if tagged:
                self.tagged_fields(tagged, owner, count)
            else:
                self.emit(f"if {count}: p = skip(buf, p, {count})")
        return owner

    def tagged_fields(self, tagged: list[FieldSpec], owner: str, count: str) -> None:
        for spec in tagged:
            self.emit(f"{owner}.{spec.name} = {self.default_expression(spec)}")
        self.emit(f"if {count}:")
        self.indent += 1
        self.emit(f"if {count} > {MAX_TAGGED_FIELDS}: raise W('more than 64 tagged fields in one struct')")
        self.emit(f"for _ in range({count}):")
        self.indent += 1
        tag, stop = self.fresh("tag"), self.fresh("stop")
        self.emit(f"{tag}, p = uv(buf, p)")
        self.emit(f"{stop}, p = uv(buf, p)")
        self.emit(f"{stop} += p")
        self.emit(f"if {stop} > end: raise W('a tagged field ends beyond the frame')")
        keyword = "if"
        for spec in tagged:
            self.emit(f"{keyword} {tag} == {spec.tag}:")
            keyword = "elif"
            self.indent += 1
            target = f"{owner}.{spec.name}"
            if self.version in spec.nullable and spec.type.struct is not None:
                # A nullable struct inside a tag has a varint in front, not the byte that it has elsewhere.
                present = self.fresh("n")
                self.emit(f"{present}, p = uv(buf, p)")
                self.emit(f"if not {present}: {target} = None")
                self.emit("else:")
                self.indent += 1
                self.value(spec.type, False, spec.name, target)
                self.flush()
                self.indent -= 1
            else:
                self.value(spec.type, self.version in spec.nullable, spec.name, target)
                self.flush()
            self.emit(f"if p != {stop}: raise W('tagged field {spec.name} does not fill its size')")
            self.indent -= 1
        self.emit(f"else: p = {stop}")
        self.indent -= 2

    def value(self, type_spec: TypeSpec, nullable: bool, name: str, target: str) -> None:
        """Emit the reading of one value into ``target``; it may still be pending afterwards."""
        fixed = FIXED_FORMATS.get(type_spec.name)
        if fixed is not None:
            self.want(fixed, target)
        elif type_spec.struct is not None:
            if nullable:
                self.nullable_struct(type_spec.struct, target)
            else:
                self.emit(f"{target} = {self.struct(type_spec.struct)}")
        elif type_spec.element is not None:
            self.array(type_spec.element, nullable, name, target)
        else:
            self.blob(type_spec.name, nullable, name, target)

    def nullable_struct(self, cls: type[Any], target: str) -> None:
        present = self.fresh("n")
        self.want("b", present)
        self.flush()
        self.emit(f"if {present} < 0: {target} = None")
        self.emit("else:")
        self.indent += 1
        self.emit(f"{target} = {self.struct(cls)}")
        self.flush()
        self.indent -= 1

    def length(self, fmt: str, name: str, target: str, nullable: bool) -> str:
        """Emit the reading of a length, and the branch for null; leaves the ``else`` branch open.

        In a flexible version the length read is one more than the real one, zero for null.
        """
        n = self.fresh("n")
        self.want("B" if self.flexible else fmt, n)
        self.flush()
        if self.flexible:
            self.emit(f"if {n} > 127:")
            self.emit(f" {n}, p = more(buf, p, {n})")
            if fmt == "h":
                self.emit(f" if {n} > {MAX_STRING + 1}: raise W('{name} is longer than 32767 bytes')")
            self.emit(f"if not {n}:")
        else:
            self.emit(f"if {n} < 0:")
        if nullable:
            self.emit(f" {target} = None")
        else:
            self.emit(f" raise W('{name} is null')")
        self.emit("else:")
        self.indent += 1
        return n

    def blob(self, kind: str, nullable: bool, name: str, target: str) -> None:
        stop = self.fresh("e")
        n = self.length("h" if kind == "Str" else "i", name, target, nullable)
        self.emit(f"{stop} = p + {n} - 1" if self.flexible else f"{stop} = p + {n}")
        self.emit(f"if {stop} > end: raise W('{name} ends beyond the frame')")
        if kind == "Str":
            text = f"str(buf[p:{stop}], 'utf-8')" if self.is_view else f"buf[p:{stop}].decode()"
            self.emit(f"{target} = {text}")
        elif kind == "Bytes" and self.is_view:
            self.emit(f"{target} = bytes(buf[p:{stop}])")
        else:
            self.emit(f"{target} = buf[p:{stop}]")
        self.emit(f"p = {stop}")
        self.indent -= 1

    def array(self, element: TypeSpec, nullable: bool, name: str, target: str) -> None:
        n = self.length("i", name, target, nullable)
        smallest = minimum_size(element, self.version, self.flexible)
        if smallest < 1:
            raise TypeError(f"{self.cls.__name__} v{self.version}: elements of {name} take no bytes")
        if self.flexible:
            self.emit(f"{n} -= 1")
        left = "end - p" if smallest == 1 else f"(end - p) // {smallest}"
        self.emit(f"if {n} > {left}: raise W(f'{name}: {{{n}}} elements do not fit into the frame')")
        if self.is_request:
            self.emit(f"room -= {n}")
            self.emit(f"if room < 0: raise W('more than {MAX_ELEMENTS} elements in a request')")
        fixed = FIXED_FORMATS.get(element.name)
        if fixed is not None and element.name != "UuidField":
            self.emit(f"{target} = list(unpack_any(f'>{{{n}}}{fixed}', buf, p)) if {n} else []")
            self.emit(f"p += {smallest} * {n}" if smallest > 1 else f"p += {n}")
        else:
            items, append = self.fresh("v"), self.fresh("a")
            self.emit(f"{target} = {items} = []")
            self.emit(f"{append} = {items}.append")
            self.emit(f"for _ in range({n}):")
            self.indent += 1
            if element.struct is not None:
                item = self.struct(element.struct)
            else:
                item = self.fresh("v")
                self.value(element, False, name, item)
            self.flush()
            self.emit(f"{append}({item})")
            self.indent -= 1
        self.indent -= 1


class _EncoderSource(_Source):
    """Writes ``codec(m) -> list of parts``."""

    def __init__(self, cls: type[Any], version: int) -> None:
        super().__init__(cls, version)
        self.namespace.update(
            E=EncodeError,
            uvarint=encode_uvarint,
            U=[bytes([value]) for value in range(128)],
            join=b"".join,
            pack_any=struct.pack,
        )
        self.pending: list[tuple[str, str]] = []
        """Fixed-width values (format, expression) not yet written; format "x" is a zero byte."""
        self.append = "ap"
        """Name of the function that takes the next piece of output; changes inside a tagged field."""

    def source(self) -> str:
        self.lines = []
        self.indent = 1
        self.emit("out = []")
        self.emit("ap = out.append")
        records = contains_records(self.cls, self.version)
        if records:
            self.emit("parts = []")
        self.struct(self.cls, "m")
        self.flush()
        if records:
            self.emit("if out or not parts: parts.append(join(out))")
            self.emit("return parts")
        else:
            self.emit("return [join(out)]")
        return "def codec(m):\n" + "\n".join(self.lines) + "\n"

    def put(self, fmt: str, expression: str) -> None:
        self.pending.append((fmt, expression))

    def flush(self) -> None:
        if self.pending:
            self.emit(f"{self.append}({self.packed()})")
            self.pending = []

    def packed(self) -> str:
        formats = "".join(fmt for fmt, _ in self.pending)
        if not formats.strip("x"):
            return repr(bytes(len(formats)))
        name, _ = self.struct_method(formats, "pack")
        return f"{name}({', '.join(expression for fmt, expression in self.pending if fmt != 'x')})"

    def put_uvarint(self, variable: str) -> None:
        """A varint, usually of one byte, at the end of the pending run."""
        if not self.pending:
            self.emit(f"{self.append}(U[{variable}] if {variable} < 128 else uvarint({variable}))")
            return
        before = self.packed()
        self.put("B", variable)
        self.emit(f"if {variable} < 128: {self.append}({self.packed()})")
        self.emit(f"else: {self.append}({before}); {self.append}(uvarint({variable}))")
        self.pending = []

    def differs(self, spec: FieldSpec, expression: str) -> str:
        """A condition: the value is not the field's default."""
        if spec.type.struct is not None and spec.default is MISSING:
            variable = self.fresh("d")
            inner = " or ".join(
                self.differs(part, f"{variable}.{part.name}") for part in struct_spec(spec.type.struct).fields
            )
            return f"({variable} := {expression}) is None or {inner}"
        if spec.default is None:
            return f"{expression} is not None"
        if isinstance(spec.default, list) and spec.nullable == (0, -1):
            return expression
        return f"{expression} != {self.default_expression(spec)}"

    def struct(self, cls: type[Any], owner: str) -> None:
        tagged: list[FieldSpec] = []
        fields = struct_spec(cls).fields
        for spec in fields:
            if self.version not in spec.versions and not spec.ignorable:
                condition = self.differs(spec, f"{owner}.{spec.name}")
                text = f"{cls.__name__}.{spec.name} cannot be expressed in version {self.version}"
                self.emit(f"if {condition}: raise E({text!r})")
        for spec in fields:
            if self.version not in spec.versions:
                continue
            if self.version in spec.tagged:
                tagged.append(spec)
            else:
                self.value(spec.type, self.version in spec.nullable, f"{owner}.{spec.name}")
        if not self.flexible:
            return
        if tagged:
            self.tagged_fields(sorted(tagged, key=lambda spec: spec.tag or 0), owner)
        else:
            self.put("x", "")

    def tagged_fields(self, tagged: list[FieldSpec], owner: str) -> None:
        self.flush()
        fields, count = self.fresh("g"), self.fresh("k")
        self.emit(f"{fields} = []")
        outer = self.append
        for spec in tagged:
            expression = f"{owner}.{spec.name}"
            self.emit(f"if {self.differs(spec, expression)}:")
            self.indent += 1
            inner = self.fresh("o")
            self.append = self.fresh("ap")
            self.emit(f"{inner} = []")
            self.emit(f"{self.append} = {inner}.append")
            nullable = self.version in spec.nullable
            if nullable and spec.type.struct is not None:
                self.emit(f"if {expression} is None: {self.append}(U[0])")
                self.emit("else:")
                self.indent += 1
                self.emit(f"{self.append}(U[1])")
                self.value(spec.type, False, expression)
                self.flush()
                self.indent -= 1
            else:
                self.value(spec.type, nullable, expression)
                self.flush()
            self.emit(f"{inner} = join({inner})")
            tag = encode_uvarint(spec.tag or 0)
            self.emit(f"{fields}.append({tag!r} + uvarint(len({inner})) + {inner})")
            self.indent -= 1
        self.append = outer
        self.emit(f"{count} = len({fields})")
        self.emit(f"if {count}: {self.append}(U[{count}]); {self.append}(join({fields}))")
        self.emit(f"else: {self.append}(U[0])")

    def value(self, type_spec: TypeSpec, nullable: bool, expression: str) -> None:
        fixed = FIXED_FORMATS.get(type_spec.name)
        if fixed is not None:
            self.put(fixed, expression)
        elif type_spec.struct is not None:
            variable = self.fresh("x")
            self.emit(f"{variable} = {expression}")
            if not nullable:
                self.struct(type_spec.struct, variable)
                return
            self.flush()
            self.emit(f"if {variable} is None: {self.append}(b'\\xff')")
            self.emit("else:")
            self.indent += 1
            self.put("b", "1")
            self.struct(type_spec.struct, variable)
            self.flush()
            self.indent -= 1
        elif type_spec.element is not None:
            self.array(type_spec.element, nullable, expression)
        else:
            self.blob(type_spec.name, nullable, expression)

    def put_length(self, fmt: str, variable: str) -> None:
        """``variable`` holds the real length, -1 for null."""
        if self.flexible:
            self.emit(f"{variable} += 1")
            self.put_uvarint(variable)
        else:
            self.put(fmt, variable)
            self.flush()

    def blob(self, kind: str, nullable: bool, expression: str) -> None:
        value, n = self.fresh("s"), self.fresh("n")
        if kind == "Str":
            if nullable:
                self.emit(f"{value} = {expression}")
                self.emit(f"if {value} is None: {value} = b''; {n} = -1")
                self.emit(f"else: {value} = {value}.encode(); {n} = len({value})")
            else:
                self.emit(f"{value} = {expression}.encode()")
                self.emit(f"{n} = len({value})")
            if self.flexible:
                self.emit(f"if {n} > {MAX_STRING}: raise E('{expression}: longer than 32767 bytes')")
            self.put_length("h", n)
            self.emit(f"{self.append}({value})")
            return
        self.emit(f"{value} = {expression}")
        if nullable:
            self.emit(f"if {value} is None: {value} = b''; {n} = -1")
            self.emit(f"else: {n} = {self.size_of(kind, value)}")
        else:
            self.emit(f"{n} = {self.size_of(kind, value)}")
        self.put_length("i", n)
        if kind == "Bytes":
            self.emit(f"{self.append}({value})")
            return
        self.emit(f"if {value}:")
        self.emit(" parts.append(join(out)); out.clear()")
        if kind == "ResponseRecords":
            self.emit(f" if type({value}) is list: parts += {value}")
            self.emit(f" else: parts.append({value})")
        else:
            self.emit(f" parts.append({value})")

    @staticmethod
    def size_of(kind: str, value: str) -> str:
        if kind == "ResponseRecords":
            return f"sum(map(len, {value})) if type({value}) is list else len({value})"
        return f"len({value})"

    def array(self, element: TypeSpec, nullable: bool, expression: str) -> None:
        value, n = self.fresh("l"), self.fresh("n")
        self.emit(f"{value} = {expression}")
        if nullable:
            self.emit(f"if {value} is None: {value} = (); {n} = -1")
            self.emit(f"else: {n} = len({value})")
        else:
            self.emit(f"{n} = len({value})")
        self.put_length("i", n)
        fixed = FIXED_FORMATS.get(element.name)
        if fixed is not None:
            if element.name == "UuidField":
                self.emit(f"for {value} in {value}: {self.append}(pack_any('16s', {value}))")
            else:
                self.emit(f"if {value}: {self.append}(pack_any(f'>{{len({value})}}{fixed}', *{value}))")
            return
        item = self.fresh("x")
        self.emit(f"for {item} in {value}:")
        start = len(self.lines)
        self.indent += 1
        if element.struct is not None:
            self.struct(element.struct, item)
        else:
            self.value(element, False, item)
        if len(self.lines) == start and self.append == "ap":
            # The element is one run of fixed-width fields: a comprehension is faster than the loop.
            self.indent -= 1
            self.lines[-1] = " " * self.indent + f"out += [{self.packed()} for {item} in {value}]"
            self.pending = []
            return
        self.flush()
        self.indent -= 1
