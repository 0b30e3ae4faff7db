"""``kbroker doctor``: says what is wrong, how it knows, and what to do."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kbroker.tools.cli.output import console, print_json, print_table
from kbroker.tools.cli.parser import UsageError, add_repeated
from kbroker.tools.diagnosis.findings import Severity
from kbroker.tools.doctor.scope import add_look_arguments, looked_at, take_look

if TYPE_CHECKING:
    from kbroker.tools.doctor.findings import Check

DETAILS: Final = """\
Looked at are: a cluster (-b, --command-config), a node's configuration with its directories and this machine
(--config, --data-dir); without any of these, this machine and the cluster at the default address. It changes nothing.
Exit code 0: nothing keeps anybody from working, 1: there is an error."""

_STYLES: Final = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``doctor``."""
    add_look_arguments(parser)
    add_repeated(parser, "--only", metavar="CHECK", help="make this check alone")
    add_repeated(parser, "--skip", metavar="CHECK", help="do not make this check")
    parser.add_argument("--list", action="store_true", help="list the checks, and look at nothing")


def run(arguments: argparse.Namespace) -> int:
    """Look, judge and tell; 1 if there is an error."""
    from kbroker.tools.doctor.checklist import all_checks
    from kbroker.tools.doctor.findings import examine
    from kbroker.tools.doctor.report import as_document, as_lines

    checks = all_checks()
    names = chosen(checks, arguments.only, arguments.skip)
    if arguments.list:
        if arguments.json:
            print_json([_described(checks[name]) for name in names])
        else:
            rows = [[name, checks[name].subject, checks[name].summary] for name in names]
            print_table(["check", "subject", "looks for"], rows, wrap=("looks for",))
        return 0
    facts = take_look(arguments)
    found = examine(facts, names)
    if arguments.json:
        print_json(as_document(found, looked_at(facts), names))
    else:
        from rich.text import Text

        target = console()
        for line, severity in as_lines(found, looked_at(facts), names):
            target.print(Text(line, style="" if severity is None else _STYLES[severity.value]))
    return 1 if any(finding.severity is Severity.ERROR for _, finding in found) else 0


def chosen(checks: Mapping[str, Check], only: Sequence[str], skip: Sequence[str]) -> list[str]:
    """The names of the checks to make, in order; ``UsageError`` for one that there is not."""
    for option, names in (("--only", only), ("--skip", skip)):
        for name in names:
            if name not in checks:
                raise UsageError(f"{option} {name}: there is no such check; --list names them")
    return [name for name in checks if (not only or name in only) and name not in skip]


def _described(check: Check) -> dict[str, str]:
    return {"check": check.name, "subject": check.subject, "looks_for": check.summary, "see": f"docs/{check.see}"}
