"""The receivers of clients' metrics that ``metric.reporters`` names: callables in Python, and files of JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, Final

from kbroker.config.security.rules import METRIC_REPORTERS, PREFIX
from kbroker.config.telemetry import FILE_PREFIX, receivers_of
from kbroker.errors import FatalError
from kbroker.node.rules.connection_calls import AwaitedCalls
from kbroker.rules.loading import load
from kbroker.rules.records import ClientMetrics

MOST_FILE_BYTES: Final = 64 * 1024 * 1024
"""A file that would be longer becomes PATH.1, in the place of the one before."""

_CONSEQUENCE: Final = "the client is told that its metrics were not taken"


def make_receivers(names: Sequence[str]) -> list[AwaitedCalls]:
    """The receivers among the values of ``metric.reporters``. ``FatalError`` in one line if one cannot be had."""
    return [_make(name) for name in receivers_of(names)]


def _make(name: str) -> AwaitedCalls:
    if name.startswith(PREFIX):
        return AwaitedCalls(load(METRIC_REPORTERS, name, "receive"), "receive", name, _CONSEQUENCE)
    return AwaitedCalls(MetricsFile(name.removeprefix(FILE_PREFIX)), "receive", name, _CONSEQUENCE)


class MetricsFile:
    """Appends each push as one line of JSON. Only the node's user may read the file."""

    threads = 1  # one line after the other

    def __init__(self, path: str, most_bytes: int = MOST_FILE_BYTES) -> None:
        self._path = path
        self._most_bytes = most_bytes
        try:
            os.close(self._open())
        except OSError as error:
            raise FatalError(f"{METRIC_REPORTERS}={FILE_PREFIX}{path}: {error.strerror}") from None

    def receive(self, pushed: ClientMetrics) -> None:
        """Write one push. ``OSError`` if that fails."""
        line = (json.dumps(as_document(pushed), separators=(",", ":")) + "\n").encode()
        descriptor = self._open()
        try:
            if os.fstat(descriptor).st_size + len(line) > self._most_bytes:
                os.replace(self._path, f"{self._path}.1")
                os.close(descriptor)
                descriptor = self._open()
            rest = memoryview(line)
            while rest:
                written = os.write(descriptor, rest)
                rest = rest[written:]
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def as_document(pushed: ClientMetrics) -> dict[str, Any]:
    """A push as it stands in the file; ``kbroker client list`` reads it."""
    document: dict[str, Any] = {
        key: value for key, value in pushed._asdict().items() if key not in ("payload", "points", "principal")
    }
    document["principal"] = str(pushed.principal)
    document["points"] = [
        {key: value for key, value in point._asdict().items() if value is not None} for point in pushed.points
    ]
    return document
