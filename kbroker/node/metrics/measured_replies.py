"""A reply queue that tells when the response of a measured request begins to be written, and when it is out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from kbroker.later import Later
from kbroker.metrics.errors import error_codes
from kbroker.node.reply_queue import ReplyQueue

if TYPE_CHECKING:
    from collections import Counter

Written = Callable[[int, int], None]
"""``written(began, ended)``: times of `perf_counter_ns`."""


class MeasuredReplyQueue(ReplyQueue):
    """Writes as `ReplyQueue` does, and counts the errors of responses.

    It has no slots: while somebody waits to hear of a write, a method of the object's own stands before the class's.
    All other writes cost nothing more.
    """

    def __init__(self, errors: Counter[tuple[int, int]], *args: Any) -> None:
        """``errors`` counts by API key and code."""
        super().__init__(*args)
        self._errors = errors
        self._waiting: list[tuple[Written, object]] = []
        """With the last place of the queue that is to be written, if it is not among the parts yet."""
        self._began = 0
        """Of the first write that somebody waits for."""
        self.on_complete: Callable[[Later[Any]], None] | None = None
        """Called when the next response that comes later is complete, before it is written; unset when it is taken."""

    def answer(self, response: Any, api_key: int, version: int, correlation_id: int) -> None:
        """As `ReplyQueue.answer`."""
        if response is not None and not isinstance(response, Later):
            self._count_errors(response, api_key)
        super().answer(response, api_key, version, correlation_id)

    def delay(self, delayed: Later[Any], api_key: int, version: int, correlation_id: int) -> None:
        """As `ReplyQueue.delay`."""
        on_complete, self.on_complete = self.on_complete, None
        if on_complete is not None:
            delayed.on_done(partial(on_complete, delayed))
        delayed.on_done(partial(self._count_later_errors, delayed, api_key))
        super().delay(delayed, api_key, version, correlation_id)

    def when_written(self, written: Written, delayed: Later[Any] | None = None) -> None:
        """Call ``written`` when the socket has what is queued: up to the place of ``delayed``, or all of it."""
        places = [slot for slot in self.slots if delayed is None or slot.delayed is delayed]
        self._hear_of(written, places[-1] if places else None)

    def _hear_of(self, written: Written, place: object) -> None:
        self._waiting.append((written, place))
        self.__dict__["_write_now"] = self._write_measured

    def close(self) -> None:
        """As `ReplyQueue.close`."""
        super().close()
        self._hear_no_more()

    def _hear_no_more(self) -> None:
        self._waiting.clear()
        self._began = 0
        self.__dict__.pop("_write_now", None)

    def _write_measured(self) -> bool:
        self._began = self._began or perf_counter_ns()
        is_out = ReplyQueue._write_now(self)
        self._tell()
        return is_out

    async def _write_all(self) -> None:
        if self._waiting:
            self._began = self._began or perf_counter_ns()
        await super()._write_all()
        self._tell()

    def _tell(self) -> None:
        if not self._waiting or self.parts:
            return
        began, ended, waiting = self._began, perf_counter_ns(), self._waiting.copy()
        self._hear_no_more()
        for written, place in waiting:
            if place is None or place not in self.slots:
                written(began, ended)
            else:
                self._hear_of(written, place)

    def _count_errors(self, response: Any, api_key: int) -> None:
        for code in error_codes(response):
            self._errors[api_key, code] += 1

    def _count_later_errors(self, delayed: Later[Any], api_key: int) -> None:
        if delayed.error is None and type(delayed.value) is not bytes:  # bytes are a shortcut's, which has no errors
            self._count_errors(delayed.value, api_key)
