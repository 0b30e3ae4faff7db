"""An address of a broker is tried: name, connection, TLS, SASL, the client's own way in, and who answers."""

from __future__ import annotations

import re
import socket
import ssl
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from kbroker.client.connection import Connection
from kbroker.client.errors import ApiNotServed, ClientError
from kbroker.client.properties import ClientProperties
from kbroker.client.security import Asked, ClientSecurity
from kbroker.config.config_key import InvalidConfig
from kbroker.errors import ErrorCode
from kbroker.security.protocol import SecurityProtocol
from kbroker.tools.doctor.facts import CertificateFacts, ListenerFacts
from kbroker.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from kbroker.wire.messages.metadata import MetadataRequest
from kbroker.wire.messages.sasl import SaslHandshakeRequest

_CONNECT_SECONDS: Final = 3.0
_ANSWER: Final = 0.3
"""The part of all its time that a probe waits for one answer."""

_BROKER: Final = 4
"""The type of a broker's configs as a resource."""

_EXPECTED: Final = re.compile(r"expected (\d+)")

_VALIDITY: Final = frozenset({9, 10})
"""OpenSSL's codes for a certificate that is not valid yet, or not any more."""

_WEAK: Final = {"TLSv1": ssl.TLSVersion.TLSv1, "TLSv1.1": ssl.TLSVersion.TLSv1_1}


@dataclass(slots=True)
class Probe:
    """Tries addresses: with a client's ``properties`` and ``security``, both None for a plain client.

    ``wants_weak``: whether to try versions of TLS before 1.2, too.
    """

    properties: ClientProperties | None = None
    security: ClientSecurity | None = None
    client_id: str = "kbroker-doctor"
    seconds: float = 10.0
    wants_weak: bool = True
    _contexts: dict[str, ssl.SSLContext] = field(default_factory=dict)

    def look(self, host: str, port: int, broker: int | None = None) -> ListenerFacts:
        """The facts of one address, within about ``seconds``; never an error."""
        found = ListenerFacts(host, port, broker)
        try:
            resolved = resolve(host)
        except OSError as error:
            return replace(found, problem=f"the name is not known ({_reason(error)})")
        found = replace(found, resolved=resolved)
        try:
            socket.create_connection((host, port), timeout=min(_CONNECT_SECONDS, self.seconds)).close()
        except TimeoutError:
            return replace(found, problem=f"no answer to a connection on port {port}")
        except (OSError, OverflowError) as error:
            return replace(found, problem=f"no connection to port {port}: {_reason(error)}")
        found = self._enter(found)
        found = self._as_client(found) if found.entered else self._kind(found)
        return self._tls(found) if found.has_tls else found

    def _as_client(self, found: ListenerFacts) -> ListenerFacts:
        """A listener that has let the client in speaks as the client does."""
        protocol = SecurityProtocol.PLAINTEXT if self.security is None else self.security.protocol
        return replace(found, has_tls=protocol.has_tls, has_sasl=protocol.has_sasl)

    # --- Kinds of listeners -------------------------------------------------------------------------------------------

    def _kind(self, found: ListenerFacts) -> ListenerFacts:
        """Whether a listener that has refused the client has TLS and SASL."""
        wants_tls = self.security is not None and self.security.protocol.has_tls
        for has_tls in (wants_tls, not wants_tls):
            if has_tls and not tls_is_possible():
                continue
            look = _Probe(self.client_id, has_tls, self._context("any") if has_tls else None)
            try:
                look.connect(found.host, found.port, self.seconds).close()
            except ClientError:
                if has_tls and look.was_encrypted:
                    return replace(found, has_tls=True)  # it refuses whoever shows no certificate, after TLS
                continue
            return replace(found, has_tls=has_tls, has_sasl=look.has_sasl, mechanisms=look.mechanisms)
        return found

    def _context(self, kind: str) -> ssl.SSLContext:
        """A context of TLS: ``any`` trusts everybody, ``trusting`` compares no name, others are old versions."""
        if kind not in self._contexts:
            self._contexts[kind] = self._make_context(kind)
        return self._contexts[kind]

    def _make_context(self, kind: str) -> ssl.SSLContext:
        if kind in _WEAK:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # it is what is asked for
                context.minimum_version = context.maximum_version = _WEAK[kind]
            context.set_ciphers("ALL:@SECLEVEL=0")
            return context
        from kbroker.security.tls.contexts import client_context

        properties = self.properties or ClientProperties({"security.protocol": "SSL"})
        context = client_context(properties)
        context.check_hostname = False
        if kind == "any":
            context.verify_mode = ssl.CERT_NONE
        return context

    def _tls(self, found: ListenerFacts) -> ListenerFacts:
        """The certificate, whether the client trusts it, and whether old versions are taken."""
        if not tls_is_possible():
            return found
        der, distrust = None, ""
        with suppress(OSError):
            der = self._shake_hands(found, "any")
        if not found.entered and self.security is not None and self.security.protocol.has_tls:
            try:
                self._shake_hands(found, "trusting")
            except ssl.SSLCertVerificationError as error:
                if error.verify_code not in _VALIDITY:
                    distrust = error.verify_message.rstrip(".")
            except OSError:
                pass  # the refusal tells it
        weak = []
        for name in _WEAK if self.wants_weak else ():
            with suppress(OSError):
                self._shake_hands(found, name)
                weak.append(name)
        certificate = None if der is None else certificate_facts(der)
        return replace(found, certificate=certificate, distrust=distrust, weak_tls=tuple(weak))

    def _shake_hands(self, found: ListenerFacts, kind: str) -> bytes | None:
        """The certificate that is shown, in DER; ``OSError`` if there is no agreement."""
        context = self._context(kind)
        with (
            socket.create_connection((found.host, found.port), timeout=_ANSWER * self.seconds) as plain,
            context.wrap_socket(plain, server_hostname=found.host) as encrypted,
        ):
            return encrypted.getpeercert(binary_form=True)

    # --- The client's own way -----------------------------------------------------------------------------------------

    def _enter(self, found: ListenerFacts) -> ListenerFacts:
        """Come in as the client does, and ask who is there."""
        deadline = time.monotonic() + self.seconds
        try:
            connection = Connection(
                found.host, found.port, client_id=self.client_id, deadline=deadline, security=self.security
            )
        except ClientError as error:
            return replace(found, refusal=str(error))
        try:
            return self._ask(found, connection, deadline)
        except ApiNotServed:
            return replace(found, entered=True, is_broker=False)
        except ClientError as error:
            return replace(found, refusal=str(error))
        finally:
            connection.close()

    def _ask(self, found: ListenerFacts, connection: Connection, deadline: float) -> ListenerFacts:
        version = connection.version_for(MetadataRequest, 12)
        metadata = connection.request(MetadataRequest(topics=[]), deadline, version=version)
        throttled = int(metadata.throttle_time_ms)
        found = replace(found, entered=True, cluster_id=metadata.cluster_id, throttled_ms=throttled)
        if found.broker is None:
            return found
        resource = DescribeConfigsResource(
            resource_type=_BROKER, resource_name=str(found.broker), configuration_keys=["node.id"]
        )
        for result in connection.request(DescribeConfigsRequest(resources=[resource]), deadline).results:
            if result.error_code == ErrorCode.INVALID_REQUEST:
                told = _EXPECTED.search(result.error_message or "")
                return replace(found, other_id=told[1] if told is not None else "another")
        return found


class _Probe(ClientSecurity):
    """A way in that trusts whoever answers and logs in nowhere: it asks which SASL mechanisms there are."""

    def __init__(self, client_id: str, has_tls: bool, context: ssl.SSLContext | None) -> None:
        self.protocol = SecurityProtocol.SASL_SSL if has_tls else SecurityProtocol.SASL_PLAINTEXT
        self._context = context
        self._client_id = client_id
        self.has_sasl: bool | None = None
        self.mechanisms: tuple[str, ...] = ()
        self.was_encrypted = False

    def connect(self, host: str, port: int, seconds: float) -> Connection:
        """A connection on which the versions are known; ``ClientError``."""
        deadline = time.monotonic() + _ANSWER * seconds
        return Connection(host, port, client_id=self._client_id, deadline=deadline, security=self)

    def wrap(self, connected: socket.socket, host: str, address: str) -> socket.socket:
        """Do as the base does; note that TLS itself was agreed on."""
        wrapped = super().wrap(connected, host, address)
        self.was_encrypted = isinstance(wrapped, ssl.SSLSocket)
        return wrapped

    def authenticate(self, connection: Asked, deadline: float) -> float | None:
        """Ask for a mechanism that there is not; a listener without SASL says so (``ILLEGAL_SASL_STATE``)."""
        try:
            response = connection.request(SaslHandshakeRequest(mechanism="?"), deadline)
        except ClientError:
            return None
        if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            self.has_sasl = False
        elif response.error_code in (0, ErrorCode.UNSUPPORTED_SASL_MECHANISM):
            self.has_sasl = True
            self.mechanisms = tuple(sorted(response.mechanisms))
        return None


def certificate_facts(der: bytes) -> CertificateFacts | None:
    """A certificate in DER; None if it cannot be read. Without alternative names, the common name is its host."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        certificate = x509.load_der_x509_certificate(der)
        subject = certificate.subject.rfc4514_string()
        common = [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        try:
            names: x509.SubjectAlternativeName | None = certificate.extensions.get_extension_for_class(
                x509.SubjectAlternativeName
            ).value
        except x509.ExtensionNotFound:
            names = None
        hosts = common if names is None else [*names.get_values_for_type(x509.DNSName)]
        if names is not None:
            hosts += [str(each) for each in names.get_values_for_type(x509.IPAddress)]
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except ValueError:
        return None
    return CertificateFacts(subject, tuple(hosts), int(begins.timestamp() * 1000), int(ends.timestamp() * 1000))


def resolve(host: str) -> tuple[str, ...]:
    """The addresses of a name; ``OSError`` if it has none."""
    try:
        return tuple(dict.fromkeys(str(each[4][0]) for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)))
    except UnicodeError:
        raise OSError("it is no name of a host") from None


def tls_is_possible() -> bool:
    """Whether certificates can be looked at: it needs the package cryptography."""
    try:
        import kbroker.security.tls  # noqa: F401
    except (InvalidConfig, ImportError):
        return False
    return True


def _reason(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
