"""``kbroker import``: the records of a file, as ``kbroker export`` writes them, into a topic."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.tools.cli.common import add_cluster_arguments
from kbroker.tools.cli.record_files import FORMAT_DETAILS, add_format_argument, format_of
from kbroker.tools.cli.resuming import RESUME_HELP, Resuming, add_resume_argument, resuming_of
from kbroker.tools.cli.sending import add_sending_arguments, check_topic_name, opened_input, store

if TYPE_CHECKING:
    from kbroker.client.records_io.items import BadLine, Item

DETAILS = f"""\
Keys, values, headers and timestamps are those of the file, and so are the partitions; with --by-key the topic's
partitioner chooses. Offsets are given anew: in an empty topic they are the same, if the file begins at 0 and has no
gaps. What cannot be stored is reported by its line; everything else is stored, and the exit code is 1.

{RESUME_HELP}

{FORMAT_DETAILS}

Of a CSV or Parquet file that comes from elsewhere only `value` has to be there. Rows of any other table become JSON by
`kbroker produce --input csv`."""


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``import``."""
    parser.add_argument("topic", metavar="TOPIC", help="made by the broker if it does that on its own")
    parser.add_argument("file", metavar="FILE", help="what to send; - is standard input")
    add_format_argument(parser)
    parser.add_argument("--by-key", action="store_true", help="to the partitions of the keys, not those of the file")
    sending = parser.add_argument_group("sending")
    add_resume_argument(sending)
    add_sending_arguments(sending)
    add_cluster_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Send everything; 1 if something could not be stored."""
    kind = format_of(arguments.file, arguments.format)
    check_topic_name(arguments.topic)
    with resuming_of(arguments, f"import {os.path.basename(arguments.file)} into {arguments.topic}") as resuming:
        return _import(arguments, kind, resuming)


def _import(arguments: argparse.Namespace, kind: str, resuming: Resuming) -> int:
    if kind == "parquet":
        source = _ParquetInput(Path(arguments.file), by_key=arguments.by_key)
        return store(
            arguments, lambda on_idle: source, size=source.size, shows_progress=True, in_bytes=False, resuming=resuming
        )
    from kbroker.tools.cli.line_input import LineInput

    read = _reader(kind, arguments.by_key)
    with opened_input(arguments.file) as (descriptor, size):
        return store(
            arguments,
            lambda on_idle: LineInput(descriptor, on_idle, 0.1, read),
            size=size,
            shows_progress=not os.isatty(descriptor),
            resuming=resuming,
        )


def _reader(kind: str, by_key: bool) -> Callable[..., Iterator[Item | BadLine]]:
    from kbroker.client.records_io.csv_records import read_csv_records
    from kbroker.client.records_io.line_records import InputOptions, now_ms, read_records

    if kind == "jsonl":
        options = InputOptions(keep_partitions=not by_key)
        return lambda lines: read_records(lines, options)
    if by_key:
        return lambda lines: _by_key(read_csv_records(lines, now_ms))
    return lambda lines: read_csv_records(lines, now_ms)


def _by_key(items: Iterator[Item | BadLine]) -> Iterator[Item | BadLine]:
    for item in items:
        yield item if len(item) == 2 else item._replace(partition=None)


class _ParquetInput:
    """Records out of a Parquet file."""

    def __init__(self, path: Path, *, by_key: bool) -> None:
        from kbroker.client.records_io.line_records import now_ms
        from kbroker.client.records_io.parquet_records import ParquetRecords

        self._records = ParquetRecords(path, now_ms)
        self._by_key = by_key
        self.stopped = False

    @property
    def size(self) -> int:
        """Records of the file."""
        return self._records.count

    @property
    def position(self) -> int:
        """Records that are read."""
        return self._records.done

    @property
    def waiting(self) -> bool:
        """A file does not let one wait."""
        return False

    def __iter__(self) -> Iterator[Item | BadLine]:
        return _by_key(iter(self._records)) if self._by_key else iter(self._records)
