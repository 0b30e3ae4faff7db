"""One thread that takes the steps of clients' handshakes, one after the other, while the event loop serves.

``trio.to_thread`` does the same for anybody: it copies contexts, names threads and counts them, which costs half as
much as a step of a handshake.
"""

from __future__ import annotations

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


class HandshakeThread:
    """The steps of all listeners of a node, in the order in which they come."""

    def __init__(self) -> None:
        self._steps: SimpleQueue[tuple[trio.lowlevel.Task, Callable[[], bool]]] = SimpleQueue()
        self._done: deque[tuple[trio.lowlevel.Task, outcome.Outcome[bool]]] = deque()
        self._is_told = False
        self._runs = False
        self._lock = threading.Lock()
        """Held to end the thread, and to give it something to do: neither may overtake the other."""
        self._room = trio.Event()
        self._waiting = 0

    async def run(self, step: Callable[[], bool]) -> bool:
        """Call ``step`` in the thread, also when the task is cancelled meanwhile."""
        with self._lock:
            if not self._runs:
                token = trio.lowlevel.current_trio_token()
                threading.Thread(target=self._work, args=(token,), name="handshakes", daemon=True).start()
                self._runs = True
            self._steps.put((trio.lowlevel.current_task(), step))
        self._waiting += 1
        result: bool = await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        return result

    async def wait_for_room(self) -> None:
        """Wait while many handshakes wait."""
        while self._waiting >= ROOM:
            self._room = trio.Event()
            await self._room.wait()

    def _work(self, token: trio.lowlevel.TrioToken) -> None:
        while True:
            try:
                task, step = self._steps.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._steps.empty():
                        self._runs = False
                        return
                continue
            self._done.append((task, outcome.capture(step)))
            if not self._is_told:
                self._is_told = True
                with suppress(trio.RunFinishedError):
                    token.run_sync_soon(self._tell)

    def _tell(self) -> None:
        """Wake those whose step is done. Called by the event loop."""
        self._is_told = False
        while self._done:
            task, result = self._done.popleft()
            self._waiting -= 1
            trio.lowlevel.reschedule(task, result)
        if self._waiting < ROOM:
            self._room.set()
