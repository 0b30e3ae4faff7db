"""Lets a connection into a listener: TLS first, then SASL, as its security protocol says.

What comes of it is :class:`Admitted`. A plain listener has no admission, and its clients are ANONYMOUS.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from kbroker.security.principal import ANONYMOUS, KafkaPrincipal

if TYPE_CHECKING:
    import trio

    from kbroker.node.serving.connection import Connection
    from kbroker.runtime.env import Poller, Stream
    from kbroker.runtime.turns import StepTurns


class AdmissionRefused(Exception):
    """The client is not let in; the text says why, and goes to the log."""

    kind = "protocol"
    """The log keeps an address's refusals of one kind from hiding those of another."""


class Admitted:
    """A connection on its way in: the stream to go on with, and what is known of its client so far.

    Each step may put its own stream around ``stream``. It closes nothing when it fails; the admission does.
    """

    __slots__ = ("_limit", "_turns", "certificate", "keeper", "mechanism", "principal", "session", "stream")

    def __init__(self, stream: Stream, limit: trio.CancelScope | None = None, turns: StepTurns | None = None) -> None:
        """``limit`` ends the admission at its deadline."""
        self.stream = stream
        self._limit = limit
        self._turns = turns
        self.principal: KafkaPrincipal = ANONYMOUS
        self.certificate: bytes | None = None
        """The client's, in DER; None if it has shown none."""
        self.mechanism = ""
        """The mechanism of SASL by which it has authenticated."""
        self.session: object | None = None
        """SASL's part of the connection, for authenticating again (KIP-368)."""
        self.keeper: Callable[[Connection], Callable[[], Awaitable[None]]] | None = None
        """Makes the task that runs beside the connection where its session ends unless it is renewed."""

    async def has_sent(self) -> None:
        """Wait until the client has sent something, and for the turn to work on it."""
        await self.stream.wait_readable()
        if self._turns is not None:
            await self._turns.take()

    def extend_limit(self, seconds: float) -> None:
        """Let the admission take longer by this much: the server makes the client wait."""
        if self._limit is not None:
            self._limit.deadline += seconds


class AdmissionStep(Protocol):
    """A part of an admission."""

    async def admit(self, client: Admitted) -> None:
        """Take the client a step further; :class:`AdmissionRefused`, ``OSError`` or ``WireError`` if there is none."""


class Admission:
    """The steps of a listener, in their order."""

    def __init__(
        self,
        steps: Sequence[AdmissionStep],
        wrap_poller: Callable[[Poller], Poller] | None = None,
        *,
        turns: StepTurns | None = None,
        wait_for_room: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """``wrap_poller`` makes a poller for the streams of the steps out of one for the listener's.

        ``turns`` are those of all listeners. ``wait_for_room`` holds back new connections while those before them keep
        the steps busy.
        """
        self._steps = steps
        self._wrap_poller = wrap_poller
        self._turns = turns
        self._wait_for_room = wait_for_room

    async def may_begin(self) -> None:
        """Wait until another connection may be accepted: it stays with the system until then."""
        if self._wait_for_room is not None:
            await self._wait_for_room()
        if self._turns is not None:
            await self._turns.take()

    def poller(self, poller: Poller | None) -> Poller | None:
        """The poller for admitted streams, by the network's own."""
        return poller if poller is None or self._wrap_poller is None else self._wrap_poller(poller)

    async def admit(self, stream: Stream, limit: trio.CancelScope | None = None) -> Admitted:
        """Take a client through all steps; errors as :meth:`AdmissionStep.admit`, and the stream is closed then.

        ``limit`` ends all of them at its deadline.
        """
        client = Admitted(stream, limit, self._turns)
        try:
            for step in self._steps:
                await step.admit(client)
            if self._turns is not None:
                await self._turns.take()
        except BaseException:
            client.stream.close()
            raise
        return client
