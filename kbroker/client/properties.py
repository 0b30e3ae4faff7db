"""Kafka's properties of a client, as in a ``client.properties``: where the cluster is, and how it is entered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kbroker.client.errors import ClientError
from kbroker.config import read_properties_file, with_provided
from kbroker.config.assertions import KEYS as ASSERTION_KEYS
from kbroker.config.definition import ConfigDef, ConfigKey, InvalidConfig, OneOf
from kbroker.config.provided import PROVIDERS, without_values
from kbroker.config.schema_registry import KEYS as REGISTRY_KEYS
from kbroker.config.schema_registry import tls_keys
from kbroker.config.shorthand import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    SHORT,
    STRING,
)
from kbroker.errors import FatalError

_TLS_KEYS: Final = (
    ConfigKey("ssl.cipher.suites", LIST, "", LOW, "Cipher suites allowed; by default those of OpenSSL."),
    ConfigKey("ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", MEDIUM, "Versions of TLS allowed."),
    ConfigKey(
        "ssl.endpoint.identification.algorithm",
        STRING,
        "https",
        LOW,
        "`https` compares the broker's certificate with its address; empty does not.",
    ),
    ConfigKey("ssl.key.password", PASSWORD, None, MEDIUM, "Password of the private key."),
    ConfigKey("ssl.keystore.certificate.chain", PASSWORD, None, MEDIUM, "The client's certificates in PEM."),
    ConfigKey("ssl.keystore.key", PASSWORD, None, MEDIUM, "The client's private key in PEM."),
    ConfigKey("ssl.keystore.location", STRING, None, MEDIUM, "File with the client's key and certificate."),
    ConfigKey("ssl.keystore.password", PASSWORD, None, MEDIUM, "Password of that file."),
    ConfigKey("ssl.keystore.type", STRING, "JKS", MEDIUM, "Format of that file."),
    ConfigKey("ssl.protocol", STRING, "TLSv1.3", MEDIUM, "Highest version of TLS."),
    ConfigKey("ssl.truststore.certificates", PASSWORD, None, MEDIUM, "Trusted certificates in PEM."),
    ConfigKey("ssl.truststore.location", STRING, None, MEDIUM, "File with trusted certificates."),
    ConfigKey("ssl.truststore.password", PASSWORD, None, MEDIUM, "Password of that file."),
    ConfigKey("ssl.truststore.type", STRING, "JKS", MEDIUM, "Format of that file."),
)

CLIENT_CONFIGS: Final = ConfigDef(
    "client",
    [
        ConfigKey("bootstrap.servers", STRING, "", MEDIUM, "Brokers to ask first; `-b` goes before it."),
        ConfigKey("client.id", STRING, "", LOW, "Name under which the brokers know the client."),
        ConfigKey(
            "security.protocol",
            STRING,
            "PLAINTEXT",
            MEDIUM,
            "How connections are secured.",
            validator=OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), ignore_case=True),
        ),
        ConfigKey("sasl.mechanism", STRING, "GSSAPI", MEDIUM, "SASL mechanism by which the client says who it is."),
        ConfigKey("sasl.jaas.config", PASSWORD, None, MEDIUM, "Login module with the user's name and password."),
        ConfigKey(
            "sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", LOW, "Command that renews the tickets of a cache."
        ),
        ConfigKey(
            "sasl.kerberos.min.time.before.relogin",
            LONG,
            "60000",
            LOW,
            "Milliseconds between two renewals of a ticket.",
        ),
        ConfigKey(
            "sasl.kerberos.service.name", STRING, None, MEDIUM, "First part of the brokers' Kerberos principals."
        ),
        ConfigKey(
            "sasl.kerberos.ticket.renew.jitter", DOUBLE, "0.05", LOW, "Random share added to the time of renewal."
        ),
        ConfigKey(
            "sasl.kerberos.ticket.renew.window.factor",
            DOUBLE,
            "0.8",
            LOW,
            "Share of a ticket's lifetime after which it is renewed.",
        ),
        ConfigKey("sasl.login.callback.handler.class", CLASS, None, MEDIUM, "How tokens of OAUTHBEARER are had."),
        ConfigKey("sasl.login.connect.timeout.ms", INT, None, LOW, "Time for a connection to a token provider."),
        ConfigKey("sasl.login.read.timeout.ms", INT, None, LOW, "Time for a token provider's answer."),
        ConfigKey("sasl.login.refresh.buffer.seconds", SHORT, "300", LOW, "Seconds of a token that are not used."),
        ConfigKey("sasl.login.refresh.min.period.seconds", SHORT, "60", LOW, "Least time between two tokens."),
        ConfigKey("sasl.login.refresh.window.factor", DOUBLE, "0.8", LOW, "Share of a token's time that is used."),
        ConfigKey("sasl.login.refresh.window.jitter", DOUBLE, "0.05", LOW, "Share of it that is left to chance."),
        ConfigKey("sasl.login.retry.backoff.max.ms", LONG, "10000", LOW, "How long a token provider is tried."),
        ConfigKey("sasl.login.retry.backoff.ms", LONG, "100", LOW, "First wait before it is tried again."),
        *ASSERTION_KEYS,
        ConfigKey("sasl.oauthbearer.client.credentials.client.id", STRING, None, MEDIUM, "The client at its provider."),
        ConfigKey("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None, MEDIUM, "Its secret there."),
        ConfigKey("sasl.oauthbearer.header.urlencode", BOOLEAN, "false", LOW, "URL-encode the two, as RFC 6749 says."),
        ConfigKey(
            "sasl.oauthbearer.jwt.retriever.class",
            CLASS,
            "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
            MEDIUM,
            "How tokens are had.",
        ),
        ConfigKey("sasl.oauthbearer.scope", STRING, None, MEDIUM, "Scope that is asked for."),
        ConfigKey("sasl.oauthbearer.sub.claim.name", STRING, "sub", LOW, "Claim that holds the subject."),
        ConfigKey("sasl.oauthbearer.token.endpoint.url", STRING, None, MEDIUM, "Token provider, or a token's file."),
        *_TLS_KEYS,
        *REGISTRY_KEYS,
        *tls_keys(_TLS_KEYS),
    ],
)
"""Names, types and defaults are those of Apache Kafka's clients (``SslConfigs``, ``SaslConfigs``), and for a schema
registry those of Confluent's.
"""

_TOKEN_LOGIN: Final = "sasl.login.callback.handler.class"

_UNSUPPORTED: Final = frozenset(
    {
        "sasl.client.callback.handler.class",
        "sasl.login.class",
        "sasl.oauthbearer.jwks.endpoint.url",
        "security.providers",
        "ssl.engine.factory.class",
    }
)
"""Properties that change how a client is secured, and that this client cannot follow."""


class ClientProperties:
    """The settings of a ``client.properties``.

    It is also what `kbroker.security.tls.contexts` reads: ``properties[name]`` is typed, and has Kafka's default.
    """

    def __init__(self, given: Mapping[str, str], source: str = "client properties") -> None:
        """:class:`ClientError` for a bad value, and for a property of security that this client cannot follow."""
        self.source = source
        """Where they come from, for messages."""
        self.without_effect: tuple[str, ...] = tuple(sorted(given.keys() - CLIENT_CONFIGS.keys() - _UNSUPPORTED))
        """Names that mean nothing to this client: a consumer's or a producer's, or misspelt."""
        self._values: dict[str, Any] = {}
        unsupported = sorted(name for name in given.keys() & _UNSUPPORTED if given[name].strip())
        if unsupported:
            raise ClientError(f"{source}: {unsupported[0]} is not supported by this client")
        for name in sorted(given.keys() & CLIENT_CONFIGS.keys()):
            try:
                self._values[name] = CLIENT_CONFIGS.parse(name, given[name])
            except InvalidConfig as error:
                raise ClientError(f"{source}: {without_values(error.message, given.values())}") from None
        if self[_TOKEN_LOGIN] and self["sasl.mechanism"] != "OAUTHBEARER":
            raise ClientError(f"{source}: {_TOKEN_LOGIN} is not supported by this client, but with OAUTHBEARER")

    @classmethod
    def read(cls, path: Path) -> ClientProperties:
        """Read a properties file, with the values of its config providers (KIP-297).

        :class:`ClientError` as of the constructor, and if the file, or a value, cannot be read.
        """
        try:
            given = with_provided(read_properties_file(path))
        except FatalError as error:
            raise ClientError(str(error)) from None
        if PROVIDERS in given:
            given = {name: value for name, value in given.items() if not name.startswith(PROVIDERS)}
        return cls(given, str(path))

    def with_login(self, jaas: str) -> ClientProperties:
        """The same settings with another login (``sasl.jaas.config``)."""
        other = ClientProperties({"sasl.jaas.config": jaas}, self.source)
        other._values = self._values | other._values
        return other

    def __getitem__(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        return CLIENT_CONFIGS[name].default_value()

    def __contains__(self, name: object) -> bool:
        """Whether it is given, rather than left to its default."""
        return name in self._values

    def has_any(self, prefix: str) -> bool:
        """Whether a property is given whose name begins so."""
        return any(name.startswith(prefix) for name in self._values)

    def __repr__(self) -> str:
        return f"<{self.source}: {', '.join(sorted(self._values))}>"
