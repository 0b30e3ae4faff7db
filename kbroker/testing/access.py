"""The ways of clients into a broker or a cluster in a test, in the words of each kind of client."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbroker.security.protocol import SecurityProtocol

if TYPE_CHECKING:
    from kbroker.tools.cli.secure_setup import SecureSetup

DEFAULT_MECHANISM = "SCRAM-SHA-512"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class ClientAccess:
    """The way in of one client, in the words of each kind. ``ValueError`` for a mechanism that is not there."""

    protocol: SecurityProtocol
    ca_file: Path | None
    """The certificate to trust, with TLS."""
    certificate: Path | None = None
    """The client's own key and certificate, if it shows one."""
    user: str = ""
    password: str = field(default="", repr=False)
    mechanism: str = DEFAULT_MECHANISM

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            raise ValueError(f"{self.mechanism} is not one of the mechanisms {', '.join(MECHANISMS)}")

    def kafka(self) -> dict[str, str]:
        """Under the names of Kafka's own clients."""
        from kbroker.tools.cli.secure_setup import login_line, pem_stores

        found = {"security.protocol": self.protocol.name}
        if self.protocol.has_sasl:
            line = login_line(self.mechanism, {"username": self.user, "password": self.password})
            found |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": line}
        return found if self.ca_file is None else found | pem_stores(self.ca_file, self.certificate)

    def librdkafka(self) -> dict[str, str]:
        """Under the names of clients made on librdkafka."""
        found = {"security.protocol": self.protocol.name}
        if self.ca_file is not None:
            found["ssl.ca.location"] = str(self.ca_file)
        if self.certificate is not None:
            found |= {"ssl.certificate.location": str(self.certificate), "ssl.key.location": str(self.certificate)}
        if self.protocol.has_sasl:
            found |= {"sasl.mechanism": self.mechanism, "sasl.username": self.user, "sasl.password": self.password}
        return found

    def python(self) -> dict[str, Any]:
        """The arguments of kafka-python and aiokafka."""
        found: dict[str, Any] = {"security_protocol": self.protocol.name}
        if self.ca_file is not None:
            import ssl

            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate)
            found["ssl_context"] = context
        if self.protocol.has_sasl:
            login = {"sasl_plain_username": self.user, "sasl_plain_password": self.password}
            found |= {"sasl_mechanism": self.mechanism, **login}
        return found


class Accessible:
    """The part of a broker and a cluster that clients need: where they are, and how to come in."""

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for a client's ``bootstrap.servers``."""
        raise NotImplementedError

    def _access(self, user: str | None, mechanism: str) -> ClientAccess | None:
        """The way in; None where everybody may."""
        raise NotImplementedError

    def client_properties(self, user: str | None = None, *, mechanism: str = DEFAULT_MECHANISM) -> dict[str, str]:
        """A client's properties, under the names of Kafka's own clients (Java, Spark, ``kbroker --command-config``).

        ``user`` is one of the users, the first by default. On a listener of ``ssl`` it is any name, which a certificate
        is made for; by default the client shows none. ``ValueError`` for another user or mechanism.
        """
        access = self._access(user, mechanism)
        return {"bootstrap.servers": self.bootstrap_servers} | ({} if access is None else access.kafka())

    def librdkafka_properties(self, user: str | None = None, *, mechanism: str = DEFAULT_MECHANISM) -> dict[str, str]:
        """Properties (see :meth:`client_properties`) for confluent-kafka, kcat and other clients made on librdkafka."""
        access = self._access(user, mechanism)
        return {"bootstrap.servers": self.bootstrap_servers} | ({} if access is None else access.librdkafka())

    def python_options(self, user: str | None = None, *, mechanism: str = DEFAULT_MECHANISM) -> dict[str, Any]:
        """Properties (see :meth:`client_properties`) as arguments of kafka-python's and aiokafka's clients."""
        access = self._access(user, mechanism)
        return {"bootstrap_servers": self.bootstrap_servers} | ({} if access is None else access.python())


def secure_access(setup: SecureSetup, user: str | None, mechanism: str) -> ClientAccess:
    """The way into a secure cluster for ``client``, the default, or ``admin``."""
    from kbroker.tools.cli.secure_setup import CLIENT, MECHANISM, PROTOCOL

    name = CLIENT if user is None else user
    if name not in setup.passwords:
        raise ValueError(f"{name} is not one of the users {', '.join(setup.passwords)}")
    if mechanism != MECHANISM:
        raise ValueError(f"the cluster has SASL mechanism {MECHANISM} alone, not {mechanism}")
    return ClientAccess(SecurityProtocol[PROTOCOL], setup.ca_file, None, name, setup.passwords[name], mechanism)
