"""AlterUserScramCredentials: users' SCRAM credentials come and go (Kafka's ``ScramControlManager``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.view import ControllerResult, ControllerView
from kbroker.raft_metadata.metadata_version import SCRAM
from kbroker.security.sasl.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential, ScramMechanism
from kbroker.wire.records.metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """A credential that is to go. ``mechanism`` may be an id that does not exist."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A credential that is to be. ``mechanism`` may be an id that does not exist."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


def alter_scram_credentials(
    view: ControllerView, deletions: Iterable[ScramDeletion], upsertions: Iterable[ScramUpsertion]
) -> ControllerResult[Mapping[str, ApiError | None]]:
    """The outcome for each user: None, or why nothing of that user changes. A user may be named once in a request."""
    errors: dict[str, ApiError] = {}
    changes: dict[str, ScramDeletion | ScramUpsertion] = {}
    every: list[ScramDeletion | ScramUpsertion] = [*deletions, *upsertions]
    for change in every:
        user = change.user
        if user in errors:
            continue
        if changes.pop(user, None) is not None:
            errors[user] = ApiError(
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
            continue
        error = _problem(view, change)
        if error is None:
            changes[user] = change
        else:
            errors[user] = error
    for change in list(changes.values()):
        if isinstance(change, ScramUpsertion) and not change.salted_password:
            del changes[change.user]
            errors[change.user] = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka's answer: Java has no empty key
    # Kafka's order: what is removed, what is set, what is refused.
    chosen = sorted(changes.values(), key=lambda change: isinstance(change, ScramUpsertion))
    outcomes: dict[str, ApiError | None] = {change.user: None for change in chosen}
    return ControllerResult(outcomes | errors, [_record(change) for change in chosen])


def _problem(view: ControllerView, change: ScramDeletion | ScramUpsertion) -> ApiError | None:
    if view.image.features.metadata_version < SCRAM:
        return ApiError(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
    if not change.user:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in set(ScramMechanism):
        return ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramUpsertion):
        if change.iterations < MIN_ITERATIONS:
            return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        if change.iterations > MAX_ITERATIONS:
            return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    elif (change.user, change.mechanism) not in view.image.principals.scram:
        return ApiError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return None


def _record(change: ScramDeletion | ScramUpsertion) -> RemoveUserScramCredentialRecord | UserScramCredentialRecord:
    if isinstance(change, ScramDeletion):
        return RemoveUserScramCredentialRecord(name=change.user, mechanism=change.mechanism)
    mechanism = ScramMechanism(change.mechanism)
    credential = ScramCredential.from_salted(mechanism, change.salted_password, change.salt, change.iterations)
    return credential_record(change.user, mechanism, credential)


def credential_record(user: str, mechanism: ScramMechanism, credential: ScramCredential) -> UserScramCredentialRecord:
    """A user's credential as the metadata log has it."""
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )
