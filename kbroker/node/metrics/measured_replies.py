"""A reply queue that tells when the response of a measured request begins to be written, and when it is out."""

from __future__ import annotations

from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from kbroker.later import Later
from kbroker.metrics.errors import error_codes
from kbroker.node.reply_queue import ReplyQueue

if TYPE_CHECKING:
    from kbroker.metrics.requests import RequestMetrics
    from kbroker.node.metrics.measured import Measured


class MeasuredReplyQueue(ReplyQueue):
    """Writes as `ReplyQueue` does, and counts the errors of responses."""

    __slots__ = ("_began", "_errors", "_waiting", "measured")

    def __init__(self, requests: RequestMetrics, *args: Any) -> None:
        super().__init__(*args)
        self._errors = requests.errors
        self._waiting: list[tuple[Measured, object]] = []
        """With the last place of the queue that is to be written, if it is not among the parts yet."""
        self._began = 0
        """Of the first write that somebody waits for."""
        self.measured: Measured | None = None
        """The request that is served, if its response is to be told of."""

    # --- responses ----------------------------------------------------------------------------------------------

    def answer(self, response: Any, api_key: int, version: int, correlation_id: int) -> None:
        """As `ReplyQueue.answer`."""
        if response is not None and not isinstance(response, Later):
            self._count_errors(response, api_key)
        super().answer(response, api_key, version, correlation_id)
        if self.measured is not None:  # it was not taken by `delay`
            self.complete()

    def complete(self) -> None:
        """The response of the measured request is queued, or there is none."""
        measured, self.measured = self.measured, None
        if measured is not None:
            measured.complete()
            self._when_written(measured, self.slots[-1] if self.slots else None)
            if not self.parts and not self.slots:
                self._tell()

    def delay(self, delayed: Later[Any], api_key: int, version: int, correlation_id: int) -> None:
        """As `ReplyQueue.delay`."""
        measured, self.measured = self.measured, None
        if measured is not None:
            measured.stop()
            delayed.on_done(partial(self._completed_later, measured, delayed))
        delayed.on_done(partial(self._count_later_errors, delayed, api_key))
        super().delay(delayed, api_key, version, correlation_id)

    def _completed_later(self, measured: Measured, delayed: Later[Any]) -> None:
        """A response is there, and takes its place among the parts next."""
        measured.complete()
        self._when_written(measured, next((slot for slot in self.slots if slot.delayed is delayed), None))

    def _count_errors(self, response: Any, api_key: int) -> None:
        for code in error_codes(response):
            self._errors[api_key, code] += 1

    def _count_later_errors(self, delayed: Later[Any], api_key: int) -> None:
        if delayed.error is None and type(delayed.value) is not bytes:  # bytes are a shortcut's, which has no errors
            self._count_errors(delayed.value, api_key)

    # --- writes -------------------------------------------------------------------------------------------------

    def _when_written(self, measured: Measured, place: object) -> None:
        self._waiting.append((measured, place))

    def try_write(self) -> bool:
        """As `ReplyQueue.try_write`."""
        if not self._waiting:
            return not self.is_writing and self._write_now()
        self._began = self._began or perf_counter_ns()
        is_out = super().try_write()
        self._tell()
        return is_out

    def _completed(self) -> None:
        if self._waiting:
            self._began = self._began or perf_counter_ns()
        super()._completed()
        self._tell()

    async def _write_all(self) -> None:
        if self._waiting:
            self._began = self._began or perf_counter_ns()
        await super()._write_all()
        self._tell()

    def _tell(self) -> None:
        if not self._waiting or self.parts:
            return
        began, ended, waiting = self._began, perf_counter_ns(), self._waiting
        self._began, self._waiting = 0, []
        for measured, place in waiting:
            if place is None or place not in self.slots:
                measured.written(began, ended)
            else:
                self._waiting.append((measured, place))

    def close(self) -> None:
        """As `ReplyQueue.close`."""
        super().close()
        self._waiting.clear()
        self.measured = None
