"""The common part of the generators of decoders and encoders: lines of code, fresh names, their namespace."""

from __future__ import annotations

from typing import Any, Final

from kbroker.wire.primitives import compiled_struct
from kbroker.wire.schema import MISSING, FieldSpec, struct_spec

MAX_STRING: Final = 0x7FFF
"""Longest string in bytes, in either form, as in Kafka."""


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


class CodecSource:
    """The source of one codec, as it grows."""

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
