"""The clients that are connected to the node, as its explorer tells of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, cast

from kbroker.observe.explorer.exchange import ClientInfo
from kbroker.security.sasl.conversation import SaslConversation

if TYPE_CHECKING:
    from kbroker.node.explorer.tap import Seen

_LONGEST_ID: Final = 256
"""Characters of a client id that are told."""


class _Served(Protocol):
    """The parts of `kbroker.node.serving.connection.Connection` that are told."""

    session: object | None
    stream: object
    is_of_node: bool

    @property
    def frames(self) -> int: ...

    @property
    def bytes_received(self) -> int: ...


def client_info(seen: Seen, run: str) -> ClientInfo:
    """A connection that is served, and what has come on it; ``run``: the node's."""
    connection = cast(_Served, seen.connection)
    session = connection.session
    return ClientInfo(
        seen.info(),
        (seen.client_id or b"").decode("utf-8", "replace")[:_LONGEST_ID],
        session.mechanism if isinstance(session, SaslConversation) else "",
        _tls_of(connection.stream),
        seen.since_ms,
        connection.frames,
        connection.bytes_received,
        run,
        connection.is_of_node,
    )


def _tls_of(stream: object) -> str:
    """Version and cipher suite of a stream with TLS; empty for a plain one."""
    version, cipher = getattr(stream, "version", None), getattr(stream, "cipher", None)
    return f"{version} {cipher}" if isinstance(version, str) and isinstance(cipher, str) else ""
