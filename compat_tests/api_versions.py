"""Which APIs a broker serves, asked with the simplest request that there is (ApiVersions v0 on a plain socket)."""

from __future__ import annotations

import socket
import struct


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("the broker closed the connection")
        data += piece
    return data


def _connect(bootstrap: str) -> socket.socket:
    """A connection to the first of the brokers that is up."""
    failure: OSError | None = None
    for address in bootstrap.split(","):
        host, port = address.rsplit(":", 1)
        try:
            return socket.create_connection((host, int(port)), timeout=10)
        except OSError as error:
            failure = error
    raise failure or ValueError(f"no address in {bootstrap!r}")


def served_apis(bootstrap: str) -> dict[int, tuple[int, int]]:
    """API key -> (lowest, highest version) as the first broker of `bootstrap` that is up advertises them."""
    with _connect(bootstrap) as connection:
        body = struct.pack(">hhih", 18, 0, 1, -1)
        connection.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", _receive_exactly(connection, 4))
        reply = _receive_exactly(connection, size)
    _, _, count = struct.unpack_from(">ihi", reply)
    rows = (struct.unpack_from(">hhh", reply, 10 + 6 * index) for index in range(count))
    return {key: (low, high) for key, low, high in rows}


JOIN_GROUP = 11
"""JoinGroup: with it the broker serves classic groups."""
