"""GSSAPI, the SASL mechanism of Kerberos (RFC 4752), without a security layer: both sides, over a context of GSS.

The context does the cryptography. What is left is its order: tokens until the context is established, then the
server's four octets (layers that it has, its largest message), then the client's (the layer it takes, and the name it
wants to have). Kafka has no layers: TLS is there for that. Rules are those of Java's ``GssKrb5Server`` and of Kafka's
``SaslServerCallbackHandler``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kbroker.security.principal import USER_TYPE, KafkaPrincipal
from kbroker.security.sasl.kerberos.names import NoShortName, Principal, ShortNamer
from kbroker.security.sasl.mechanism import GSSAPI, SaslError

NO_LAYER = 1
"""The bit of authentication alone (``qop=auth``)."""
MAX_MESSAGE = 65536
"""The largest message that Java's server says it takes, although none comes without a layer."""

MAX_TOKENS = 4
"""Tokens of a client until its context is established; Kerberos needs one, or two in the manner of DCE."""


class Context(Protocol):
    """One side's context of GSS. Each method may block; :class:`SaslError` if a token is not accepted."""

    @property
    def is_established(self) -> bool:
        """Whether both sides know one another."""

    @property
    def initiator(self) -> str:
        """The client's principal, once established."""

    def step(self, token: bytes) -> bytes:
        """Take the other side's token (none at first, for the client); the one to send, empty if there is none."""

    def wrap(self, message: bytes) -> bytes:
        """A message with proof of its origin, not encrypted."""

    def unwrap(self, token: bytes) -> bytes:
        """The message of a token that the other side has made by ``wrap``."""


class GssapiServer:
    """The server's side of one authentication."""

    mechanism = GSSAPI
    expires_at_ms: int | None = None
    """As in Kafka, a session does not end with the client's ticket: ``connections.max.reauth.ms`` is for that."""

    def __init__(self, make_context: Callable[[], Context], namer: ShortNamer) -> None:
        """``make_context`` makes the acceptor's context; it may block, and raise ``SaslError``."""
        self._make_context = make_context
        self._namer = namer
        self._context: Context | None = None
        self._tokens = 0
        self._has_offered = False
        self._name = ""
        self.is_done = False

    @property
    def principal(self) -> KafkaPrincipal:
        """The client, once it has authenticated."""
        return KafkaPrincipal(USER_TYPE, self._name)

    def respond(self, token: bytes) -> bytes:
        """The answer to a client's message; it may block. :class:`SaslError` lets the client in no more."""
        if self.is_done:
            raise SaslError("the authentication is complete")
        context = self._context
        if context is None:
            context = self._context = self._make_context()
        if not context.is_established:
            return self._establish(context, token)
        if not self._has_offered:
            if token:
                raise SaslError("the client sends a token where none is due")
            return self._offer(context)
        self._finish(context, context.unwrap(token))
        return b""

    def _establish(self, context: Context, token: bytes) -> bytes:
        self._tokens += 1
        if self._tokens > MAX_TOKENS:
            raise SaslError("the client does not come to an end")
        answer = context.step(token)
        if context.is_established and not answer:
            return self._offer(context)
        return answer

    def _offer(self, context: Context) -> bytes:
        self._has_offered = True
        return context.wrap(bytes([NO_LAYER]) + MAX_MESSAGE.to_bytes(3, "big"))

    def _finish(self, context: Context, choice: bytes) -> None:
        """Judge the client's security layer. As in Kafka, the ticket's principal counts, no authorization id."""
        if len(choice) < 4 or not choice[0] & NO_LAYER:
            raise SaslError("the client wants a security layer, and there is none (use TLS)")
        try:
            self._name = self._namer.short_name(Principal.parse(context.initiator))
        except NoShortName as error:
            raise SaslError(str(error)) from None
        self.is_done = True


class GssapiClient:
    """The client's side of one authentication."""

    mechanism = GSSAPI

    def __init__(self, context: Context) -> None:
        """``context`` is the initiator's, and has been told to have the server prove itself."""
        self._context = context
        self._tokens = 0
        self.is_done = False

    def first(self) -> bytes:
        """The message that begins it; it may block, and be a :class:`SaslError`."""
        return self._context.step(b"")

    def respond(self, challenge: bytes) -> bytes:
        """The message that follows upon the server's; it may block. :class:`SaslError` if none does."""
        if self.is_done:
            if challenge:
                raise SaslError("the server goes on after the end")
            return b""
        if not self._context.is_established:
            self._tokens += 1
            if self._tokens > MAX_TOKENS:
                raise SaslError("the server does not come to an end")
            return self._context.step(challenge)
        offer = self._context.unwrap(challenge)
        if len(offer) != 4 or not offer[0] & NO_LAYER:
            raise SaslError("the server wants a security layer, and Kafka has none")
        self.is_done = True
        return self._context.wrap(bytes([NO_LAYER, 0, 0, 0]))
