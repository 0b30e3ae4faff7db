"""Profiles: names for clusters, with how each is entered, in ``~/.config/kbroker/profiles.toml``.

A profile holds no password: it names a file of client properties that may. A cluster is chosen by the first of these
that is given: ``--profile`` (with ``-b`` at another address), ``-b``, ``$KBROKER_PROFILE``, ``$KBROKER_BOOTSTRAP`` or
``--command-config``, and the profile that ``kbroker profile use`` has named.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kbroker.errors import FatalError
from kbroker.tools.cli.user_directories import PROFILES, user_directory

PROFILE_VARIABLE: Final = "KBROKER_PROFILE"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEYS: Final = ("bootstrap", "command-config", "protected")


@dataclass(frozen=True, slots=True)
class Profile:
    """A cluster by its name. ``bootstrap`` is empty where the properties have it; ``protected`` asks before changes."""

    name: str
    bootstrap: str = ""
    command_config: Path | None = None
    protected: bool = False


@dataclass(frozen=True, slots=True)
class Profiles:
    """The content of the file: the profiles by name, and the one in use, if any."""

    path: Path
    known: Mapping[str, Profile] = field(default_factory=dict)
    used: str | None = None

    def find(self, name: str) -> Profile:
        """The profile of a name; ``FatalError`` if there is none."""
        found = self.known.get(name)
        if found is None:
            names = ", ".join(self.known) or "none"
            raise FatalError(f"there is no profile {name} in {self.path} (there are: {names})")
        return found


def profiles_path() -> Path:
    """The file, by the rule of XDG: below ``$XDG_CONFIG_HOME`` if that is an absolute path, else ``~/.config``."""
    return Path(user_directory("XDG_CONFIG_HOME", ".config")) / PROFILES


def is_name(text: str) -> bool:
    """Whether a profile can have this name: letters, digits, dots, dashes and underscores."""
    return _NAME.fullmatch(text) is not None


def read_profiles(path: Path | None = None) -> Profiles:
    """The profiles; none if there is no file. ``FatalError`` says what is wrong with it."""
    path = profiles_path() if path is None else path
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except FileNotFoundError:
        return Profiles(path)
    except OSError as error:
        raise FatalError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FatalError(f"{path}: {error}") from None
    unknown = sorted(document.keys() - {"use", "profiles"})
    if unknown:
        raise FatalError(f"{path}: {unknown[0]} means nothing here; there are use and [profiles.NAME]")
    tables = document.get("profiles", {})
    if not isinstance(tables, dict):
        raise FatalError(f"{path}: profiles has to be tables, [profiles.NAME]")
    known = {name: _profile(path, name, table) for name, table in sorted(tables.items())}
    used = document.get("use")
    if used is not None and used not in known:
        raise FatalError(f"{path}: use = {used!r}, and there is no such profile")
    return Profiles(path, known, used)


def _profile(path: Path, name: str, table: object) -> Profile:
    where = f"{path}: profiles.{name}"
    if not isinstance(table, dict) or not is_name(name):
        raise FatalError(f"{where} is not a profile")
    for key, value in table.items():
        if key not in _KEYS:
            raise FatalError(f"{where}.{key} means nothing here; there are {', '.join(_KEYS)}")
        kind = bool if key == "protected" else str
        if not isinstance(value, kind):
            raise FatalError(f"{where}.{key} has to be {'true or false' if kind is bool else 'a text'}")
    config = table.get("command-config")
    return Profile(
        name,
        table.get("bootstrap", ""),
        None if not config else Path(os.path.expanduser(config)),
        table.get("protected", False),
    )


def write_profiles(profiles: Profiles) -> None:
    """Replace the file by one with these profiles, which only its owner may read."""
    lines = ["# Clusters that kbroker knows by name: kbroker profile set NAME, kbroker profile use NAME."]
    if profiles.used is not None:
        lines.append(f"use = {_quoted(profiles.used)}")
    for name, profile in sorted(profiles.known.items()):
        lines += ["", f"[profiles.{_quoted(name)}]"]
        if profile.bootstrap:
            lines.append(f"bootstrap = {_quoted(profile.bootstrap)}")
        if profile.command_config is not None:
            lines.append(f"command-config = {_quoted(str(profile.command_config))}")
        if profile.protected:
            lines.append("protected = true")
    from kbroker.tools.cli.certificate_files import write_secret  # which costs more than to read profiles

    path = profiles.path
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FatalError(f"cannot make {path.parent}: {error.strerror}") from None
    write_secret(path, "\n".join(lines) + "\n")


def _quoted(text: str) -> str:
    """A text in TOML, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def chosen_profile(arguments: argparse.Namespace, *, elsewhere: bool) -> Profile | None:
    """The profile that the options and the environment choose, None if another address is chosen, or none at all.

    ``elsewhere``: the environment has an address.
    """
    name = getattr(arguments, "profile", None)
    if arguments.bootstrap_server and not name:
        return None
    name = name or os.environ.get(PROFILE_VARIABLE)
    if name:
        return read_profiles().find(name)
    if elsewhere or arguments.command_config is not None:
        return None
    profiles = read_profiles()
    return None if profiles.used is None else profiles.find(profiles.used)
