"""The output of every operation of the controller: :class:`ControllerResult`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from kbroker.errors import ApiError, ErrorCode
from kbroker.value_types import dataclass, field

T = TypeVar("T")

MAX_RECORDS_PER_USER_OP = 10_000
"""No request may cause more records than this (``QuorumController.MAX_RECORDS_PER_USER_OP``)."""


def too_many_records() -> ApiError:
    """The answer to a request that would cause more than `MAX_RECORDS_PER_USER_OP`."""
    return ApiError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[T]):
    """The records to commit (all or none, in one batch), and the response, which goes out once they are committed."""

    response: T
    records: Sequence[object] = field(default_factory=list)
