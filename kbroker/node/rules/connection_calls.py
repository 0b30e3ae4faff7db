"""Calls that a connection waits for, and nobody else: those of logins and of principal builders.

A plain function runs in a thread of its rule's, of which there are few. An ``async def`` runs in the node's event loop,
and so does what a plain function gives to be awaited.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, Final

import trio

from kbroker.node.rules.complaints import Complaints
from kbroker.node.serving.timed_steps import timed_steps
from kbroker.rules.loading import call_of, described

TIMEOUT_SECONDS: Final = 5.0
THREADS: Final = 8
SLOW_STEP_SECONDS: Final = 0.1
"""An ``async def`` that keeps the event loop for so long is told of."""


class NoAnswer(Exception):
    """The rule has not answered; the log has been told why."""


class Nonsense(Exception):
    """``answer`` means nothing: for the ``shape`` of :class:`AwaitedCalls` to raise."""

    def __init__(self, answer: object) -> None:
        super().__init__()
        self.answer = answer


class _Raised(Exception):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class AwaitedCalls:
    """Calls of one rule. ``timeout_seconds`` and ``threads`` of it say how long one may take, and how many run."""

    def __init__(
        self,
        rule: Any,
        method: str,
        name: str,
        consequence: str,
        *,
        tells_errors: bool = False,
        shape: Callable[[Any, Any], Any] | None = None,
        ended: Callable[[], None] | None = None,
    ) -> None:
        """``name`` is the rule's in the node's file; ``consequence`` says in the log what comes of a failure.

        ``tells_errors``: the texts of errors have no secrets, and are logged. ``shape`` makes the answer to a question
        from what the rule has given, which may be lazy: in a thread, and in the rule's time; :class:`Nonsense` if it is
        none. ``ended`` is called when a call has ended, one that nobody waits for any more as well, and in any thread.
        """
        self._call = call_of(rule, method)
        self._is_async = inspect.iscoroutinefunction(self._call) or inspect.iscoroutinefunction(
            getattr(self._call, "__call__", None)  # noqa: B004 - an object whose __call__ is an async def
        )
        self.timeout = float(getattr(rule, "timeout_seconds", TIMEOUT_SECONDS))
        self._limiter = trio.CapacityLimiter(int(getattr(rule, "threads", THREADS)))
        self._consequence = consequence
        self._tells_errors = tells_errors
        self._shape = shape
        self._ended = ended
        self.complaints = Complaints(name)

    async def call(self, argument: object) -> Any:
        """The rule's answer; :class:`NoAnswer` if it fails or takes too long. Error texts are logged only where they
        cannot have a secret."""
        try:
            with trio.fail_after(self.timeout):
                if self._is_async:
                    answer = await self._timed(self._call(argument))
                else:
                    answer = await self._in_thread(self._call, argument)
                    if isinstance(answer, Awaitable):
                        answer = await self._timed(_wait(answer))
                return answer if self._shape is None else await self._in_thread(self._shape, argument, answer)
        except trio.TooSlowError:
            self.complaints.late(self.timeout, self._consequence)
        except trio.Cancelled:
            raise
        except _Raised as raised:
            if isinstance(raised.error, Nonsense):
                raise self.nonsense(raised.error.answer) from None
            self.complaints.failed(described(raised.error, with_text=self._tells_errors), self._consequence)
        except BaseException as error:  # SystemExit, too: a rule does not end the node
            if isinstance(error, KeyboardInterrupt) or _has_cancelled(error):
                raise
            self.complaints.failed(described(error, with_text=self._tells_errors), self._consequence)
        finally:
            if self._ended is not None:
                self._ended()
        raise NoAnswer

    def nonsense(self, answer: object) -> NoAnswer:
        """An answer of a kind that means nothing: to be raised. Its type alone is logged."""
        self.complaints.nonsense(f"a value of type {type(answer).__name__}", self._consequence)
        return NoAnswer()

    async def _in_thread(self, function: Callable[..., Any], *arguments: object) -> Any:
        (answer,) = await trio.to_thread.run_sync(
            _guarded, self._ended, function, *arguments, abandon_on_cancel=True, limiter=self._limiter
        )
        return answer

    async def _timed(self, work: Any) -> Any:
        """Run a coroutine, and tell of steps that keep everybody else waiting."""
        began = 0.0

        def start() -> None:
            nonlocal began
            began = perf_counter()

        def stop() -> None:
            took = perf_counter() - began
            if took > SLOW_STEP_SECONDS:
                self.complaints.slow(took)

        return await timed_steps(work, start, stop)


async def _wait(answer: Awaitable[Any]) -> Any:
    return await answer


def _guarded(ended: Callable[[], None] | None, function: Callable[..., Any], *arguments: object) -> tuple[Any]:
    try:
        return (function(*arguments),)  # not by itself: Trio takes no coroutine from a thread
    except BaseException as error:
        raise _Raised(error) from None
    finally:
        if ended is not None:
            ended()


def _has_cancelled(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_has_cancelled(inner) for inner in error.exceptions)
    return isinstance(error, trio.Cancelled)
