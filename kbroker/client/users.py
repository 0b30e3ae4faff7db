"""Administrators' questions about users with SCRAM credentials (keys 50 and 51)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kbroker.client.cluster import Client, refuse
from kbroker.client.errors import ResponseError
from kbroker.errors import ErrorCode
from kbroker.security.sasl.scram import ScramMechanism
from kbroker.wire.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)

DEFAULT_ITERATIONS: Final = 8192
"""As in the examples of Kafka's documentation; a broker takes 4096 to 16384."""

_SALT_BYTES: Final = 32


class Credential(NamedTuple):
    """A user's credential of one mechanism. Nobody tells more of it than this."""

    user: str
    mechanism: ScramMechanism
    iterations: int


def describe_users(client: Client, users: Sequence[str] | None = None) -> list[Credential]:
    """The credentials of some users or of all, sorted; ``ResponseError`` for a user who has none."""
    response = client.ask_any(
        DescribeUserScramCredentialsRequest(users=None if users is None else [UserName(name=user) for user in users])
    )
    refuse(response.error_code, "users", response.error_message)
    found: list[Credential] = []
    for result in response.results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            raise ResponseError(result.error_code, f"user {result.user}", "there is no such user")
        refuse(result.error_code, f"user {result.user}", result.error_message)
        found += [
            Credential(result.user, ScramMechanism(info.mechanism), info.iterations)
            for info in result.credential_infos
            if info.mechanism in tuple(ScramMechanism)
        ]
    return sorted(found)


def set_password(
    client: Client, user: str, password: str, mechanisms: Iterable[ScramMechanism], iterations: int = DEFAULT_ITERATIONS
) -> None:
    """Give a user, a new one perhaps, a password. Only the salted password leaves this machine."""
    for mechanism in mechanisms:
        salt = os.urandom(_SALT_BYTES)
        upsertion = ScramCredentialUpsertion(
            name=user,
            mechanism=mechanism,
            iterations=iterations,
            salt=salt,
            salted_password=mechanism.salted_password(password, salt, iterations),
        )
        _alter(client, AlterUserScramCredentialsRequest(upsertions=[upsertion]))


def remove_credentials(client: Client, credentials: Iterable[Credential]) -> None:
    """Take credentials away; who has none left cannot log in any more."""
    for credential in credentials:
        deletion = ScramCredentialDeletion(name=credential.user, mechanism=credential.mechanism)
        _alter(client, AlterUserScramCredentialsRequest(deletions=[deletion]))


def _alter(client: Client, request: AlterUserScramCredentialsRequest) -> None:
    """Make one change: a user may not be in a request twice."""

    def check(response: AlterUserScramCredentialsResponse) -> None:
        for result in response.results:
            refuse(result.error_code, f"user {result.user}", result.error_message)

    client.ask_controller(request, check)
