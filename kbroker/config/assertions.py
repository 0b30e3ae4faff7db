"""Properties of assertions: a client, or a node, asks for tokens of OAUTHBEARER with a key of its own."""

from __future__ import annotations

from kbroker.config.config_key import OneOf, Range
from kbroker.config.table import BOOLEAN, INT, LOW, MEDIUM, PASSWORD, STRING, Table


class AssertionProperties(Table):
    """Properties of assertions."""

    sasl_oauthbearer_assertion_algorithm = STRING("RS256", MEDIUM, OneOf(("ES256", "RS256"), ignore_case=True))
    """Algorithm that signs an assertion."""
    sasl_oauthbearer_assertion_claim_aud = STRING(None, MEDIUM)
    """Claim `aud` of an assertion."""
    sasl_oauthbearer_assertion_claim_exp_seconds = INT("300", LOW, Range(0, 86400))
    """Seconds after which an assertion ends."""
    sasl_oauthbearer_assertion_claim_iss = STRING(None, MEDIUM)
    """Claim `iss` of an assertion."""
    sasl_oauthbearer_assertion_claim_jti_include = BOOLEAN("false", MEDIUM)
    """Put a unique claim `jti` into each assertion."""
    sasl_oauthbearer_assertion_claim_nbf_seconds = INT("60", LOW, Range(0, 3600))
    """Seconds before now at which an assertion begins."""
    sasl_oauthbearer_assertion_claim_sub = STRING(None, MEDIUM)
    """Claim `sub` of an assertion."""
    sasl_oauthbearer_assertion_file = STRING(None, MEDIUM)
    """File with an assertion made elsewhere."""
    sasl_oauthbearer_assertion_private_key_file = STRING(None, MEDIUM)
    """File with the private key that signs assertions."""
    sasl_oauthbearer_assertion_private_key_passphrase = PASSWORD(None, MEDIUM)
    """Passphrase of that private key."""
    sasl_oauthbearer_assertion_template_file = STRING(None, MEDIUM)
    """File with the header and claims that assertions begin with."""
