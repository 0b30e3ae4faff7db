"""A request that names a group or a partition several times: each is looked up once, and answered as often as named.

Apache Kafka answers every mention in full. So does this, up to a bound: a name takes a few bytes, its description may
take megabytes, and a frame has room for a million names. Not an API itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from kbroker.errors import ApiError, ErrorCode
from kbroker.wire.compiler import encode_parts

A = TypeVar("A")


def encoded_size(response: object, version: int) -> int:
    """Bytes that a response takes."""
    return sum(len(part) for part in encode_parts(response, version))


class DuplicateAnswers(Generic[A]):
    """The answers of one response by their subject, so that a duplicate is answered without another look-up."""

    def __init__(self, most: int, size: Callable[[A], int]) -> None:
        """``most``: the bytes that duplicates may take; ``size(answer)``: about how many the answer takes."""
        self._most = self._room = most
        self._size = size
        self._answers: dict[Hashable, A] = {}
        self._sizes: dict[Hashable, int] = {}

    def add(self, key: Hashable, answer: A) -> None:
        """Keep an answer."""
        self._answers[key] = answer

    def again(self, key: Hashable) -> A | None:
        """The answer given before; ``None`` if the key is new.

        ``ApiError`` INVALID_REQUEST when duplicates take more than ``most`` of the response.
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
                ErrorCode.INVALID_REQUEST, f"What the request names again takes more than {self._most} bytes"
            )
        return answer
