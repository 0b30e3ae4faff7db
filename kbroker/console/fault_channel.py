"""The faults of nodes that ``kbroker faults`` has started, switched over a socket of that process."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any, Final

from kbroker.client import ClientError

_SECONDS: Final = 60.0
"""Stopping or starting a node may take so long."""


class FaultChannel:
    """Asks one question at a time, from whatever thread. Its errors are ``ClientError``."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.settimeout(_SECONDS)
        self._lines = self._socket.makefile("rwb")
        self._turn = threading.Lock()

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer to a question."""
        with self._turn:
            try:
                self._lines.write(json.dumps(question).encode() + b"\n")
                self._lines.flush()
                line = self._lines.readline()
                answer: dict[str, Any] = json.loads(line) if line else {}
            except (OSError, ValueError) as error:
                raise ClientError(f"kbroker faults does not answer: {error}") from None
        if not answer:
            raise ClientError("kbroker faults has ended")
        return answer
