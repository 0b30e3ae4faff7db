"""The options of ``kbroker table``: the place of a table, and the way in which it is kept."""

from __future__ import annotations

import argparse
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker.errors import FatalError
from kbroker.tools.cli.common import checked
from kbroker.tools.cli.parser import UsageError

if TYPE_CHECKING:
    from kbroker.tables.follower import Settings
    from kbroker.tables.target import Target

_PLACES: Final = (
    "delta:PATH with the path of a directory or a URL (s3://, gs://, az://, abfss://), or iceberg:NAMESPACE.TABLE"
)
_CATALOGS: Final = "sqlite:FILE, rest:URL, or catalog:NAME of pyiceberg's own configuration"
_URL: Final = re.compile(r"(s3a?|gs|az|abfss?)://[^/\s]+/\S+")
_PACKAGES: Final = {"delta": ("pyarrow", "deltalake"), "iceberg": ("pyarrow", "pyiceberg", "sqlalchemy")}
_REGISTERED: Final = ("avro", "protobuf", "json-schema")


def parse_place(text: str) -> str:
    """Returns ``delta:PATH`` or ``iceberg:NAMESPACE.TABLE``; ``ValueError``."""
    kind, _, name = text.partition(":")
    _refuse_password(name)
    if kind == "delta" and name and ("://" not in name or _URL.fullmatch(name)):
        return text
    if kind == "iceberg" and re.fullmatch(r"\w+(\.\w+)+", name):
        return text
    raise ValueError(f"{text!r} is not {_PLACES}")


def parse_catalog(text: str) -> str:
    """Returns ``sqlite:FILE``, ``rest:URL`` or ``catalog:NAME``; ``ValueError``."""
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


def add_target(parser: argparse.ArgumentParser, *, option: bool) -> None:
    kind = _spoken(parse_place)
    if option:
        parser.add_argument("--to", dest="table", required=True, type=kind, metavar="TABLE", help=_PLACES)
    else:
        parser.add_argument("table", type=kind, metavar="TABLE", help=_PLACES)
    parser.add_argument(
        "--catalog",
        type=_spoken(parse_catalog),
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


def parse_bytes(text: str) -> int:
    from kbroker.client.config_units import in_kafkas_units

    try:
        count = int(in_kafkas_units("memory.bytes", text))
    except ValueError:
        count = 0
    if count < 1:
        raise ValueError(f"{text!r} is no number of bytes")
    return count


def parse_seconds(text: str) -> float:
    from kbroker.client.records_io.times import parse_duration

    return parse_duration(text) / 1000


def parse_partition(text: str) -> str:
    from kbroker.tables import layout

    return layout.parse_partition(text)


def parse_cluster(text: str) -> str:
    from kbroker.tables import layout

    return layout.parse_cluster(text)


def add_settings(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("the table")
    what.add_argument(
        "--value",
        choices=("bytes", "text", "json", *_REGISTERED),
        help="what values are (default: as the table has them, or bytes)",
    )
    what.add_argument(
        "--schema",
        type=Path,
        metavar="FILE",
        help='the fields of JSON values: {"id": "long", "tags": ["string"], "address": {"city": "string"}} of boolean,'
        " int, long, double, string, timestamp, date, decimal(10,2) (default: those that come; fields that are new"
        " become columns)",
    )
    what.add_argument(
        "--registry",
        metavar="URL",
        help="the registry that has the schemas of avro, protobuf and json-schema; user, token and TLS are properties"
        " of --command-config: basic.auth.user.info, bearer.auth.token, schema.registry.ssl.*",
    )
    what.add_argument("--flatten", action="store_true", help="make the field city of address a column address_city")
    what.add_argument(
        "--partition-by",
        type=checked(parse_partition, "fields, or day(_timestamp)"),
        metavar="FIELDS",
        help="keep rows with the same customer or day(_timestamp) together; also hour(FIELD), month(FIELD)",
    )
    what.add_argument(
        "--cluster-by",
        type=checked(parse_cluster, "fields"),
        metavar="FIELDS",
        help="keep near values of fields in the same files: of a Delta table when it is maintained",
    )
    how = parser.add_argument_group("commits")
    how.add_argument(
        "--every",
        type=checked(parse_seconds, "a duration such as 10s"),
        metavar="DURATION",
        help="commit after so long (default 10s, for an Iceberg table 60s)",
    )
    how.add_argument(
        "--memory",
        type=checked(parse_bytes, "a number of bytes such as 32MiB"),
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
    what.add_argument(
        "--upsert", action="store_true", help="the table is the latest row of each key, and tombstones delete"
    )
    what.add_argument(
        "--changes",
        choices=("debezium",),
        help="values are Debezium's envelopes: apply what they say of their keys' rows",
    )
    files = parser.add_argument_group("files")
    files.add_argument("--no-merge", action="store_true", help="leave small files, and old ones, as they are")
    add_keep(files)


def add_keep(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--keep",
        type=checked(parse_hours, "a duration of whole hours such as 7d"),
        metavar="DURATION",
        help="keep what a version of this time needs (default: what the table says, or 7d)",
    )


def parse_hours(text: str) -> int:
    hours, rest = divmod(parse_seconds(text), 3600)
    if rest:
        raise ValueError(f"{text!r} is not a number of whole hours")
    return int(hours)


def settings_of(arguments: argparse.Namespace) -> Settings:
    from kbroker.tables.tables_file import settings_from

    given = {name.replace("_", "-"): each for name, each in vars(arguments).items()}
    try:
        return settings_from({**given, "to": arguments.table, "merge": not arguments.no_merge})
    except ValueError as error:
        raise UsageError(str(error)) from None


def make_target(place: str, catalog: str | None, options: Path | None) -> Target:
    """Returns the table; ``UsageError``, and ``FatalError`` with the command that installs what is missing."""
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


def target_of(arguments: argparse.Namespace) -> Target:
    """Returns the table that the command names; see `make_target`."""
    return make_target(arguments.table, arguments.catalog, arguments.store_options)
