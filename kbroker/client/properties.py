"""Kafka's properties of a client, as in a ``client.properties``: where the cluster is, and how it is entered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kbroker.client.errors import ClientError
from kbroker.config import read_properties_file, with_provided
from kbroker.config.assertions import AssertionProperties
from kbroker.config.config_key import ConfigDef, InvalidConfig, OneOf
from kbroker.config.provided import PROVIDERS, without_values
from kbroker.config.schema_registry import RegistryProperties, tls_keys
from kbroker.config.table import BOOLEAN, CLASS, DOUBLE, INT, LIST, LONG, LOW, MEDIUM, PASSWORD, SHORT, STRING, Table
from kbroker.errors import FatalError


class _TlsProperties(Table):
    """Properties of TLS, of a cluster's and of a schema registry's."""

    ssl_cipher_suites = LIST("", LOW)
    """Cipher suites allowed; by default those of OpenSSL."""
    ssl_enabled_protocols = LIST("TLSv1.2,TLSv1.3", MEDIUM)
    """Versions of TLS allowed."""
    ssl_endpoint_identification_algorithm = STRING("https", LOW)
    """`https` compares the broker's certificate with its address; empty does not."""
    ssl_key_password = PASSWORD(None, MEDIUM)
    """Password of the private key."""
    ssl_keystore_certificate_chain = PASSWORD(None, MEDIUM)
    """The client's certificates in PEM."""
    ssl_keystore_key = PASSWORD(None, MEDIUM)
    """The client's private key in PEM."""
    ssl_keystore_location = STRING(None, MEDIUM)
    """File with the client's key and certificate."""
    ssl_keystore_password = PASSWORD(None, MEDIUM)
    """Password of that file."""
    ssl_keystore_type = STRING("JKS", MEDIUM)
    """Format of that file."""
    ssl_protocol = STRING("TLSv1.3", MEDIUM)
    """Highest version of TLS."""
    ssl_truststore_certificates = PASSWORD(None, MEDIUM)
    """Trusted certificates in PEM."""
    ssl_truststore_location = STRING(None, MEDIUM)
    """File with trusted certificates."""
    ssl_truststore_password = PASSWORD(None, MEDIUM)
    """Password of that file."""
    ssl_truststore_type = STRING("JKS", MEDIUM)
    """Format of that file."""


class _LoginProperties(AssertionProperties):
    """Properties of connections, and of logins."""

    bootstrap_servers = STRING("", MEDIUM)
    """Brokers to ask first; `-b` goes before it."""
    client_id = STRING("", LOW)
    """Name under which the brokers know the client."""
    security_protocol = STRING(
        "PLAINTEXT", MEDIUM, OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), ignore_case=True)
    )
    """Properties of the security of connections."""
    sasl_mechanism = STRING("GSSAPI", MEDIUM)
    """SASL mechanism by which the client says who it is."""
    sasl_jaas_config = PASSWORD(None, MEDIUM)
    """Login module with the user's name and password."""
    sasl_kerberos_kinit_cmd = STRING("/usr/bin/kinit", LOW)
    """Command that renews the tickets of a cache."""
    sasl_kerberos_min_time_before_relogin = LONG("60000", LOW)
    """Milliseconds between two renewals of a ticket."""
    sasl_kerberos_service_name = STRING(None, MEDIUM)
    """First part of the brokers' Kerberos principals."""
    sasl_kerberos_ticket_renew_jitter = DOUBLE("0.05", LOW)
    """Random share added to the time of renewal."""
    sasl_kerberos_ticket_renew_window_factor = DOUBLE("0.8", LOW)
    """Share of a ticket's lifetime after which it is renewed."""
    sasl_login_callback_handler_class = CLASS(None, MEDIUM)
    """Properties of tokens of OAUTHBEARER."""
    sasl_login_connect_timeout_ms = INT(None, LOW)
    """Time for a connection to a token provider."""
    sasl_login_read_timeout_ms = INT(None, LOW)
    """Time for a token provider's answer."""
    sasl_login_refresh_buffer_seconds = SHORT("300", LOW)
    """Seconds of a token that are not used."""
    sasl_login_refresh_min_period_seconds = SHORT("60", LOW)
    """Least time between two tokens."""
    sasl_login_refresh_window_factor = DOUBLE("0.8", LOW)
    """Share of a token's time that is used."""
    sasl_login_refresh_window_jitter = DOUBLE("0.05", LOW)
    """Share of it that is left to chance."""
    sasl_login_retry_backoff_max_ms = LONG("10000", LOW)
    """Properties of the time that a token provider is tried."""
    sasl_login_retry_backoff_ms = LONG("100", LOW)
    """First wait before it is tried again."""
    sasl_oauthbearer_client_credentials_client_id = STRING(None, MEDIUM)
    """The client at its provider."""
    sasl_oauthbearer_client_credentials_client_secret = PASSWORD(None, MEDIUM)
    """Its secret there."""
    sasl_oauthbearer_header_urlencode = BOOLEAN("false", LOW)
    """URL-encode the two, as RFC 6749 says."""
    sasl_oauthbearer_jwt_retriever_class = CLASS(
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever", MEDIUM
    )
    """Properties of tokens."""
    sasl_oauthbearer_scope = STRING(None, MEDIUM)
    """Scope that is asked for."""
    sasl_oauthbearer_sub_claim_name = STRING("sub", LOW)
    """Claim that holds the subject."""
    sasl_oauthbearer_token_endpoint_url = STRING(None, MEDIUM)
    """Token provider, or a token's file."""


CLIENT_CONFIGS: Final = ConfigDef(
    "client", [*_LoginProperties.KEYS, *_TlsProperties.KEYS, *RegistryProperties.KEYS, *tls_keys(_TlsProperties.KEYS)]
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
