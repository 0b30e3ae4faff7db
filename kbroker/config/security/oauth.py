"""Properties of SASL/OAUTHBEARER, and of logins that are renewed."""

from __future__ import annotations

from kbroker.config.assertions import KEYS as ASSERTION_KEYS
from kbroker.config.definition import ConfigKey
from kbroker.config.shorthand import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    SHORT,
    STRING,
)

KEYS: list[ConfigKey] = [
    *ASSERTION_KEYS,
    ConfigKey(
        "sasl.login.callback.handler.class",
        CLASS,
        None,
        MEDIUM,
        "Java class that answers callbacks of a login.",
    ),
    ConfigKey(
        "sasl.login.connect.timeout.ms",
        INT,
        None,
        LOW,
        "Milliseconds that a connection to an authentication provider may take.",
    ),
    ConfigKey(
        "sasl.login.read.timeout.ms",
        INT,
        None,
        LOW,
        "Milliseconds that an answer of an authentication provider may take.",
    ),
    ConfigKey(
        "sasl.login.refresh.buffer.seconds",
        SHORT,
        "300",
        MEDIUM,
        "Seconds before a credential's end at which it has been refreshed at the latest.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "sasl.login.refresh.min.period.seconds",
        SHORT,
        "60",
        MEDIUM,
        "Seconds between two refreshes of a credential at least.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "sasl.login.refresh.window.factor",
        DOUBLE,
        "0.8",
        MEDIUM,
        "Share of a credential's lifetime after which it is refreshed.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "sasl.login.refresh.window.jitter",
        DOUBLE,
        "0.05",
        MEDIUM,
        "Share of random jitter added to the time of a credential's refresh.",
        update_mode=PER_BROKER,
    ),
    ConfigKey(
        "sasl.login.retry.backoff.max.ms",
        LONG,
        "10000",
        LOW,
        "Longest wait between two attempts to reach an authentication provider, in milliseconds.",
    ),
    ConfigKey(
        "sasl.login.retry.backoff.ms",
        LONG,
        "100",
        LOW,
        "First wait between two attempts to reach an authentication provider, in milliseconds.",
    ),
    ConfigKey(
        "sasl.oauthbearer.allow.unverified.audience",
        BOOLEAN,
        "false",
        MEDIUM,
        "Take tokens for any audience where `sasl.oauthbearer.expected.audience` is not set.",
    ),
    ConfigKey(
        "sasl.oauthbearer.allow.unverified.issuer",
        BOOLEAN,
        "false",
        MEDIUM,
        "Take tokens of any issuer where `sasl.oauthbearer.expected.issuer` is not set.",
    ),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.id",
        STRING,
        None,
        MEDIUM,
        "Client id with which a token is asked for.",
    ),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.secret",
        PASSWORD,
        None,
        MEDIUM,
        "Client secret with which a token is asked for.",
    ),
    ConfigKey(
        "sasl.oauthbearer.clock.skew.seconds",
        INT,
        "30",
        LOW,
        "Seconds by which the clocks of token provider and broker may differ.",
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.audience",
        LIST,
        "",
        HIGH,
        "Audiences of which a token must name one.",
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.issuer",
        STRING,
        None,
        HIGH,
        "Issuer that a token must name.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        LONG,
        "3600000",
        LOW,
        "Milliseconds between two looks at the provider's keys.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        LONG,
        "10000",
        LOW,
        "Longest wait between two attempts to get the provider's keys, in milliseconds.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        LONG,
        "100",
        LOW,
        "First wait between two attempts to get the provider's keys, in milliseconds.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.url",
        STRING,
        None,
        MEDIUM,
        "Address of the provider's keys.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwt.retriever.class",
        CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        MEDIUM,
        "Java class that gets tokens.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwt.validator.class",
        CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        MEDIUM,
        "Java class that judges tokens.",
    ),
    ConfigKey(
        "sasl.oauthbearer.scope",
        STRING,
        None,
        MEDIUM,
        "Scope with which a token is asked for.",
    ),
    ConfigKey(
        "sasl.oauthbearer.scope.claim.name",
        STRING,
        "scope",
        LOW,
        "Claim of a token that holds its scope.",
    ),
    ConfigKey(
        "sasl.oauthbearer.sub.claim.name",
        STRING,
        "sub",
        LOW,
        "Claim of a token that holds its subject.",
    ),
    ConfigKey(
        "sasl.oauthbearer.token.endpoint.url",
        STRING,
        None,
        MEDIUM,
        "Address at which tokens are asked for.",
    ),
]

_PACKAGE = "org.apache.kafka.common.security.oauthbearer"

SIGNED_VALIDATORS = (
    f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}.secured.OAuthBearerValidatorCallbackHandler",
)
"""Values of ``sasl.server.callback.handler.class`` by which tokens are checked with a provider's keys."""

UNSECURED_VALIDATOR = f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
"""The value by which tokens without a signature are taken."""

ENDPOINT_LOGINS = (
    f"{_PACKAGE}.OAuthBearerLoginCallbackHandler",
    f"{_PACKAGE}.secured.OAuthBearerLoginCallbackHandler",
)
"""Values of ``sasl.login.callback.handler.class`` by which a client asks a provider, or reads a file."""

UNSECURED_LOGIN = f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
"""The value by which a client makes tokens of its own."""

JWT_VALIDATORS = (f"{_PACKAGE}.DefaultJwtValidator", f"{_PACKAGE}.BrokerJwtValidator")
"""Values of ``sasl.oauthbearer.jwt.validator.class`` that mean what a listener does."""

JWT_BEARER = f"{_PACKAGE}.JwtBearerJwtRetriever"
"""The value of ``sasl.oauthbearer.jwt.retriever.class`` by which an assertion is exchanged for a token."""

JWT_RETRIEVERS = (
    JWT_BEARER,
    *(f"{_PACKAGE}.{name}JwtRetriever" for name in ("Default", "ClientCredentials", "File")),
)
"""Values of ``sasl.oauthbearer.jwt.retriever.class`` that mean what a client does."""
