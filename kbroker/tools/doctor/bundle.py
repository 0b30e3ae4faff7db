"""The files of a bundle: what a report of a mistake needs, without secrets and without records.

Every text goes through `kbroker.tools.doctor.secrets` once more, whatever made it.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import platform
import ssl
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final

from kbroker.config.properties_file import format_properties
from kbroker.config.secret_names import is_secret_property
from kbroker.errors import FatalError
from kbroker.tools.doctor.facts import Facts
from kbroker.tools.doctor.gather.client import is_secret
from kbroker.tools.doctor.secrets import Secrets, hidden
from kbroker.types import TopicPartition, Uuid, uuid_to_str
from kbroker.version import __version__

LOG_LINES: Final = 2_000
LOG_BYTES: Final = 2 << 20
_MOST_LOGS: Final = 10
_MOST_FILES: Final = 50_000
"""Files of data directories that are listed."""

README: Final = """\
This is a bundle of kbroker, made by `kbroker bundle` for a report of a mistake. Look through it before you send it.

versions.json             kbroker, Python and the packages that it uses
machine.json              the system, its limits, memory and disks
configuration.properties  the node's configuration (--config), secrets hidden
client.properties         the client's (--command-config), secrets hidden
facts.json                what kbroker doctor has seen: cluster, topics, groups, listeners
configs.json              the configs of brokers, without sensitive ones
doctor.txt, doctor.json   what kbroker doctor says
data.json                 data directories (--config, --data-dir): names and sizes of files, no content
logs/                     the last lines of logs (--log), what looks like a secret hidden

There are no keys, values or headers of records in it. There are names of topics, groups, members, clients and hosts.
"""


@dataclass(slots=True)
class Bundle:
    """Files by name, as texts without secrets."""

    secrets: Secrets = field(default_factory=Secrets)
    files: dict[str, bytes] = field(default_factory=dict)

    def add(self, name: str, text: str) -> None:
        """A text."""
        self.files[name] = self.secrets.removed(text).encode("utf-8", "backslashreplace")

    def add_json(self, name: str, document: object) -> None:
        """A document; its texts are cleared one by one, so that it stays one."""
        text = json.dumps(self._cleared(plain(document)), indent=1, ensure_ascii=False)
        self.files[name] = f"{text}\n".encode("utf-8", "backslashreplace")

    def _cleared(self, value: object) -> object:
        if isinstance(value, str):
            return self.secrets.removed(value)
        if isinstance(value, dict):
            return {self.secrets.without_known(name): self._cleared(each) for name, each in value.items()}
        return [self._cleared(each) for each in value] if isinstance(value, list) else value

    def add_node_properties(self, properties: Mapping[str, str]) -> None:
        """A node's configuration; all that is added after it is cleared of its secrets."""
        self.secrets.add(properties, is_secret_property)
        self._add_properties("configuration.properties", hidden(properties, is_secret_property))

    def add_client_properties(self, properties: Mapping[str, str]) -> None:
        """A client's."""
        self.secrets.add(properties, is_secret)
        self._add_properties("client.properties", hidden(properties, is_secret))

    def _add_properties(self, name: str, properties: Mapping[str, str]) -> None:
        text = format_properties(properties, "made by kbroker bundle: secrets are hidden")
        self.files[name] = self.secrets.without_known(text).encode("utf-8", "backslashreplace")

    def add_facts(self, facts: Facts) -> None:
        """The facts that the doctor has seen. The configuration and the client are files of their own."""
        self.add_json("facts.json", {"now": facts.now, "cluster": facts.cluster, "configuration": facts.configuration})

    def add_log(self, path: Path) -> None:
        """The last lines of a file, or of the latest ``*.log`` files of a directory; :class:`FatalError`."""
        try:
            if path.is_dir():
                found = sorted(path.glob("*.log"), key=lambda each: each.stat().st_mtime)[-_MOST_LOGS:]
                if not found:
                    raise FatalError(f"there is no file *.log in {path}")
            else:
                found = [path]
            for each in found:
                self.add(self._free_name(f"logs/{each.name}"), "\n".join(_last_lines(each)) + "\n")
        except OSError as error:
            raise FatalError(f"cannot read {error.filename or path}: {error.strerror}") from None

    def _free_name(self, name: str) -> str:
        """The name, with a number if there is a file of that name: logs of several nodes may be called the same."""
        found, number = name, 1
        while found in self.files:
            number += 1
            found = f"{name}.{number}"
        return found

    def write(self, path: Path) -> None:
        """Write the archive, for its owner alone; :class:`FatalError` if it cannot be, or is there already."""
        folder = path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
        try:
            with (
                os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
                tarfile.open(fileobj=file, mode="w:gz") as archive,
            ):
                for name, content in self.files.items():
                    entry = tarfile.TarInfo(f"{folder}/{name}")
                    entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
                    archive.addfile(entry, io.BytesIO(content))
        except FileExistsError:
            raise FatalError(f"{path} is there already") from None
        except OSError as error:
            # Half an archive is of no use, and would be in the way of the next try.
            with suppress(OSError):
                path.unlink()
            raise FatalError(f"cannot write {path}: {error.strerror}") from None


def _last_lines(path: Path) -> list[str]:
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        start = max(0, file.tell() - LOG_BYTES)
        file.seek(start)
        lines = file.read().decode("utf-8", "replace").splitlines()
    return lines[1 if start else 0 :][-LOG_LINES:]


def versions() -> dict[str, object]:
    """The versions of all that runs here."""
    packages: dict[str, str | None] = {}
    try:
        wanted = requires("kbroker") or []
    except PackageNotFoundError:
        wanted = []
    for requirement in wanted:
        name = requirement.split(";")[0].strip()
        end = next((index for index, letter in enumerate(name) if letter in "<>=!~[ ("), len(name))
        name = name[:end]
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    return {
        "kbroker": __version__,
        "python": sys.version,
        "implementation": platform.python_implementation(),
        "openssl": ssl.OPENSSL_VERSION,
        "packages": dict(sorted(packages.items())),
    }


def machine(facts: Facts) -> dict[str, object]:
    """The system, its memory and limits; names of environment variables of kbroker's, without their values."""
    memory: dict[str, str] = {}
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree"):
                memory[name] = value.strip()
    except OSError:
        pass
    return {
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "load": list(os.getloadavg()),
        "memory": memory,
        "limits_and_clock": plain(facts.machine),
        "environment": sorted(name for name in os.environ if name.startswith(("KBROKER_", "KAFKA_"))),
    }


def data_files(directories: list[str]) -> dict[str, object]:
    """Directory -> its partitions and files with their sizes; no content."""
    found: dict[str, object] = {}
    left = _MOST_FILES
    for directory in directories:
        listed: dict[str, dict[str, int]] = {}
        problem = ""
        try:
            for folder, name, size in _files(directory):
                if left <= 0:
                    problem = f"only the first {_MOST_FILES} files are listed"
                    break
                left -= 1
                listed.setdefault(folder, {})[name] = size
        except OSError as error:
            problem = f"{error.filename}: {error.strerror}"
        found[directory] = {"problem": problem, "bytes": _sizes(listed), "files": dict(sorted(listed.items()))}
    return found


def _sizes(listed: Mapping[str, Mapping[str, int]]) -> int:
    return sum(sum(sizes.values()) for sizes in listed.values())


def _files(directory: str) -> Iterator[tuple[str, str, int]]:
    """(folder, name, size) of each file of a data directory and of its partitions."""
    for entry in _entries(directory):
        is_folder = entry.is_dir(follow_symlinks=False)
        for each in _entries_if_there(entry.path) if is_folder else [entry]:
            try:
                size = each.stat(follow_symlinks=False).st_size
            except FileNotFoundError:
                continue  # a node that runs has deleted it meanwhile
            yield entry.name if is_folder else ".", each.name, size


def _entries(directory: str) -> list[os.DirEntry[str]]:
    return sorted(os.scandir(directory), key=lambda each: each.name)


def _entries_if_there(directory: str) -> list[os.DirEntry[str]]:
    try:
        return _entries(directory)
    except FileNotFoundError:
        return []


def plain(value: object) -> object:
    """Returns a value of facts as what ``json`` takes: dataclasses as objects, ids in Kafka's text form."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes):
        return uuid_to_str(Uuid(value)) if len(value) == 16 else f"{len(value)} bytes"
    if isinstance(value, TopicPartition):
        return str(value)
    if dataclasses.is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(str(each) for each in value)
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    raise TypeError(f"{type(value).__name__} has no form in JSON")
