"""The command ``kbroker``. Each subcommand's module is imported only when it runs: ``start`` must be quick."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from kbroker import __version__
from kbroker.errors import FatalError

_COMMANDS = {
    "start": ("kbroker.cli.start", "start a node"),
    "format": ("kbroker.cli.storage", "prepare a node's data directories, as kafka-storage format"),
    "info": ("kbroker.cli.storage", "show what is in a node's data directories, as kafka-storage info"),
    "random-uuid": ("kbroker.cli.storage", "print a random id, for a cluster or a directory"),
    "decode": ("kbroker.cli.decode", "show a request or response frame as a tree with byte offsets"),
    "dump-log": ("kbroker.cli.dump_log", "show what is in log, index, snapshot and checkpoint files"),
}
"""Subcommand -> (module, summary). A module offers ``add_arguments(command, parser)`` and ``run(arguments)``."""


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser; with a ``command``, only that subcommand's arguments are filled in."""
    parser = argparse.ArgumentParser(prog="kbroker", description="Apache Kafka's broker in Python.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"kbroker {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, summary) in _COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if command in (None, name):
            importlib.import_module(module).add_arguments(name, subparser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code (0 done, 1 could not, 2 wrong usage)."""
    words = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in words if not word.startswith("-")), None)
    arguments = build_parser(chosen if chosen in _COMMANDS else "").parse_args(words)
    try:
        return int(importlib.import_module(_COMMANDS[arguments.command][0]).run(arguments))
    except FatalError as error:
        print(f"kbroker: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of a pipe has had enough (`| head`); what Python would still flush must not complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
