"""Calls and replies about faults between a test's process and the nodes of its cluster, both ways.

One socket for each life of a node, one JSON object a line: ``{"call": 3, "what": "add", "with": {...}}``, then
``{"reply": 3, "value": ...}`` or ``{"reply": 3, "error": [kind, code, message]}``. What has no ``call`` has no reply:
``{"what": "begin"}``, the requests that a node tells of, and those that wait for a decision.
"""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from kbroker.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from kbroker.testing.faults import Fault, Parameters

__all__ = [
    "OWN_CLIENT_ID",
    "FaultArguments",
    "Link",
    "LinkClosed",
    "NoteArguments",
    "Value",
    "described",
    "encoded",
    "fault_arguments",
    "raised",
]

OWN_CLIENT_ID = "kbroker.testing"
"""Of a cluster's own questions, which no fault is for."""

CALL_SECONDS = 60.0


Value: TypeAlias = "bool | int | float | str | Sequence[Value] | Mapping[str, Value] | None"
"""A value that JSON has."""

ErrorValue = tuple[str, int, str]
"""Kind, code and message."""


class _MatchArguments(TypedDict):
    api: int | None
    topic: str | None
    partition: int | None
    client_id: str | None
    followers: bool
    timestamp: int | None


class FaultArguments(TypedDict):
    """A fault as it goes to a node."""

    number: int
    action: str
    parameters: Parameters
    match: _MatchArguments


class NoteArguments(TypedDict):
    """An action on a request, as a node tells of it."""

    number: int
    api: str
    api_version: int
    client_id: str | None
    correlation_id: int
    partitions: Sequence[tuple[str, int | None]]
    detail: str


class _Reply(TypedDict, total=False):
    reply: int
    value: Value
    error: ErrorValue


class LinkClosed(Exception):
    """The node is gone."""


class Link:
    """The test's end. Calls may be made from any thread; the node's are answered on a thread of the link's own."""

    def __init__(self, connection: socket.socket, answer: Callable[[str, dict[str, Value]], Value]) -> None:
        self._connection = connection
        self._answer = answer
        self._numbers = itertools.count()
        self._writing = threading.Lock()
        self._changed = threading.Condition()
        self._replies: dict[int, _Reply] = {}
        self._closed = False
        self._reader: threading.Thread | None = None

    def call(self, what: str, timeout: float = CALL_SECONDS, /, **arguments: object) -> Value:
        """The node's answer, or the error that it raises. LinkClosed when it is gone, TimeoutError without one."""
        return self.reply_to(self.post(what, **arguments), what, timeout)

    def reply_to(self, number: int, what: str, timeout: float = CALL_SECONDS) -> Value:
        """The answer to what was posted under this number; errors as from ``call``."""
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._replies or self._closed, timeout):
                raise TimeoutError(f"the node did not answer {what} within {timeout:g} s")
            if number not in self._replies:
                raise LinkClosed
            reply = self._replies.pop(number)
        if "error" in reply:
            raise raised(reply["error"])
        return reply["value"]

    def post(self, what: str, /, **arguments: object) -> int:
        """Have the node do something without waiting for it; LinkClosed when it is gone."""
        with self._writing:
            if self._reader is None:
                self._reader = threading.Thread(target=self._read, name="kbroker-link", daemon=True)
                self._reader.start()
        number = next(self._numbers)
        self._write({"call": number, "what": what, "with": arguments})
        return number

    def begin(self) -> None:
        """Have the node start, with the faults that it was told of by now; LinkClosed when it is gone."""
        self._write({"what": "begin"})

    def close(self) -> None:
        """Have it end; also calls that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the node is gone already
        if self._reader is not None and self._reader is not threading.current_thread():
            self._reader.join()
        self._connection.close()

    def _write(self, message: Mapping[str, object]) -> None:
        try:
            with self._writing:
                self._connection.sendall(encoded(message))
        except OSError:
            raise LinkClosed from None

    def _read(self) -> None:
        try:
            with self._connection.makefile("rb") as lines:
                for line in lines:
                    message = json.loads(line)
                    if "reply" in message:
                        self._take(message)
                    else:
                        value = self._answer(message["what"], message["with"])
                        if "call" in message:
                            self._write({"reply": message["call"], "value": value})
        except (OSError, LinkClosed, ValueError):
            pass  # the end of the node, perhaps in the middle of a line
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _take(self, reply: _Reply) -> None:
        with self._changed:
            self._replies[reply["reply"]] = reply
            self._changed.notify_all()


def encoded(message: Mapping[str, object]) -> bytes:
    """A line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def described(error: Exception) -> ErrorValue:
    """An error as it goes over the link."""
    if isinstance(error, ApiError):
        return "ApiError", int(error.code), str(error.message)
    return "ValueError" if isinstance(error, ValueError) else "RuntimeError", 0, str(error)


def raised(error: ErrorValue) -> Exception:
    """The error that was described."""
    kind, code, message = error
    if kind == "ApiError":
        return ApiError(ErrorCode(code), message)
    return ValueError(message) if kind == "ValueError" else RuntimeError(message)


def fault_arguments(fault: Fault) -> FaultArguments:
    """The form of a fault that goes to a node."""
    match = fault.match
    pattern = None if match.client_id is None else match.client_id.pattern
    return {
        "number": fault.number,
        "action": fault.action,
        "parameters": fault.parameters,
        "match": {
            "api": None if match.api is None else match.api.key,
            "topic": match.topic,
            "partition": match.partition,
            "client_id": pattern,
            "followers": match.followers,
            "timestamp": match.timestamp,
        },
    }
