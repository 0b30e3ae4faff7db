"""Protected clusters: a command that may change something asks first, unless ``--yes`` is given.

A command that is not in the list of those that only read counts as one that changes something.
"""

from __future__ import annotations

import argparse
from typing import Final

READING: Final = frozenset(
    {
        "acl list",
        "bundle",
        "cluster api-versions",
        "cluster describe",
        "cluster features",
        "cluster health",
        "cluster log-dirs",
        "cluster processes",
        "cluster quorum",
        "completion",
        "config describe",
        "consume",
        "doctor",
        "export",
        "group describe",
        "group list",
        "group members",
        "profile set",
        "quota list",
        "table describe",
        "table follow",
        "table list",
        "table run",
        "token list",
        "top",
        "topic describe",
        "topic list",
        "topic offsets",
        "txn describe",
        "txn find-hanging",
        "txn list",
        "txn producers",
        "user list",
    }
)
"""Commands that change nothing in a cluster."""


def name_of(arguments: argparse.Namespace) -> str:
    """The command and its action: ``topic delete``."""
    return " ".join(filter(None, (arguments.command, getattr(arguments, "action", None))))


def changes_something(arguments: argparse.Namespace) -> bool:
    """Whether a command may change something, as it was given."""
    if arguments.command == "console":
        return bool(arguments.writes)
    if getattr(arguments, "dry_run", False):
        return False
    return name_of(arguments) not in READING


def add_agreement(name: str, parser: argparse.ArgumentParser) -> None:
    """``--yes``, for a command that asks nothing by itself and may be asked for a protected cluster."""
    if name not in READING and "--yes" not in parser._option_string_actions:
        options = ["--yes"] if "-y" in parser._option_string_actions else ["-y", "--yes"]
        parser.add_argument(*options, action="store_true", help="do it without asking, on a protected cluster too")
