"""Schemas of the three kinds, parsed: what they mean whatever their text looks like, and what is wrong with them.

Avro is parsed by fastavro, Protobuf by Google's package (a text by its compiler, ``grpcio-tools``), JSON Schema by
jsonschema. The packages are imported when the first schema of their kind comes.
"""

from __future__ import annotations

import base64
import importlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Final, NoReturn
from urllib.parse import urljoin

from kbroker.client.schemas.registry import AVRO, JSON, PROTOBUF
from kbroker.client.schemas.wire_format import UndecodableRecord
from kbroker.registry.avro_compatibility import AvroSchema, kind_of
from kbroker.value_types import NamedTuple

KINDS: Final = (AVRO, JSON, PROTOBUF)

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)
_IMPORT: Final = re.compile(r"""import\s+(?:public\s+|weak\s+)?["']([^"']+)["']""")
_COMPILE_SECONDS: Final = 60.0
_MOST_MIXED: Final = 1000
_SETS: Final = frozenset({"enum", "required", "type", "dependencies", "dependentRequired"})
"""Keywords of JSON Schema whose lists have no value twice."""


class InvalidSchema(Exception):
    """A schema is none; the text says why in one line."""


class Parsed(NamedTuple):
    """A schema. ``canonical`` is the same for texts that mean the same; ``text`` is what is kept."""

    text: str
    canonical: str
    avro: AvroSchema | None = None
    serialized: str | None = None
    """A Protobuf file's descriptor in base64."""


def parse(kind: str, text: str, references: Sequence[tuple[str, str]] = ()) -> Parsed:
    """A schema by its text, and the names and texts of schemas it refers to, each after those that it needs itself.

    :class:`InvalidSchema` says what is wrong with it, or that a package is missing.
    """
    if kind not in KINDS:
        raise InvalidSchema(f"there is no schema type {kind}; there are {', '.join(KINDS)}")
    try:
        return _PARSERS[kind](text, references)
    except InvalidSchema:
        raise
    except KeyError as error:
        raise InvalidSchema(f"{error} is missing") from None
    except RecursionError:
        raise InvalidSchema("it is nested too deep") from None
    except Exception as error:  # libraries have errors of their own, and let others through
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InvalidSchema(" ".join(lines[0].split())[:500]) from None


def _package(kind: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        text = f"{kind} needs the package of {module}: pip install 'kbroker[registry]'"
        raise InvalidSchema(text) from None


def _json(text: str) -> Any:
    def refuse(name: str) -> NoReturn:
        raise ValueError(f"{name} is no number of JSON")

    return json.loads(text, parse_constant=refuse)


def _compact(document: Any, *, ordered: bool = False) -> str:
    """The text of a document; ``ValueError`` for what no other program would read: 1e400, half of a character."""
    text = json.dumps(document, separators=(",", ":"), sort_keys=ordered, ensure_ascii=False, allow_nan=False)
    text.encode()
    return text


# --- Avro


def _avro(text: str, references: Sequence[tuple[str, str]]) -> Parsed:
    fastavro = _package("Avro", "fastavro")
    names: dict[str, Any] = {}
    for _, reference in references:
        _parsed_by(fastavro, _json(reference), names)
    document = _json(text)
    parsed = AvroSchema(_without_marks(_parsed_by(fastavro, document, names)), names)
    for problem in _avro_problems(parsed, parsed.schema, set()):
        raise InvalidSchema(problem)
    return Parsed(_compact(document), _compact(_plain(parsed.schema), ordered=True), parsed)


def _parsed_by(fastavro: Any, document: Any, names: dict[str, Any]) -> Any:
    """The parsed schema; a mark of fastavro itself would have the checks passed over."""
    branches = isinstance(document, list)
    plain = [_without_marks(each) for each in document] if branches else _without_marks(document)
    return fastavro.parse_schema(plain, names)


def _without_marks(schema: Any) -> Any:
    return {key: each for key, each in schema.items() if key[:2] != "__"} if isinstance(schema, dict) else schema


def _plain(schema: Any) -> Any:
    """A type with ``{"type": "int"}`` as ``"int"``, at all depths; defaults and properties of its own stay."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if set(schema) == {"type"}:
        return _plain(schema["type"])
    changed = {key: _plain(schema[key]) for key in ("type", "items", "values") if key in schema}
    if "fields" in schema:
        changed["fields"] = [{**each, "type": _plain(each["type"])} for each in schema["fields"]]
    return {**schema, **changed}


def _avro_problems(parsed: AvroSchema, schema: Any, defined: set[str]) -> Iterator[str]:
    """Tells what is wrong and fastavro lets through."""
    if isinstance(schema, list):
        kinds = []
        for branch in schema:
            resolved = parsed.resolved(branch)
            kind = kind_of(resolved)
            if kind == "union":
                yield "a union holds a union"
            kinds.append(resolved["name"] if kind in ("record", "error", "enum", "fixed") else kind)
            yield from _avro_problems(parsed, branch, defined)
        if len(set(kinds)) < len(kinds):
            yield "a union holds a type twice"
    elif isinstance(schema, dict):
        if "name" in schema:
            if schema["name"] in defined:
                yield f"{schema['name']} is defined twice"
            defined.add(schema["name"])
            if not _NAME.fullmatch(str(schema["name"])):
                yield f"{schema['name']!r} is no name"
        if schema["type"] == "fixed" and not (type(schema["size"]) is int and schema["size"] >= 0):
            yield f"{schema['size']!r} is no size"
        fields = schema.get("fields", ())
        lists = [each.get("aliases", []) for each in (schema, *fields)] + [schema.get("symbols", [])]
        if not all(isinstance(each, list) and all(isinstance(name, str) for name in each) for each in lists):
            yield f"{schema.get('name')}: aliases and symbols are lists of names"
        names = [each["name"] for each in fields]
        if len(set(names)) < len(names):
            yield f"{schema['name']} has a field twice"
        yield from (f"{name!r} is no name" for name in names if not _NAME.fullmatch(name) or "." in name)
        for inner in (*(each["type"] for each in fields), schema.get("items"), schema.get("values")):
            yield from _avro_problems(parsed, inner, defined)
        if not isinstance(schema["type"], str):
            yield from _avro_problems(parsed, schema["type"], defined)


# --- JSON Schema


def _json_schema(text: str, references: Sequence[tuple[str, str]]) -> Parsed:
    validators = _package("JSON Schema", "jsonschema.validators")
    referencing = _package("JSON Schema", "referencing")
    draft7 = _package("JSON Schema", "referencing.jsonschema").DRAFT7
    document = _json(text)
    _check_lists(document)
    kind = validators.validator_for(document, default=validators.Draft7Validator)
    kind.check_schema(document, format_checker=None)  # patterns are those of JavaScript, not Python's
    root = referencing.Resource.from_contents(document, default_specification=draft7)
    base = root.id() or ""
    resources = [
        (place, referencing.Resource.from_contents(_json(each), default_specification=draft7))
        for name, each in references
        for place in (name, urljoin(base, name))  # by which a relative $ref looks for it
    ]
    known = _package("JSON Schema", "jsonschema_specifications").REGISTRY.with_resources([*resources, (base, root)])
    _resolve(root, known.crawl().resolver(base))  # crawled now: else it is for each $ref to an anchor or an $id
    return Parsed(_compact(document), _compact(document, ordered=True))


def _check_lists(value: Any, keyword: str = "", above: str = "") -> None:
    """Refuse what jsonschema would compare each with each: it sorts a list to see whether a value is there twice."""
    if isinstance(value, dict):
        for name, inner in value.items():
            _check_lists(inner, name, keyword)
    elif isinstance(value, list):
        kinds = {float if type(each) is int else type(each) for each in value}
        if len(value) > _MOST_MIXED and {keyword, above} & _SETS and kinds not in ({str}, {float}):
            raise InvalidSchema(
                f"{keyword} has more than {_MOST_MIXED} values that are neither all texts nor all numbers"
            )
        for inner in value:
            _check_lists(inner)


def _resolve(resource: Any, resolver: Any) -> None:
    """Look up all that a schema names by ``$ref``."""
    if isinstance(resource.contents, dict) and isinstance(resource.contents.get("$ref"), str):
        resolver.lookup(resource.contents["$ref"])
    for inner in resource.subresources():
        _resolve(inner, resolver.in_subresource(inner))


# --- Protobuf


def _protobuf(text: str, references: Sequence[tuple[str, str]]) -> Parsed:
    """By a text, or by the descriptor of a file in base64, which some serializers register."""
    from kbroker.client.schemas.protobuf import compile_protobuf

    _package("Protobuf", "google.protobuf")
    needed: list[tuple[str, str]] = []
    for name, reference in references:
        needed.append((name, _serialized(name, reference, tuple(needed))))
    serialized = _serialized("default.proto", text, tuple(needed))
    try:
        compile_protobuf(serialized, needed)
    except UndecodableRecord as error:
        raise InvalidSchema(str(error)) from None
    return Parsed(text, serialized, None, serialized)


def _serialized(name: str, text: str, needed: tuple[tuple[str, str], ...]) -> str:
    """The descriptor of a file in base64, without the name of the file."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    try:
        content = base64.b64decode(text, validate=True)
    except ValueError:
        content = _compiled(name, text, needed)
    file = FileDescriptorProto.FromString(content)
    file.ClearField("name")
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()


@lru_cache(maxsize=256)
def _compiled(name: str, text: str, needed: tuple[tuple[str, str], ...]) -> bytes:
    """A file compiled by protoc, in a process of its own: what is wrong with it is on standard error."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    from kbroker.client.schemas.protobuf import OPTIONS_ALONE, known_file

    _package("A Protobuf schema as text", "grpc_tools.protoc")
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise InvalidSchema(f"{name} is no name of a file that is imported")
    files = FileDescriptorSet()
    for place, descriptor in needed:
        file = FileDescriptorProto.FromString(base64.b64decode(descriptor))
        file.name = place
        files.file.append(file)
    places = {file.name for file in files.file}
    for imported in sorted(set(_IMPORT.findall(text)) - places):
        file = _options_file() if imported == OPTIONS_ALONE else known_file(imported)
        files.file.extend(() if file is None or imported.startswith("google/protobuf/") else (file,))
    with tempfile.TemporaryDirectory(prefix="kbroker-protobuf-") as directory:
        home = Path(directory)
        (home / "in" / path).parent.mkdir(parents=True, exist_ok=True)
        (home / "in" / path).write_text(text, "utf-8")
        (home / "needed").write_bytes(files.SerializeToString())
        command = [sys.executable, "-m", "grpc_tools.protoc", "-Iin", "--descriptor_set_in=needed"]
        command += ["--descriptor_set_out=out", f"in/{name}"]  # never an option, whatever a client calls it
        done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=_COMPILE_SECONDS)
        if done.returncode:
            raise InvalidSchema(" ".join(done.stderr.split()).replace(f"in/{name}", name)[:500])
        compiled: bytes = FileDescriptorSet.FromString((home / "out").read_bytes()).file[-1].SerializeToString()
        return compiled


def _options_file() -> Any:
    """The file of options by which Confluent's serializers tell more of a field."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    text, message, optional, repeated = 9, 11, 1, 3
    file = FileDescriptorProto(name="confluent/meta.proto", package="confluent", syntax="proto3")
    file.dependency.append("google/protobuf/descriptor.proto")
    rule, meta = file.message_type.add(name="Rule"), file.message_type.add(name="Meta")
    entry = meta.nested_type.add(name="ParamsEntry")
    entry.options.map_entry = True
    texts = [(rule, "name doc expr sql"), (entry, "key value"), (meta, "doc")]
    for kind, names in texts:
        for number, name in enumerate(names.split(), 1):
            kind.field.add(name=name, number=number, type=text, label=optional)
    params, rules = {"type_name": ".confluent.Meta.ParamsEntry"}, {"type_name": ".confluent.Rule"}
    meta.field.add(name="params", number=2, type=message, label=repeated, **params)
    meta.field.add(name="tags", number=3, type=text, label=repeated)
    meta.field.add(name="rules", number=4, type=message, label=repeated, **rules)
    for of in ("File", "Message", "Field", "Enum", "EnumValue"):
        name = f"{'enum_value' if of == 'EnumValue' else of.lower()}_meta"
        place = {"type_name": ".confluent.Meta", "extendee": f".google.protobuf.{of}Options"}
        file.extension.add(name=name, number=1088, type=message, label=optional, **place)
    return file


_PARSERS: Final = {AVRO: _avro, JSON: _json_schema, PROTOBUF: _protobuf}
