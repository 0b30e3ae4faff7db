"""The times of requests that shortcuts serve, and percentages on the page."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import trio

from kbroker.node.metrics.figures import summary
from kbroker.node.metrics.measured_requests import MeasuredRequests
from kbroker.node.serving.observed_requests import ObservedReplyQueue
from kbroker.observe.metrics.dialect import Kind
from kbroker.observe.metrics.family import own
from kbroker.observe.metrics.histogram import Histogram
from kbroker.observe.metrics.requests import RequestMetrics

PRODUCE = 0


class Served:
    """A shortcut that knows the answer."""

    grows = True

    def try_serve(self, frame: memoryview, round: Any = None) -> bytes:
        return b"reply"


def test_the_write_of_a_shortcuts_reply_is_measured() -> None:
    """It is over when the reply is in the socket, not when the shortcut has answered."""
    metrics = RequestMetrics()
    told: list[int] = []

    def send(data: bytes) -> int:
        told.append(metrics.times["Produce"].send.count)
        return len(data)

    async def main() -> None:
        stream: Any = SimpleNamespace(send=send)
        env: Any = None
        replies = ObservedReplyQueue(stream, env, trio.CancelScope(), lambda *_: None, lambda: None)
        made: list[Any] = []
        dispatcher: Any = SimpleNamespace(authorizer=None, requests=0, take_shortcuts=made.append)
        connection: Any = SimpleNamespace(when_closed=[])
        requests = MeasuredRequests(connection, dispatcher, replies, metrics=metrics, turn_began=lambda: 0)
        replies.observe([requests])
        (shortcuts,) = made
        shortcuts.known[PRODUCE] = Served()
        requests.measure_next()
        replies.parts.append(shortcuts.known[PRODUCE].try_serve(memoryview(bytes(20))))
        assert replies.try_write()

    trio.run(main)
    assert told == [0]
    assert metrics.times["Produce"].send.count == 1


def test_a_percentage_is_never_above_100() -> None:
    """Classes of histograms are wider than 1 there."""
    percent = Histogram()
    percent.observe(100)
    _, (_, samples) = summary(own("ratio", Kind.SUMMARY, "Percent."), {(): percent}, unit=1, most=100)
    assert {value for _, value in list(samples)} == {100}
