"""Producer ids for idempotent and transactional producers, from blocks that the controller grants this broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from kbroker.cores.transactions.producer_ids import ProducerIdPool
from kbroker.errors import ApiError, ErrorCode
from kbroker.raft_metadata.controller.producer_ids import ProducerIdBlock


class ProducerIdAllocator:
    """Keeps ids at hand for those who cannot wait (`take`), and waits for those who can (`next_id`)."""

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        """``allocate`` asks the controller for a block; ``ApiError`` if it grants none now."""
        self._allocate = allocate
        self._pool = ProducerIdPool()
        self._lock = trio.Lock()
        self._wanted = trio.Event()

    async def ensure(self) -> None:
        """Have at least one id at hand.

        `ApiError` COORDINATOR_LOAD_IN_PROGRESS when the controller cannot grant a block now: what is between broker and
        controller means nothing to a client, which is to try again (``RPCProducerIdManager.generateProducerId``).
        """
        if not self._pool.available:
            async with self._lock:
                if not self._pool.available:
                    try:
                        block = await self._allocate()
                    except ApiError as error:
                        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from error
                    self._pool.add_block(block.first, block.size)

    async def next_id(self) -> int:
        """A new producer id. `ApiError` as `ensure`."""
        await self.ensure()
        return self._pool.take()

    def take(self) -> int:
        """A new producer id at once. `ApiError` COORDINATOR_LOAD_IN_PROGRESS when there is none; more are fetched."""
        try:
            return self._pool.take()
        except ApiError:
            self._wanted.set()
            raise

    async def run(self) -> None:
        """Fetch a block whenever somebody went away empty-handed, for as long as the node runs."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            try:
                await self.ensure()
            except ApiError:
                continue  # Whoever wants one asks again.
