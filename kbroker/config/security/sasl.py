"""Properties of SASL, OAUTHBEARER and logins that are renewed among them."""

from __future__ import annotations

from kbroker.config.assertions import AssertionProperties
from kbroker.config.config_key import Range
from kbroker.config.table import (
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
    Table,
)


class SaslProperties(Table):
    """Properties of SASL."""

    connection_failed_authentication_delay_ms = INT("100", LOW, Range(0))
    """Milliseconds before a client is told that its authentication failed, and its connection is closed."""
    connections_max_reauth_ms = LONG("0", MEDIUM)
    """Milliseconds after which a client must authenticate again; 0 for never."""
    sasl_enabled_mechanisms = LIST("GSSAPI", MEDIUM, mode=PER_BROKER)
    """SASL mechanisms that clients may use."""
    sasl_jaas_config = PASSWORD(None, MEDIUM, mode=PER_BROKER)
    """Login modules and their options, in JAAS's format."""
    sasl_kerberos_kinit_cmd = STRING("/usr/bin/kinit", MEDIUM, mode=PER_BROKER)
    """Command that renews the tickets of a cache (`kinit -R`), for logins with `useTicketCache=true`."""
    sasl_kerberos_min_time_before_relogin = LONG("60000", MEDIUM, mode=PER_BROKER)
    """Milliseconds between two attempts to renew a Kerberos ticket that has not ended."""
    sasl_kerberos_principal_to_local_rules = LIST("DEFAULT", MEDIUM, mode=PER_BROKER)
    """Rules that make users' names from those of Kerberos principals; the first that applies."""
    sasl_kerberos_service_name = STRING(None, MEDIUM, mode=PER_BROKER)
    """First part of the brokers' Kerberos principals, as `kafka`."""
    sasl_kerberos_ticket_renew_jitter = DOUBLE("0.05", MEDIUM, mode=PER_BROKER)
    """Share of random jitter added to the time of a ticket's renewal."""
    sasl_kerberos_ticket_renew_window_factor = DOUBLE("0.8", MEDIUM, mode=PER_BROKER)
    """Share of a ticket's lifetime after which it is renewed."""
    sasl_mechanism_controller_protocol = STRING("GSSAPI", HIGH)
    """SASL mechanism between brokers and controllers."""
    sasl_mechanism_inter_broker_protocol = STRING("GSSAPI", MEDIUM, mode=PER_BROKER)
    """SASL mechanism between brokers."""
    sasl_server_max_receive_size = INT("524288", MEDIUM)
    """Most bytes of one SASL message before a client is authenticated."""


class OAuthProperties(AssertionProperties):
    """Properties of SASL/OAUTHBEARER, and of logins that are renewed."""

    sasl_login_callback_handler_class = CLASS(None, MEDIUM)
    """Java class that answers callbacks of a login."""
    sasl_login_connect_timeout_ms = INT(None, LOW)
    """Milliseconds that a connection to an authentication provider may take."""
    sasl_login_read_timeout_ms = INT(None, LOW)
    """Milliseconds that an answer of an authentication provider may take."""
    sasl_login_refresh_buffer_seconds = SHORT("300", MEDIUM, mode=PER_BROKER)
    """Seconds before a credential's end at which it has been refreshed at the latest."""
    sasl_login_refresh_min_period_seconds = SHORT("60", MEDIUM, mode=PER_BROKER)
    """Seconds between two refreshes of a credential at least."""
    sasl_login_refresh_window_factor = DOUBLE("0.8", MEDIUM, mode=PER_BROKER)
    """Share of a credential's lifetime after which it is refreshed."""
    sasl_login_refresh_window_jitter = DOUBLE("0.05", MEDIUM, mode=PER_BROKER)
    """Share of random jitter added to the time of a credential's refresh."""
    sasl_login_retry_backoff_max_ms = LONG("10000", LOW)
    """Longest wait between two attempts to reach an authentication provider, in milliseconds."""
    sasl_login_retry_backoff_ms = LONG("100", LOW)
    """First wait between two attempts to reach an authentication provider, in milliseconds."""
    sasl_oauthbearer_allow_unverified_audience = BOOLEAN("false", MEDIUM)
    """Take tokens for any audience where `sasl.oauthbearer.expected.audience` is not set."""
    sasl_oauthbearer_allow_unverified_issuer = BOOLEAN("false", MEDIUM)
    """Take tokens of any issuer where `sasl.oauthbearer.expected.issuer` is not set."""
    sasl_oauthbearer_client_credentials_client_id = STRING(None, MEDIUM)
    """Client id with which a token is asked for."""
    sasl_oauthbearer_client_credentials_client_secret = PASSWORD(None, MEDIUM)
    """Client secret with which a token is asked for."""
    sasl_oauthbearer_clock_skew_seconds = INT("30", LOW)
    """Seconds by which the clocks of token provider and broker may differ."""
    sasl_oauthbearer_expected_audience = LIST("", HIGH)
    """Audiences of which a token must name one."""
    sasl_oauthbearer_expected_issuer = STRING(None, HIGH)
    """Issuer that a token must name."""
    sasl_oauthbearer_jwks_endpoint_refresh_ms = LONG("3600000", LOW)
    """Milliseconds between two looks at the provider's keys."""
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms = LONG("10000", LOW)
    """Longest wait between two attempts to get the provider's keys, in milliseconds."""
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms = LONG("100", LOW)
    """First wait between two attempts to get the provider's keys, in milliseconds."""
    sasl_oauthbearer_jwks_endpoint_url = STRING(None, MEDIUM)
    """Address of the provider's keys."""
    sasl_oauthbearer_jwt_retriever_class = CLASS(
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever", MEDIUM
    )
    """Java class that gets tokens."""
    sasl_oauthbearer_jwt_validator_class = CLASS(
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator", MEDIUM
    )
    """Java class that judges tokens."""
    sasl_oauthbearer_scope = STRING(None, MEDIUM)
    """Scope with which a token is asked for."""
    sasl_oauthbearer_scope_claim_name = STRING("scope", LOW)
    """Claim of a token that holds its scope."""
    sasl_oauthbearer_sub_claim_name = STRING("sub", LOW)
    """Claim of a token that holds its subject."""
    sasl_oauthbearer_token_endpoint_url = STRING(None, MEDIUM)
    """Address at which tokens are asked for."""


_PACKAGE = "org.apache.kafka.common.security.oauthbearer"

SIGNED_VALIDATORS = (
    f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}.secured.OAuthBearerValidatorCallbackHandler",
)
"""Values of ``sasl.server.callback.handler.class`` by which tokens are checked with a provider's keys."""

UNSECURED_VALIDATOR = f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
"""The value by which tokens without a signature are taken."""

ENDPOINT_LOGINS = (f"{_PACKAGE}.OAuthBearerLoginCallbackHandler", f"{_PACKAGE}.secured.OAuthBearerLoginCallbackHandler")
"""Values of ``sasl.login.callback.handler.class`` by which a client asks a provider, or reads a file."""

UNSECURED_LOGIN = f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
"""The value by which a client makes tokens of its own."""

JWT_VALIDATORS = (f"{_PACKAGE}.DefaultJwtValidator", f"{_PACKAGE}.BrokerJwtValidator")
"""Values of ``sasl.oauthbearer.jwt.validator.class`` that mean what a listener does."""

JWT_BEARER = f"{_PACKAGE}.JwtBearerJwtRetriever"
"""The value of ``sasl.oauthbearer.jwt.retriever.class`` by which an assertion is exchanged for a token."""

JWT_RETRIEVERS = (JWT_BEARER, *(f"{_PACKAGE}.{name}JwtRetriever" for name in ("Default", "ClientCredentials", "File")))
"""Values of ``sasl.oauthbearer.jwt.retriever.class`` that mean what a client does."""
