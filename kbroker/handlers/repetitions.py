"""What a request names again. Not an API itself.

Apache Kafka describes a group or a partition as often as a request names it, and so is it done here, up to a bound:
a few bytes name what takes megabytes to describe, and a frame has room for a million names.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from kbroker.errors import ApiError, ErrorCode
from kbroker.wire.compiler import encode_parts

MOST_REPEATED_BYTES = 8 << 20
"""Of one response: what it says again. What is said once is bounded by what there is."""

A = TypeVar("A")


def encoded_size(response: Any, version: int) -> int:
    """Bytes that a response takes."""
    return sum(len(part) for part in encode_parts(response, version))


class Repetitions(Generic[A]):
    """The answers of one response, by what they are about. An answer is looked up once, and given again as it is."""

    def __init__(self, size: Callable[[A], int]) -> None:
        """``size(answer)``: about how many bytes it takes."""
        self._size = size
        self._answers: dict[Hashable, A] = {}
        self._sizes: dict[Hashable, int] = {}
        self._room = MOST_REPEATED_BYTES

    def add(self, key: Hashable, answer: A) -> None:
        """Keep an answer."""
        self._answers[key] = answer

    def again(self, key: Hashable) -> A | None:
        """The answer that was given; ``None`` if there was none yet.

        ``ApiError`` INVALID_REQUEST when the response has repeated too much.
        """
        answer = self._answers.get(key)
        if answer is None:
            return None
        size = self._sizes.get(key)
        if size is None:
            size = self._sizes[key] = self._size(answer)
        self._room -= size
        if self._room < 0:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"What the request names again takes more than {MOST_REPEATED_BYTES} bytes"
            )
        return answer
