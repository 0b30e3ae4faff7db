"""The care of a node's logs: the cleaner and the scrubber while it runs, and the marker of a clean stop at its end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from kbroker.value_types import dataclass

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.log.manager import LogManager
    from kbroker.node.controller.metadata_plane import MetadataPlane
    from kbroker.node.logs.log_cleaner import LogCleaner
    from kbroker.node.logs.log_scrubber import LogScrubber
    from kbroker.node.replicas.replica_manager import ReplicaManager
    from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)

DELAY_SECONDS = 1.0
"""Clients come first after a start, also before the imports of the cleaner."""

STOP_SECONDS = 4.5
"""The time that a clean stop may take without having made one more log durable."""


@dataclass(slots=True)
class LogCare:
    """The cleaner and the scrubber of a node. ``in_force`` gives its properties as they are now, those of a prefix."""

    env: Env
    logs: LogManager
    replicas: ReplicaManager
    in_force: Callable[[str], BrokerConfig]
    cleaner: LogCleaner | None = None
    """Compacts logs. There as soon as it runs: neither a launch nor a scrape waits for its imports."""
    scrubber: LogScrubber | None = None
    """Verifies the batches of logs; there as the cleaner is."""

    async def clean(self) -> None:
        """Compact logs, until cancelled."""
        await trio.sleep(DELAY_SECONDS)
        from kbroker.node.logs.log_cleaner import CleanerSettings, LogCleaner

        def settings() -> CleanerSettings:
            return CleanerSettings.of(self.in_force("log.cleaner."))

        self.cleaner = LogCleaner(self.env, self.logs, self.replicas, settings)
        await self.cleaner.run()

    async def scrub(self, bytes_per_second: int, metadata: MetadataPlane) -> None:
        """Verify logs at this rate, that of the metadata and its snapshots, too, until cancelled."""
        await trio.sleep(DELAY_SECONDS)
        from kbroker.node.logs.log_scrubber import LogScrubber

        self.scrubber = LogScrubber(self.env, self.logs, self.replicas, bytes_per_second, metadata)
        await self.scrubber.run()

    async def close(self, broker_epoch: int) -> None:
        """Make everything durable and leave the marker of a clean stop, off the loop, for as long as it gets on."""

        marks = self.replicas.high_watermarks()
        self.logs.on_offline.clear()  # what follows is done in a thread, and nobody waits any more

        async def give_up_in_time(scope: trio.CancelScope) -> None:
            before = -1
            while self.logs.closed > before:
                before = self.logs.closed
                await trio.sleep(STOP_SECONDS)
            scope.cancel()

        def close() -> None:
            self.logs.close(high_watermarks=marks, broker_epoch=broker_epoch)

        async with trio.open_nursery() as nursery:
            nursery.cancel_scope.shield = True
            nursery.start_soon(give_up_in_time, nursery.cancel_scope)
            try:
                await self.env.run_blocking(close)
            except Exception:
                logger.exception("the logs could not be closed cleanly; the next start verifies them")
                self.logs.release()
            nursery.cancel_scope.cancel()
