"""``kbroker scrub DIR``: is everything in log directories what it should be?

Reads all of it and changes nothing. A line for each partition; what is damaged follows it, with file and place, and
makes the exit code 1. Of a running broker's directory the last segments may seem unfinished, which is told as a note.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from kbroker.errors import FatalError
from kbroker.log.damage import Damage
from kbroker.log.disk import ReadOnlyDisk
from kbroker.log.log_dir import parse_log_dir_name
from kbroker.log.put_back import missing_in
from kbroker.log.verification import PartitionReport, verify_partition
from kbroker.tools.cli.output import timestamp
from kbroker.tools.cli.progress import progress
from kbroker.types import METADATA_TOPIC

DETAILS = "A DIR is a log dir or the directory of one partition. The exit code is 1 if something is damaged."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``scrub`` for a directory."""
    parser.add_argument("directories", nargs="*", type=Path, metavar="DIR", help="log dirs or partition directories")
    parser.add_argument("--records", action="store_true", help="look into every batch, at every record")
    parser.add_argument("--notes", action="store_true", help="show also what the next start puts right by itself")
    parser.add_argument("--json", action="store_true", help="one JSON object for each partition or directory")


def run(arguments: argparse.Namespace) -> int:
    """Verify them all; 1 if one is damaged."""
    damaged = 0
    total = PartitionReport("")
    began = time.monotonic()
    directories = list(_expand(arguments.directories))
    with progress("verified", total=_bytes_in(directories), shown=_size) as shown:
        for directory in directories:
            try:
                report = verify_partition(directory, records=arguments.records, on_bytes=shown.add)
                report.problems += _damaged_snapshots(directory)
                report.problems += (missing_text(each) for _, each in missing_in(ReadOnlyDisk(), directory))
            except OSError as error:
                raise FatalError(f"cannot read {directory}: {error.strerror}") from error
            damaged += bool(report.problems)
            total.bytes += report.bytes
            total.records += report.records
            with shown.hidden():
                _show(report, arguments)
    if not arguments.json:
        seconds = max(time.monotonic() - began, 1e-6)
        print(
            f"{len(directories)} partitions, {total.records} records, {_size(total.bytes)} in {seconds:.1f} s:"
            f" {damaged or 'none'} damaged"
        )
    return 1 if damaged else 0


def missing_text(damage: Damage) -> str:
    """Returns for a person which offsets a log lacks, since when, and where the bytes of them are."""
    if not damage.time_ms:  # damage.json itself is damaged
        return str(damage)
    kept = "nothing of them was left to set aside" if damage.set_aside is None else f"set aside as {damage.set_aside}"
    return f"{damage} (since {timestamp(damage.time_ms)}; {'still in the log' if damage.is_in_log else kept})"


def _damaged_snapshots(directory: str) -> Iterator[str]:
    """The problems of the snapshots in the directory of the metadata log."""
    if os.path.basename(directory) != f"{METADATA_TOPIC}-0":
        return
    from kbroker.raft_metadata.raft.snapshot import CorruptSnapshot, SnapshotStore  # the scrub of a topic needs none

    snapshots = SnapshotStore(ReadOnlyDisk(), directory)
    for snapshot_id in snapshots.ids():
        try:
            snapshots.read(snapshot_id)
        except CorruptSnapshot as error:
            yield str(error)


def _expand(paths: Sequence[Path]) -> Iterator[str]:
    for path in paths:
        if not path.is_dir():
            raise FatalError(f"{path} is no directory")
        resolved = path.resolve()
        if parse_log_dir_name(resolved.name) is not None and not (resolved / "meta.properties").exists():
            yield str(resolved)
            continue
        inside = sorted(entry for entry in resolved.iterdir() if entry.is_dir() and parse_log_dir_name(entry.name))
        if not inside:
            raise FatalError(f"{path}: there is no partition in it")
        yield from map(str, inside)


def _show(report: PartitionReport, arguments: argparse.Namespace) -> None:
    name = os.path.basename(report.directory)
    if arguments.json:
        print(
            json.dumps(
                {
                    "partition": name,
                    "directory": report.directory,
                    "segments": report.segments,
                    "batches": report.batches,
                    "records": report.records,
                    "bytes": report.bytes,
                    "start_offset": report.start_offset,
                    "end_offset": report.end_offset,
                    "problems": report.problems,
                    "notes": report.notes,
                }
            )
        )
        return
    state = "DAMAGED" if report.problems else "ok"
    print(
        f"{name}: {state}, offsets {report.start_offset} to {report.end_offset}, {report.records} records in"
        f" {report.segments} segments, {_size(report.bytes)}"
    )
    for problem in report.problems:
        print(f"  {problem}")
    for note in report.notes if arguments.notes else ():
        print(f"  note: {note}")


def _bytes_in(directories: Sequence[str]) -> int:
    """Bytes of all segments, for the progress."""
    found = 0
    for directory in directories:
        try:
            found += sum(entry.stat().st_size for entry in os.scandir(directory) if entry.name.endswith(".log"))
        except OSError:  # told when it is verified
            continue
    return found


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"
