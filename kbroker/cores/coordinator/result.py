"""The interface of a coordinator's core for its driver, and the result of a step: records to append, and late replies.

A core never holds a future. A reply that cannot be given yet is a `Token`, which a later result
names in ``completed`` (ARCHITECTURE: determinism, rule c).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from kbroker.errors import ApiError, ErrorCode
from kbroker.log.producer_entry import VerificationGuard
from kbroker.value_types import NamedTuple, dataclass, field
from kbroker.wire.batch_header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

R = TypeVar("R")


class Token:
    """Stands for a reply that comes later; compared by identity."""

    __slots__ = ()


class CoordinatorRecord(NamedTuple):
    """A record of a coordinator's topic: versioned key, and versioned value or None for a tombstone."""

    key: bytes
    value: bytes | None


Continuation = Callable[[ErrorCode | None, int], "CoordinatorResult[None]"]
"""Called with the append's error (None when the records are committed) and the time in ms."""


@dataclass(slots=True)
class CoordinatorResult(Generic[R]):
    """The outcome of one step.

    ``response`` and ``completed`` may go to clients once ``records`` are committed.
    ``on_stored`` is the rest of the step, run when the records are committed or have failed.
    """

    response: R
    records: list[CoordinatorRecord] = field(default_factory=list)
    completed: list[tuple[Token, object]] = field(default_factory=list)
    on_stored: Continuation | None = None
    replay: bool = True
    """Whether the records change the core's state; False where they only describe what it already holds."""
    error: ApiError | None = None
    """The error that the client gets instead of ``response`` once the records are committed."""


class Outcome(Protocol):
    """Is told once how a step ended: a `kbroker.runtime.later.Later`, or whoever has no use for one."""

    def set(self, value: Any) -> None:
        """Take the response: the records are committed."""

    def fail(self, error: ApiError) -> None:
        """Take the error instead of it."""


class TransactionalWriter(NamedTuple):
    """The producer in whose transaction a step's records are written, and the coordinator's confirmation."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    guard: VerificationGuard | None = None


NO_TRANSACTION = TransactionalWriter()


class CoordinatorCore(Protocol):
    """The state of a coordinator's partition. It changes only as the two replays are fed its log, in order."""

    def replay(self, record: CoordinatorRecord, now_ms: int, *, offset: int, producer_id: int) -> None:
        """Apply a record. ``producer_id`` is -1 unless it was written in a transaction. `WireError`: unreadable."""

    @property
    def replay_alike(self) -> Callable[[Sequence[bytes], Sequence[bytes | None], int], bool] | None:
        """Apply keys and values of a batch (`RecordRun`) with its base offset, which no transaction wrote, at once.

        False, and nothing is done, where they are to be replayed one by one; None if all are.
        """

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
