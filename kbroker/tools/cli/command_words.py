"""The command line as words that a shell can complete: every command, its options and what their values are. Pure."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kbroker.tools.cli.parser import Command, Parser, all_parsers

FILES: Final = "files"
DIRECTORIES: Final = "dirs"
TOPICS: Final = "topics"
GROUPS: Final = "groups"
PROFILES: Final = "profiles"
NOTHING: Final = "-"
"""A value that nobody can guess."""

ASKED: Final = (TOPICS, GROUPS, PROFILES)
"""Kinds of values that the command itself is asked for."""

_KINDS: Final = {
    "FILE": FILES,
    "DIR": DIRECTORIES,
    "TOPIC": TOPICS,
    "FROM_TOPIC": TOPICS,
    "TO_TOPIC": TOPICS,
    "GROUP": GROUPS,
}


class Value(NamedTuple):
    """A word that is to come: its kind, or the words it is one of; with ``repeats`` it may come again."""

    kind: str
    choices: tuple[str, ...] = ()
    repeats: bool = False
    name: str = ""


class Option(NamedTuple):
    """An option by all its names; ``value`` is None if it takes none."""

    names: tuple[str, ...]
    help: str
    value: Value | None


class Words(NamedTuple):
    """A command, or an action of one (``topic create``), with its options and the words named by their place."""

    path: str
    summary: str
    options: tuple[Option, ...]
    places: tuple[Value, ...]


def words_of(commands: Mapping[str, Command]) -> list[Words]:
    """All commands and actions."""
    return [_words(path, parser) for path, parser in all_parsers(commands)]


def summaries(
    commands: Mapping[str, Command], words: Iterable[Words]
) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Each command with its summary and its actions, which have summaries of their own."""
    actions: dict[str, list[tuple[str, str]]] = {}
    for each in words:
        name, _, action = each.path.partition(" ")
        if action:
            actions.setdefault(name, []).append((action, each.summary))
    for name, command in commands.items():
        yield name, command.summary, actions.get(name, [])


def _words(path: str, parser: Parser) -> Words:
    options: list[Option] = []
    places: list[Value] = []
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        if action.option_strings:
            takes = None if action.nargs == 0 else _value(path, action)
            options.append(Option(tuple(action.option_strings), _first_line(action.help), takes))
        else:
            places.append(_value(path, action))
    summary = (parser.description or "").rstrip(".")
    return Words(path, summary[:1].lower() + summary[1:], tuple(options), tuple(places))


def _value(path: str, action: argparse.Action) -> Value:
    repeats = action.nargs in ("*", "+")
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if action.choices is not None:
        return Value(NOTHING, tuple(map(str, action.choices)), repeats, metavar)
    kind = _KINDS.get(metavar, NOTHING)
    if kind == TOPICS and path == "topic create":
        kind = NOTHING  # names of what is not there yet
    if action.dest == "profile" or (path.startswith("profile ") and path != "profile set" and action.dest == "name"):
        kind = PROFILES
    return Value(kind, (), repeats, metavar)


def _first_line(text: str | None) -> str:
    """Help as a shell shows it in a list: without the default in parentheses, and not long."""
    short = (text or "").replace("%%", "%").split(" (")[0].split(";")[0].split(": ")[0]
    return short if len(short) <= 60 else short[:59].rsplit(" ", 1)[0] + " ..."
