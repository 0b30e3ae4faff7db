"""Followers of ``kbroker table``: one in this thread, or many, each in a thread, tried again after errors."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.base.collector import paused
from kbroker.errors import FatalError
from kbroker.tools.cli.common import complain, readable_errors

if TYPE_CHECKING:
    from kbroker.client import Client
    from kbroker.tables.follower import Follower, Settings
    from kbroker.tables.sources import Quota, Source
    from kbroker.tables.status import Status
    from kbroker.tables.target import Target

CLIENT_ID: Final = "kbroker-tables"
AGAIN_SECONDS: Final = 5.0
LONGEST_SECONDS: Final = 300.0
"""Between two tries of a table of many, doubled with each error."""
_LOOK_SECONDS: Final = 0.5
_M_ARENA_MAX: Final = -8
"""Of glibc's ``mallopt``."""


class Order(NamedTuple):
    """A table to be followed. ``make_target`` may raise ``FatalError``, where something is missing."""

    topic: str
    place: str
    settings: Settings
    make_target: Callable[[], Target]


class Way(NamedTuple):
    """The way in which tables are followed."""

    once: bool = False
    quiet: bool = False
    quota: Quota | None = None
    beat: Callable[[Status], None] = lambda status: None


class _WithoutPandas(MetaPathFinder):
    """``pyarrow`` imports pandas, if it is there, to know its values: 45 MB for a follower, which has none of them."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Leave all others to the other finders."""
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


@contextmanager
def sparing() -> Iterator[None]:
    """A block that imports what followers need, for less time and memory if it is the first to import ``pyarrow``."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # its own keeps what is freed
    with suppress(AttributeError, OSError):  # no glibc: each thread's arena would keep what is freed, too
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        with paused():  # what is imported stays
            yield
    finally:
        sys.meta_path.remove(finder)


@contextmanager
def stopping(*, until_eof: bool = False) -> Iterator[threading.Event]:
    """An event that is set by SIGTERM, Ctrl-C, perhaps the end of standard input: what is read is committed then."""
    stop = threading.Event()
    before = {each: signal.signal(each, lambda *_: stop.set()) for each in (signal.SIGTERM, signal.SIGINT)}

    def read() -> None:
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        stop.set()

    if until_eof:
        threading.Thread(target=read, daemon=True).start()
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _say_nothing(line: str) -> None:
    pass


def keep(
    open_source: Callable[[], Source],
    target: Target,
    settings: Settings,
    tell: Callable[[str], None],
    stop: threading.Event,
    way: Way,
    status: Status | None = None,
) -> Follower:
    """Follow until ``stop``, also while the cluster, a registry or a store is away; once to the end that there is."""
    from kbroker.client import ConnectionFailed, RequestTimedOut
    from kbroker.client.schemas.wire_format import RegistryAway
    from kbroker.tables.follower import Follower
    from kbroker.tables.plan import NotYet
    from kbroker.tables.status import Status, write_status
    from kbroker.tables.target import StoreAway

    show = _say_nothing if way.once or way.quiet else tell
    status = Status() if status is None else status
    follower = Follower(open_source(), target, settings, tell, show=show, status=status, beat=way.beat)
    while True:
        try:
            follower.run(once=way.once, stop=stop.is_set)
            return follower
        except (ConnectionFailed, RequestTimedOut, RegistryAway, NotYet, StoreAway) as error:
            if way.once:
                raise
            if stop.is_set():  # the cluster may end with this process
                return follower
            tell(f"{error}; trying again")
            status.failed(str(error))
            write_status(target, status)
            way.beat(status)
            if stop.wait(AGAIN_SECONDS):
                return follower


def keep_many(
    orders: Sequence[Order], client: Client, stop: threading.Event, way: Way
) -> tuple[dict[str, int], list[str]]:
    """Follow each in a thread of its own: rows by place, and the places that failed.

    What one cannot go on with is told, and the others go on. Unless it is for once, that one is tried again: the topic
    may come, the disk get room, a person mend the table.
    """
    rows: dict[str, int] = {}
    failed: list[str] = []
    threads = [
        threading.Thread(target=_keep_one, args=(order, client.another(), stop, way, rows, failed)) for order in orders
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(_LOOK_SECONDS)  # a signal's handler runs between two of them
    return rows, failed


def _keep_one(
    order: Order, client: Client, stop: threading.Event, way: Way, rows: dict[str, int], failed: list[str]
) -> None:
    from kbroker.tables.sources import ClusterSource
    from kbroker.tables.status import Status
    from kbroker.tables.tables_file import in_file

    def tell(line: str) -> None:
        complain(in_file(line if order.place in line else f"{order.place}: {line}"))

    def open_source() -> Source:
        return ClusterSource(client, order.topic, way.quota)

    status = Status(order.topic, order.place)
    last, pause = "", AGAIN_SECONDS
    while True:
        began, target = time.monotonic(), None
        try:
            with readable_errors(), client:
                target = order.make_target()
                follower = keep(open_source, target, order.settings, tell, stop, way, status)
            rows[order.place] = follower.progress.rows
            return
        except Exception as error:  # a library's, too: the others go on
            told = str(error) if isinstance(error, FatalError) else f"{type(error).__name__}, of which more is above"
            if told != last:
                if not isinstance(error, FatalError):
                    traceback.print_exc()
                tell(told)
            last = told
        if way.once:
            failed.append(order.place)
            return
        status.failed(in_file(last))
        way.beat(status)
        if target is not None:
            write_late(target, status)
        pause = AGAIN_SECONDS if time.monotonic() - began > LONGEST_SECONDS else pause
        if stop.wait(pause):
            return
        pause = min(2 * pause, LONGEST_SECONDS)


def write_late(target: Target, status: Status) -> None:
    """Write the state of a follower that may have failed before it has loaded its table, if there is one."""
    from kbroker.tables.status import write_status

    with suppress(FatalError):
        if target.topic() is not None:
            target.load(())
            write_status(target, status)
