"""Parsers of the command line that cost little: only the chosen command's is made, and no terminal is asked."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

from kbroker.errors import FatalError
from kbroker.value_types import NamedTuple

PROGRAM: Final = "kbroker"

_VALUE_WITH_DASH: Final = re.compile(r"-\d+[a-zA-Z0-9.]*|-P[0-9TDHMSW.]+")


class UsageError(FatalError):
    """The words of the command line do not go together, or one has no meaning: one line, and exit code 2."""


class Command(NamedTuple):
    """A command: where it is, and what it does in a few words.

    Its module has ``add_arguments(command, parser)``, ``run(arguments)`` and perhaps ``DETAILS``, a text that goes
    below the options in its help; one with ``actions`` has instead of them a mapping ``ACTIONS`` of its actions.
    """

    module: str
    summary: str
    actions: bool = False


class Action(NamedTuple):
    """An action of a command: ``kbroker topic`` *list*. ``details`` goes below the options in its help."""

    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    details: str = ""


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Help text. Unlike its base it finds the width without importing shutil, which costs start-up time."""

    def __init__(self, prog: str, indent_increment: int = 2, max_help_position: int = 30) -> None:
        super().__init__(prog, indent_increment, max_help_position, width=_width())


def _width() -> int:
    try:
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(sys.__stdout__.fileno()).columns)  # type: ignore[union-attr]
    except (ValueError, OSError, AttributeError):
        columns = 80
    return min(max(columns, 40), 100) - 2


class Parser(argparse.ArgumentParser):
    """An ``ArgumentParser`` whose errors are one line and a hint, and whose options may have values like ``-1h``."""

    def __init__(self, prog: str, description: str = "", epilog: str = "") -> None:
        self.choices_missing = ""
        self.groups: Mapping[str, Mapping[str, str]] = {}
        """The help shows words that the command line has to go on with under these headings."""
        self._in_turn = False
        super().__init__(
            prog=prog,
            description=description or None,
            epilog=epilog or None,
            formatter_class=Formatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Print one line (all of the help, if nothing was chosen), and exit with code 2."""
        if message == self.choices_missing:
            self.exit(2, self.format_help())
        kind, _, words = message.partition(": ")
        if kind == "unrecognized arguments":
            options = [word.partition("=")[0] for word in words.split() if word.startswith("-")]
            message += did_you_mean(options, self._option_string_actions)
        message = message.replace("\r", "\\r").replace("\n", "\\n")
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse as the base does; a relative time or negative number after a long option is its value.

        Options may stand between what is named by its place: `produce TOPIC -k KEY FILE`.
        """
        if self._in_turn:
            return super().parse_known_args(args, namespace)
        words = list(sys.argv[1:] if args is None else args)
        joined: list[str] = []
        for word in words:
            if joined and _VALUE_WITH_DASH.fullmatch(word) and self._takes_value(joined[-1]):
                joined[-1] += f"={word}"
            else:
                joined.append(word)
        if self.choices_missing:
            return super().parse_known_args(joined, namespace)
        self._in_turn = True  # the next calls it again: for the options, then for what is left
        try:
            return self.parse_known_intermixed_args(joined, namespace)
        finally:
            self._in_turn = False

    def format_help(self) -> str:
        """Returns the help: with what the command line can go on with under its headings, and with examples."""
        sections = [super().format_help()]
        width = max((len(word) for choices in self.groups.values() for word in choices), default=0) + 2
        for heading, choices in self.groups.items():
            lines = [_row(word, summary, width) for word, summary in choices.items()]
            sections.append(f"{heading}:\n{''.join(lines)}")
        from kbroker.tools.cli.examples import examples_of

        if examples := examples_of(self.prog):
            sections.append("examples:\n" + "".join(f"  {line}\n" for line in examples))
        return "\n".join(sections)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Name the nearest of many choices, where the base would print all of them."""
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            hint = did_you_mean([str(value)], action.choices)
            raise argparse.ArgumentError(None, f"there is no {str(action.metavar).lower()} {value!r}{hint}")
        super()._check_value(action, value)

    def _takes_value(self, word: str) -> bool:
        option = self._option_string_actions.get(word)
        return word.startswith("--") and option is not None and option.nargs is None and option.const is None


def _row(word: str, summary: str, width: int) -> str:
    from textwrap import fill

    indent = " " * (width + 2)
    return fill(summary, _width(), initial_indent=f"  {word:<{width}}", subsequent_indent=indent) + "\n"


def did_you_mean(words: Iterable[str], known: Iterable[str]) -> str:
    """Returns a question that names what is most like one of the words, to be put behind an error; "" if nothing is."""
    from difflib import get_close_matches

    names = list(known)
    nearest = [name for word in words for name in get_close_matches(word, names, 1, 0.7)]
    return f": did you mean {nearest[0]}?" if nearest else ""


def parser_of(name: str, command: Command, words: Sequence[str] = ()) -> Parser:
    """The parser of one command; of one with actions, of the action that ``words`` begins with, if there is one."""
    prog = f"{PROGRAM} {name}"
    module = importlib.import_module(command.module)
    if not command.actions:
        parser = Parser(prog, _sentence(command.summary), getattr(module, "DETAILS", ""))
        module.add_arguments(name, parser)
        _complete(name, parser)
        parser.set_defaults(command=name, run=module.run)
        return parser
    actions: Mapping[str, Action] = module.ACTIONS
    if words and words[0] in actions:
        return action_parser(name, words[0], actions[words[0]])
    parser = Parser(prog, _sentence(command.summary))
    add_choices(parser, "ACTION", {"actions": {name: action.summary for name, action in actions.items()}})
    return parser


def add_repeated(where: argparse._ActionsContainer, *names: str, metavar: str, help: str = "", **more: Any) -> None:
    """Add an option that may be given several times; its value is a list, empty without it."""
    told = f"{help}; may be repeated" if help else "may be repeated"
    where.add_argument(*names, action="append", default=[], metavar=metavar, help=told, **more)


def add_choices(parser: Parser, metavar: str, groups: Mapping[str, Mapping[str, str]]) -> None:
    """Add words that the command line has to go on with, and their meanings, each under its heading in the help.

    The parsers of the words are made when they are chosen.
    """
    chosen = parser.add_subparsers(
        dest=metavar.lower(),
        metavar=metavar,
        required=True,
        help=argparse.SUPPRESS,
        parser_class=argparse.ArgumentParser,
    )
    for choices in groups.values():
        for word, summary in choices.items():
            chosen.add_parser(word, help=summary, add_help=False)
    parser.usage = f"%(prog)s [-h] {metavar} ..."
    parser.groups = groups
    parser.choices_missing = f"the following arguments are required: {metavar}"


def action_parser(name: str, action_name: str, action: Action) -> Parser:
    """The parser of one action."""
    parser = Parser(f"{PROGRAM} {name} {action_name}", _sentence(action.summary), action.details)
    action.add_arguments(parser)
    _complete(f"{name} {action_name}", parser)
    parser.set_defaults(command=name, action=action_name, run=action.run)
    return parser


def _complete(name: str, parser: Parser) -> None:
    """Add what commands have that talk to a cluster and may change it."""
    if "--bootstrap-server" in parser._option_string_actions:
        from kbroker.tools.cli.protection import add_agreement

        add_agreement(name, parser)


def all_parsers(commands: Mapping[str, Command]) -> Iterator[tuple[str, Parser]]:
    """Every command and action with its parser, for the documentation and its test."""
    for name, command in commands.items():
        if not command.actions:
            yield name, parser_of(name, command)
            continue
        for action_name, action in importlib.import_module(command.module).ACTIONS.items():
            yield f"{name} {action_name}", action_parser(name, action_name, action)


def _sentence(summary: str) -> str:
    return summary[:1].upper() + summary[1:] + "."
