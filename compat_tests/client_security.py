"""The security settings of a client under test, in the words of each library; files are PEM."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OAUTHBEARER = "OAUTHBEARER"

_MODULES = {
    "GSSAPI": "com.sun.security.auth.module.Krb5LoginModule",
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}


@dataclass(frozen=True)
class Security:
    """One way to connect: a security protocol, who the client is, and whom it trusts.

    `ca` is a PEM file of certificates; `identity` is a PEM file with the client's key and certificates. With
    GSSAPI, `username` is a principal, and its key is in `keytab`; clients in Python find it by ``KRB5_CLIENT_KTNAME``.
    `java` holds properties of the Java client in place of what these would give, such as stores of another type.
    """

    protocol: str
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    ca: Path | None = None
    identity: Path | None = None
    keytab: Path | None = None
    java: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    token_url: str = ""
    """With OAUTHBEARER: where the client asks for a token, by its name and password."""
    is_token: bool = False
    """Whether `username` is a delegation token's id and `password` its secret: of these libraries Java's alone can."""

    @property
    def encrypted(self) -> bool:
        """Whether the protocol is over TLS."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def sasl(self) -> bool:
        """Whether the protocol authenticates by SASL."""
        return self.protocol.startswith("SASL")

    def java_properties(self) -> dict[str, str]:
        """For Kafka's Java clients and tools, as in a client.properties."""
        found = {"security.protocol": self.protocol}
        if self.mechanism == OAUTHBEARER:
            package = "org.apache.kafka.common.security.oauthbearer"
            found |= {
                "sasl.mechanism": self.mechanism,
                "sasl.jaas.config": f"{_MODULES[self.mechanism]} required;",
                "sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": self.token_url,
                "sasl.oauthbearer.client.credentials.client.id": self.username,
                "sasl.oauthbearer.client.credentials.client.secret": self.password,
            }
        elif self.sasl:
            login = f'username="{self.username}" password="{self.password}"'
            if self.is_token:
                login += ' tokenauth="true"'
            found["sasl.mechanism"] = self.mechanism
            if self.mechanism == "GSSAPI":
                login = f'useKeyTab=true storeKey=true keyTab="{self.keytab}" principal="{self.username}"'
                found["sasl.kerberos.service.name"] = "kafka"
            found["sasl.jaas.config"] = f"{_MODULES[self.mechanism]} required {login};"
        if self.encrypted and self.ca is not None and "ssl.truststore.certificates" not in self.java:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        if self.encrypted and self.identity is not None:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.identity)}
        return {**found, **self.java}

    def librdkafka(self) -> dict[str, Any]:
        """For librdkafka: confluent-kafka's dictionary and kcat's ``-X``."""
        found: dict[str, Any] = {"security.protocol": self.protocol.lower()}
        if self.mechanism == "GSSAPI":
            found |= {
                "sasl.mechanism": "GSSAPI",
                "sasl.kerberos.service.name": "kafka",
                "sasl.kerberos.keytab": str(self.keytab),
                "sasl.kerberos.principal": self.username,
            }
        elif self.mechanism == OAUTHBEARER:
            found |= {
                "sasl.mechanism": self.mechanism,
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": self.token_url,
                "sasl.oauthbearer.client.id": self.username,
                "sasl.oauthbearer.client.secret": self.password,
            }
        elif self.sasl:
            found |= {"sasl.mechanism": self.mechanism, "sasl.username": self.username, "sasl.password": self.password}
        if self.encrypted:
            # Before 2.0 the host was not checked unless one asked for it; kcat may be linked with either.
            found["ssl.endpoint.identification.algorithm"] = "https"
            if self.ca is not None:
                found["ssl.ca.location"] = str(self.ca)
            if self.identity is not None:
                found["ssl.certificate.location"] = found["ssl.key.location"] = str(self.identity)
        return found

    def ssl_context(self) -> ssl.SSLContext:
        """For libraries that take Python's own context: the host is checked."""
        context = ssl.create_default_context(cafile=str(self.ca) if self.ca is not None else None)
        if self.identity is not None:
            context.load_cert_chain(self.identity)
        return context

    def _python(self) -> dict[str, Any]:
        found: dict[str, Any] = {"security_protocol": self.protocol}
        if self.sasl:
            found["sasl_mechanism"] = self.mechanism
        if self.mechanism == "GSSAPI":
            found["sasl_kerberos_service_name"] = "kafka"
        elif self.sasl and self.mechanism != OAUTHBEARER:
            found |= {"sasl_plain_username": self.username, "sasl_plain_password": self.password}
        return found

    def kafka_python(self) -> dict[str, Any]:
        """Keyword arguments of kafka-python's clients."""
        found = self._python()
        if self.mechanism == OAUTHBEARER:
            from compat_tests.security.tokens import kafka_python_tokens

            found["sasl_oauth_token_provider"] = kafka_python_tokens(self.token_url, self.username, self.password)
        if self.encrypted:
            found["ssl_check_hostname"] = True
            if self.ca is not None:
                found["ssl_cafile"] = str(self.ca)
            if self.identity is not None:
                found["ssl_certfile"] = found["ssl_keyfile"] = str(self.identity)
        return found

    def aiokafka(self) -> dict[str, Any]:
        """Keyword arguments of aiokafka's clients."""
        found = self._python()
        if self.mechanism == OAUTHBEARER:
            from compat_tests.security.tokens import aiokafka_tokens

            found["sasl_oauth_token_provider"] = aiokafka_tokens(self.token_url, self.username, self.password)
        if self.encrypted:
            found["ssl_context"] = self.ssl_context()
        return found

    def kafkajs(self) -> dict[str, Any]:
        """`ssl` (paths, which the driver reads) and `sasl` of kafkajs's client."""
        found: dict[str, Any] = {}
        if self.encrypted:
            identity = None if self.identity is None else str(self.identity)
            found["ssl"] = {"ca": None if self.ca is None else str(self.ca), "identity": identity}
        if self.sasl:
            mechanism = self.mechanism.lower()
            found["sasl"] = {"mechanism": mechanism, "username": self.username, "password": self.password}
            if self.mechanism == OAUTHBEARER:
                found["sasl"]["tokenUrl"] = self.token_url
        return found
