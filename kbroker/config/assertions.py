"""Properties of assertions: a client, or a node, asks for tokens of OAUTHBEARER with a key of its own."""

from __future__ import annotations

from kbroker.config.definition import ConfigKey, OneOf, Range
from kbroker.config.shorthand import BOOLEAN, INT, LOW, MEDIUM, PASSWORD, STRING

KEYS: list[ConfigKey] = [
    ConfigKey(
        "sasl.oauthbearer.assertion.algorithm",
        STRING,
        "RS256",
        MEDIUM,
        "Algorithm that signs an assertion.",
        validator=OneOf(("ES256", "RS256"), ignore_case=True),
    ),
    ConfigKey(
        "sasl.oauthbearer.assertion.claim.aud",
        STRING,
        None,
        MEDIUM,
        "Claim `aud` of an assertion.",
    ),
    ConfigKey(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        INT,
        "300",
        LOW,
        "Seconds after which an assertion ends.",
        validator=Range(0, 86400),
    ),
    ConfigKey(
        "sasl.oauthbearer.assertion.claim.iss",
        STRING,
        None,
        MEDIUM,
        "Claim `iss` of an assertion.",
    ),
    ConfigKey(
        "sasl.oauthbearer.assertion.claim.jti.include",
        BOOLEAN,
        "false",
        MEDIUM,
        "Put a unique claim `jti` into each assertion.",
    ),
    ConfigKey(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        INT,
        "60",
        LOW,
        "Seconds before now at which an assertion begins.",
        validator=Range(0, 3600),
    ),
    ConfigKey(
        "sasl.oauthbearer.assertion.claim.sub",
        STRING,
        None,
        MEDIUM,
        "Claim `sub` of an assertion.",
    ),
    ConfigKey(
        "sasl.oauthbearer.assertion.file",
        STRING,
        None,
        MEDIUM,
        "File with an assertion made elsewhere.",
    ),
    ConfigKey(
        "sasl.oauthbearer.assertion.private.key.file",
        STRING,
        None,
        MEDIUM,
        "File with the private key that signs assertions.",
    ),
    ConfigKey(
        "sasl.oauthbearer.assertion.private.key.passphrase",
        PASSWORD,
        None,
        MEDIUM,
        "Passphrase of that private key.",
    ),
    ConfigKey(
        "sasl.oauthbearer.assertion.template.file",
        STRING,
        None,
        MEDIUM,
        "File with the header and claims that assertions begin with.",
    ),
]
