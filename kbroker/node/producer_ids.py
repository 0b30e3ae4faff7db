"""Producer ids for idempotent producers, taken from blocks that the controller grants this broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from kbroker.node.raft_driver import RaftDriver


class ProducerIdAllocator:
    """Hands out ids, each once in the life of the cluster; what is left of a block at a stop is never used."""

    def __init__(self, driver: RaftDriver, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._driver = driver
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._next = 0
        self._end = 0
        self._lock = trio.Lock()

    async def next_id(self) -> int:
        """A new producer id. ``ApiError`` when the controller cannot grant a block now."""
        if self._next >= self._end:
            async with self._lock:
                if self._next >= self._end:
                    block = await self._driver.submit(
                        lambda controller, now_ms: controller.producer_ids.allocate(
                            self._node_id, self._broker_epoch()
                        )
                    )
                    self._next, self._end = block.first, block.first + block.size
        producer_id = self._next
        self._next += 1
        return producer_id
