"""The command ``kbroker``: a module for each command, imported only when it runs, for ``start`` must be quick.

What a command asks of a cluster is in `kbroker.client`, not here, and imports nothing of the command. Begin with
``COMMANDS`` below.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from kbroker.errors import FatalError
from kbroker.tools.cli.parser import PROGRAM, Command, Parser, UsageError, add_choices, parser_of
from kbroker.version import __version__

COMMANDS = {
    "start": Command("kbroker.tools.cli.start", "start a node"),
    "up": Command("kbroker.tools.cli.up", "start a cluster of several nodes on this machine"),
    "container": Command("kbroker.tools.cli.container", "start the node that KAFKA_* environment variables describe"),
    "faults": Command(
        "kbroker.testing.command",
        "start a node, or several, whose requests go wrong as told; or stand before any cluster",
    ),
    "console": Command("kbroker.tools.cli.console", "serve a page about a cluster, for the browser"),
    "topic": Command("kbroker.tools.cli.topic", "list, describe, create, change and delete topics", actions=True),
    "produce": Command("kbroker.tools.cli.produce", "send lines, CSV or JSON from a file or standard input to a topic"),
    "consume": Command("kbroker.tools.cli.consume", "read a topic from an offset or a time, and follow it"),
    "export": Command("kbroker.tools.cli.export_records", "write records of a topic into a CSV, JSON or Parquet file"),
    "import": Command("kbroker.tools.cli.import_records", "send the records of an exported file to a topic"),
    "replay": Command("kbroker.tools.cli.replay", "send records of a topic to another once more, at a pace"),
    "table": Command(
        "kbroker.tools.cli.table",
        "keep a table of Delta Lake or Iceberg in step with a topic, exactly once",
        actions=True,
    ),
    "group": Command("kbroker.tools.cli.group", "list and describe groups with their lag, reset offsets", actions=True),
    "txn": Command("kbroker.tools.cli.txn", "list and describe transactions, abort one that hangs", actions=True),
    "cluster": Command(
        "kbroker.tools.cli.cluster", "show brokers, the quorum, directories; drain, restart", actions=True
    ),
    "balance": Command("kbroker.tools.cli.balance", "have brokers share the load evenly: plan, execute, watch"),
    "capacity": Command("kbroker.tools.cli.capacity", "say how many nodes, disks and machines a load takes"),
    "config": Command(
        "kbroker.tools.cli.config", "show and change configs of topics, brokers and groups", actions=True
    ),
    "profile": Command("kbroker.tools.cli.profile", "name clusters, and choose one of them", actions=True),
    "client": Command(
        "kbroker.tools.cli.client", "list clients that push their metrics, and what they pushed", actions=True
    ),
    "user": Command("kbroker.tools.cli.user", "list, add and delete users who log in with a password", actions=True),
    "acl": Command("kbroker.tools.cli.acl", "list, add and delete rules about who may do what", actions=True),
    "quota": Command("kbroker.tools.cli.quota", "list, set and delete quotas of clients", actions=True),
    "token": Command("kbroker.tools.cli.token", "list, make, renew and expire delegation tokens", actions=True),
    "certs": Command(
        "kbroker.tools.cli.certs", "make certificates for nodes and clients, and an authority that signs them"
    ),
    "doctor": Command(
        "kbroker.tools.doctor.command", "say what is wrong with a cluster, a configuration or a machine, and what to do"
    ),
    "top": Command("kbroker.tools.top.command", "show what happens in a cluster, live in a terminal"),
    "watch": Command("kbroker.tools.cli.watch", "show requests and answers as they happen, explained"),
    "decode": Command("kbroker.tools.cli.decode", "show a frame, or saved exchanges, as trees with byte offsets"),
    "bundle": Command("kbroker.tools.doctor.bundle_command", "pack what a report of a mistake needs, without secrets"),
    "scrub": Command(
        "kbroker.tools.cli.scrub", "have the nodes of a cluster verify their logs now, or verify a directory"
    ),
    "format": Command("kbroker.tools.cli.storage", "prepare a node's data directories, as kafka-storage format"),
    "info": Command("kbroker.tools.cli.storage", "show what is in a node's data directories, as kafka-storage info"),
    "dump-log": Command("kbroker.tools.cli.dump_log", "show what is in log, index, snapshot and checkpoint files"),
    "put-back": Command("kbroker.tools.cli.storage", "show what a node has set aside, and put it back"),
    "recover-metadata": Command(
        "kbroker.tools.cli.recover_metadata", "go on from a damaged metadata log, by a copy or without what is lost"
    ),
    "random-uuid": Command("kbroker.tools.cli.storage", "print a random id, for a cluster or a directory"),
    "completion": Command("kbroker.tools.cli.completion", "print a script that completes commands in a shell"),
}
"""All commands, in the order of the help."""

GROUPS = {
    "run": "start up container faults console",
    "topics and records": "topic produce consume export import replay",
    "tables": "table",
    "groups and transactions": "group txn",
    "cluster": "cluster balance capacity config profile client",
    "access": "user acl quota token certs",
    "look into": "doctor top watch decode bundle scrub",
    "files": "format info dump-log put-back recover-metadata random-uuid completion",
}
"""The help shows commands under these headings."""


def build_parser(words: Sequence[str] = ()) -> tuple[Parser, Sequence[str]]:
    """The parser of the command that ``words`` begin with, and the words that are left for it to parse."""
    if words and words[0] in COMMANDS:
        command = COMMANDS[words[0]]
        parser = parser_of(words[0], command, words[1:])
        chosen = command.actions and parser.get_default("run") is not None
        return parser, words[2 if chosen else 1 :]
    parser = Parser(PROGRAM, "Apache Kafka's broker in Python, and a command for any Kafka cluster.")
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    add_choices(
        parser,
        "COMMAND",
        {heading: {name: COMMANDS[name].summary for name in names.split()} for heading, names in GROUPS.items()},
    )
    return parser, words


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code (0 done, 1 could not, 2 wrong usage, 3 a log directory failed)."""
    if argv is None and "_ARGCOMPLETE" in os.environ:
        from kbroker.tools.cli.completion import complete

        complete(build_parser)
    parser, words = build_parser(sys.argv[1:] if argv is None else argv)
    arguments = parser.parse_args(words)
    gc.enable()
    try:
        code = int(arguments.run(arguments))
        _flush()
        return code
    except UsageError as error:
        print(f"{parser.prog}: {error} (see {parser.prog} --help)", file=sys.stderr)
        return 2
    except FatalError as error:
        from kbroker.tools.cli.common import complain

        complain(str(error))
        try:
            sys.stdout.flush()
        except OSError:
            _forget_output()
        return error.exit_code
    except BrokenPipeError:
        _forget_output()
        return 141
    except OSError as error:
        from kbroker.tools.cli.common import complain

        if error.filename is None:
            raise
        complain(f"{error.filename}: {error.strerror}")
        return 1


def _flush() -> None:
    """Write what is left now: at the interpreter's end it would be too late to say that it cannot be written."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FatalError(f"cannot write: {error.strerror}") from None


def _forget_output() -> None:
    """Point standard output at nothing: Python must not write again at exit to a closed pipe or a full disk."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
