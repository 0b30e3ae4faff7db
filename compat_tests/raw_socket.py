"""Frames over a blocking socket to one broker: what the suites that ask by raw requests send through."""

from __future__ import annotations

import socket

from kbroker.wire.conversation import RESPONSE_LIMIT
from kbroker.wire.framing import FrameReader


class RawSocket:
    """A socket that is opened on first use, and again after ``close``."""

    def __init__(self, bootstrap: str, seconds: float) -> None:
        """``seconds``: how long each step of an exchange may take."""
        host, port = bootstrap.rsplit(":", 1)
        self.address = (host, int(port))
        self._seconds = seconds
        self._socket: socket.socket | None = None
        self._reader = FrameReader(limit=RESPONSE_LIMIT, api_keys=None)

    def send(self, data: bytes) -> None:
        """Send bytes as they are. ``OSError``."""
        if self._socket is None:
            self._socket = socket.create_connection(self.address, self._seconds)
            self._reader = FrameReader(limit=RESPONSE_LIMIT, api_keys=None)
        self._socket.sendall(data)

    def receive(self) -> memoryview:
        """The next frame, without its size. ``TimeoutError``, ``ConnectionError`` when the broker has closed."""
        assert self._socket is not None
        while (frame := self._reader.next_frame()) is None:
            count = self._socket.recv_into(self._reader.get_buffer())
            if not count:
                raise ConnectionError
            self._reader.buffer_updated(count)
        return frame

    def close(self) -> None:
        """Close; does nothing when it is closed already."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
