"""Helpers for tests of the wire protocol: all declared classes, random values, Kafka's own definitions."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import random
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kbroker.wire.messages
import kbroker.wire.records
from kbroker.wire.schema import FieldSpec, Message, TypeSpec, is_own, struct_spec

REPOSITORY = Path(__file__).resolve().parents[2]

JARS_VARIABLE = "KBROKER_KAFKA_JARS"
"""Environment variable: a folder with Kafka's jars, instead of letting Maven resolve them."""

KAFKA_VERSION = "4.4.0"
ARTIFACTS = (
    "kafka-clients",
    "kafka-metadata",
    "kafka-group-coordinator",
    "kafka-transaction-coordinator",
    "kafka-share-coordinator",
    "kafka-raft",
)


def message_classes() -> list[type[Any]]:
    """Every class made by ``@message``, of requests, responses and records."""
    found: list[type[Any]] = []
    for package in (kbroker.wire.messages, kbroker.wire.records):
        for info in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            found += [
                value
                for value in vars(module).values()
                if isinstance(value, type)
                and issubclass(value, Message)
                and value.__module__ == module.__name__
                and value.__kafka__.is_message
            ]
    return found


def class_versions() -> list[tuple[type[Any], int]]:
    """Every message in every version."""
    pairs: list[tuple[type[Any], int]] = []
    for cls in message_classes():
        lowest, highest = struct_spec(cls).versions
        pairs += [(cls, version) for version in range(lowest, highest + 1)]
    return pairs


def name_of(pair: tuple[type[Any], int]) -> str:
    return f"{pair[0].__name__}-v{pair[1]}"


INTEGERS = {
    "Int8": (-(1 << 7), (1 << 7) - 1),
    "Int16": (-(1 << 15), (1 << 15) - 1),
    "Int32": (-(1 << 31), (1 << 31) - 1),
    "Int64": (-(1 << 63), (1 << 63) - 1),
    "UInt16": (0, (1 << 16) - 1),
    "UInt32": (0, (1 << 32) - 1),
}


class RandomMessages:
    """Values for messages, from a seed; at the edges of their types more often than chance has it."""

    with_own = True
    """With the tagged fields that are kbroker's own."""

    def __init__(self, seed: int, *, most: int = 3) -> None:
        self.rng = random.Random(seed)
        self.most = most

    def message(self, cls: type[Any], version: int) -> Any:
        values = {}
        for spec in struct_spec(cls).fields:
            if is_own(spec) and not self.with_own:
                continue
            if version in spec.versions and not (spec.tag is not None and self.rng.random() < 0.3):
                values[spec.name] = self.field(spec, version)
        return cls(**values)

    def field(self, spec: FieldSpec, version: int) -> Any:
        if version in spec.nullable and self.rng.random() < 0.25:
            return None
        return self.value(spec.name, spec.type, version)

    def value(self, name: str, type_spec: TypeSpec, version: int) -> Any:
        rng = self.rng
        if type_spec.element is not None:
            count = rng.choice((0, 1, 2, self.most))
            if type_spec.element.struct is None and rng.random() < 0.03:
                count = 200
            return [self.value(name, type_spec.element, version) for _ in range(count)]
        if type_spec.struct is not None:
            return self.message(type_spec.struct, version)
        kind = type_spec.name
        if kind in INTEGERS:
            low, high = INTEGERS[kind]
            return rng.choice((low, high, 0, 1, rng.randint(low, high), rng.randint(0, min(high, 1000))))
        if kind == "Bool":
            return rng.random() < 0.5
        if kind == "Float64":
            return rng.choice((0.0, -1.5, rng.random() * 1e9))
        if kind == "UuidField":
            return rng.randbytes(16)
        if kind == "Str":
            alphabet = "abcXYZ.-_0 é漢\U0001f98a"
            return "".join(rng.choice(alphabet) for _ in range(rng.choice((0, 1, 7, 20, 126, 127, 200))))
        raw = rng.randbytes(rng.choice((0, 1, 30, 126, 127, 128, 300)))
        if kind == "Records":
            return memoryview(raw)
        return raw


def same(first: Any, second: Any) -> bool:
    """Equality of messages in which records may be bytes, a view, or a list of parts."""
    return bool(plain(first) == plain(second))


def plain(value: Any) -> Any:
    """Nested dictionaries and lists, with all bytes as ``bytes``."""
    if isinstance(value, Message):
        return {name: plain(getattr(value, name)) for name in type(value).__slots__}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    return value


def snake_case(name: str) -> str:
    """Kafka's camel case in Python's spelling."""
    name = name.replace("KRaft", "Kraft")
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name).lower()


class NoDefinitions(Exception):
    """Kafka's jars cannot be had here; the text says why."""


def kafka_jars() -> list[Path]:
    """The published jars: from ``KBROKER_KAFKA_JARS``, from ``KAFKA_HOME``, or from ``.cache``, filled by Maven."""
    given = os.environ.get(JARS_VARIABLE)
    if given:
        if missing := _missing(Path(given)):
            raise NoDefinitions(f"{JARS_VARIABLE} names a folder without {', '.join(missing)}")
        return _jars(Path(given))
    distribution = Path(os.environ.get("KAFKA_HOME", "")) / "libs"
    if not _missing(distribution):
        return _jars(distribution)
    servers = REPOSITORY / ".cache" / f"kafka-{KAFKA_VERSION}" / "libs"  # what `make kafka` fetches
    if not _missing(servers):
        return _jars(servers)
    folder = REPOSITORY / ".cache" / "kafka-jars"
    for artifact in _missing(folder):
        maven = shutil.which("mvn")
        if maven is None:
            raise NoDefinitions(f"no mvn on this machine, and {JARS_VARIABLE} is not set")
        folder.mkdir(parents=True, exist_ok=True)
        _resolve(maven, artifact, folder)
    return _jars(folder)


def _jars(folder: Path) -> list[Path]:
    return [folder / f"{artifact}-{KAFKA_VERSION}.jar" for artifact in ARTIFACTS]


def _missing(folder: Path) -> list[str]:
    """The artifacts that are not in a folder."""
    return [artifact for artifact, jar in zip(ARTIFACTS, _jars(folder), strict=True) if not jar.exists()]


def _resolve(maven: str, artifact: str, folder: Path) -> None:
    """Copy one jar into ``folder``, from the local repository or from wherever Maven is set up to look.

    It is there as a whole or not at all: another run of the tests may look for it, too.
    """
    command = [maven, "-B", "-q", "dependency:copy", f"-Dartifact=org.apache.kafka:{artifact}:{KAFKA_VERSION}"]
    with tempfile.TemporaryDirectory(dir=folder) as apart:
        done = subprocess.run(
            [*command, f"-DoutputDirectory={apart}"], cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise NoDefinitions(f"mvn could not resolve {artifact}: {done.stdout.strip()[-500:]}")
        for jar in Path(apart).iterdir():
            jar.replace(folder / jar.name)


def kafka_definitions() -> Iterator[dict[str, Any]]:
    """Every message definition in the jars, those of removed messages left out."""
    for jar in kafka_jars():
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if re.fullmatch(r"common/(message|metadata)/\w+\.json", name):
                    text = archive.read(name).decode()
                    definition = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
                    if definition["validVersions"] != "none" and definition["type"] != "header":
                        yield definition
