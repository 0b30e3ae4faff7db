"""The interface of a coordinator's core, a shard of groups or of transactions, for its driver."""

from __future__ import annotations

from typing import Protocol

from kbroker.cores.coordinator.result import CoordinatorRecord, CoordinatorResult, Token
from kbroker.errors import ErrorCode


class CoordinatorCore(Protocol):
    """The state of a coordinator's partition. It changes only as the two replays are fed its log, in order."""

    def replay(self, record: CoordinatorRecord, now_ms: int, *, offset: int, producer_id: int) -> None:
        """Apply a record. ``producer_id`` is -1 unless it was written in a transaction. `WireError`: unreadable."""

    def replay_end_transaction(self, producer_id: int, commit: bool) -> None:
        """Apply the marker that ends a producer's transaction in this partition."""

    def on_loaded(self, now_ms: int) -> None:
        """Begin to count time: the whole log has been replayed."""

    def on_unloaded(self) -> list[tuple[Token, object]]:
        """Stop being the coordinator. Returns the replies to all requests that wait."""

    def next_deadline(self) -> int | None:
        """When `on_deadline` is next due, in ms since the epoch; None if never."""

    def on_deadline(self, now_ms: int) -> CoordinatorResult[None] | None:
        """Handle one thing whose time has come; None when there is none (left)."""


_ERRORS_FOR_CLIENTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def append_error_for_client(error: ErrorCode) -> ErrorCode:
    """The error for a client when the coordinator's own record could not be stored."""
    return _ERRORS_FOR_CLIENTS.get(error, error)
