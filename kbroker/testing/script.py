"""Faults as lines of text: ``error Produce code=POLICY_VIOLATION times=2``, ``expire orders``, ``undo 0``.

What ``kbroker faults`` reads. The words are methods of :class:`~kbroker.testing.faults.Faults`, with their arguments.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, get_args

from kbroker.testing.faults import Fault, Faults, Matching
from kbroker.testing.parameters import Parameter, from_text, parameters_of
from kbroker.testing.seen import NodeAction, NotThere
from kbroker.testing.verbs import Verbs
from kbroker.tools.cli.parser import UsageError

__all__ = ["FaultScript", "summary"]

_MATCH: Final = tuple(Matching.__annotations__)


class _Word(NamedTuple):
    subject: str
    """The argument of the command: "API", "TOPIC", "NODE", "NUMBER" or nothing."""
    parameters: tuple[Parameter, ...] = ()
    """The others, those of the method of the same name."""
    of_all: bool = False
    """Whether it is for all nodes together, and no fault."""

    @property
    def needs(self) -> list[str]:
        """The names of those that must be given."""
        return [each.name for each in self.parameters if each.needed]

    @property
    def takes(self) -> list[str]:
        """The names of those that may be given."""
        return [each.name for each in self.parameters if not each.needed]


def _word(of: type[Faults] | type[Verbs], name: str) -> tuple[str, _Word]:
    parameters = parameters_of(getattr(of, name))
    subject = parameters[0].name.upper() if parameters and parameters[0].needed else ""
    return name.replace("_", "-"), _Word(subject, parameters[1:] if subject else parameters, of is Verbs)


_OF_REQUESTS: Final = ("delay", "hold", "error", "drop", "stale_latest")
_OF_RECORDS: Final = (
    *("delete_records", "expire", "apply_retention", "offset_gap", "compact", "delete_topic", "recreate_topic"),
)

_OF_ALL: Final = (
    *("empty_topic", "move_leader", "move_coordinator", "add_node", "advance", "stop_clock", "start_clock", "reset"),
)

WORDS: Mapping[str, _Word] = {
    **dict(_word(Faults, name) for name in (*_OF_REQUESTS, *_OF_RECORDS)),
    **dict(_word(Verbs, name) for name in _OF_ALL),
    **{action: _Word("NODE") for action in get_args(NodeAction)},
    "list": _Word(""),
    "undo": _Word("NUMBER"),
    "clear": _Word(""),
}


def summary() -> str:
    """A line for each word: what follows it, and which arguments it needs and may have."""
    lines = []
    for name, word in WORDS.items():
        parts = [name, word.subject, *(f"{key}=" for key in word.needs)]
        if set(_MATCH) <= set(word.takes):
            parts += [f"[{key}=]" for key in word.takes if key not in _MATCH] + ["[MATCH ...]"]
        else:
            parts += [f"[{key}=]" for key in word.takes]
        lines.append("  " + " ".join(part for part in parts if part))
    lines.append("  MATCH: " + " ".join(f"{key}=" for key in _MATCH) + ", and node= of several")
    return "\n".join(lines)


class FaultScript:
    """Does what the lines say to a broker or a cluster."""

    def __init__(self, target: Verbs) -> None:
        self._target = target
        self.faults: Faults = target.faults

    @property
    def has_nodes(self) -> bool:
        """Whether there are several nodes, which a line may name."""
        return self._target.is_cluster

    def run(self, line: str, *, only_requests: bool = False) -> str:
        """Do it; what there is to say of it, perhaps nothing. ``only_requests``: it is a fault of requests.

        ValueError says what is wrong with the line; ApiError and TimeoutError, why it could not be done.
        """
        words = shlex.split(line, comments=True)
        if not words:
            return ""
        name, *rest = words
        if name not in WORDS:
            raise ValueError(f"there is no {name!r}; there are {', '.join(WORDS)}")
        if only_requests and name.replace("-", "_") not in _OF_REQUESTS:
            raise ValueError(f"{name} is no fault of requests")
        word = WORDS[name]
        if word.subject and not rest:
            raise ValueError(f"{name} what? The {word.subject} is missing")
        subject = rest.pop(0) if word.subject else ""
        arguments, node = self._arguments(name, word, rest)
        if name in get_args(NodeAction):
            self._check_nodes(name)
            self._target.change_node(_number(subject), name)  # type: ignore[arg-type]
            return ""
        if name == "list":
            return "\n".join(map(described, self.faults.active))
        if name == "clear":
            self.faults.clear()
            return ""
        if name == "undo":
            fault_numbered(self.faults, _number(subject)).undo()
            return ""
        if word.of_all:
            return self._of_all(name.replace("-", "_"), subject, arguments)
        if node is not None:
            self._check_nodes("node=")
        faults = self.faults if node is None else self._target.faults_of(node)
        method = getattr(faults, name.replace("-", "_"))
        made = method(from_text(parameters_of(getattr(Faults, name.replace("-", "_")))[0], subject), **arguments)
        return described(made) if isinstance(made, Fault) else ""

    def _of_all(self, name: str, subject: str, arguments: Mapping[str, Any]) -> str:
        """Do what all nodes do together."""
        given = [from_text(each, subject) for each in parameters_of(getattr(Verbs, name))[:1]] if subject else []
        told = getattr(self._target, name)(*given, **arguments)
        return "" if told is None else str(told)

    def begin(self, lines: Iterable[str]) -> None:
        """Have the faults of requests in a file be there; ``UsageError`` names the line that is wrong."""
        for number, line in enumerate(lines, 1):
            try:
                self.run(line, only_requests=True)
            except (ValueError, RuntimeError) as error:
                raise UsageError(f"--faults, line {number}: {line.strip()}: {error}") from None

    def _arguments(self, name: str, word: _Word, texts: list[str]) -> tuple[dict[str, Any], int | None]:
        known = {each.name: each for each in word.parameters}
        arguments: dict[str, Any] = {}
        node: int | None = None
        for text in texts:
            key, equals, value = text.partition("=")
            if key == "node" and equals and word.takes and not word.of_all:
                node = _number(value)
            elif not equals or key not in known:
                raise ValueError(f"{name} has no {text!r}; it has {', '.join(f'{key}=' for key in known) or 'nothing'}")
            else:
                arguments[key] = from_text(known[key], value)
        missing = [f"{key}=" for key in word.needs if key not in arguments]
        if missing:
            raise ValueError(f"{name} needs {', '.join(missing)}")
        return arguments, node

    def _check_nodes(self, what: str) -> None:
        if not self.has_nodes:
            raise ValueError(f"{what} is for several nodes")


def fault_numbered(faults: Faults, number: int) -> Fault:
    """The fault that is not undone; ``NotThere``."""
    for fault in faults.active:
        if fault.number == number:
            return fault
    raise NotThere(f"there is no fault {number}, or no more")


def described(fault: Fault) -> str:
    """A line about a fault: its number, by which it is undone, what it does, and how often it acted."""
    return f"fault {fault.number}: {fault}" + (f", {fault.hits} times" if fault.hits else "")


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
