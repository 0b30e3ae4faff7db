"""Producer ids at hand, from the blocks that the controller has granted this broker."""

from __future__ import annotations

from collections import deque

from kbroker.errors import ApiError, ErrorCode


class ProducerIdPool:
    """Hands out ids, each once in the life of the cluster; the rest of a block at a stop is never used."""

    def __init__(self) -> None:
        self._blocks: deque[tuple[int, int]] = deque()

    @property
    def available(self) -> int:
        """The number of ids that are left."""
        return sum(end - first for first, end in self._blocks)

    def add_block(self, first: int, size: int) -> None:
        """The controller has granted ids ``first`` to ``first + size - 1``."""
        if size > 0:
            self._blocks.append((first, first + size))

    def take(self) -> int:
        """A new id. `ApiError` COORDINATOR_LOAD_IN_PROGRESS, which clients retry, when there is none at hand."""
        if not self._blocks:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        producer_id, end = self._blocks[0]
        if producer_id + 1 == end:
            self._blocks.popleft()
        else:
            self._blocks[0] = producer_id + 1, end
        return producer_id
