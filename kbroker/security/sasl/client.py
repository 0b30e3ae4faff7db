"""A client's side: from ``sasl.mechanism`` and ``sasl.jaas.config`` to the mechanism that speaks for them."""

from __future__ import annotations

from kbroker.security.sasl.jaas import JaasError, LoginModule, parse_jaas
from kbroker.security.sasl.mechanism import SaslClient
from kbroker.security.sasl.plain import PLAIN, PlainClient
from kbroker.security.sasl.scram import ScramClient, ScramMechanism

CLIENT_MECHANISMS = (PLAIN, *(mechanism.mechanism_name for mechanism in ScramMechanism))
"""Those that :func:`make_client` knows."""


def make_client(mechanism: str, jaas: str) -> SaslClient:
    """One authentication of a client.

    ``ValueError``, which tells no secret, if the mechanism is not known, or the line does not fit it.
    """
    scram = ScramMechanism.of_name(mechanism)
    if scram is None and mechanism != PLAIN:
        raise ValueError(f"SASL mechanism {mechanism} is not supported; {', '.join(CLIENT_MECHANISMS)} are")
    entry = parse_jaas(jaas)
    needed = LoginModule.PLAIN if scram is None else LoginModule.SCRAM
    if entry.module is not needed:
        raise JaasError(f"SASL mechanism {mechanism} needs {needed.value}, not {entry.module.value}")
    user, password = entry.required("username"), entry.required("password")
    if scram is None:
        return PlainClient(user, password)
    return ScramClient(scram, user, password, is_token=entry.options.get("tokenauth", "").lower() == "true")
