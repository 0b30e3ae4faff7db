"""The poller of simulated nodes: it calls back for connections that have become readable, and at deadlines."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Protocol

import trio

from kbroker.runtime.round import Round
from kbroker.runtime.timing import Deadline, Deadlines
from kbroker.sim.clock import sim_clock


class Polled(Protocol):
    """One end of a simulated connection (``sim.tcp.SimStream``)."""

    closed: bool
    poller: SimPoller | None
    """The one that it is registered with, which it tells by ``mark`` that it has become readable."""

    @property
    def is_readable(self) -> bool: ...


class SimPoller:
    """The interface of :class:`kbroker.runtime.env.Poller`, level-triggered."""

    CROWD = 2
    """A simulated cluster has few clients."""

    def __init__(self) -> None:
        self.round = Round()
        self._callbacks: dict[Polled, Callable[[], None]] = {}
        self._ready: dict[Polled, None] = {}
        self._task: trio.lowlevel.Task | None = None
        self._clock = sim_clock()
        self._deadlines = Deadlines()
        self._rings_at = inf

    def register(self, stream: Polled, callback: Callable[[], None], *, is_new: bool = False) -> None:
        if stream.closed:
            raise trio.ClosedResourceError
        self._callbacks[stream] = callback
        stream.poller = self
        if stream.is_readable:
            self.mark(stream)

    def unregister(self, stream: Polled) -> None:
        self._callbacks.pop(stream, None)
        self._ready.pop(stream, None)
        stream.poller = None

    def mark(self, stream: Polled) -> None:
        """Note that a stream has become readable."""
        self._ready[stream] = None
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def call_at(self, when: float, callback: Callable[[], None]) -> Deadline:
        deadline = self._deadlines.add(when, callback)
        self._set_alarm(when)
        return deadline

    def call_off(self, deadline: Deadline) -> None:
        self._deadlines.discard(deadline)

    def _set_alarm(self, when: float) -> None:
        if when < self._rings_at:
            self._rings_at = when
            self._clock.call_at(when, self._ring, when)

    def _ring(self, when: float) -> None:
        if when == self._rings_at:
            self._rings_at = inf
            self._deadlines.expire(self._clock.time)
            self._set_alarm(self._deadlines.next())

    async def run(self) -> None:
        while True:
            if self._ready:
                await trio.lowlevel.checkpoint()
            else:
                self._task = trio.lowlevel.current_task()

                def abort(_: Any) -> trio.lowlevel.Abort:
                    self._task = None
                    return trio.lowlevel.Abort.SUCCEEDED

                await trio.lowlevel.wait_task_rescheduled(abort)
            self.serve_readable()

    def serve_readable(self) -> None:
        self.round.is_crowded = len(self._ready) >= self.CROWD
        self.round.turns.taken += len(self._ready)
        for stream in list(self._ready):
            callback = self._callbacks.get(stream)
            if callback is not None and stream.is_readable:
                callback()
            if stream not in self._callbacks or not stream.is_readable:
                self._ready.pop(stream, None)
        self.round.end()
