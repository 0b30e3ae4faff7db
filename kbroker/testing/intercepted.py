"""``faults.intercept(...)``: requests that wait until a test decides about them, in Python or over HTTP.

::

    produces = faults.intercept("Produce", topic="orders", times=1)
    ...
    [request] = produces.intercepted.take()
    produces.intercepted.decide(request.number, "answer", encode(ProduceResponse(...), request.api_version))

A node asks (:class:`Question`) and goes by the answer (:class:`Decision`); what lies between is kept here, once, also
if several nodes ask.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from kbroker.testing.seen import NotThere
from kbroker.wire.compiler import decode
from kbroker.wire.errors import WireError
from kbroker.wire.registry import API_KEYS

INTERCEPT: Final = "intercept"
"""The action of such a fault."""

DecisionAction: TypeAlias = Literal["pass", "answer", "close"]


class Question(NamedTuple):
    """A request that a node hands over."""

    fault: int
    number: int
    """Among those of its node."""
    node: int
    api_key: int
    api_version: int
    client_id: str | None
    correlation_id: int
    body: bytes
    """All that follows the header."""


class Decision(NamedTuple):
    """The way of a request: "pass" it on (with a body: changed), "answer" it with a body, or "close" its connection."""

    action: DecisionAction
    body: bytes = b""


PASS: Final = Decision("pass")


@dataclass(frozen=True, slots=True)
class Intercepted:
    """A request that waits. ``body`` is what follows its header, in Kafka's own form."""

    number: int
    """By which it is decided about."""
    node: int
    api: str
    api_key: int
    api_version: int
    client_id: str | None
    correlation_id: int
    body: bytes

    @property
    def message(self) -> Any:
        """The decoded request."""
        return decode(API_KEYS[self.api_key].request, self.api_version, self.body)[0]


class InterceptedRequests:
    """The requests of one fault that wait. All of it may be called from any thread."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._changed = threading.Condition()
        self._new: deque[Intercepted] = deque()
        self._waiting: dict[int, tuple[Intercepted, Callable[[Decision], bool]]] = {}
        self._next = self._takers = 0
        self._left_at = time.monotonic()
        self._is_over = False

    @property
    def is_kept(self) -> bool:
        """Whether anybody takes what is asked: others than those who have gone away."""
        with self._changed:
            return self._takers > 0 or time.monotonic() - self._left_at < self._patience

    def put(self, asked: Question, decide: Callable[[Decision], bool]) -> None:
        """Have a request wait; ``decide`` tells its node, and returns whether it still waited there."""
        api = API_KEYS[asked.api_key].name
        with self._changed:
            found = Intercepted(self._next, asked.node, api, *asked[3:])
            self._next += 1
            self._waiting[found.number] = found, decide
            self._new.append(found)
            self._changed.notify_all()

    def take(self, timeout: float = 30.0) -> list[Intercepted]:
        """Returns the requests that nobody has taken yet, once there are any; none after ``timeout`` seconds.

        ``NotThere`` when the fault is undone.
        """
        with self._changed:
            self._takers += 1
            try:
                self._changed.wait_for(lambda: self._new or self._is_over, timeout)
            finally:
                self._takers -= 1
                self._left_at = time.monotonic()
            if self._is_over:
                raise NotThere("the fault is undone")
            found = list(self._new)
            self._new.clear()
            return found

    def decide(self, number: int, action: DecisionAction, body: bytes = b"") -> None:
        """Have a request go its way. ``NotThere`` if it waits no more; ``ValueError`` for a body that is none."""
        with self._changed:
            if number not in self._waiting:
                raise NotThere(f"no request {number} waits here")
            request, decide = self._waiting[number]
            _check(request, action, body)
            del self._waiting[number]
        if not decide(Decision(action, body)):
            raise NotThere(f"request {number} waits no more: nobody decided in time, or its client or node has gone")

    def end(self) -> None:
        """Have nobody wait for more."""
        with self._changed:
            self._is_over = True
            self._waiting.clear()
            self._changed.notify_all()


def _check(request: Intercepted, action: DecisionAction, body: bytes) -> None:
    if action == "close" or (action == "pass" and not body):
        if body:
            raise ValueError("what closes a connection has no body")
        return
    api, version = API_KEYS[request.api_key], request.api_version
    kind = api.response if action == "answer" else api.request
    try:
        _, end = decode(kind, version, body)
    except (WireError, ValueError) as error:
        raise ValueError(f"the body is no {kind.__name__} of version {version}: {error}") from None
    if end != len(body):
        raise ValueError(f"the body is no {kind.__name__} of version {version}: {len(body) - end} bytes follow it")
