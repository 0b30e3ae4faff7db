"""``kbroker top``: nodes, rates, lags, partitions in trouble, open transactions, slow requests; live in a terminal."""

from __future__ import annotations

import argparse
import os
import queue
import threading
import time
from dataclasses import replace
from time import sleep
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kbroker.errors import FatalError
from kbroker.tools.cli.common import add_cluster_arguments, checked, cluster, complain, positive
from kbroker.tools.cli.output import print_json, print_table, printable
from kbroker.tools.cli.parser import UsageError, add_repeated
from kbroker.tools.cli.progress import progress

if TYPE_CHECKING:
    from kbroker.client import Client
    from kbroker.tools.top.history import ClusterHistory
    from kbroker.tools.top.keys import Ui
    from kbroker.tools.top.looking import Observer
    from kbroker.tools.top.tables import Views
    from kbroker.tools.top.terminal import Terminal

_VIEWS: Final = ("overview", "nodes", "topics", "groups", "partitions", "transactions", "requests")

DETAILS = """\
Keys: 1 to 7 and Tab choose a view, s and r the order, / filters, space pauses, ? shows all keys, q quits.
Bytes, records and lags are found by the protocol, on any Kafka cluster. Bytes to consumers, and how long
requests take in which stage, are on the pages of metrics of kbroker's nodes:

  kbroker top -b localhost:9092 --metrics http://localhost:9404/metrics

Where standard output is no terminal, or with --once, it looks twice, prints what it has seen, and ends."""


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``top``."""
    add_repeated(
        parser,
        "--metrics",
        metavar="URL",
        type=checked(metrics_url, "an address such as http://localhost:9404/metrics"),
        help="page of metrics of a node",
    )
    parser.add_argument("--view", choices=_VIEWS, help="begin with this view; with --once, show it alone")
    parser.add_argument("--filter", default="", metavar="WORDS", help="only rows whose names have these words in them")
    parser.add_argument(
        "--interval",
        type=checked(_interval, "a number of seconds from 1 to 3600"),
        default=2.0,
        metavar="SECONDS",
        help="from look to look (default 2)",
    )
    parser.add_argument("--once", action="store_true", help="print once, and end")
    parser.add_argument("--rows", type=positive, default=20, metavar="N", help="rows of each view with --once (20)")
    add_cluster_arguments(parser)
    parser.set_defaults(timeout=10.0)


def metrics_url(text: str) -> str:
    """The address of a page: ``HOST:PORT`` is enough. ``ValueError``."""
    parts = urlsplit(text if "://" in text else f"http://{text}")
    if parts.scheme not in ("http", "https") or not parts.hostname or (parts.port is None and "://" not in text):
        raise ValueError(text)
    return parts._replace(path=parts.path if parts.path not in ("", "/") else "/metrics").geturl()


def _interval(text: str) -> float:
    value = float(text)
    if not 1 <= value <= 3600:
        raise ValueError(text)
    return value


def run(arguments: argparse.Namespace) -> int:
    """Show until ``q``, or once."""
    from kbroker.tools.top.looking import PATIENCE, Observer
    from kbroker.tools.top.terminal import is_usable

    is_once = arguments.once or not is_usable()
    if arguments.json and not is_once:
        raise UsageError("--json goes with --once")
    with cluster(arguments) as client:
        waits = arguments.timeout if is_once else PATIENCE
        observer = Observer(client, arguments.metrics, once=is_once, patience=waits)
        if is_once:
            return _once(observer, arguments)
        return _Live(client, observer, arguments).run()


# --- Once -----------------------------------------------------------------------------------------------------------


def _once(observer: Observer, arguments: argparse.Namespace) -> int:
    """Two looks, so that there are rates."""
    from kbroker.tools.top.document import document
    from kbroker.tools.top.history import first

    with progress("looking twice"):
        history = first(observer.look())
        sleep(arguments.interval)
        history = history.after(observer.look(history.wanted_times()))
    if arguments.json:
        print_json(document(history))
        return 0
    _print(history, arguments)
    for problem in history.snapshot.problems:
        complain(problem)
    return 0


def _print(history: ClusterHistory, arguments: argparse.Namespace) -> None:
    from kbroker.tools.diagnosis.cluster import findings
    from kbroker.tools.top.keys import Ui
    from kbroker.tools.top.screen import chosen
    from kbroker.tools.top.tables import VIEWS, totals

    if arguments.view in (None, "overview"):
        print(f"cluster {printable(history.snapshot.cluster.cluster_id or '?')}")
        print(", ".join(f"{name}: {value}" for name, value, _ in totals(history)))
        for trouble in findings(history.snapshot.cluster):
            print(printable(f"{trouble.text} {trouble.advice}"))
    for index, (name, make) in enumerate(VIEWS):
        if make is None or arguments.view not in (None, "overview", name):
            continue
        table = make(history)
        rows = chosen(table, Ui(view=index, filter=arguments.filter))
        print(f"\n{name}" if arguments.view != name else name)
        if not rows:
            print("nothing fits the filter" if table.rows else table.empty)
            continue
        print_table(
            [column.title for column in table.columns],
            [[cell.text for cell in row] for row in rows[: arguments.rows]],
            numbers=[column.title for column in table.columns if column.is_number],
        )
        if len(rows) > arguments.rows:
            print(f"{arguments.rows} of {len(rows)} {name} are shown: --rows N shows more")
        if table.note:
            print(table.note)


# --- Live -----------------------------------------------------------------------------------------------------------


class _Live:
    """Looks in one thread, and shows and takes keys in this one: a broker that is slow never holds up a key."""

    def __init__(self, client: Client, observer: Observer, arguments: argparse.Namespace) -> None:
        from kbroker.tools.top.keys import Ui

        self._client = client
        self._observer = observer
        self._ui: Ui = Ui(
            view=_VIEWS.index(arguments.view or "overview"), filter=arguments.filter, interval=arguments.interval
        )
        self._views: Views | None = None
        self._problem = ""
        self._results: queue.SimpleQueue[Views | Exception] = queue.SimpleQueue()
        self._is_asking = False
        self._next_look = 0.0
        self._asked_at = 0.0

    def run(self) -> int:
        """Until ``q``."""
        from kbroker.tools.top.terminal import Terminal

        colours = not os.environ.get("NO_COLOR")
        with Terminal(colours=colours) as terminal:
            while not self._ui.is_over:
                self._take_results()
                self._ask(terminal)
                self._show_and_wait(terminal)
        if self._views is None and self._problem:
            raise FatalError(self._problem)
        return 0

    def _ask(self, terminal: Terminal) -> None:
        """Look in a thread, if it is time and nobody looks."""
        from kbroker.tools.top.history import first
        from kbroker.tools.top.tables import Views

        if self._is_asking or self._ui.is_paused or time.monotonic() < self._next_look:
            return
        before, view = self._views, self._ui.view
        self._is_asking, self._asked_at = True, time.monotonic()

        def look() -> None:
            try:
                wanted = () if before is None else before.history.wanted_times()
                found = self._observer.look(wanted)
                made = Views(first(found) if before is None else before.history.after(found))
                made.prepare(view)
                self._results.put(made)
            except Exception as error:
                self._results.put(error)
            terminal.wake()

        threading.Thread(target=look, daemon=True).start()

    def _take_results(self) -> None:
        from kbroker.client import ClientError

        while not self._results.empty():
            found = self._results.get()
            self._is_asking = False
            now = time.monotonic()
            # It must not ask all the time, however slow the cluster is.
            self._next_look = max(self._asked_at + self._ui.interval, now + (now - self._asked_at))
            if isinstance(found, ClientError):
                self._problem = str(found)
            elif isinstance(found, Exception):
                raise found
            else:
                self._problem = ""
                self._views = found

    def _show_and_wait(self, terminal: Terminal) -> None:
        from kbroker.tools.top.keys import press
        from kbroker.tools.top.screen import draw

        width, height = terminal.size
        shown = draw(self._views, self._ui, width, height, self._problem)
        terminal.show(shown.lines)
        self._ui = replace(self._ui, scroll=shown.scroll)
        due = 3600.0 if self._is_asking or self._ui.is_paused else self._next_look - time.monotonic()
        for key in terminal.wait(due):
            if key in ("resize", "redraw"):
                terminal.redraw()
            else:
                before = self._ui.interval
                self._ui = press(self._ui, key, shown.columns, shown.default_sort, shown.page)
                if self._ui.interval != before:
                    self._next_look = self._asked_at + self._ui.interval
