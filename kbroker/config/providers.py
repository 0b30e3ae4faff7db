"""Variables in a file's properties: ``${NAME:PATH:KEY}``, by the config providers that the same file names (KIP-297).

The three of Apache Kafka are known by their Java classes (KIP-421, KIP-887, KIP-993). Only what a file says is looked
up, once, when it is read: a property that is set over the wire is text, whatever it looks like (CVE-2024-31141).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from kbroker.config.properties_file import read_properties_file
from kbroker.config.provided import PROVIDERS, Provided
from kbroker.errors import FatalError

_PACKAGE: Final = "org.apache.kafka.common.config.provider."
_VARIABLE: Final = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")
_ALLOWED_PATHS: Final = "allowed.paths"
_ALLOWLIST: Final = "allowlist.pattern"


class _Unknown(Exception):
    """There is no value; the text says why, and has none."""


_LookUp = Callable[[str, str], str]
"""The value of a path and a key. :class:`_Unknown`."""


def looked_up(properties: Mapping[str, str], environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The properties with values in the places of variables, which are `Provided` then.

    ``environment`` takes the place of the process's. :class:`FatalError` in one line for a provider that there is not,
    and for a variable without a value. A variable of a provider that is not named stays, as in Apache Kafka.
    """
    providers = _providers(properties, os.environ if environment is None else environment)
    return {
        name: value if name.startswith(PROVIDERS) else _resolved(name, value, providers)
        for name, value in properties.items()
    }


def _resolved(name: str, text: str, providers: Mapping[str, _LookUp]) -> str:
    found = False

    def value(variable: re.Match[str]) -> str:
        nonlocal found
        provider, _, path, key = variable.groups()
        look_up = providers.get(provider)
        if look_up is None:
            return variable.group()
        found = True
        try:
            return look_up(path or "", key)
        except _Unknown as error:
            raise FatalError(f"{name}: {variable.group()}: {error}") from None

    result = _VARIABLE.sub(value, text)
    return Provided(result) if found else text


def _providers(properties: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, _LookUp]:
    providers: dict[str, _LookUp] = {}
    names = [name.strip() for name in properties[PROVIDERS].split(",") if name.strip()]
    for name in names:
        prefix = f"{PROVIDERS}.{name}."
        given = {key.removeprefix(prefix): value.strip() for key, value in properties.items() if key.startswith(prefix)}
        java_class = given.pop("class", "")
        kind = java_class.removeprefix(_PACKAGE)
        made = _KINDS.get(kind) if java_class.startswith(_PACKAGE) else None
        if made is None:
            known = ", ".join(_PACKAGE + each for each in _KINDS)
            problem = f"{java_class}: Java classes cannot be loaded" if java_class else "it is missing"
            raise FatalError(f"{prefix}class: {problem}; one of {known}")
        parameter, make = made
        wanted = f"param.{parameter}"
        for other in given:
            if other != wanted:
                raise FatalError(f"{prefix}{other}: {kind} has no such parameter, only {wanted}")
        providers[name] = make(f"{prefix}{wanted}", given.get(wanted), environment)
    for name in properties:
        if name.startswith(f"{PROVIDERS}.") and name.split(".")[2] not in names:
            raise FatalError(f"{name}: {PROVIDERS} does not name {name.split('.')[2]}")
    return providers


def _files(name: str, allowed: str | None, environment: Mapping[str, str]) -> _LookUp:
    """Kafka's ``FileConfigProvider``: keys of a file of properties."""
    paths = _allowed_paths(name, allowed)

    def look_up(path: str, key: str) -> str:
        file = _checked(path, paths, name)
        try:
            values = read_properties_file(file)
        except FatalError as error:
            raise _Unknown(str(error)) from None
        if key not in values:
            raise _Unknown(f"there is no {key} in {file}")
        return values[key]

    return look_up


def _directories(name: str, allowed: str | None, environment: Mapping[str, str]) -> _LookUp:
    """Kafka's ``DirectoryConfigProvider``: files of a directory, each of which is a value."""
    paths = _allowed_paths(name, allowed)

    def look_up(path: str, key: str) -> str:
        directory = _checked(path, paths, name)
        file = directory / key
        if "/" in key or not file.is_file():
            raise _Unknown(f"there is no file {key} in {directory}")
        try:
            return file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise _Unknown(f"cannot read {file}: {reason}") from None

    return look_up


def _variables(name: str, pattern: str | None, environment: Mapping[str, str]) -> _LookUp:
    """Kafka's ``EnvVarConfigProvider``: variables of the environment."""
    try:
        allowed = re.compile(".*" if pattern is None else pattern, re.DOTALL)
    except re.error as error:
        raise FatalError(f"{name}: {pattern}: {error}") from None

    def look_up(path: str, key: str) -> str:
        if path:
            raise _Unknown("variables of the environment have no path")
        if allowed.fullmatch(key) is None:
            raise _Unknown(f"{name} does not allow it")
        if key not in environment:
            raise _Unknown("there is no such variable in the environment")
        return environment[key]

    return look_up


_KINDS: Final[Mapping[str, tuple[str, Callable[[str, str | None, Mapping[str, str]], _LookUp]]]] = {
    "FileConfigProvider": (_ALLOWED_PATHS, _files),
    "DirectoryConfigProvider": (_ALLOWED_PATHS, _directories),
    "EnvVarConfigProvider": (_ALLOWLIST, _variables),
}
"""By the class's name: its only parameter, and what makes its look-up."""


def _allowed_paths(name: str, text: str | None) -> list[Path] | None:
    """The paths below which a provider may read; None for all (Kafka's ``AllowedPaths``)."""
    if not text:
        return None
    paths = []
    for each in text.split(","):
        path = Path(os.path.normpath(each.strip()))
        if not path.is_absolute():
            raise FatalError(f"{name}: {path} is not absolute")
        if not path.exists():
            raise FatalError(f"{name}: {path} does not exist")
        paths.append(path.resolve())
    return paths


def _checked(path: str, allowed: list[Path] | None, name: str) -> Path:
    """The path, with links followed where paths are limited. :class:`_Unknown`."""
    if not path:
        raise _Unknown("it names no path")
    if allowed is None:
        return Path(path)
    real = Path(path).resolve()
    if not any(real.is_relative_to(each) for each in allowed):
        raise _Unknown(f"{name} does not allow {path}")
    return real
