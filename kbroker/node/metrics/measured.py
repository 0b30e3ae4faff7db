"""A request that is measured: its times, from the beginning of its work until its response is in the socket."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.observe.metrics.requests import RequestMetrics


class Measured:
    """``start`` and ``stop`` it around its work, ``complete`` it when its response is there, then tell the write."""

    __slots__ = ("_began", "_completed", "_local", "_names", "_queue", "_requests", "_size", "_work_began")

    def __init__(self, requests: RequestMetrics, turn_began: int, size: int, names: tuple[str, ...] = ()) -> None:
        """``turn_began``: the event loop's; ``size``: bytes of the request; ``names``: as in `RequestMetrics.times`."""
        self._requests = requests
        self._began = self._work_began = self._completed = perf_counter_ns()
        self._queue = max(0, self._began - turn_began)
        self._size = size
        self._names = names
        self._local = 0

    def name(self, names: tuple[str, ...]) -> None:
        """Its names, if they come out only when it is decoded."""
        self._names = names

    def start(self) -> None:
        """Work begins, or goes on."""
        self._work_began = perf_counter_ns()

    def stop(self) -> None:
        """Others work from now on."""
        if self._work_began:
            self._local += perf_counter_ns() - self._work_began
            self._work_began = 0

    def complete(self) -> None:
        """Its response is there."""
        self.stop()
        self._completed = perf_counter_ns()

    def written(self, began: int, ended: int) -> None:
        """Its response was offered to the socket first at one time, and was in it at the other."""
        completed = self._completed
        began = max(began, completed)
        remote = max(0, completed - self._began - self._local)
        for name in self._names:
            times = self._requests.times[name]
            times.size.observe(self._size)
            times.observe(self._queue, self._local, remote, began - completed, max(0, ended - began))
