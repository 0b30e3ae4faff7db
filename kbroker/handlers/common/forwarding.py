"""Requests that only the active controller can serve, whichever node is asked for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from kbroker.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from kbroker.handlers.services.metadata import Metadata

R = TypeVar("R")

PATIENCE = 10.0
"""Seconds for which an active controller is waited for. Kafka's broker tries for a minute; an election takes a second
or two, and who asks how a cluster is that has lost its quorum is not to wait so long."""

_RETRY = 0.1
"""Seconds between two attempts (``NodeToControllerRequestThread``)."""

_NOT_THE_ONE = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER})
"""Errors of a node that is not the active controller; the second is that of the quorum's own requests."""


class NotForwarded(ApiError):
    """No controller has answered a client's request: REQUEST_TIMED_OUT, as Kafka's broker says, or another error."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.REQUEST_TIMED_OUT) -> None:
        super().__init__(code, message)


async def by_controller(
    metadata: Metadata,
    forward: Callable[[], Awaitable[R | None]],
    serve_here: Callable[[], Awaitable[R]],
    codes: Callable[[R], Iterable[int]],
) -> R:
    """The active controller's answer: by ``forward``, which gives None if it cannot be had, or ``serve_here``.

    During an election the next one is waited for (KIP-590): a client knows nothing of controllers, and many take
    NOT_CONTROLLER for final. If none is there in time, that is the answer. NOT_LEADER_OR_FOLLOWER is none to a client
    of a broker: :class:`NotForwarded` then. ``codes`` are the error codes of an answer.
    """
    deadline = trio.current_time() + PATIENCE
    while True:
        answer = await serve_here() if metadata.is_leader else await forward()
        if answer is not None and not says_only_not_controller(codes(answer)):
            return answer
        if trio.current_time() >= deadline:
            if answer is None:
                answer = await serve_here()
            if ErrorCode.NOT_LEADER_OR_FOLLOWER in codes(answer):
                raise NotForwarded("There is no active controller.")
            return answer
        await trio.sleep(_RETRY)


def says_only_not_controller(codes: Iterable[int]) -> bool:
    """Whether an answer with these error codes is from a node that is no active controller."""
    code = None
    for code in codes:
        if code not in _NOT_THE_ONE:
            return False
    return code is not None


def error_codes(response: Any) -> Iterator[int]:
    """All error codes that a response has, of the whole and of its parts.

    NONE of the whole says nothing where there are parts: DescribeQuorum has it beside an error of its only partition.
    """
    of_all = getattr(response, "error_code", None)
    if of_all:
        yield of_all
    has_parts = False
    for name in type(response).__slots__:
        for code in _codes_in(getattr(response, name)):
            has_parts = True
            yield code
    if of_all == ErrorCode.NONE and not has_parts:
        yield of_all


def _codes_in(value: object) -> Iterator[int]:
    if isinstance(value, list):
        for each in value:
            slots = getattr(type(each), "__slots__", ())
            if "error_code" in slots:
                yield each.error_code
            for name in slots:
                yield from _codes_in(getattr(each, name))
