"""The words of a tool's command line, as Kafka's tools take them: ``--name value`` and ``--name=value``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.errors import FatalError

if TYPE_CHECKING:
    from kbroker.client import Client

TIMEOUT_SECONDS = 30.0
"""The time that an operation may take, retries included."""


class Kind(Enum):
    """The values that an option takes."""

    FLAG = "none"
    VALUE = "one"
    REPEATED = "one each time"


class UsageError(FatalError):
    """The words do not go together, or the tool here does not serve one of them."""


OF_ALL: Mapping[str, Kind] = {"bootstrap-server": Kind.VALUE, "command-config": Kind.VALUE}
"""The options of every tool."""

_CONFIG_FILES = ("command-config", "consumer.config", "producer.config")
"""The option that names the client's properties, and what the console's tools called it before."""


class Options:
    """The options of one command line; :class:`UsageError` for words that are not served."""

    def __init__(self, tool: str, kinds: Mapping[str, Kind], words: Sequence[str]) -> None:
        self.tool = tool
        self._given: dict[str, list[str]] = {}
        rest = iter(words)
        for word in rest:
            name, equals, value = word.removeprefix("--").partition("=")
            kind = kinds.get(name) if word.startswith("--") else None
            if kind is None:
                raise UsageError(f"{word.partition('=')[0]} is not served in kbroker's image; --help names what is")
            if kind is Kind.FLAG:
                if equals:
                    raise UsageError(f"--{name} takes no value")
            elif not equals:
                given = next(rest, None)
                if given is None:
                    raise UsageError(f"--{name} needs a value")
                value = given
            if kind is not Kind.REPEATED and name in self._given:
                raise UsageError(f"--{name} is given twice")
            self._given.setdefault(name, []).append(value)

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def value(self, name: str) -> str | None:
        """The option's value; None if it is not given."""
        return self._given[name][0] if name in self._given else None

    def values(self, name: str) -> list[str]:
        """The values of an option that may be repeated."""
        return self._given.get(name, [])

    def required(self, name: str) -> str:
        """The value of an option that must be there."""
        value = self.value(name)
        if value is None:
            raise UsageError(f"--{name} is missing")
        return value

    def number(self, name: str, *, least: int) -> int | None:
        """The value as an integer from ``least`` on; None if it is not given."""
        value = self.value(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            raise UsageError(f"--{name} {value}: not a number") from None
        if number < least:
            raise UsageError(f"--{name} {value}: less than {least}")
        return number

    def only_one_of(self, *names: str) -> str:
        """The one of these options that is given."""
        given = [name for name in names if name in self]
        if len(given) != 1:
            raise UsageError(f"one of these is to be given: {', '.join(f'--{name}' for name in names)}")
        return given[0]

    def only_with(self, action: str, *names: str) -> None:
        """:class:`UsageError` if one of ``names`` is given without the option ``action``."""
        for name in names:
            if name in self and action not in self:
                raise UsageError(f"--{name} goes with --{action}")

    def properties(self, name: str, served: Sequence[str]) -> dict[str, str]:
        """The values of a repeated option as ``key=value``; only keys of ``served`` are taken."""
        found = {}
        for value in self.values(name):
            key, equals, text = value.partition("=")
            if not equals or key not in served:
                raise UsageError(f"--{name} {key} is not served in kbroker's image: {', '.join(served)} are")
            found[key] = text
        return found

    def config_file(self) -> str | None:
        """The file with the client's properties, by whichever name of its option; None if none is given."""
        given = [name for name in _CONFIG_FILES if name in self]
        if len(given) > 1:
            raise UsageError(f"{' and '.join(f'--{name}' for name in given)} exclude each other")
        return self.value(given[0]) if given else None

    def cluster(self) -> AbstractContextManager[Client]:
        """A client of the cluster that the options name; its errors come out as :class:`FatalError`."""
        from kbroker.tools.cli.common import cluster

        config = self.config_file()
        return cluster(
            argparse.Namespace(
                bootstrap_server=self.required("bootstrap-server"),
                command_config=None if config is None else Path(config),
                profile=None,
                timeout=TIMEOUT_SECONDS,
            )
        )
