"""Calls that the event loop waits for: those of rules that are asked within a request or a heartbeat.

They run in a thread, so that one that hangs costs the node a moment and not its life. Each call has a time-out, after
which nothing is asked for a while. It runs from the moment at which the thread begins: on a busy machine that may be
later, and the node waits for that as well, for a second at most. A rule that is slow has a budget besides: in a row the
node waits for it for its `grace` and one call more, and in the long run for a tenth of the time. Policies have no such
budget, since the controller cannot do without their answer; theirs is by request (``node.rules.policies``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic
from typing import Any, Final

from kbroker.errors import FatalError

TIMEOUT_SECONDS: Final = 0.1
PAUSE_SECONDS: Final = 1.0
"""Nothing is asked for so long after a time-out."""

MAX_TIMEOUT_SECONDS: Final = 5.0
"""The longest time-out that a rule may have."""

START_SECONDS: Final = 1.0
"""The node waits for so long at most until a call begins: with a rule's own 5 s it is less than a broker's session."""

_STEP_SECONDS: Final = 0.01
"""A call that has not begun is looked at as often."""

GRACE_SECONDS: Final = 1.0
"""For so long the node waits for a rule in a row, where the rule's kind says nothing else."""

_REST: Final = 9.0
"""The time that a rule is left alone for each second that it has taken, so that it has a tenth of all."""

MAX_STUCK: Final = 4
"""Threads that may hang. Nothing is asked then until one of them is free again."""


class CallTimedOut(Exception):
    """The call has not ended in time."""


class Busy(Exception):
    """Nothing is asked for now."""


class Raised(Exception):
    """The call has raised ``error``."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class Job:
    """A call that is under way in a thread."""

    __slots__ = ("argument", "began_at", "done", "error", "function", "is_late", "lock", "made_at", "result")

    def __init__(self, function: Callable[[Any], Any], argument: object) -> None:
        self.function = function
        self.argument = argument
        self.done = threading.Lock()
        self.done.acquire()
        self.lock = threading.Lock()
        self.made_at = monotonic()
        self.began_at: float | None = None
        self.is_late = False
        self.result: Any = None
        self.error: BaseException | None = None


def timeout_of(rule: Any, name: str) -> float | None:
    """The ``timeout_seconds`` of a rule, if it has some. `FatalError` for one that the node does not wait for."""
    given = getattr(rule, "timeout_seconds", None)
    if given is None:
        return None
    found = float(given)
    if not 0 < found <= MAX_TIMEOUT_SECONDS:
        raise FatalError(
            f"{name}: timeout_seconds={found:g}: the whole node waits for it: more than 0, and {MAX_TIMEOUT_SECONDS:g}"
            " at most"
        )
    return found


class WaitedCalls:
    """Calls of one rule, one after the other."""

    def __init__(
        self,
        now: Callable[[], float],
        timeout: float = TIMEOUT_SECONDS,
        grace: float = GRACE_SECONDS,
        start: float = START_SECONDS,
    ) -> None:
        """``now`` gives seconds. ``timeout`` is in seconds of the real clock, as is ``start``, the time for a call to
        begin; ``grace`` is infinite for no budget.
        """
        self.timeout = timeout
        self._start = start
        self.taken = 0.0
        """Seconds for which the node has waited, since somebody has set it to 0."""
        self._grace = grace
        self._paid_at = float("-inf")
        """When the rule has been left alone for long enough for all that it has taken."""
        self._now = now
        self._jobs: SimpleQueue[Job | None] | None = None
        self._stuck = 0
        self._quiet_until = float("-inf")

    def call(self, function: Callable[[Any], Any], argument: object) -> Any:
        """``function(argument)``. :class:`Raised`, :class:`CallTimedOut` or :class:`Busy` otherwise."""
        began = self._now()
        if self._stuck >= MAX_STUCK or began < self._quiet_until or self._paid_at - began > _REST * self._grace:
            raise Busy
        job = Job(function, argument)
        try:
            return self._call(job)
        finally:
            took = self._now() - began
            self.taken += took
            # The rule pays for its own time, and not for that in which its thread had no turn.
            own = 0.0 if job.began_at is None else max(0.0, took - (job.began_at - job.made_at))
            self._paid_at = max(self._paid_at, began) + took + _REST * own

    def _call(self, job: Job) -> Any:
        if self._jobs is None:
            self._jobs = SimpleQueue()
            threading.Thread(target=self._work, args=(self._jobs,), name="kbroker-rules", daemon=True).start()
        self._jobs.put(job)
        if not self.is_done_in_time(job):
            with job.lock:
                is_late = job.is_late = not job.done.acquire(blocking=False)
                self._stuck += is_late
            if is_late:
                self._jobs = None  # its thread ends with the call
                self._quiet_until = self._now() + PAUSE_SECONDS
                raise CallTimedOut
        if job.error is not None:
            raise Raised(job.error) from None
        return job.result

    def is_done_in_time(self, job: Job) -> bool:
        """Returns whether a call ends within the time-out of its beginning, and begins soon enough."""
        if job.done.acquire(timeout=min(self.timeout, self._start)):
            return True
        while job.began_at is None and monotonic() - job.made_at < self._start:
            if job.done.acquire(timeout=_STEP_SECONDS):
                return True
        left = 0.0 if job.began_at is None else job.began_at + self.timeout - monotonic()
        return left > 0 and job.done.acquire(timeout=left)

    def _work(self, jobs: SimpleQueue[Job | None]) -> None:
        while True:
            job = jobs.get()
            if job is None:
                return
            job.began_at = monotonic()
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


MakeCalls = Callable[[float, float, float | None], WaitedCalls]
"""Makes the calls of a rule, by its kind's time-out and grace in seconds, and the time-out that it has itself."""
