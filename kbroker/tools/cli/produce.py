"""``kbroker produce``: lines, CSV or JSON from a file or standard input to a topic."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from kbroker.tools.cli.common import add_cluster_arguments, name_value, not_negative
from kbroker.tools.cli.parser import UsageError, add_repeated
from kbroker.tools.cli.sending import add_sending_arguments, check_topic_name, opened_input, store

if TYPE_CHECKING:
    from kbroker.client.records_io.line_records import InputOptions

DETAILS = """\
A record's partition is the one that every Kafka client would choose by its key; records without a key go to one
partition until a batch is full, then to the next. What the broker refuses, and lines that are no record, are reported
with their line number; everything else is stored, and the exit code is 1. With acks=all a retry stores nothing twice.

`--input records` takes objects with `key`, `value` (or `key_base64`, `value_base64`), `headers` (a list of
[name, value], or an object), `timestamp` in ms and `partition`; all may be missing."""


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``produce``."""
    parser.add_argument("topic", metavar="TOPIC", help="made by the broker if it does that on its own")
    parser.add_argument("file", nargs="?", default="-", metavar="FILE", help="what to send (default: standard input)")
    parser.add_argument(
        "-i",
        "--input",
        choices=("lines", "csv", "json", "records"),
        help="lines: a value a line. csv: a JSON object a row, named by the first row. json: a JSON document a line."
        " records: what consume --json writes. (default: by the name of FILE, else lines)",
    )
    keys = parser.add_argument_group("records")
    keys.add_argument("-k", "--key", metavar="KEY", help="the key of every record")
    keys.add_argument("--key-separator", metavar="TEXT", help="lines: what is before it is the key (\\t is a tab)")
    keys.add_argument("--key-column", metavar="NAME", help="csv, json: the column or field that is the key, too")
    keys.add_argument(
        "--timestamp-column",
        metavar="NAME",
        help="csv, json: the column or field that is the timestamp, in ms or as 2026-01-31T12:00:00Z",
    )
    add_repeated(keys, "-H", "--header", metavar="NAME=VALUE", type=name_value)
    keys.add_argument("--null-value", metavar="TEXT", help="lines: a value that stands for none (a tombstone)")
    keys.add_argument("--delimiter", metavar="CHAR", help="csv: what is between fields (default , or a tab for .tsv)")
    keys.add_argument("--typed", action="store_true", help="csv: numbers, true, false and empty fields as JSON's own")
    keys.add_argument("--keep-partitions", action="store_true", help="records: to the partitions they name")
    keys.add_argument("-p", "--partition", type=not_negative, metavar="N", help="everything to one partition")
    sending = parser.add_argument_group("sending")
    add_sending_arguments(sending)
    sending.add_argument(
        "--linger", type=not_negative, default=100, metavar="MS", help="send what there is after such a pause (100)"
    )
    add_cluster_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Send everything; 1 if something could not be stored."""
    from kbroker.client.records_io.line_records import read_items
    from kbroker.tools.cli.line_input import LineInput

    kind, options = input_options(arguments)
    check_topic_name(arguments.topic)
    linger = arguments.linger / 1000
    with opened_input(arguments.file) as (descriptor, size):
        return store(
            arguments,
            lambda on_idle: LineInput(descriptor, on_idle, linger, lambda lines: read_items(kind, lines, options)),
            size=size,
            shows_progress=not os.isatty(descriptor),
            partition=arguments.partition,
        )


def input_options(arguments: argparse.Namespace) -> tuple[str, InputOptions]:
    """The format of the input and how it becomes records; ``FatalError`` for options that do not go together."""
    from kbroker.client.records_io.line_records import InputOptions

    suffix = os.path.splitext(arguments.file)[1].lower()
    by_name = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
    kind = arguments.input or by_name.get(suffix, "lines")
    for option, kinds in (
        ("key_separator", ("lines",)),
        ("null_value", ("lines",)),
        ("key_column", ("csv", "json")),
        ("timestamp_column", ("csv", "json")),
        ("delimiter", ("csv",)),
        ("typed", ("csv",)),
        ("keep_partitions", ("records",)),
    ):
        if getattr(arguments, option) and kind not in kinds:
            raise UsageError(f"--{option.replace('_', '-')} goes with --input {' or '.join(kinds)}, not {kind}")
    delimiter = _escapes(arguments.delimiter or ("\t" if suffix == ".tsv" else ","))
    if len(delimiter) != 1 or delimiter in '\r\n"':
        raise UsageError(f"--delimiter {arguments.delimiter!r}: expected one character")
    if arguments.key is not None and (arguments.key_separator or arguments.key_column):
        raise UsageError("--key goes without --key-separator and --key-column")
    return kind, InputOptions(
        key=None if arguments.key is None else _encoded(arguments.key),
        key_separator=_encoded(_escapes(arguments.key_separator)) if arguments.key_separator else None,
        key_column=arguments.key_column,
        timestamp_column=arguments.timestamp_column,
        headers=tuple((name, _encoded(value)) for name, value in arguments.header),
        null_value=None if arguments.null_value is None else _encoded(arguments.null_value),
        delimiter=delimiter,
        typed=arguments.typed,
        keep_partitions=arguments.keep_partitions,
    )


def _escapes(text: str) -> str:
    return text.replace("\\t", "\t").replace("\\0", "\0")


def _encoded(text: str) -> bytes:
    """An argument as the bytes that the shell gave."""
    return os.fsencode(text)
