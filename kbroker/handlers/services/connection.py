"""The connection that a request came on, as handlers see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kbroker.security.principal import KafkaPrincipal

if TYPE_CHECKING:
    from kbroker.handlers.services.refused_batches import RefusedBatches
    from kbroker.runtime.round import Round


class Awaited(Protocol):
    """The end of a wait of a request in place: the connection sets ``wake``, which is called when it is ``done``."""

    wake: Callable[[], None] | None

    @property
    def done(self) -> bool: ...


class Connection(Protocol):
    """The connection that a request came on (``node.serving.connection``)."""

    listener_name: str
    is_controller: bool
    peer: str
    principal: KafkaPrincipal
    """Its owner."""
    session: object | None
    """SASL's part of it, for authenticating again; None without SASL."""
    closed: bool
    is_ending: bool
    """Whether ``end`` was called, or the connection has ended."""
    when_closed: list[Callable[[], None]]
    client_software_name: str
    client_software_version: str
    session_ended: bool
    """Whether nothing that comes from now on is for the client's eyes (KIP-368)."""
    is_of_node: bool
    """Whether it has asked, and was allowed to, what nodes alone ask of one another."""
    refused_batches: RefusedBatches | None
    """Batches of its producers that were refused and come again."""

    def end(self) -> None:
        """End the connection soon, whatever it is at. Called by anybody, as often as they like."""

    @property
    def has_pipelined_request(self) -> bool:
        """Whether a request of another API waits behind the Fetch that is being served."""

    def reauthenticated(self, *, by_token: bool) -> None:
        """The client has authenticated again (KIP-368), by a delegation token or without one."""

    async def flush(self) -> None:
        """Write all replies so far."""

    async def mute(self, seconds: float) -> None:
        """Write all replies that are in order, and read nothing for this time."""

    def hold_replies(self) -> Round | None:
        """Have no reply go out before the end of the poller's present round, crowded or not, which is returned.

        None, and nothing is done, if the request is not served in a round.
        """

    def replace_unsent(self, reply: bytes, response: object, version: int) -> None:
        """Send ``response`` instead of ``reply``, which was queued in the poller's present round, and is held."""

    async def wait_for(self, operation: Awaited, timeout: float, *, gives_way: bool = False) -> bool:
        """Wait until ``operation.done``, the time (seconds) is out, or the client is gone (raises).

        A wait whose time has a limit ends when the session does. With ``gives_way``, stop waiting as soon as another
        request arrives on this connection.

        True if the authorizer's rules have changed meanwhile. Fetch and ShareFetch ask for their right again then;
        requests of groups go on with what was allowed when they began, as all delayed operations of Apache Kafka do.
        """
