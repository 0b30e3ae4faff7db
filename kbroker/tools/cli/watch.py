"""``kbroker watch``: requests and answers of nodes as they happen, explained; or those that were saved."""

from __future__ import annotations

import argparse
import json
import os
import queue
import select
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import IO, Final

from kbroker.client.cluster import parse_bootstrap
from kbroker.client.explorer import ExplorerClient
from kbroker.errors import FatalError
from kbroker.observe.explorer.exchange import CLIENT, Closed, ConnectionInfo, Exchange, Names, Skipped, StreamStart
from kbroker.observe.explorer.explained import ExplainedExchange, Filter, Story, document_of
from kbroker.observe.explorer.lines import Item, line_of, read_items
from kbroker.observe.explorer.text import details, heading, line, skipped_line
from kbroker.tools.cli.common import complain, positive, readable_errors
from kbroker.tools.cli.output import print_json, print_table, write
from kbroker.tools.cli.parser import UsageError
from kbroker.wire.errors import WireError
from kbroker.wire.registry import API_KEYS

DEFAULT_EXPLORER: Final = "127.0.0.1:9292"
EXPLORER_VARIABLE: Final = "KBROKER_EXPLORER"

DETAILS = """\
A node is watched that was started with --explorer. In a terminal the space bar pauses, and q ends.
kbroker console --explorer HOST:PORT shows the same as a page in the browser (extra `console`).
"""

QUEUED_BYTES: Final = 32 << 20
"""Bytes of exchanges that wait to be shown, as in a pause. Newer ones are counted and not shown."""

EXCHANGE_BYTES: Final = 1000
"""The bytes that an exchange takes beside its frames."""

TOO_MANY: Final = "too many wait to be shown"

KEY_SECONDS: Final = 0.1


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``watch``."""
    parser.add_argument(
        "-b",
        "--explorer",
        metavar="HOST:PORT",
        help=f"explorers of nodes, separated by commas (default: ${EXPLORER_VARIABLE}, or {DEFAULT_EXPLORER})",
    )
    parser.add_argument("--read", type=Path, metavar="FILE", help="show what --save has written, and no node")
    parser.add_argument("--save", type=Path, metavar="FILE", help="also write what is shown, for --read and decode")
    parser.add_argument("--connections", action="store_true", help="list who is connected now, and end")
    parser.add_argument("--client", metavar="PART", help="only client ids that contain this")
    parser.add_argument("--api", metavar="NAME,...", help="only these APIs")
    parser.add_argument("--topic", metavar="NAME", help="only requests that name this topic")
    parser.add_argument("--group", metavar="NAME", help="only requests that name this group")
    parser.add_argument("--transaction", metavar="ID", help="only requests that name this transactional id")
    parser.add_argument("--errors", action="store_true", help="only answers with an error, and what got no answer")
    parser.add_argument(
        "--internal",
        action="store_true",
        help="also what brokers and controllers ask one another, and their connections",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="all fields beside their bytes, and explanations")
    parser.add_argument("--json", action="store_true", help="a JSON document a line; with --verbose also the fields")
    parser.add_argument("--count", type=positive, metavar="N", help="end after so many")


def run(arguments: argparse.Namespace) -> int:
    """Show until it is ended, or the nodes do."""
    shown = _filter(arguments)
    if arguments.read is not None:
        if arguments.explorer or arguments.connections:
            raise UsageError("--read shows a file: it goes with neither --explorer nor --connections")
        with readable_errors(), ExitStack() as files:
            lines = files.enter_context(_saved(arguments.read))
            save = None if arguments.save is None else files.enter_context(_made(arguments.save))
            try:
                _Display(arguments, shown, save).show_all(read_items(lines))
            except WireError as error:
                raise FatalError(f"{arguments.read}: {error}") from None
        return 0
    with readable_errors(), ExitStack() as stack:
        nodes = [ExplorerClient(*address) for address in _addresses(arguments.explorer)]
        for node in nodes:
            stack.callback(node.close)
        if arguments.connections:
            _list_connections(nodes, json=arguments.json, with_nodes=arguments.internal)
            return 0
        apis = sorted(shown.apis)
        for node in nodes:
            node.open(apis=apis, client=shown.client or "", controllers=shown.internal)
        save = None if arguments.save is None else stack.enter_context(_made(arguments.save))
        _Live(nodes, _Display(arguments, shown, save)).run()
    return 0


def _filter(arguments: argparse.Namespace) -> Filter:
    apis = frozenset(name.strip().lower() for name in (arguments.api or "").split(",") if name.strip())
    known = {api.name.lower() for api in API_KEYS.values()}
    for name in sorted(apis - known):
        raise UsageError(f"--api: there is no API {name}")
    return Filter(
        client=arguments.client,
        apis=apis,
        topic=arguments.topic,
        group=arguments.group,
        transaction=arguments.transaction,
        internal=arguments.internal,
        errors=arguments.errors,
    )


def _addresses(text: str | None) -> list[tuple[str, int]]:
    try:
        return [*parse_bootstrap(text or os.environ.get(EXPLORER_VARIABLE) or DEFAULT_EXPLORER)]
    except ValueError as error:
        raise UsageError(f"--explorer: {error}") from None


def _saved(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise FatalError(f"cannot read {path}: {error.strerror}") from None


def _made(path: Path) -> IO[str]:
    try:
        return path.open("w", encoding="ascii")
    except OSError as error:
        raise FatalError(f"cannot write {path}: {error.strerror}") from None


def _list_connections(nodes: Sequence[ExplorerClient], *, json: bool, with_nodes: bool) -> None:
    all_of_them = [(node, each) for node in nodes for each in node.connections()]
    found = [
        (
            node.address,
            each.connection.number,
            each.client_id,
            *each.connection[1:3],
            *each.connection[4:6],
            *each[2:8],
            each.kind,
        )
        for node, each in all_of_them
        if with_nodes or each.kind == CLIENT
    ]
    left_out = len(all_of_them) - len(found)
    if left_out:
        complain(f"{left_out} connections of brokers and controllers are left out: --internal lists them, too")
    names = ("explorer", "connection", "client_id", "from", "listener", "principal", "software", "sasl", "tls")
    if json:
        more = ("since_ms", "requests", "bytes_received", "run", "kind")
        print_json([dict(zip(names + more, row, strict=True)) for row in found])
        return
    heads = ["CLIENT" if name == "client_id" else name.upper() for name in names]
    numbers = ["REQUESTS", "BYTES"]
    rows = [(*(cell or "-" for cell in row[:9]), _moment(row[9]), *row[10:12], row[13]) for row in found]
    print_table([*heads, "SINCE", *numbers, "KIND"], rows, numbers=["CONNECTION", *numbers])


def _moment(at_ms: float) -> str:
    return "-" if at_ms < 0 else datetime.fromtimestamp(at_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")


class _Display:
    """Shows items as they come, and saves what it shows."""

    def __init__(self, arguments: argparse.Namespace, shown: Filter, save: IO[str] | None = None) -> None:
        self._verbose: bool = arguments.verbose
        self._json: bool = arguments.json
        self._left: int | None = arguments.count
        self._shown = shown
        self._save = save
        self._story = Story()
        self._saved_names: dict[str, str] = {}

    def begin(self) -> None:
        """Write what comes above the lines."""
        if not self._json and not self._verbose:
            _print(heading())

    @property
    def is_done(self) -> bool:
        """Whether as many were shown as were asked for."""
        return self._left == 0

    def show_all(self, items: Iterator[Item]) -> None:
        """Show the items of a file."""
        self.begin()
        for item in items:
            self.show(item)
            if self.is_done:
                break

    def show(self, item: Item, node: ExplorerClient | None = None) -> None:
        """Show one item, if it is to be shown; ``node`` knows names of topics."""
        told = self._story.add(item, None if node is None else node.known_names)
        if told is not None:
            if not self._shown.shows(told) or self.is_done:
                return
            self._print(told)
            if self._left is not None:
                self._left -= 1
        elif isinstance(item, Skipped):
            if self._json:
                counts = {API_KEYS[key].name if key in API_KEYS else str(key): n for key, n in item.counts.items()}
                _print(json.dumps({"skipped": counts, "why": item.why}))
            else:
                _print(skipped_line(item))
        self._write(item)

    def _print(self, told: ExplainedExchange) -> None:
        if self._json:
            _print(json.dumps(document_of(told, trees=self._verbose)))
        elif self._verbose:
            _print("\n".join(details(told)) + "\n")
        else:
            _print(line(told))

    def _write(self, item: Item) -> None:
        if self._save is None or not isinstance(item, Exchange | ConnectionInfo | Closed | Skipped | StreamStart):
            return
        names = {key: name for key, name in self._story.names.known.items() if key not in self._saved_names}
        try:
            if names and isinstance(item, Exchange):
                self._saved_names |= names
                self._save.write(line_of(Names(names)))
            self._save.write(line_of(item))
            self._save.flush()
        except OSError as error:
            raise FatalError(f"cannot write {self._save.name}: {error.strerror}") from None


class _Live:
    """Takes what nodes say, each in a thread of its own, and shows it in this one."""

    def __init__(self, nodes: Sequence[ExplorerClient], display: _Display, queued_bytes: int = QUEUED_BYTES) -> None:
        self._queued_bytes = queued_bytes
        self._display = display
        self._nodes = nodes
        self._queue: queue.SimpleQueue[tuple[ExplorerClient, Item | None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._bytes = 0
        self._open = len(nodes)

    def run(self) -> None:
        """Show until all nodes have ended, or somebody ends it."""
        for node in self._nodes:
            threading.Thread(target=self._read, args=(node,), daemon=True).start()
        with _Keys() as keys:
            self._display.begin()
            is_paused = False
            while self._open and not self._display.is_done:
                key = keys.pressed()
                if key == "q":
                    return
                if key == " ":
                    is_paused = not is_paused
                    complain("paused: the space bar goes on" if is_paused else "goes on")
                if is_paused:
                    time.sleep(KEY_SECONDS)
                    continue
                self._show_next()
        if not self._display.is_done:
            complain("the explorer has ended")

    def _show_next(self) -> None:
        try:
            node, item = self._queue.get(timeout=KEY_SECONDS)
        except queue.Empty:
            return
        if item is None:
            self._open -= 1
        else:
            with self._lock:
                self._bytes -= _size(item)
            self._display.show(item, node)

    def _read(self, node: ExplorerClient) -> None:
        lost: Counter[int] = Counter()
        try:
            for item in node.items():
                if item is None:
                    continue
                with self._lock:
                    has_room = self._bytes + _size(item) <= self._queued_bytes or not isinstance(item, Exchange)
                    self._bytes += _size(item) if has_room else 0
                if isinstance(item, Exchange) and not has_room:
                    lost[item.api_key] += 1
                    continue
                if lost and isinstance(item, Exchange):
                    self._queue.put((node, Skipped(dict(lost), TOO_MANY)))
                    lost.clear()
                self._queue.put((node, item))
        except Exception as error:
            complain(f"{node.address}: {error}")
        finally:
            if lost:
                self._queue.put((node, Skipped(dict(lost), TOO_MANY)))
            self._queue.put((node, None))


class _Keys:
    """Keys that are pressed in a terminal, without waiting for a line; none where there is no terminal."""

    def __init__(self) -> None:
        self._restore: Callable[[], None] | None = None

    def __enter__(self) -> _Keys:
        if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
            import termios
            import tty

            before = termios.tcgetattr(0)
            tty.setcbreak(0, termios.TCSANOW)
            self._restore = lambda: termios.tcsetattr(0, termios.TCSADRAIN, before)
        return self

    def pressed(self) -> str:
        """A key that was pressed since the last call; empty if there was none."""
        if self._restore is None:
            return ""

        ready, _, _ = select.select([0], [], [], 0)
        return os.read(0, 1).decode("ascii", "replace") if ready else ""

    def __exit__(self, *_: object) -> None:
        if self._restore is not None:
            self._restore()


def _size(item: Item) -> int:
    """Bytes that count against ``QUEUED_BYTES``."""
    if not isinstance(item, Exchange):
        return 0
    return EXCHANGE_BYTES + item.request.kept + (0 if item.response is None else item.response.kept)


def _print(text: str) -> None:
    write(f"{text}\n".encode("utf-8", "backslashreplace"))
