"""Calls that the event loop waits for: those of an authorizer and of quotas, which are asked within a request.

They run in a thread, so that one that hangs costs the node a moment and not its life. A time-out makes the node ask
nothing for a while: a rule that is always late takes a tenth of the node's time at most.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final

TIMEOUT_SECONDS: Final = 0.1
PAUSE_SECONDS: Final = 1.0
"""Nothing is asked for so long after a time-out."""

MAX_STUCK: Final = 4
"""Threads that may hang. Nothing is asked then until one of them is free again."""


class Late(Exception):
    """The call has not ended in time."""


class Busy(Exception):
    """Nothing is asked for now."""


class Raised(Exception):
    """The call has raised ``error``."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class _Job:
    __slots__ = ("argument", "done", "error", "function", "is_late", "lock", "result")

    def __init__(self, function: Callable[[Any], Any], argument: object) -> None:
        self.function = function
        self.argument = argument
        self.done = threading.Lock()
        self.done.acquire()
        self.lock = threading.Lock()
        self.is_late = False
        self.result: Any = None
        self.error: BaseException | None = None


class WaitedCalls:
    """Calls of one rule, one after the other."""

    def __init__(self, now: Callable[[], float], timeout: float = TIMEOUT_SECONDS) -> None:
        """``now`` gives seconds; ``timeout`` is in seconds of the real clock."""
        self.timeout = timeout
        self._now = now
        self._jobs: SimpleQueue[_Job | None] | None = None
        self._stuck = 0
        self._quiet_until = float("-inf")

    def call(self, function: Callable[[Any], Any], argument: object) -> Any:
        """``function(argument)``. :class:`Raised`, :class:`Late` or :class:`Busy` otherwise."""
        if self._stuck >= MAX_STUCK or self._now() < self._quiet_until:
            raise Busy
        if self._jobs is None:
            self._jobs = SimpleQueue()
            threading.Thread(target=self._work, args=(self._jobs,), name="kbroker-rules", daemon=True).start()
        job = _Job(function, argument)
        self._jobs.put(job)
        if not job.done.acquire(timeout=self.timeout):
            with job.lock:
                is_late = job.is_late = not job.done.acquire(blocking=False)
                self._stuck += is_late
            if is_late:
                self._jobs = None  # its thread ends with the call
                self._quiet_until = self._now() + PAUSE_SECONDS
                raise Late
        if job.error is not None:
            raise Raised(job.error) from None
        return job.result

    def _work(self, jobs: SimpleQueue[_Job | None]) -> None:
        while True:
            job = jobs.get()
            if job is None:
                return
            try:
                job.result = job.function(job.argument)
            except BaseException as error:  # whatever it is, it is the rule's, and no reason to end anything
                job.error = error
            with job.lock:
                job.done.release()
                if job.is_late:
                    self._stuck -= 1
                    return

    def close(self) -> None:
        """End the thread."""
        if self._jobs is not None:
            self._jobs.put(None)
            self._jobs = None
