"""Each command has two examples in its help, and all of them are understood."""

from __future__ import annotations

import shlex

from kbroker.tools.cli import COMMANDS, GROUPS, build_parser
from kbroker.tools.cli.examples import examples_of
from kbroker.tools.cli.parser import all_parsers
from tests.with_each import with_each


@with_each((name, examples_of(parser.prog)) for name, parser in all_parsers(COMMANDS))
def test_examples(name: str, examples: list[str]) -> None:
    assert len(examples) == 2
    for line in examples:
        words = shlex.split(line[line.index("kbroker ") :].rstrip(")"))[1:]
        parser, rest = build_parser(words)
        arguments = parser.parse_args(rest)
        assert parser.prog == f"kbroker {name}"
        assert arguments.run is not None
    assert line in parser.format_help()


def test_each_command_is_under_one_heading() -> None:
    assert " ".join(GROUPS.values()).split() == list(COMMANDS)
