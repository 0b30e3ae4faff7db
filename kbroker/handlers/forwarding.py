"""Requests that only the active controller can serve, whichever node is asked for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.handlers.context import MetadataDriver

R = TypeVar("R")

PATIENCE = 10.0
"""Seconds for which an active controller is waited for. Kafka's broker tries for a minute; an election takes a second
or two, and who asks how a cluster is that has lost its quorum is not to wait so long."""

_RETRY = 0.1
"""Seconds between two attempts (``NodeToControllerRequestThread``)."""


async def by_controller(
    metadata: MetadataDriver,
    forward: Callable[[], Awaitable[R | None]],
    serve_here: Callable[[], Awaitable[R]],
    codes: Callable[[R], Iterable[int]],
) -> R:
    """The active controller's answer: by ``forward``, which gives None if it cannot be had, or ``serve_here``.

    During an election the next one is waited for (KIP-590): a client knows nothing of controllers, and many take
    NOT_CONTROLLER for final. If none is there in time, that is the answer. ``codes`` are the error codes of an answer.
    """
    deadline = trio.current_time() + PATIENCE
    while True:
        answer = await serve_here() if metadata.is_leader else await forward()
        if answer is not None and not _says_only_not_controller(codes(answer)):
            return answer
        if trio.current_time() >= deadline:
            return await serve_here() if answer is None else answer
        await trio.sleep(_RETRY)


def _says_only_not_controller(codes: Iterable[int]) -> bool:
    code = None
    for code in codes:
        if code != ErrorCode.NOT_CONTROLLER:
            return False
    return code is not None


def error_codes(response: Any) -> Iterator[int]:
    """All error codes that a response has, of the whole and of its parts."""
    for name in type(response).__slots__:
        value = getattr(response, name)
        if name == "error_code":
            yield value
        elif isinstance(value, list):
            for each in value:
                if hasattr(type(each), "__slots__"):
                    yield from error_codes(each)
