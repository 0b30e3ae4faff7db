"""Requests that reach a node as early as can be, while it starts."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

LIST_GROUPS_V0 = struct.pack(">ihhih", 10, 16, 0, 7, -1)


class EarlyClients:
    """Connects again and again, whether anybody listens or not, and asks ListGroups over each connection."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
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
            self.error_codes.append(self._ask(60))
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(70)
        assert not any(thread.is_alive() for thread in threads)

    def _ask_on(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(OSError, EOFError):
                self.error_codes.append(self._ask(30))

    def _ask(self, timeout: float) -> int:
        with socket.create_connection(self._address, timeout) as connection, connection.makefile("rb") as answers:
            connection.sendall(LIST_GROUPS_V0)
            answer = answers.read(10)
            if len(answer) < 10:
                raise EOFError
            return int(struct.unpack(">iih", answer)[2])
