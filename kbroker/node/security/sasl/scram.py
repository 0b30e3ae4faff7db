"""SCRAM on a listener: users and delegation tokens of the cluster's metadata, or users whom a rule knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kbroker.node.security.sasl.mechanism import MechanismProperties
from kbroker.security.principal import USER_TYPE, KafkaPrincipal
from kbroker.security.sasl.conversation import OfferedMechanism
from kbroker.security.sasl.scram import (
    CredentialForm,
    ScramAccount,
    ScramCredential,
    ScramLookup,
    ScramMechanism,
    ScramServer,
    UnknownUsers,
)

if TYPE_CHECKING:
    from kbroker.handlers.common.context import Services
    from kbroker.node.rules.scram import ScramRule
    from kbroker.wire.records.metadata import UserScramCredentialRecord


class ScramOnListener:
    """A mechanism of SCRAM on a listener."""

    task = None

    def __init__(self, properties: MechanismProperties) -> None:
        mechanism = ScramMechanism.of_name(properties.mechanism)
        assert mechanism is not None
        self._mechanism = mechanism
        self._max_reauth_ms = properties.max_reauth_ms
        self._rule: ScramRule | None = None
        if properties.callback is not None:
            from kbroker.node.rules.scram import ScramRule
            from kbroker.rules.loading import load

            name, value = properties.callback
            self._rule = ScramRule(load(name, value, "credential"), value, properties.listener_name, mechanism)

    def offered(self, services: Services) -> OfferedMechanism:
        """The mechanism as the listener's clients find it."""
        mechanism, rule = self._mechanism, self._rule
        lookup = _scram_lookup(mechanism, services)
        if rule is None:
            unknown = UnknownUsers(mechanism, _forms_of_users(mechanism, services), _shared_secret(services))
            return OfferedMechanism(lambda: ScramServer(mechanism, lookup, unknown), self._max_reauth_ms)
        from kbroker.node.rules.scram import RuleScramServer

        unknown = UnknownUsers(mechanism, lambda: {rule.form: 1}, _shared_secret(services))

        def server(host: str) -> RuleScramServer:
            return RuleScramServer(rule, host, lookup, lambda found: ScramServer(mechanism, found, unknown))

        return OfferedMechanism(lambda: server(""), self._max_reauth_ms, server)


def _scram_lookup(mechanism: ScramMechanism, services: Services) -> ScramLookup:
    metadata = services.metadata

    def lookup(name: str, is_token: bool) -> ScramAccount | None:
        if is_token:
            return _token_account(name, mechanism, services)
        record = metadata.scram_credential(name, mechanism)
        if record is None:
            return None
        credential = ScramCredential(
            bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
        )
        return ScramAccount(credential, KafkaPrincipal(USER_TYPE, name))

    return lookup


def _token_account(token_id: str, mechanism: ScramMechanism, services: Services) -> ScramAccount | None:
    """The account of a delegation token, which is its owner's, for as long as the token does not expire.

    Kafka lets in a token that has expired and is not removed yet, for no time at all. Here it is no token any more.
    """
    tokens = services.metadata.image.principals.delegation_tokens
    token = tokens.get(token_id)
    if token is None or services.tokens is None:
        return None
    from kbroker.security.delegation_tokens import has_expired, principal_of
    from kbroker.security.principal import TokenPrincipal

    if has_expired(token, services.env.wall_clock_ms()):
        return None
    credential = services.tokens.credential(mechanism, token_id, tokens)
    return ScramAccount(credential, TokenPrincipal(*principal_of(token.owner)), token.expiration_timestamp)


def _forms_of_users(mechanism: ScramMechanism, services: Services) -> Callable[[], Counter[CredentialForm]]:
    """The forms of the credentials in the metadata, counted anew when users have changed."""
    metadata = services.metadata
    counted: Mapping[tuple[str, int], UserScramCredentialRecord] | None = None
    forms: Counter[CredentialForm] = Counter()

    def count() -> Counter[CredentialForm]:
        nonlocal counted, forms
        users = metadata.image.principals.scram  # another object when anything in it has changed
        if users is not counted:
            forms = Counter(
                CredentialForm.of(bytes(record.salt), record.iterations)
                for (_, of), record in users.items()
                if of == mechanism
            )
            counted = users
        return forms

    return count


def _shared_secret(services: Services) -> Callable[[], bytes | None]:
    """The secret that the credentials of users whom nobody knows are made with: the ids of a broker's log directories.

    Brokers and controllers all know these random ids. No client does, but for the directory of the metadata, which
    DescribeQuorum shows to those who may describe the cluster. It is the broker with the lowest id, so the secret
    changes when that broker loses its disks.
    """

    def secret() -> bytes | None:
        brokers = services.metadata.image.brokers
        directories = brokers[min(brokers)].log_dirs if brokers else ()
        return b"".join(sorted(directories)) or None

    return secret
