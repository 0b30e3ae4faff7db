"""``kbroker export``: records of a topic into a file, from which ``kbroker import`` makes the same records again."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kbroker.errors import FatalError
from kbroker.tools.cli.common import add_cluster_arguments, cluster, complain
from kbroker.tools.cli.output import print_json, write
from kbroker.tools.cli.parser import UsageError
from kbroker.tools.cli.partial_file import partial_file
from kbroker.tools.cli.record_files import FORMAT_DETAILS, add_format_argument, format_of
from kbroker.tools.cli.record_spans import (
    FILTER_HELP,
    Limits,
    add_filter_argument,
    add_registry_argument,
    add_span_arguments,
    check_registry_is_used,
    decoder_of,
    find_limits,
    reader_of,
    sieve_of,
    span_of,
)
from kbroker.tools.cli.sending import progress

if TYPE_CHECKING:
    from kbroker.client.reader import Chunk, Reader
    from kbroker.client.records_io.sieve import Sieve
    from kbroker.wire.batch_header import TimestampType
    from kbroker.wire.record_batch import Record

    Write = Callable[[int, Record, TimestampType], None]

DETAILS = f"""\
{FORMAT_DETAILS}

Records are written as they are, keys and values as bytes; --registry decodes them for --filter alone. FILE gets its
name once it is whole; until then it is FILE.partial. Memory is bounded, however long the topic is.

{FILTER_HELP}"""

_WAIT_SECONDS = 1.0
_WRITTEN_AT_ONCE = 1 << 20


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``export``."""
    parser.add_argument("topic", metavar="TOPIC", help="the topic to read")
    parser.add_argument("file", metavar="FILE", help="where to; - is standard output")
    add_format_argument(parser)
    parser.add_argument("--force", action="store_true", help="write over a file that is there")
    where = parser.add_argument_group("what to read")
    add_span_arguments(where, to=False)
    add_filter_argument(where)
    add_registry_argument(where)
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar, no summary")
    add_cluster_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the file; 0 once it is whole."""
    kind = format_of(arguments.file, arguments.format)
    if arguments.file == "-" and arguments.json:
        raise UsageError("--json and - would write to the same place")
    span = span_of(arguments)
    sieve = sieve_of(arguments)
    check_registry_is_used(arguments)
    begin = time.monotonic()
    with cluster(arguments) as client:
        sieve.decoder = decoder_of(arguments)
        limits = find_limits(client, arguments.topic, arguments, span)
        reader = reader_of(client, arguments.topic, limits, arguments)
        with _writing(kind, arguments) as write:
            looked_at, count = _copy(reader, limits, sieve, write, arguments)
    _summarize(arguments, sieve, looked_at, count, time.monotonic() - begin)
    return 0


@contextmanager
def _writing(kind: str, arguments: argparse.Namespace) -> Iterator[Write]:
    """A writer of records into the file, which gets its name at the end; ``FatalError`` if it cannot be written."""
    if arguments.file == "-":
        with _writing_text(kind, arguments.topic, write) as add:
            yield add
        return
    path = Path(arguments.file)
    _check_is_free(path, force=arguments.force)
    try:
        with partial_file(path) as (partial, file), _leaving(partial, file, kind):
            _check_is_free(path, force=arguments.force)  # an export that has just ended may have made it
            with (
                _writing_parquet(file, arguments.topic)
                if kind == "parquet"
                else _writing_text(kind, arguments.topic, file.write)
            ) as add:
                yield add
            file.flush()
            os.replace(partial, path)
    except OSError as error:
        raise FatalError(f"cannot write {path}: {error.strerror or error}") from None


@contextmanager
def _leaving(partial: Path, file: BinaryIO, kind: str) -> Iterator[None]:
    """Decide what becomes of a file that is not whole, while nobody else may touch it."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            file.flush()
        if kind == "parquet" or not os.fstat(file.fileno()).st_size:
            with suppress(OSError):
                partial.unlink()  # Parquet has no end then, without which nothing reads it
        else:
            complain(f"{partial} has what was written until now")
        raise


def _check_is_free(path: Path, *, force: bool) -> None:
    """``FatalError`` if a file must not be written."""
    if not force and (path.exists() or path.is_symlink()):
        raise FatalError(f"{path} is there already: give --force to write over it")
    if path.exists() and not path.is_file():
        # A pipe or a device, such as /dev/null, would be gone afterwards, and a directory refuse it at the end.
        raise FatalError(f"{path} is no regular file: - writes to standard output")


@contextmanager
def _writing_text(kind: str, topic: str, write: Callable[[bytes], object]) -> Iterator[Write]:
    rows: list[bytes] = []
    size = 0
    if kind == "csv":
        from kbroker.client.records_io.csv_records import CsvWriter

        csv_writer = CsvWriter()

        def shown(partition: int, record: Record, timestamp_type: TimestampType) -> bytes:
            return csv_writer.row(partition, record)
    else:
        from kbroker.client.records_io.json_records import json_formatter

        csv_writer = None
        as_json = json_formatter()

        def shown(partition: int, record: Record, timestamp_type: TimestampType) -> bytes:
            return as_json(topic, partition, record, timestamp_type)

    def add(partition: int, record: Record, timestamp_type: TimestampType) -> None:
        nonlocal size
        row = shown(partition, record, timestamp_type)
        rows.append(row)
        size += len(row)
        if size >= _WRITTEN_AT_ONCE:
            write(b"".join(rows))
            rows.clear()
            size = 0

    yield add
    if csv_writer is not None:
        rows.append(csv_writer.rest())
    write(b"".join(rows))


@contextmanager
def _writing_parquet(file: BinaryIO, topic: str) -> Iterator[Write]:
    from kbroker.client.records_io.parquet_records import ParquetWriter

    writer = ParquetWriter(file, topic)

    def add(partition: int, record: Record, timestamp_type: TimestampType) -> None:
        writer.add(partition, record)

    try:
        yield add
        writer.close()
    except BaseException:
        writer.give_up()
        raise


def _copy(reader: Reader, limits: Limits, sieve: Sieve, write: Write, arguments: argparse.Namespace) -> tuple[int, int]:
    """Write the records that fit; how many were looked at, and how many written."""
    from kbroker.client.reader import Skipped

    looked_at = count = 0
    shown = not arguments.quiet and arguments.file != "-"
    with progress(limits.offsets, shown, in_bytes=False) as advance:
        while not reader.finished:
            for chunk in reader.poll(_WAIT_SECONDS):
                if isinstance(chunk, Skipped):
                    complain(f"partition {chunk.partition}: offset {chunk.wanted} is gone, going on at {chunk.start}")
                    continue
                looked_at += len(chunk.records)
                count += _write_chunk(chunk, sieve, write)
            advance(_passed(reader, limits), count)
    return looked_at, count


def _write_chunk(chunk: Chunk, sieve: Sieve, write: Write) -> int:
    count = 0
    for record in chunk.records:
        if sieve.fits is None or sieve.sift(chunk.partition, record) is not None:
            write(chunk.partition, record, chunk.timestamp_type)
            count += 1
    return count


def _passed(reader: Reader, limits: Limits) -> int:
    """Offsets that are read."""
    return sum(offset - limits.starts[partition] for partition, offset in reader.positions.items())


def _summarize(arguments: argparse.Namespace, sieve: Sieve, looked_at: int, count: int, seconds: float) -> None:
    if arguments.json:
        print_json(
            {
                "topic": arguments.topic,
                "file": arguments.file,
                "looked_at": looked_at,
                "written": count,
                "undecoded": sieve.undecoded,
                "seconds": round(seconds, 3),
            }
        )
    elif not arguments.quiet and arguments.file != "-":
        of_all = "" if sieve.fits is None else f" of {looked_at:,}"
        print(f"{count:,}{of_all} records of {arguments.topic} to {arguments.file} in {seconds:.2f} s", file=sys.stdout)
