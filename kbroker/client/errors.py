"""The errors of the client's side; the text of each is one line for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from kbroker.errors import ErrorCode, name_of

K = TypeVar("K")
V = TypeVar("V")


class ClientError(Exception):
    """Base of all errors of the client."""


class ConnectionFailed(ClientError):
    """No connection, or it was lost; worth another try when the broker had been there before.

    With ``perhaps_secured`` it was lost before a first answer, as by a listener with TLS or SASL that is not asked so.
    With ``is_refused`` nothing listens at the address.
    """

    def __init__(self, text: str, *, perhaps_secured: bool = False, is_refused: bool = False) -> None:
        self.perhaps_secured = perhaps_secured
        self.is_refused = is_refused
        super().__init__(text)


class NoSuchBroker(ClientError):
    """The cluster has no broker of this id, or none that is alive."""


class AuthenticationFailed(ClientError):
    """The broker does not let the client in, or is not the one that the client trusts. Trying again does not help."""


class RequestTimedOut(ClientError):
    """No (final) answer before the deadline."""


class ApiNotServed(ClientError):
    """The broker does not serve an API, or no version of it that this client speaks."""


class ResponseError(ClientError):
    """A broker answered with an error code.

    ``what`` names what it was about ("topic orders"); ``message`` is the broker's own text where it gave one.
    """

    def __init__(self, code: int, what: str = "", message: str | None = None) -> None:
        self.code = code
        self.what = what
        self.message = message
        text = explain(code) if not message or code in _BETTER_EXPLAINED else message.rstrip(". ")
        super().__init__(f"{what}: {text} ({name_of(code)})" if what else f"{text} ({name_of(code)})")

    @property
    def name(self) -> str:
        """Kafka's name of the error."""
        return name_of(self.code)

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed a little later, perhaps on another broker."""
        return self.code in RETRIABLE


def known(answers: Mapping[K, V | ResponseError]) -> dict[K, V]:
    """The answers, if there is one for each key. Raises the first `ResponseError` among them."""
    found: dict[K, V] = {}
    for key, answer in answers.items():
        if isinstance(answer, ResponseError):
            raise answer
        found[key] = answer
    return found


def explain(code: int) -> str:
    """An error code in a few words."""
    return _EXPLANATIONS.get(code) or name_of(code).lower().replace("_", " ")


STALE_METADATA: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.NOT_CONTROLLER,
    }
)
"""Errors that say: ask for the metadata again."""

COORDINATOR_MOVED: Final = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""Errors that say: look for the coordinator again."""

RETRIABLE: Final = (
    STALE_METADATA
    | COORDINATOR_MOVED
    | {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)

_BETTER_EXPLAINED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Errors whose texts of Apache Kafka are for its developers."""

_EXPLANATIONS: Final[dict[int, str]] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "the broker failed unexpectedly; its log says more",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    ErrorCode.UNKNOWN_TOPIC_ID: "there is no topic with this id",
    ErrorCode.LEADER_NOT_AVAILABLE: "it has no leader at the moment",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is outside of the log",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "this is not a valid name of a topic, or the topic is internal",
    ErrorCode.TOPIC_ALREADY_EXISTS: "the topic exists already",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not authorized for this topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not authorized for this group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not authorized for this on the cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not authorized for this transactional id",
    ErrorCode.TOPIC_DELETION_DISABLED: "the broker is set to refuse the deletion of topics (delete.topic.enable)",
    ErrorCode.INVALID_GROUP_ID: "this is not a valid group id",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.NON_EMPTY_GROUP: "the group has members",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group are subscribed to the topic",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members, or none of this id",
    ErrorCode.MESSAGE_TOO_LARGE: "larger than the topic allows (max.message.bytes)",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the batch is larger than a segment of the log",
    ErrorCode.INVALID_RECORD: "the record breaks a rule of the topic",
    ErrorCode.INVALID_TIMESTAMP: "the timestamp is too far from the broker's clock",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas asks for",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "written, but to fewer replicas in sync than min.insync.replicas asks",
    ErrorCode.REQUEST_TIMED_OUT: "the broker could not finish in time",
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not serve this version of the request",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: (
        "the cluster has no delegation tokens: delegation.token.secret.key is not set"
    ),
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "ask by a certificate or by SASL, and not with a token: no other connection may ask about tokens"
    ),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "not authorized to make tokens of this user",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "only its owner and its renewers may do this",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "there is no such token",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "the token has expired",
    ErrorCode.SECURITY_DISABLED: "the broker has no security configured",
    ErrorCode.POLICY_VIOLATION: "a policy of the broker forbids it",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker has trouble with its disk",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the coordinator is not available",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is loading its state",
    ErrorCode.NOT_COORDINATOR: "the broker is not its coordinator",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "nobody has used this transactional id lately",
    ErrorCode.CONCURRENT_TRANSACTIONS: "its last transaction is not complete yet",
}
