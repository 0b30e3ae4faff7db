"""``kbroker dump-log``: what is in log segments, metadata snapshots, indexes, producer snapshots and checkpoints.

The entries of the files (`kbroker.client.records_io.log_entries`) are printed as lines of text, or with ``--json`` as
JSON, an object a line. Damage makes the exit code 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kbroker.client.records_io.log_entries import Entry, has_entries, read_entries
from kbroker.errors import FatalError
from kbroker.tools.cli.progress import progress


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``dump-log``."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files or directories to show")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--batches", action="store_true", help="batch headers only, no records")
    parser.add_argument(
        "--width", type=int, default=100, metavar="N", help="show at most N characters of a key or value"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print every file; 1 if one of them is damaged or unknown."""
    damaged = False
    files = _expand(arguments.files)
    # Lines that run over a terminal are progress enough.
    with progress("entries:") if not sys.stdout.isatty() else nullcontext() as shown:
        for path in files:
            if not arguments.json:
                print(f"{path}:")
            try:
                for entry in read_entries(path, records=not arguments.batches):
                    damaged = damaged or entry["kind"] == "error"
                    if shown is not None:
                        shown.add(1)
                    if arguments.json:
                        print(json.dumps({"file": str(path)} | entry, default=_plain, ensure_ascii=False))
                    else:
                        print(_as_text(entry, arguments.width))
            except BrokenPipeError:
                raise
            except OSError as error:
                raise FatalError(f"cannot read {path}: {error.strerror}") from error
    return 1 if damaged else 0


def _expand(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(entry for entry in path.iterdir() if entry.is_file())
            files += [entry for entry in inside if has_entries(entry)]
        else:
            files.append(path)
    if not files:
        raise FatalError(f"{paths[0]}: there is nothing in it that can be shown")
    return files


# --- Printing ---------------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    return str(value)


def _time(timestamp: int) -> str:
    if timestamp < 0:
        return "none"
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp % 1000:03d}Z"


def _as_text(entry: Entry, width: int) -> str:
    kind = entry["kind"]
    if kind == "error" and "crc" not in entry:
        return f"  ERROR at byte {entry['position']}: {entry['problem']}"
    if kind in ("batch", "error"):
        return _batch_text(entry)
    if kind == "record":
        return _record_text(entry, width)
    if kind == "line":
        return f"  {entry['text']}"
    if kind == "timeindex":
        return f"  {_time(entry['timestamp'])}  offset {entry['offset']}"
    return "  " + "  ".join(f"{name} {value}" for name, value in entry.items() if name != "kind")


def _batch_text(entry: Entry) -> str:
    words = [
        f"  batch {entry['base_offset']}..{entry['last_offset']}",
        f"{entry['count']} records",
        f"byte {entry['position']}+{entry['size']}",
        f"epoch {entry['leader_epoch']}",
        f"{entry['timestamp_type']} {_time(entry['max_timestamp'])}",
    ]
    if entry["compression"] != "none":
        words.append(entry["compression"])
    if entry["producer_id"] >= 0:
        words.append(f"producer {entry['producer_id']}/{entry['producer_epoch']}")
        if entry["base_sequence"] >= 0:
            words.append(f"sequence {entry['base_sequence']}..{entry['last_sequence']}")
    words += [name for name in ("transactional", "control") if entry[name]]
    if not entry["crc_ok"]:
        words.append("WRONG CHECKSUM")
    elif entry["kind"] == "error":
        words.append(f"ERROR: {entry['problem']}")
    return "  ".join(words)


def _record_text(entry: Entry, width: int) -> str:
    words = [f"    {entry['offset']}", _time(entry["timestamp"])]
    if "type" in entry:
        words.append(entry["type"])
    words += [f"{name} {_shorten(entry[name], width)}" for name in ("key", "value") if name in entry]
    if "headers" in entry:
        words.append("headers " + ", ".join(f"{name}={_shorten(text, width)}" for name, text in entry["headers"]))
    if "undecodable" in entry:
        words.append(f"({entry['undecodable']})")
    return "  ".join(words)


def _shorten(value: Any, width: int) -> str:
    if value is None:
        return "null"
    text = json.dumps(value, ensure_ascii=False, default=str) if not isinstance(value, str) else value
    if not text.isprintable():
        text = repr(text)[1:-1]
    if sys.stdout.encoding and sys.stdout.encoding.lower() not in ("utf-8", "utf8"):
        text = text.encode("ascii", "backslashreplace").decode()
    return text if len(text) <= width else f"{text[:width]}... ({len(text)} characters)"
