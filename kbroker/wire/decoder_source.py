"""The decoder of one version of a message, as Python source.

Hostile input: every length and count is compared with what is left of the buffer before anything is
allocated, counts with regard to the smallest element; what slips through to ``struct`` or an index (a fixed
part cut short) is turned into ``WireError`` by ``compiler.decode``. The arrays of a request share a budget of elements,
an array of anything else has a limit of its own (as all have in Apache Kafka from 4.4 on).
Unknown tagged fields are skipped, and bytes left over are the caller's to judge.
"""

from __future__ import annotations

import struct
from typing import Any

from kbroker.wire.codec_source import MAX_STRING, CodecSource, contains_records
from kbroker.wire.errors import WireError
from kbroker.wire.primitives import (
    MAX_ARRAY,
    MAX_ELEMENTS,
    MAX_TAGGED_FIELDS,
    continue_uvarint,
    decode_uvarint,
    skip_tagged_fields,
)
from kbroker.wire.schema import FIXED_FORMATS, FieldSpec, TypeSpec, struct_spec


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


class DecoderSource(CodecSource):
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
        self.emit(f"if {count} > 127: {count}, p = more(buf, p, {count})")
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
            # As Java reads it: what is no UTF-8 becomes replacement characters, and is judged as such a name is.
            decode = "str(buf[p:{}], 'utf-8', 'replace')" if self.is_view else "buf[p:{}].decode('utf-8', 'replace')"
            text = decode.format(stop)
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
        else:
            self.emit(f"if {n} > {MAX_ARRAY}: raise W('{name}: more than {MAX_ARRAY} elements')")
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
