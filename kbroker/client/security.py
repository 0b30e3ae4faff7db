"""The way into a secure listener: TLS on the socket, then SASL in requests. Made from client properties."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from kbroker.client.errors import AuthenticationFailed, ClientError, ConnectionFailed
from kbroker.config.config_key import InvalidConfig
from kbroker.security.protocol import SecurityProtocol
from kbroker.wire.schema import Request

if TYPE_CHECKING:
    import socket

    from kbroker.client.properties import ClientProperties
    from kbroker.security.sasl.client import ClientMechanism

R = TypeVar("R")

_ALERT_SECONDS: Final = 0.2
"""The time to look for the alert of a broker that has closed the connection: it comes before the end, or never."""

_ALERTS: Final = {
    "CERTIFICATE_REQUIRED": "wants a certificate of the client (ssl.keystore.location)",
    "HANDSHAKE_FAILURE": "refuses the TLS handshake: no common cipher suite, or it wants a certificate of the client",
    "BAD_CERTIFICATE": "does not accept the client's certificate, or wants one (ssl.keystore.location)",
    "UNKNOWN_CA": "does not know the authority of the client's certificate",
    "CERTIFICATE_UNKNOWN": "does not accept the client's certificate",
    "CERTIFICATE_EXPIRED": "says that the client's certificate has expired",
    "CERTIFICATE_REVOKED": "says that the client's certificate is revoked",
    "PROTOCOL_VERSION": "does not speak this version of TLS (ssl.enabled.protocols)",
}
"""Ends of the names of TLS's alerts, and what a broker says by them."""

_UNTRUSTED: Final = frozenset({2, 18, 19, 20, 21})
"""OpenSSL's codes for a certificate whose authority is not trusted (X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT and so on)."""


class Asked(Protocol):
    """A connection whose versions are known."""

    host: str
    """The broker's name or address, as the client has it."""
    address: str

    def request(self, request: Request[R], deadline: float) -> R:
        """The answer to a request; ``ClientError`` if there is none before the deadline."""


class ClientSecurity:
    """The steps of a connection after it is made; one for all connections of a client."""

    def __init__(self, protocol: SecurityProtocol, properties: ClientProperties) -> None:
        """:class:`ClientError` if a store cannot be read, or if SASL lacks a property."""
        self.protocol = protocol
        self._context: ssl.SSLContext | None = None
        self._properties = properties
        if protocol.has_tls:
            try:
                from kbroker.security.tls.contexts import client_context

                self._context = client_context(properties)
            except InvalidConfig as error:
                raise ClientError(f"{properties.source}: {error.message}") from None
        self._mechanism = self._sasl_mechanism() if protocol.has_sasl else None

    def _sasl_mechanism(self) -> ClientMechanism:
        from kbroker.security.sasl.client import client_mechanism
        from kbroker.security.sasl.jaas import JaasError

        properties = self._properties
        source = properties.source
        if "sasl.jaas.config" not in properties:
            told = "" if "sasl.mechanism" in properties else ", and sasl.mechanism unless it is GSSAPI"
            raise ClientError(f"{source}: {self.protocol.name} needs sasl.jaas.config{told}")
        try:
            return client_mechanism(properties["sasl.mechanism"], properties["sasl.jaas.config"].value, properties)
        except JaasError as error:
            raise ClientError(f"{source}: sasl.jaas.config: {error}") from None
        except ValueError as error:
            raise ClientError(f"{source}: {error}") from None

    # --- TLS --------------------------------------------------------------------------------------------------------

    def wrap(self, connected: socket.socket, host: str, address: str) -> socket.socket:
        """The socket to go on with, within the time limit that the given one has.

        :class:`AuthenticationFailed` if one side does not accept the other, :class:`ConnectionFailed` if the
        connection is lost. The given socket is of no use after an error.
        """
        if self._context is None:
            return connected
        try:
            return self._context.wrap_socket(connected, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            hint = "; ssl.truststore.location names what is trusted" if error.verify_code in _UNTRUSTED else ""
            raise AuthenticationFailed(
                f"the certificate of {address} is not accepted: {error.verify_message.rstrip('.')}{hint}"
            ) from None
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            raise ConnectionFailed(
                f"{address} closed the connection in the TLS handshake (is security.protocol right?)"
            ) from None
        except ssl.SSLError as error:
            raise self.refusal(error, address) or AuthenticationFailed(
                f"{address} does not agree on TLS: {_told(error)}"
            ) from None
        except TimeoutError:
            raise ConnectionFailed(
                f"{address} does not answer the TLS handshake (is it a listener with TLS?)"
            ) from None
        except OSError as error:
            raise ConnectionFailed(
                f"{address} ended the connection in the TLS handshake (is security.protocol right?):"
                f" {error.strerror or type(error).__name__}"
            ) from None

    def has_pending(self, connected: socket.socket) -> bool:
        """Whether TLS holds decrypted bytes that nobody has read."""
        return isinstance(connected, ssl.SSLSocket) and connected.pending() > 0

    @staticmethod
    def reason(connected: socket.socket, error: OSError) -> OSError:
        """The reason why a socket takes no bytes any more: the alert that has come over it, if there is one."""
        if isinstance(connected, ssl.SSLSocket):
            try:
                connected.settimeout(_ALERT_SECONDS)
                connected.recv(1)
            except OSError as better:
                return better
        return error

    @staticmethod
    def refusal(error: OSError, address: str) -> AuthenticationFailed | None:
        """The error for a TLS alert by which a broker refuses the client, None for anything else.

        With TLS 1.3 the alert comes when the client takes the connection for good already.
        """
        reason = getattr(error, "reason", None)
        if not isinstance(error, ssl.SSLError) or not isinstance(reason, str):
            return None
        if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return AuthenticationFailed(f"{address} does not speak TLS there (is security.protocol right?)")
        if "ALERT" not in reason:
            return None
        for end, meaning in _ALERTS.items():
            if reason.endswith(end):
                return AuthenticationFailed(f"{address} {meaning}")
        return AuthenticationFailed(f"{address} ends TLS with an alert: {_told(error)}")

    # --- SASL -------------------------------------------------------------------------------------------------------

    def authenticate(self, connection: Asked, deadline: float) -> float | None:
        """Say who the client is; the seconds that the session lasts, None for ever (KIP-368).

        SaslHandshake v1, SaslAuthenticate up to v2. :class:`AuthenticationFailed` with the broker's text.
        """
        if not self.protocol.has_sasl:
            return None
        from kbroker.security.sasl.client import Login, LoginFailed

        assert self._mechanism is not None
        login = Login(self._mechanism, connection.host)
        try:
            request = login.shaken(connection.request(login.handshake(), deadline))
            while (following := login.answered(connection.request(request, deadline))) is not None:
                request = following
        except LoginFailed as error:
            raise AuthenticationFailed(f"{connection.address} {error}") from None
        return login.session_lifetime_ms / 1000 if login.session_lifetime_ms else None

    def __repr__(self) -> str:
        return f"<{self.protocol.name}>"


def security_of(properties: ClientProperties) -> ClientSecurity | None:
    """The security that client properties ask for; None for PLAINTEXT. Errors as of :class:`ClientSecurity`."""
    protocol = SecurityProtocol[properties["security.protocol"].upper()]
    if protocol is SecurityProtocol.PLAINTEXT:
        return None
    return ClientSecurity(protocol, properties)


def _told(error: ssl.SSLError) -> str:
    return (error.reason or error.strerror or type(error).__name__).lower().replace("_", " ")
