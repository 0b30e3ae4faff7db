"""Clients' handshakes: their steps are taken in a thread, one after the other, while the event loop serves.

``trio.to_thread`` does the same for anybody: it copies contexts, names threads and counts them, which costs half as
much as a step of a handshake.

The thread has the lowest priority, where threads have their own. Otherwise the system lets it end its slice of time,
some milliseconds, before it lets the loop or a client go on that has just been woken. Where others leave it nothing, a
second thread helps, which has no lower priority than the loop.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

import outcome
import trio

IDLE_SECONDS = 5.0
"""The thread ends when there was nothing to do for so long."""

ROOM = 32
"""Handshakes that wait for their step before no more connections are accepted."""

LATE_SECONDS = 0.2
"""A step that has waited so long brings the second thread."""

LOWEST_PRIORITY = 19


class HandshakeThread:
    """The steps of all listeners of a node, in the order in which they come."""

    def __init__(self, late: float = LATE_SECONDS, idle: float = IDLE_SECONDS) -> None:
        self.late = late
        self._idle = idle
        self._steps: SimpleQueue[tuple[trio.lowlevel.Task, Callable[[], bool]]] = SimpleQueue()
        self._begun: deque[float] = deque()
        """When the steps came that wait or are being taken, the first of them first."""
        self._done: deque[tuple[trio.lowlevel.Task, outcome.Outcome[bool]]] = deque()
        self._is_told = False
        self._runs = False
        self._is_helped = False
        self._lock = threading.Lock()
        """Held to end a thread, and to give it something to do: neither may overtake the other."""
        self._room = trio.Event()

    @property
    def waiting(self) -> int:
        """The number of steps that wait or are being taken."""
        return len(self._begun)

    async def run(self, step: Callable[[], bool]) -> bool:
        """Call ``step`` in the thread, also when the task is cancelled meanwhile."""
        with self._lock:
            if not self._runs:
                self._start(self._work)
                self._runs = True
            self._steps.put((trio.lowlevel.current_task(), step))
        self._begun.append(trio.current_time())
        self._look_for_late()
        with trio.move_on_after(self.late):  # which ends no wait: nobody else may come and look
            result: bool = await trio.lowlevel.wait_task_rescheduled(self._wait_on)
        return result

    def _wait_on(self, _: object) -> trio.lowlevel.Abort:
        """Look for those that are late in place of ending the wait of one."""
        self._look_for_late()
        return trio.lowlevel.Abort.FAILED

    async def wait_for_room(self) -> None:
        """Wait while many handshakes wait."""
        while self.waiting >= ROOM:
            if self._room.is_set():  # the event of others who wait is theirs as well
                self._room = trio.Event()
            with trio.move_on_after(self.late):
                await self._room.wait()
            self._look_for_late()

    def _look_for_late(self) -> None:
        """Have the second thread help if the first step of all has waited for long. Never raises."""
        if self._begun and trio.current_time() - self._begun[0] >= self.late:
            with self._lock:
                if not self._is_helped:
                    with suppress(RuntimeError):  # the system has no thread left: the first one goes on alone
                        self._start(self._help)
                        self._is_helped = True

    def _start(self, target: Callable[[trio.lowlevel.TrioToken], None]) -> None:
        token = trio.lowlevel.current_trio_token()
        threading.Thread(target=target, args=(token,), name="handshakes", daemon=True).start()

    # --- in the threads

    def _work(self, token: trio.lowlevel.TrioToken) -> None:
        """Take steps until there are none for a while."""
        if sys.platform == "linux":
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
        while True:
            try:
                self._take(token, *self._steps.get(timeout=self._idle))
            except Empty:
                with self._lock:
                    if self._steps.empty():
                        self._runs = False
                        return

    def _help(self, token: trio.lowlevel.TrioToken) -> None:
        """Take the steps that wait."""
        while True:
            try:
                self._take(token, *self._steps.get_nowait())
            except Empty:
                with self._lock:
                    if self._steps.empty():
                        self._is_helped = False
                        return

    def _take(self, token: trio.lowlevel.TrioToken, task: trio.lowlevel.Task, step: Callable[[], bool]) -> None:
        self._done.append((task, outcome.capture(step)))
        if not self._is_told:
            self._is_told = True
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(self._tell)

    # --- in the event loop again

    def _tell(self) -> None:
        """Wake those whose step is done."""
        self._is_told = False
        while self._done:
            task, result = self._done.popleft()
            self._begun.popleft()
            trio.lowlevel.reschedule(task, result)
        if self.waiting < ROOM:
            self._room.set()
