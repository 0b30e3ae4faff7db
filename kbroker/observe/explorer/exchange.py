"""A request and its answer as they were seen: bytes, times, and the connection that they came on."""

from __future__ import annotations

from typing import Final

from kbroker.value_types import NamedTuple, dataclass

MAX_KEPT: Final = 32 << 10
"""Bytes of one frame that are kept."""

KEPT_TAIL: Final = 64
"""Those of them that are the end of a frame that is cut: the fields after the records."""

KEPT_RECORDS: Final = 2 << 10
"""Bytes of the records of one partition in an answer that are kept."""


class Frame(NamedTuple):
    """A frame without its four bytes of size; of a large one, pieces."""

    size: int
    pieces: tuple[tuple[int, bytes], ...]
    """Offset and bytes, in order."""

    @property
    def kept(self) -> int:
        """Bytes that are there."""
        pieces = self.pieces
        return len(pieces[0][1]) if len(pieces) == 1 else sum([len(piece) for _, piece in pieces])

    @property
    def is_whole(self) -> bool:
        """Whether all bytes are there."""
        return self.kept == self.size

    def filled(self) -> bytes:
        """All bytes of the frame, zeros where they are missing."""
        if len(self.pieces) == 1 and self.is_whole:
            return self.pieces[0][1]
        buffer = bytearray(self.size)
        for offset, piece in self.pieces:
            buffer[offset : offset + len(piece)] = piece
        return bytes(buffer)


def whole_frame(data: bytes) -> Frame:
    """A frame of which everything is kept."""
    return Frame(len(data), ((0, data),))


def cut_frame(data: bytes | memoryview) -> Frame:
    """A frame of which no more than ``MAX_KEPT`` bytes are kept, as a copy: its beginning and its end."""
    size = len(data)
    if size <= MAX_KEPT:
        return Frame(size, ((0, bytes(data)),))
    end = size - KEPT_TAIL
    return Frame(size, ((0, bytes(data[: MAX_KEPT - KEPT_TAIL])), (end, bytes(data[end:]))))


NO_API: Final = -1
"""The API key of a request of which nothing is shown but its size."""

_NO_HEADER: Final = NO_API.to_bytes(2, "big", signed=True) * 2 + bytes(4)


def unshown_frame(size: int) -> Frame:
    """A request of ``size`` bytes, of which none is shown: its header is one that no request has."""
    return Frame(size, ((0, _NO_HEADER),))


class ConnectionInfo(NamedTuple):
    """The other side of a connection, as far as it is known."""

    number: int
    """Counts the connections of one node."""
    peer: str
    """Address and port."""
    listener: str
    is_controller: bool
    """Whether the listener is one of controllers."""
    principal: str
    software: str
    """Name and version of the client's software (KIP-511); ``unknown`` until it has said so."""
    node: int
    """The node that counts it."""


@dataclass(slots=True)
class Exchange:
    """One request, and its answer once it is there."""

    node: int
    """The node that was asked."""
    number: int
    """Counts the exchanges of one node that were seen, in the order in which they were complete."""
    connection: int
    at_ms: float
    """Wall-clock time at which the request came."""
    request: Frame
    response: Frame | None = None
    took_ms: float = -1.0
    """From the request in the node to its answer, ready to be sent; -1 without an answer."""
    end: str = ""
    """The reason why there is no answer."""
    is_redacted: bool = False
    """Whether bytes were overwritten because they were secret."""

    @property
    def api_key(self) -> int:
        """The key of the request's API."""
        return int.from_bytes(self.request.pieces[0][1][:2], "big", signed=True)

    @property
    def api_version(self) -> int:
        """The version of the request."""
        return int.from_bytes(self.request.pieces[0][1][2:4], "big", signed=True)


class Skipped(NamedTuple):
    """Requests that were not shown: how many of each API key."""

    counts: dict[int, int]
    why: str


CLIENT: Final = "client"


class ClientInfo(NamedTuple):
    """A connection that is open, and what has come on it so far; -1 and empty for what a node does not tell."""

    connection: ConnectionInfo
    client_id: str = ""
    """The client id that its first request has."""
    sasl: str = ""
    """The mechanism by which it has logged in; empty without SASL."""
    tls: str = ""
    """Version and cipher suite; empty without TLS."""
    since_ms: float = -1.0
    """Wall-clock time from which on it is served."""
    requests: int = -1
    bytes_received: int = -1
    run: str = ""
    """That of the node (`StreamStart`)."""
    is_of_node: bool = False
    """Whether a broker or controller is at the other end: it has asked, and was allowed to, what nodes alone ask."""

    @property
    def kind(self) -> str:
        """``client``, ``node``, or ``node or tool`` on a controllers' listener: a broker may forward a client's request
        there as it is, and an administrator's tool may ask the same."""
        if self.is_of_node:
            return "node"
        return "node or tool" if self.connection.is_controller else CLIENT


class StreamStart(NamedTuple):
    """The first line of a stream or a file; in a file also what comes before exchanges of another run of a node."""

    node: int
    cluster: str
    software: str
    at_ms: float
    run: str = ""
    """Tells a run of the node from its others: with each, the numbers of exchanges and connections begin anew."""


class Closed(NamedTuple):
    """The end of a connection."""

    number: int
    node: int


class Names(NamedTuple):
    """Names of topics by the text of their ids."""

    topics: dict[str, str]
