"""The TLS of one listener as it is now: its contexts, its certificate, and the files that they came from.

A new one may take the place of an old one while a node runs, under Kafka's conditions (``SslFactory``).
"""

from __future__ import annotations

import datetime
import os
import ssl
from dataclasses import dataclass

from cryptography import x509

from kbroker.config.config_key import InvalidConfig
from kbroker.security.tls.contexts import client_context, server_context
from kbroker.security.tls.names import subject_name
from kbroker.security.tls.stores import (
    KeyStore,
    PropertyOverride,
    Values,
    alternative_names,
    read_key_store,
    read_trust_store,
    text_of,
)

_FILES = ("ssl.keystore.location", "ssl.truststore.location")

Files = tuple[tuple[str, int, int, int] | None, ...]
"""Of each store that is a file: its path, and time, size and number as the system tells them."""


@dataclass(frozen=True, slots=True, repr=False)
class Material:
    """The certificates that a listener shows and trusts."""

    server: ssl.SSLContext | None
    """For the connections of clients; None where only this node connects to others."""
    client: ssl.SSLContext | None
    """For connections to other nodes; None for a listener that nodes do not use."""
    probe: ssl.SSLContext | None
    """The context of ``client`` without the check of names: for trying what fits together, never for a connection."""
    chain: tuple[x509.Certificate, ...]
    """The certificate with those that signed it, as the key store has them; empty without a key store."""
    has_trust_store: bool

    @property
    def expires(self) -> datetime.datetime | None:
        """When the first certificate of the chain expires."""
        return min((certificate.not_valid_after_utc for certificate in self.chain), default=None)


def load(values: Values, *, serves: bool, connects: bool) -> Material:
    """Make it from properties. :class:`InvalidConfig`.

    A listener that other nodes use must have a certificate that its own trust store trusts, as in Kafka: otherwise
    no node reaches another, and each would say so of the others.
    """
    server = server_context(values) if serves else None
    client = client_context(values) if connects else None
    probe = client_context(PropertyOverride(values, "ssl.endpoint.identification.algorithm", "")) if connects else None
    if server is not None and probe is not None:
        problem = mismatch(server, probe)
        if problem is not None:
            hint = "; ssl.truststore.location must trust it" if "certificate is not accepted" in problem else ""
            raise InvalidConfig(
                f"a client with these properties of TLS cannot connect to a server with them: {problem}{hint}"
            )
    key_store = read_key_store(values)
    return Material(server, client, probe, _parsed(key_store), read_trust_store(values) is not None)


def files(values: Values) -> Files:
    """The present state of the stores' files: another one means that they are to be read again."""
    return tuple(_state(text_of(values, name)) for name in _FILES)


def _state(path: str | None) -> tuple[str, int, int, int] | None:
    if path is None:
        return None
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return path, 0, 0, 0
    return path, found.st_mtime_ns, found.st_size, found.st_ino


def _parsed(key_store: KeyStore | None) -> tuple[x509.Certificate, ...]:
    if key_store is None:
        return ()
    try:
        return tuple(x509.load_der_x509_certificate(der) for der in key_store.chain)
    except ValueError as error:
        raise InvalidConfig(f"ssl.keystore: a certificate cannot be read: {error}") from None


def check_replacement(old: Material, new: Material, values: Values) -> None:
    """Whether ``new`` may take the place of ``old`` while connections are open; :class:`InvalidConfig` if not.

    ``values`` are the properties of the new one.
    """
    if not old.chain and new.chain:
        raise InvalidConfig("a key store cannot be added to a listener that was started without one")
    if old.chain and not new.chain:
        raise InvalidConfig("the key store of a listener cannot be removed while it runs")
    if new.has_trust_store and not old.has_trust_store:
        raise InvalidConfig("a trust store cannot be added to a listener that was started without one")
    if old.chain:
        _check_certificate(old.chain[0], new.chain[0], values)
    for server, probe in ((old.server, new.probe), (new.server, old.probe)):
        problem = None if server is None or probe is None else mismatch(server, probe)
        if problem is not None:
            raise InvalidConfig(f"nodes with the old stores and nodes with the new ones cannot connect: {problem}")


def _check_certificate(old: x509.Certificate, new: x509.Certificate, values: Values) -> None:
    before, after = subject_name(_der(old)), subject_name(_der(new))
    if not values["ssl.allow.dn.changes"] and old.subject != new.subject and before.lower() != after.lower():
        raise InvalidConfig(
            f"the new certificate's distinguished name is {after} and not {before}; ssl.allow.dn.changes is false"
        )
    missing = alternative_names(old) - alternative_names(new)
    if missing and not values["ssl.allow.san.changes"]:
        raise InvalidConfig(
            f"the new certificate is not for {', '.join(sorted(missing))} any more; ssl.allow.san.changes is false"
        )


def _der(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.DER)


def mismatch(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """The reason why a client and a server with these contexts do not connect; None if they do. No name is checked."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    waiting = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return handshake_problem(error)
        if not waiting:
            return None
    return "the handshake does not end"


_PROBLEMS = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "HTTP_REQUEST": "it speaks HTTP",
    "HTTPS_PROXY_REQUEST": "it speaks HTTP",
    "UNEXPECTED_MESSAGE": "it does not speak TLS",
    "PACKET_LENGTH_TOO_LONG": "it does not speak TLS",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate, and ssl.client.auth is required",
    "UNSUPPORTED_PROTOCOL": "it knows none of ssl.enabled.protocols",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it accepts none of ssl.enabled.protocols",
    "NO_SHARED_CIPHER": "there is no common cipher suite",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the certificate that it was shown",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept the certificate that it was shown",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept the certificate that it was shown",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the certificate that it was shown has expired",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it wants a certificate, and was shown none",
}


def handshake_problem(error: ssl.SSLError) -> str:
    """The reason why a handshake has failed, for a person; "it" is the other side."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    return _PROBLEMS.get(error.reason, error.reason or "the handshake has failed")
