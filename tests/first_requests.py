"""Requests that reach a node as early as can be, while it starts."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

from tests.patience import LONG

LIST_GROUPS_V0 = struct.pack(">ihhih", 10, 16, 0, 7, -1)


def offset_fetch_v2(group_id: bytes) -> bytes:
    """OffsetFetch for no topic."""
    body = struct.pack(f">hhihh{len(group_id)}si", 9, 2, 7, -1, len(group_id), group_id, 0)
    return struct.pack(">i", len(body)) + body


class EarlyClients:
    """Connects again and again, whether anybody listens or not, and asks one thing over each connection."""

    def __init__(self, address: str, request: bytes = LIST_GROUPS_V0, *, error_at: int = 4) -> None:
        """``error_at``: where the answer has its error code, counted from the correlation id."""
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._request = request
        self._before_error = 4 + error_at
        self._stop = threading.Event()
        self.error_codes: list[int] = []
        """Of each answer, in their order."""

    @contextlib.contextmanager
    def asking(self) -> Iterator[list[int]]:
        """For the length of a ``with`` block, by several at once; at its end at least one more has its answer."""
        threads = [threading.Thread(target=self._ask_on, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            yield self.error_codes
            self.error_codes.append(self._ask(180))
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(LONG)
        assert not any(thread.is_alive() for thread in threads)

    def _ask_on(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(OSError, EOFError):
                self.error_codes.append(self._ask(180))

    def _ask(self, timeout: float) -> int:
        with socket.create_connection(self._address, timeout) as connection, connection.makefile("rb") as answers:
            connection.sendall(self._request)
            size = self._before_error + 2
            answer = answers.read(size)
            if len(answer) < size:
                raise EOFError
            return int(struct.unpack_from(">h", answer, self._before_error)[0])
