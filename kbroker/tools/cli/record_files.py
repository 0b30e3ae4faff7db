"""The formats of ``export`` and ``import``: which one a file has."""

from __future__ import annotations

import argparse
import os
from typing import Final

from kbroker.tools.cli.parser import UsageError

FORMATS: Final = ("csv", "jsonl", "parquet")
_BY_SUFFIX: Final = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}

FORMAT_DETAILS: Final = """\
csv: the columns partition, offset, timestamp (ms), key, value, headers (JSON), key_encoding and value_encoding, which
are text, base64 (what is not UTF-8), null, or apostrophe (text after one, where a spreadsheet would see a formula).
jsonl: what `kbroker consume --json` writes. parquet: the columns of `kbroker.read_topic`, keys and values as bytes;
needs pyarrow (pip install 'kbroker[arrow]'; who has PySpark with pandas has it)."""


def add_format_argument(parser: argparse.ArgumentParser) -> None:
    """``--format``."""
    parser.add_argument("--format", choices=FORMATS, help="of the file (default: by its name)")


def format_of(name: str, given: str | None) -> str:
    """The format of a file; ``UsageError`` if neither option nor name tells it, or standard streams cannot have it."""
    found = given or _BY_SUFFIX.get(os.path.splitext(name)[1].lower())
    if found is None:
        raise UsageError(f"{name} does not tell the format: give --format {'|'.join(FORMATS)}")
    if name == "-" and found == "parquet":
        raise UsageError("Parquet needs a file")
    return found
