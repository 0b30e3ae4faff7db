"""The encoder of one version of a message, as Python source."""

from __future__ import annotations

import struct
from typing import Any

from kbroker.wire.codec_source import MAX_STRING, CodecSource, contains_records
from kbroker.wire.errors import EncodeError
from kbroker.wire.primitives import encode_uvarint
from kbroker.wire.schema import FIXED_FORMATS, MISSING, FieldSpec, TypeSpec, struct_spec


class EncoderSource(CodecSource):
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
