"""``kbroker table``: a topic as a table of Delta Lake or Iceberg, which Spark, DuckDB, Polars and pandas read."""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from kbroker.errors import FatalError
from kbroker.tools.cli.common import add_cluster_arguments, add_yes, checked, cluster, complain, confirm
from kbroker.tools.cli.output import print_json
from kbroker.tools.cli.parser import Action, UsageError
from kbroker.tools.cli.table_options import (
    add_keep,
    add_settings,
    add_target,
    make_target,
    parse_bytes,
    parse_catalog,
    parse_cluster,
    parse_hours,
    parse_partition,
    parse_place,
    parse_seconds,
    settings_of,
    target_of,
)

if TYPE_CHECKING:
    from kbroker.tables.follower import Follower, Settings
    from kbroker.tables.sources import Quota
    from kbroker.tables.status import Status
    from kbroker.tables.tables_file import TablesFile
    from kbroker.tools.cli.table_following import Order
    from kbroker.tools.cli.table_state import FollowedTables

_REGISTRY_PATIENCE: Final = 10.0

DETAILS = """\
A table has the columns _partition, _offset, _timestamp, _key, _headers and value; with --value json each field of the
value is a column. What is no such value goes, with the reason, to the table of dead letters beside it, whose name ends
in _dead_letters. The rows of a commit and how far they go are one commit of the table: no record is there twice or
missing, however often the command is stopped, killed, or started beside itself. See docs/tables.md."""


# --- Follow ----------------------------------------------------------------------------------------------------------


def _add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help="no lines about how far it is")


def _follow_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="the topic to follow")
    add_target(parser, option=True)
    _add_log_dir(parser, required=False)
    parser.add_argument("--once", action="store_true", help="end when the table has what the topic has now")
    _add_quiet(parser)
    add_settings(parser)
    parser.add_argument(
        "--quota",
        type=checked(parse_bytes, "a number of bytes such as 20MiB"),
        metavar="BYTES",
        help="fetch so many a second at most",
    )
    add_cluster_arguments(parser)


def _add_log_dir(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "--from",
        dest="log_dir",
        required=required,
        metavar="DIR",
        help="the topic is in the log directory of a node, which may run or not; no broker is asked",
    )


def _backfill_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="the topic to read")
    _add_log_dir(parser, required=True)
    parser.set_defaults(once=True, quiet=True, quota=None)
    add_target(parser, option=True)
    add_settings(parser)
    parser.add_argument("--command-config", type=Path, metavar="FILE", help="the properties for --registry")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")


def _with_registry(settings: Settings, arguments: argparse.Namespace, url: str | None) -> Settings:
    """The settings with the registry of an address or of ``--command-config``; ask within `cluster`."""
    from kbroker.tools.cli.record_spans import registry_of

    return replace(settings, registry=registry_of(arguments, url, _REGISTRY_PATIENCE))


def _follow(arguments: argparse.Namespace) -> int:
    """Follow a topic of a cluster, or of a log directory; `backfill` is the latter for once."""
    from kbroker.tools.cli.table_following import CLIENT_ID, Way, keep, sparing, stopping

    for option in ("bootstrap_server", "profile", "quota"):
        if arguments.log_dir is not None and getattr(arguments, option, None) is not None:
            raise UsageError(f"--from asks no broker: leave out --{option.replace('_', '-')}")
    with sparing():
        target, settings = target_of(arguments), settings_of(arguments)
    begin = time.monotonic()
    way = Way(arguments.once, arguments.quiet, _quota(arguments.quota))
    with stopping() as stop:
        from kbroker.tables.sources import ClusterSource, DirectorySource

        if arguments.log_dir is not None:
            settings = _with_registry(settings, arguments, arguments.registry)
            if arguments.command_config is not None and settings.registry is None:
                raise UsageError("--from asks no broker: leave out --command-config, which names no registry")
            source = DirectorySource(arguments.log_dir, arguments.topic)
            follower = keep(lambda: source, target, settings, complain, stop, way)
        else:
            with cluster(arguments, client_id=CLIENT_ID) as client:
                settings = _with_registry(settings, arguments, arguments.registry)
                follower = keep(
                    lambda: ClusterSource(client, arguments.topic, way.quota), target, settings, complain, stop, way
                )
    return _summarize(arguments, follower, time.monotonic() - begin)


def _quota(rate: int | None) -> Quota | None:
    from kbroker.tables.sources import Quota

    return None if rate is None else Quota(rate)


def _summarize(arguments: argparse.Namespace, follower: Follower, seconds: float) -> int:
    progress = follower.progress
    if arguments.json:
        print_json(
            {
                "topic": arguments.topic,
                "table": arguments.table,
                "rows": progress.rows,
                "dead_letters": progress.dead_letters,
                "commits": progress.commits,
                "lag": sum(follower.lag.values()),
                "seconds": round(seconds, 3),
            }
        )
    else:
        from kbroker.tables.status import counted

        where = f"{arguments.topic} to {arguments.table}"
        print(f"{progress} of {where} in {seconds:.2f} s, {counted(progress.commits, 'commits')}")
    return 0


# --- Many tables -----------------------------------------------------------------------------------------------------


def _file_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a file with a [[table]] for each table")
    add_cluster_arguments(parser)


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="end when the tables have what the topics have now")
    _add_quiet(parser)
    parser.add_argument(
        "--until-eof", action="store_true", help="stop when standard input ends, for a program that it must not outlive"
    )
    parser.add_argument("--tell-state", action="store_true", help=argparse.SUPPRESS)
    _file_arguments(parser)


def _read(path: Path) -> TablesFile:
    if importlib.util.find_spec("pyarrow") is None:
        raise FatalError("tables need pyarrow: pip install 'kbroker[delta]' or 'kbroker[iceberg]'")
    from kbroker.tables.tables_file import read_tables

    readers = {
        "to": parse_place,
        "catalog": parse_catalog,
        "every": parse_seconds,
        "memory": parse_bytes,
        "quota": parse_bytes,
        "keep": parse_hours,
        "partition-by": parse_partition,
        "cluster-by": parse_cluster,
    }
    return read_tables(path, readers)


def _file(arguments: argparse.Namespace) -> TablesFile:
    """The file; its client properties hold where the command has none."""
    file = _read(arguments.file)
    if arguments.command_config is None and arguments.profile is None:
        arguments.command_config = file.command_config
    return file


def _orders(file: TablesFile) -> list[Order]:
    """The tables of the file, without the registries that have their schemas."""
    from kbroker.tools.cli.table_following import Order

    return [
        Order(each.topic, each.to, each.settings, partial(make_target, each.to, each.catalog, each.store_options))
        for each in file.tables
    ]


def followed_tables(path: Path) -> FollowedTables:
    """The tables of a file, for the console; ``FatalError`` if it is none."""
    from kbroker.tools.cli.table_state import FollowedTables

    _read(path)
    return FollowedTables(lambda: _orders(_read(path)))


def _run(arguments: argparse.Namespace) -> int:
    """Follow all of a file."""
    from kbroker.tools.cli.table_following import CLIENT_ID, Way, keep_many, sparing, stopping

    with sparing():
        file = _file(arguments)
        if any(each.catalog for each in file.tables):
            import kbroker.tables.iceberg  # noqa: F401 - the followers' threads would, too late to be spared
    way = Way(
        arguments.once, arguments.quiet, _quota(file.quota), _tell_state if arguments.tell_state else lambda _: None
    )
    with stopping(until_eof=arguments.until_eof) as stop, cluster(arguments, client_id=CLIENT_ID) as client:
        if arguments.tell_state:
            print(f"kbroker tables: {len(file.tables)} of {arguments.file}", flush=True)
        orders = [
            order._replace(settings=_with_registry(order.settings, arguments, entry.registry))
            for order, entry in zip(_orders(file), file.tables, strict=True)
        ]
        rows, failed = keep_many(orders, client, stop, way)
    if arguments.json:
        print_json([{"table": each.to, "topic": each.topic, "rows": rows.get(each.to)} for each in file.tables])
    elif not arguments.tell_state:
        from kbroker.tables.status import counted

        print(f"{counted(sum(rows.values()), 'rows')} to {counted(len(rows), 'tables')}")
    return 1 if failed else 0


def _tell_state(status: Status) -> None:
    """A line for the node beside which this process is; where that was killed nobody reads it, and this ends soon."""
    with suppress(BrokenPipeError):
        print(replace(status, course=[]).text(), flush=True)


def _list(arguments: argparse.Namespace) -> int:
    from kbroker.tools.cli.table_state import FollowedTables, print_list

    orders = _orders(_file(arguments))
    with cluster(arguments) as client:
        documents = FollowedTables(lambda: orders).states(client)
    if arguments.json:
        print_json(documents)
    else:
        print_list(documents)
    return 0


# --- One table -------------------------------------------------------------------------------------------------------


def _describe_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser, option=False)
    _add_log_dir(parser, required=False)
    add_cluster_arguments(parser)


def _describe(arguments: argparse.Namespace) -> int:
    from kbroker.tools.cli.table_state import print_description, state_in, state_of

    target = target_of(arguments)
    if arguments.log_dir is not None:
        document = state_in(target, arguments.log_dir)
    else:
        with cluster(arguments) as client:
            document = state_of(target, client)
    if arguments.json:
        print_json(document)
    else:
        print_description(document)
    return 0


def _table_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser, option=False)


def _pause(arguments: argparse.Namespace, *, paused: bool = True) -> int:
    from kbroker.tools.cli.table_state import pause

    pause(target_of(arguments), paused=paused)
    print(f"{arguments.table} {'is paused' if paused else 'goes on'}")
    return 0


def _drop_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser, option=False)
    add_yes(parser)


def _drop(arguments: argparse.Namespace) -> int:
    from kbroker.tables.status import counted
    from kbroker.tools.cli.table_state import drop

    left = drop(target_of(arguments), lambda question: confirm(question, arguments.yes))
    if left is None:
        return 1
    print(
        f"{arguments.table} is removed"
        + (f"; where it was is left: {counted(left, 'files of others')}" if left else "")
    )
    return 0


class _ShowJob(argparse.Action):
    """Prints where the job of Spark is, as ``--help`` prints help."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(Path(__file__).parents[2] / "tables" / "spark_maintenance.py")
        parser.exit()


def _maintain_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--spark-job", action=_ShowJob, nargs=0, help="show the file of a job for spark-submit, for large tables"
    )
    add_target(parser, option=False)
    add_keep(parser)
    parser.add_argument("--any-table", action="store_true", help="maintain the table even if kbroker did not make it")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")


def _maintain(arguments: argparse.Namespace) -> int:
    target = target_of(arguments)
    from kbroker.tables.status import counted, topic_of

    if not arguments.any_table:
        topic_of(target, ": --any-table maintains any table")
    done: Mapping[str, int] = target.maintain(arguments.keep)
    if arguments.json:
        print_json(done)
    else:
        print(", ".join(counted(count, name.replace("_", " ")) for name, count in done.items()))
    return 0


ACTIONS = {
    "follow": Action("keep a table in step with a topic", _follow_arguments, _follow, DETAILS),
    "backfill": Action("fill a table from a log directory, without a broker", _backfill_arguments, _follow, DETAILS),
    "run": Action("keep the tables of a file in step with their topics", _run_arguments, _run, DETAILS),
    "list": Action("list the tables of a file, how far each is, and what is wrong with it", _file_arguments, _list),
    "describe": Action("show how far a table is, its rows, files and dead letters", _describe_arguments, _describe),
    "pause": Action("have nobody add rows to a table, wherever it is followed", _table_arguments, _pause),
    "resume": Action("let a paused table go on", _table_arguments, partial(_pause, paused=False)),
    "drop": Action("remove a table and its dead letters; the topic stays", _drop_arguments, _drop),
    "maintain": Action("merge the small files of a table, and remove old ones", _maintain_arguments, _maintain),
}
