"""The faults of nodes that ``kbroker faults`` has started, switched over a socket of that process."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from typing import Any, Final

from kbroker.client import ClientError

SECONDS: Final = 60.0
"""Stopping or starting a node may take so long."""

_READ_BYTES: Final = 1 << 16


class FaultChannel:
    """Asks one question at a time, from whatever thread. Its errors are ``ClientError``.

    Questions have numbers, which the answers repeat: one that comes after its question was given up is passed over.
    """

    def __init__(self, descriptor: int, seconds: float = SECONDS) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self.seconds = seconds
        self._turn = threading.Lock()
        self._numbers = itertools.count(1)
        self._unsent = b""
        """The rest of questions that the socket had no room for: it goes out before anything else does."""
        self._received = b""
        """The beginning of a line."""

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer to a question."""
        with self._turn:
            number = next(self._numbers)
            deadline = time.monotonic() + self.seconds
            try:
                self._send(json.dumps({**question, "number": number}).encode() + b"\n", deadline)
                while True:
                    answer: dict[str, Any] = json.loads(self._line(deadline))
                    if answer.pop("number", None) == number:
                        return answer
            except TimeoutError:
                raise ClientError(
                    f"kbroker faults has not answered within {self.seconds:g} s; it may do later what it was told"
                ) from None
            except (OSError, ValueError) as error:
                raise ClientError(f"kbroker faults does not answer: {error}") from None

    def _send(self, data: bytes, deadline: float) -> None:
        self._unsent += data
        while self._unsent:
            self._wait_until(deadline)
            written = self._socket.send(self._unsent)
            self._unsent = self._unsent[written:]

    def _line(self, deadline: float) -> bytes:
        while b"\n" not in self._received:
            self._wait_until(deadline)
            received = self._socket.recv(_READ_BYTES)
            if not received:
                raise ClientError("kbroker faults has ended")
            self._received += received
        line, self._received = self._received.split(b"\n", 1)
        return line

    def _wait_until(self, deadline: float) -> None:
        """Have the next operation of the socket end by then."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
