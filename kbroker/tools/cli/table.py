"""``kbroker table``: a topic as a table of Delta Lake or Iceberg, which Spark, DuckDB, Polars and pandas read."""

from __future__ import annotations

import argparse
import importlib.util
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import FatalError
from kbroker.tools.cli.common import add_cluster_arguments, checked, cluster, complain, readable_errors
from kbroker.tools.cli.parser import Action, UsageError

if TYPE_CHECKING:
    from kbroker.client import Client
    from kbroker.tables.follower import Follower, Settings
    from kbroker.tables.tables_file import Entry
    from kbroker.tables.target import Target

_PLACES: Final = (
    "delta:PATH with the path of a directory or a URL (s3://, gs://, az://, abfss://), or iceberg:NAMESPACE.TABLE"
)
_CATALOGS: Final = "sqlite:FILE, rest:URL, or catalog:NAME of pyiceberg's own configuration"
_URL: Final = re.compile(r"(s3a?|gs|az|abfss?)://[^/\s]+/\S+")
_PACKAGES: Final = {"delta": ("pyarrow", "deltalake"), "iceberg": ("pyarrow", "pyiceberg", "sqlalchemy")}
_AGAIN_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.5

DETAILS = """\
A table has the columns _partition, _offset, _timestamp, _key, _headers and value; with --value json each field of the
value is a column. What is no such value goes, with the reason, to the table of dead letters beside it, whose name ends
in _dead_letters. The rows of a commit and how far they go are one commit of the table: no record is there twice or
missing, however often the command is stopped, killed, or started beside itself. See docs/tables.md."""


# --- Arguments -------------------------------------------------------------------------------------------------------


def _place(text: str) -> str:
    """``delta:PATH`` or ``iceberg:NAMESPACE.TABLE``; ``ValueError``."""
    kind, _, name = text.partition(":")
    _refuse_password(name)
    if kind == "delta" and name and ("://" not in name or _URL.fullmatch(name)):
        return text
    if kind == "iceberg" and re.fullmatch(r"\w+(\.\w+)+", name):
        return text
    raise ValueError(f"{text!r} is not {_PLACES}")


def _catalog(text: str) -> str:
    """``sqlite:FILE``, ``rest:URL`` or ``catalog:NAME``; ``ValueError``."""
    kind, _, name = text.partition(":")
    _refuse_password(name)
    if kind not in ("sqlite", "rest", "catalog") or not name or (kind == "rest" and "://" not in name):
        raise ValueError(f"{text!r} is not {_CATALOGS}")
    return text


def _refuse_password(place: str) -> None:
    """``ValueError`` for a URL with a password, or a query, which may have a signature."""
    if "://" in place and ("?" in place or ("@" in place and not re.fullmatch(r"abfss?://[\w-]+@[^@]+", place))):
        raise ValueError("a URL has no password here: give it in the environment, or in --store-options FILE")


def _spoken(kind: Callable[[str], str]) -> Callable[[str], str]:
    """An argparse type out of a function whose ``ValueError`` says all: what has a password is not repeated."""

    def convert(text: str) -> str:
        try:
            return kind(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def _add_target(parser: argparse.ArgumentParser, *, option: bool) -> None:
    kind = _spoken(_place)
    if option:
        parser.add_argument("--to", required=True, type=kind, metavar="TABLE", help=_PLACES)
    else:
        parser.add_argument("table", type=kind, metavar="TABLE", help=_PLACES)
    parser.add_argument(
        "--catalog",
        type=_spoken(_catalog),
        metavar="CATALOG",
        help=f"the catalog of an Iceberg table: {_CATALOGS}; data are beside FILE, or where the option warehouse says",
    )
    parser.add_argument(
        "--store-options",
        type=Path,
        metavar="FILE",
        help="properties for the object store and the catalog, such as AWS_SECRET_ACCESS_KEY, token, warehouse; what is"
        " not there is taken from the environment",
    )


def _bytes(text: str) -> int:
    from kbroker.client.config_units import in_kafkas_units

    try:
        count = int(in_kafkas_units("memory.bytes", text))
    except ValueError:
        count = 0
    if count < 1:
        raise ValueError(f"{text!r} is no number of bytes")
    return count


def _seconds(text: str) -> float:
    from kbroker.client.records_io.times import parse_duration

    return parse_duration(text) / 1000


def _add_settings(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("the table")
    what.add_argument(
        "--value", choices=("bytes", "text", "json"), help="what values are (default: as the table has them, or bytes)"
    )
    what.add_argument(
        "--schema",
        type=Path,
        metavar="FILE",
        help='the fields of JSON values: {"id": "long", "tags": ["string"], "address": {"city": "string"}} of boolean,'
        " int, long, double, string (default: those that come; fields that are new become columns)",
    )
    how = parser.add_argument_group("commits")
    how.add_argument(
        "--every",
        type=checked(_seconds, "a duration such as 10s"),
        metavar="DURATION",
        help="commit after so long (default 10s, for an Iceberg table 60s)",
    )
    how.add_argument(
        "--memory",
        type=checked(_bytes, "a number of bytes such as 32MiB"),
        default=32 << 20,
        metavar="BYTES",
        help="or once so many bytes wait (default 32MiB)",
    )
    how.add_argument(
        "--accept-loss", action="store_true", help="go on behind records that were gone before the table had them"
    )
    how.add_argument(
        "--new-topic", action="store_true", help="go on with the topic that was made anew under the same name"
    )


def _add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help="no lines about how far it is")


def _follow_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="the topic to follow")
    _add_target(parser, option=True)
    parser.add_argument("--once", action="store_true", help="end when the table has what the topic has now")
    _add_quiet(parser)
    _add_settings(parser)
    add_cluster_arguments(parser)


def _backfill_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="the topic to read")
    parser.add_argument("--from", dest="log_dir", required=True, metavar="DIR", help="the log directory of a node")
    _add_target(parser, option=True)
    _add_settings(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")


def _settings(arguments: argparse.Namespace) -> Settings:
    from kbroker.tables.follower import USUAL_SECONDS, Settings
    from kbroker.tables.json_kinds import parse_kinds

    declared = ""
    if arguments.schema is not None:
        if arguments.value not in (None, "json"):
            raise UsageError("--schema is of values that are JSON: leave out --value, or give --value json")
        arguments.value = "json"
        try:
            declared = arguments.schema.read_text("utf-8")
            parse_kinds(declared.encode())
        except ValueError as error:
            raise FatalError(f"{arguments.schema}: {error}") from None
    return Settings(
        value_format=arguments.value,
        declared=declared,
        interval=USUAL_SECONDS[arguments.to.partition(":")[0]] if arguments.every is None else arguments.every,
        max_bytes=arguments.memory,
        accept_loss=arguments.accept_loss,
        new_topic=arguments.new_topic,
    )


def _target(place: str, catalog: str | None, options: Path | None) -> Target:
    """The table; ``UsageError``, and ``FatalError`` with the command that installs what is missing."""
    kind, _, name = place.partition(":")
    if (kind == "iceberg") != (catalog is not None):
        raise UsageError("an Iceberg table has --catalog, such as sqlite:FILE, and a Delta table none")
    for package in (*_PACKAGES[kind], *(["obstore"] if kind == "delta" and "://" in name else [])):
        if importlib.util.find_spec(package) is None:
            raise FatalError(f"tables need {package}: pip install 'kbroker[{kind}]'")
    from kbroker.tables.stores import StoreOptions

    store = StoreOptions.read(options)
    if catalog is not None:
        from kbroker.tables.iceberg import IcebergTarget

        return IcebergTarget(name, catalog, store)
    from kbroker.tables.delta import DeltaTarget

    return DeltaTarget(name, store)


# --- Follow ----------------------------------------------------------------------------------------------------------


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """An event that is set by SIGTERM and Ctrl-C: what is read is committed then."""
    stop = threading.Event()
    before = {each: signal.signal(each, lambda *_: stop.set()) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _say_nothing(line: str) -> None:
    pass


def _keep(
    client: Client,
    topic: str,
    target: Target,
    settings: Settings,
    tell: Callable[[str], None],
    stop: threading.Event,
    *,
    once: bool,
    quiet: bool,
) -> Follower:
    """Follow until ``stop``, also while the cluster is away; with ``once`` to the end that there is."""
    from kbroker.client import ConnectionFailed, RequestTimedOut
    from kbroker.tables.follower import Follower
    from kbroker.tables.sources import ClusterSource
    from kbroker.tables.target import StoreAway

    show = _say_nothing if once or quiet else tell
    follower = Follower(ClusterSource(client, topic), target, settings, tell, show=show)
    while True:
        try:
            follower.run(once=once, stop=stop.is_set)
            return follower
        except (ConnectionFailed, RequestTimedOut, StoreAway) as error:
            if once:
                raise
            tell(f"{error}; trying again")
            if stop.wait(_AGAIN_SECONDS):
                return follower


def _follow(arguments: argparse.Namespace) -> int:
    target, settings = _target(arguments.to, arguments.catalog, arguments.store_options), _settings(arguments)
    begin = time.monotonic()
    with _stopping() as stop, cluster(arguments) as client:
        once, quiet = arguments.once, arguments.quiet
        follower = _keep(client, arguments.topic, target, settings, complain, stop, once=once, quiet=quiet)
    return _summarize(arguments, follower, time.monotonic() - begin)


def _backfill(arguments: argparse.Namespace) -> int:
    target, settings = _target(arguments.to, arguments.catalog, arguments.store_options), _settings(arguments)
    begin = time.monotonic()
    with _stopping() as stop:
        from kbroker.tables.follower import Follower
        from kbroker.tables.sources import DirectorySource

        follower = Follower(DirectorySource(arguments.log_dir, arguments.topic), target, settings, complain)
        follower.run(once=True, stop=stop.is_set)
    return _summarize(arguments, follower, time.monotonic() - begin)


def _summarize(arguments: argparse.Namespace, follower: Follower, seconds: float) -> int:
    progress = follower.progress
    if arguments.json:
        from kbroker.tools.cli.output import print_json

        print_json(
            {
                "topic": arguments.topic,
                "table": arguments.to,
                "rows": progress.rows,
                "dead_letters": progress.dead_letters,
                "commits": progress.commits,
                "lag": sum(follower.lag.values()),
                "seconds": round(seconds, 3),
            }
        )
    else:
        dead = f", {progress.dead_letters:,} dead letters" if progress.dead_letters else ""
        print(
            f"{progress.rows:,} rows{dead} of {arguments.topic} to {arguments.to} in {seconds:.2f} s,"
            f" {progress.commits:,} commits"
        )
    return 0


# --- Many tables -----------------------------------------------------------------------------------------------------


def _file_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a file with a [[table]] for each table")
    add_cluster_arguments(parser)


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="end when the tables have what the topics have now")
    _add_quiet(parser)
    _file_arguments(parser)


def _entries(arguments: argparse.Namespace) -> list[Entry]:
    if importlib.util.find_spec("pyarrow") is None:
        raise FatalError("tables need pyarrow: pip install 'kbroker[delta]' or 'kbroker[iceberg]'")
    from kbroker.tables.tables_file import read_tables

    return read_tables(arguments.file, {"to": _place, "catalog": _catalog, "every": _seconds, "memory": _bytes})


def _run(arguments: argparse.Namespace) -> int:
    """Follow each table in a thread of its own; what one cannot go on with is told, and the others go on."""
    failed: list[str] = []
    rows: dict[str, int] = {}

    def keep(entry: Entry, client: Client, stop: threading.Event) -> None:
        def tell(line: str) -> None:
            complain(f"{entry.topic}: {line}")

        try:
            with readable_errors(), client:
                target = _target(entry.to, entry.catalog, entry.options)
                once, quiet = arguments.once, arguments.quiet
                follower = _keep(client, entry.topic, target, entry.settings, tell, stop, once=once, quiet=quiet)
            rows[entry.to] = follower.progress.rows
        except FatalError as error:
            tell(str(error))
            failed.append(entry.to)

    entries = _entries(arguments)
    with _stopping() as stop, cluster(arguments) as client:
        threads = [threading.Thread(target=keep, args=(entry, client.another(), stop)) for entry in entries]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(_LOOK_SECONDS)  # a signal's handler runs between two of them
    if arguments.json:
        from kbroker.tools.cli.output import print_json

        print_json([{"table": each.to, "topic": each.topic, "rows": rows.get(each.to)} for each in entries])
    else:
        print(f"{sum(rows.values()):,} rows to {len(rows)} tables")
    return 1 if failed else 0


def _list(arguments: argparse.Namespace) -> int:
    documents = []
    entries = _entries(arguments)
    with cluster(arguments) as client:
        for entry in entries:
            told: dict[str, Any] = {"topic": entry.topic, "table": entry.to}
            try:
                told |= _document(_target(entry.to, entry.catalog, entry.options), client) | {"problem": None}
            except FatalError as error:
                told |= {"problem": str(error)}
            documents.append(told)
    from kbroker.tools.cli.output import print_json, print_table

    if arguments.json:
        print_json(documents)
        return 0
    names = ["rows", "dead_letters", "files", "version", "lag"]
    print_table(
        ["topic", "table", *(name.replace("_", " ") for name in names), "problem"],
        [[each.get(name) for name in ("topic", "table", *names, "problem")] for each in documents],
        numbers=[name.replace("_", " ") for name in names],
    )
    return 0


# --- Describe, maintain ----------------------------------------------------------------------------------------------


def _describe_arguments(parser: argparse.ArgumentParser) -> None:
    _add_target(parser, option=False)
    add_cluster_arguments(parser)


def _describe(arguments: argparse.Namespace) -> int:
    target = _target(arguments.table, arguments.catalog, arguments.store_options)
    with cluster(arguments) as client:
        document = _document(target, client)
    if arguments.json:
        from kbroker.tools.cli.output import print_json

        print_json(document)
        return 0
    from kbroker.tools.cli.output import print_table, size

    told = document | {"bytes": size(document["bytes"])}
    partitions = told.pop("partitions")
    for name, value in told.items():
        print(f"{name.replace('_', ' '):<14}{value:,}" if isinstance(value, int) else f"{name:<14}{value}")
    print()
    columns = ["partition", "next offset", "end", "lag"]
    print_table(columns, [list(each.values()) for each in partitions], numbers=columns)
    return 0


def _document(target: Target, client: Client) -> dict[str, Any]:
    """All that is told of a table; ``FatalError`` without one, or without its topic."""
    from kbroker.tables.sources import ClusterSource

    topic = target.topic()
    if topic is None:
        raise FatalError(f"there is no table in {target.where}")
    source = ClusterSource(client, topic)
    ranges = source.ranges()
    kept = target.load(ranges)
    assert kept is not None
    if kept.topic_id != source.topic_id:
        raise FatalError(f"topic {topic} was deleted and made anew since {target.where} was written")
    partitions: list[dict[str, int]] = []
    for partition, (start, end) in sorted(ranges.items()):
        position = kept.positions.get(partition, start)
        partitions.append(
            {"partition": partition, "next_offset": position, "end_offset": end, "lag": max(end - position, 0)}
        )
    return {
        "table": target.where,
        "topic": topic,
        "value": kept.value_format,
        **target.facts()._asdict(),
        "lag": sum(each["lag"] for each in partitions),
        "partitions": partitions,
    }


def _maintain_arguments(parser: argparse.ArgumentParser) -> None:
    _add_target(parser, option=False)
    parser.add_argument(
        "--keep",
        type=checked(_seconds, "a duration such as 7d"),
        metavar="DURATION",
        help="keep what a version of this time needs (default: what the table says, or 7d)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")


def _maintain(arguments: argparse.Namespace) -> int:
    done: Mapping[str, int] = _target(arguments.table, arguments.catalog, arguments.store_options).maintain(
        None if arguments.keep is None else int(arguments.keep // 3600)
    )
    if arguments.json:
        from kbroker.tools.cli.output import print_json

        print_json(done)
    else:
        print(", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in done.items()))
    return 0


ACTIONS = {
    "follow": Action("keep a table in step with a topic", _follow_arguments, _follow, DETAILS),
    "backfill": Action("fill a table from a log directory, without a broker", _backfill_arguments, _backfill, DETAILS),
    "run": Action("keep the tables of a file in step with their topics", _run_arguments, _run, DETAILS),
    "list": Action("list the tables of a file, how far each is, and what is wrong with it", _file_arguments, _list),
    "describe": Action("show how far a table is, its rows, files and dead letters", _describe_arguments, _describe),
    "maintain": Action("merge the small files of a table, and remove old ones", _maintain_arguments, _maintain),
}
