"""The result of a coordinator core's step: records to append, and the replies that wait for them.

A core never holds a future. A reply that cannot be given yet is a `Token`, which a later result
names in ``completed`` (ARCHITECTURE: determinism, rule c).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

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


class TransactionalWriter(NamedTuple):
    """The producer in whose transaction a step's records are written, and the coordinator's confirmation."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    guard: VerificationGuard | None = None


NO_TRANSACTION = TransactionalWriter()
