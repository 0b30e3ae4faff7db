"""Faults as lines of text: ``error Produce code=POLICY_VIOLATION times=2``, ``expire orders``, ``undo 0``.

What ``kbroker faults`` reads. The words are methods of :class:`~kbroker.testing.faults.Faults`, with their arguments.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kbroker.testing.broker import RunningBroker
from kbroker.testing.cluster import RunningCluster
from kbroker.testing.faults import Fault, Faults

__all__ = ["FaultScript", "summary"]

Parse = Callable[[str], Any]


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


_MATCH: Mapping[str, Parse] = {
    "topic": str,
    "partition": int,
    "client_id": str,
    "nth": int,
    "times": int,
    "probability": float,
    "seed": int,
    "followers": _truth,
}


@dataclass(frozen=True, slots=True)
class _Word:
    subject: str
    """The argument of the command: "API", "TOPIC", "NODE", "NUMBER" or nothing."""
    needs: Mapping[str, Parse] = field(default_factory=dict)
    takes: Mapping[str, Parse] = field(default_factory=dict)


WORDS: Mapping[str, _Word] = {
    "delay": _Word("API", {"seconds": float}, _MATCH),
    "hold": _Word("API", {}, _MATCH),
    "error": _Word("API", {"code": str}, _MATCH),
    "drop": _Word("API", {}, {"when": str, **_MATCH}),
    "stale-latest": _Word("TOPIC", {}, {"partition": int, "behind": int, "times": int, "nth": int, "client_id": str}),
    "delete-records": _Word("TOPIC", {}, {"partition": int, "before": int}),
    "expire": _Word("TOPIC", {}, {"partition": int}),
    "apply-retention": _Word("TOPIC", {}, {"partition": int}),
    "offset-gap": _Word("TOPIC", {}, {"partition": int, "size": int}),
    "compact": _Word("TOPIC", {}, {"partition": int}),
    "delete-topic": _Word("TOPIC"),
    "recreate-topic": _Word("TOPIC", {}, {"partitions": int}),
    "kill": _Word("NODE"),
    "pause": _Word("NODE"),
    "resume": _Word("NODE"),
    "stop": _Word("NODE"),
    "start": _Word("NODE"),
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

    def __init__(self, target: RunningBroker | RunningCluster) -> None:
        self._target = target
        self.faults: Faults = target.faults

    @property
    def has_nodes(self) -> bool:
        """Whether there are several nodes, which a line may name."""
        return isinstance(self._target, RunningCluster)

    def run(self, line: str) -> str:
        """Do it; what there is to say of it, perhaps nothing.

        ValueError says what is wrong with the line; ApiError and TimeoutError, why it could not be done.
        """
        words = shlex.split(line, comments=True)
        if not words:
            return ""
        name, *rest = words
        if name not in WORDS:
            raise ValueError(f"there is no {name!r}; there are {', '.join(WORDS)}")
        word = WORDS[name]
        if word.subject and not rest:
            raise ValueError(f"{name} what? The {word.subject} is missing")
        subject = rest.pop(0) if word.subject else ""
        arguments, node = self._arguments(name, word, rest)
        if word.subject == "NODE":
            getattr(self._cluster(name).node(_number(subject)), name)()
            return ""
        if name == "list":
            return "\n".join(map(described, self.faults.active))
        if name == "clear":
            self.faults.clear()
            return ""
        if name == "undo":
            self._fault(_number(subject)).undo()
            return ""
        faults = self.faults if node is None else self._cluster("node=").node(node).faults
        try:
            made = getattr(faults, name.replace("-", "_"))(subject, **arguments)
        except KeyError as error:
            raise ValueError(f"Kafka has no error {error}") from None
        return described(made) if isinstance(made, Fault) else ""

    def _arguments(self, name: str, word: _Word, texts: list[str]) -> tuple[dict[str, Any], int | None]:
        known = {**word.needs, **word.takes}
        arguments: dict[str, Any] = {}
        node: int | None = None
        for text in texts:
            key, equals, value = text.partition("=")
            if key == "node" and equals and word.takes:
                node = _number(value)
            elif not equals or key not in known:
                raise ValueError(f"{name} has no {text!r}; it has {', '.join(f'{key}=' for key in known) or 'nothing'}")
            else:
                try:
                    arguments[key] = known[key](value)
                except ValueError:
                    raise ValueError(f"{text!r} is not as {key} is to be") from None
        missing = [f"{key}=" for key in word.needs if key not in arguments]
        if missing:
            raise ValueError(f"{name} needs {', '.join(missing)}")
        return arguments, node

    def _cluster(self, what: str) -> RunningCluster:
        if not isinstance(self._target, RunningCluster):
            raise ValueError(f"{what} is for several nodes")
        return self._target

    def _fault(self, number: int) -> Fault:
        for fault in self.faults.active:
            if fault.number == number:
                return fault
        raise ValueError(f"there is no fault {number}, or no more")


def described(fault: Fault) -> str:
    """A line about a fault: its number, by which it is undone, what it does, and how often it acted."""
    return f"fault {fault.number}: {fault}" + (f", {fault.hits} times" if fault.hits else "")


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
