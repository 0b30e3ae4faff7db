"""The poller of a node on Linux: it serves the streams that are readable, and puts off those that come or go."""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

import trio

from kbroker.runtime.budgets import DEFAULTS
from kbroker.runtime.round import Round
from kbroker.runtime.timing import Alarm, Deadline, Deadlines

if TYPE_CHECKING:
    from _typeshed import HasFileno

_READABLE: int = getattr(select, "EPOLLIN", 0) | getattr(select, "EPOLLRDHUP", 0)


class EpollPoller:
    """Linux's epoll, level-triggered, with its descriptor inside Trio's own.

    The first request of a new stream, and the end of any, are put off: each takes as long as some small requests.
    They are served one by one, and between two of them those that are under way.
    """

    BATCH = 256
    """The most streams of one round."""
    PUT_OFF = 16
    """The most ends that are put off in one round, so that the round stays short."""
    STEPS = 4
    """The most streams that were put off and are served before the event loop goes on."""

    def __init__(self, crowd: int = DEFAULTS.crowd) -> None:
        self.round = Round()
        self._crowd = crowd
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._new: set[int] = set()
        """Streams of which nothing has been read. The system tells of each but once."""
        self._ended: set[int] = set()
        """Streams whose end is put off. The system tells nothing of them."""
        self._put_off: deque[int] = deque()
        """In the order in which they are served."""
        self._some = trio.Event()
        """Whether any are put off."""
        self._deadlines = Deadlines()
        self._alarm = Alarm()
        self._sleeps_until = inf

    def register(self, stream: HasFileno, callback: Callable[[], None], *, is_new: bool = False) -> None:
        fileno = stream.fileno()
        if self._epoll.closed or fileno < 0:
            raise trio.ClosedResourceError
        self._epoll.register(fileno, _READABLE | select.EPOLLONESHOT if is_new else _READABLE)
        self._callbacks[fileno] = callback
        if is_new:
            self._new.add(fileno)

    def unregister(self, stream: HasFileno) -> None:
        fileno = stream.fileno()
        if self._callbacks.pop(fileno, None) is not None and not self._epoll.closed:
            self._new.discard(fileno)
            if fileno in self._ended:
                self._ended.remove(fileno)
            else:
                self._epoll.unregister(fileno)

    def call_at(self, when: float, callback: Callable[[], None]) -> Deadline:
        deadline = self._deadlines.add(when, callback)
        if when < self._sleeps_until:
            self._alarm.ring()
        return deadline

    def call_off(self, deadline: Deadline) -> None:
        self._deadlines.discard(deadline)

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_time)
                nursery.start_soon(self._serve_put_off)
                own = self._epoll.fileno()
                while True:
                    await trio.lowlevel.wait_readable(own)
                    self.serve_readable()
        finally:
            self._epoll.close()

    async def _keep_time(self) -> None:
        while True:
            # One that is called off is slept for all the same: to be rung for each of them would cost more.
            self._sleeps_until = self._deadlines.next()
            await self._alarm.sleep_until(self._sleeps_until)
            self._deadlines.expire(trio.current_time())

    async def _serve_put_off(self) -> None:
        put_off = self._put_off
        while True:
            if put_off:
                await trio.lowlevel.checkpoint()
            else:
                self._some = trio.Event()
                await self._some.wait()
            for _ in range(min(len(put_off), self.STEPS)):
                self.serve_readable()
                self._serve_first(put_off.popleft())

    def serve_readable(self) -> None:
        if self._epoll.closed or not (events := self._epoll.poll(0, self.BATCH)):
            return
        callbacks, round, new = self._callbacks, self.round, self._new
        count = len(events)
        round.is_crowded = count >= self._crowd
        round.turns.taken += count
        ended = 0
        for fileno, event in events:
            if fileno in new:
                self._put_off.append(fileno)
                continue
            if event & select.EPOLLRDHUP:
                if fileno not in callbacks:
                    continue  # a callback of this round has ended it
                ended += 1
                if ended <= self.PUT_OFF:  # the next round tells of the others again
                    self._epoll.unregister(fileno)
                    self._ended.add(fileno)
                    self._put_off.append(fileno)
                continue
            callback = callbacks.get(fileno)
            if callback is not None:
                callback()
        if self._put_off:
            self._some.set()
        round.end()

    def _serve_first(self, fileno: int) -> None:
        """Serve the stream that was put off first, and hear of it as of the others from then on."""
        callback = self._callbacks.get(fileno)
        if callback is None:
            return
        self.round.is_crowded = False
        self.round.turns.taken += 1
        callback()
        self.round.end()
        if self._callbacks.get(fileno) is callback:
            if fileno in self._new:
                self._new.remove(fileno)
                self._epoll.modify(fileno, _READABLE)
            elif fileno in self._ended:
                self._ended.remove(fileno)
                self._epoll.register(fileno, _READABLE)
