"""``kbroker decode``: one protocol frame, or saved exchanges, as trees of fields with byte offsets."""

from __future__ import annotations

import argparse
import re
import sys
from json import dumps
from pathlib import Path

from kbroker.errors import FatalError
from kbroker.observe.explorer.lines import is_saved, read_items
from kbroker.tools.cli.output import print_json, write
from kbroker.tools.cli.parser import UsageError
from kbroker.wire.errors import WireError


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``decode``."""
    parser.add_argument(
        "frame",
        nargs="?",
        default="-",
        metavar="HEX|FILE|-",
        help="hexadecimal digits (spaces and colons allowed), a file of them, of bytes or of kbroker watch --save, -",
    )
    parser.add_argument(
        "--response",
        metavar="API:VERSION",
        help="the frame is a response; which API (name or key) and version only the request could tell",
    )
    parser.add_argument("--json", action="store_true", help="a JSON object: of saved exchanges one a line")


def run(arguments: argparse.Namespace) -> int:
    """Print the tree; of a damaged frame what can be read, and 1."""
    from kbroker.wire.layout_text import render_frame
    from kbroker.wire.layouts import DamagedFrame

    data = read_frame(arguments.frame)
    if is_saved(data):
        return print_saved(data, json=arguments.json)
    response_to = parse_api(arguments.response) if arguments.response else None
    if arguments.json:
        return _print_json(data, response_to)
    try:
        print(render_frame(data, response_to=response_to))
    except DamagedFrame as damage:
        print(damage.tree)
        raise FatalError(f"the frame is damaged: {damage}") from damage
    except WireError as error:
        raise FatalError(f"this is not a frame that can be decoded: {error}") from error
    return 0


def _print_json(data: bytes, response_to: tuple[int, int] | None) -> int:
    """Print the fields of a frame with their places; of a damaged one with the problem, and 1."""
    from kbroker.observe.explorer.explained import fields_of
    from kbroker.wire.layouts import DamagedFrame, parse_frame

    problem: str | None = None
    try:
        nodes = parse_frame(data, response_to=response_to)
    except DamagedFrame as damage:
        nodes, problem = damage.nodes, str(damage)
    except WireError as error:
        raise FatalError(f"this is not a frame that can be decoded: {error}") from error
    print_json({"size": len(data), "problem": problem, "fields": fields_of(nodes, data)})
    return 0 if problem is None else 1


def print_saved(data: bytes, *, json: bool = False) -> int:
    """Print all that is known of exchanges that ``kbroker watch --save`` has written."""
    from kbroker.observe.explorer.explained import Filter, documents_of
    from kbroker.observe.explorer.text import text_of

    try:
        items = read_items(data.splitlines())
        for document in documents_of(items) if json else ():
            write(dumps(document).encode() + b"\n")
        for line in () if json else text_of(items, Filter(internal=True), verbose=True):
            print(line)
    except WireError as error:
        raise FatalError(str(error)) from error
    return 0


def parse_api(text: str) -> tuple[int, int]:
    """``Fetch:17`` or ``1:17`` as (API key, version)."""
    from kbroker.wire.registry import API_KEYS

    name, colon, version = text.rpartition(":")
    if not colon or not version.isascii() or not version.isdigit():
        raise UsageError(f"--response {text}: expected API:VERSION, for example Fetch:17")
    for key, api in API_KEYS.items():
        if name.lower() in (str(key), api.name.lower()):
            return key, int(version)
    raise UsageError(f"--response {text}: there is no API {name}")


def read_frame(source: str) -> bytes:
    """The bytes that an argument stands for; a file or standard input may hold bytes or hexadecimal digits."""
    if source == "-":
        return from_hex_or_raw(sys.stdin.buffer.read())
    digits = clean_hex(source)
    if digits is not None and not Path(source).is_file():
        return bytes.fromhex(digits)
    try:
        return from_hex_or_raw(Path(source).read_bytes())
    except (OSError, ValueError) as error:
        raise FatalError(f"{source[:80]} is neither hexadecimal digits nor a file that can be read") from error


def from_hex_or_raw(data: bytes) -> bytes:
    """Hexadecimal text as the bytes it stands for; anything else as it is."""
    try:
        digits = clean_hex(data.decode("ascii"))
    except UnicodeDecodeError:
        return data
    return data if digits is None else bytes.fromhex(digits)


def clean_hex(text: str) -> str | None:
    """``text`` without spaces, colons and ``0x``; None if what is left is not an even number of digits."""
    digits = re.sub(r"\s|:|\b0x", "", text)
    return digits if digits and len(digits) % 2 == 0 and re.fullmatch(r"[0-9a-fA-F]+", digits) else None
