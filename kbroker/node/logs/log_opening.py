"""Opens a node's logs beside its event loop: its controller works, and whoever asks is told how much is left."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from kbroker.log.dirs.start_up import LoadedLogs, OpeningProgress, OpeningStopped, takes_long

if TYPE_CHECKING:
    from kbroker.log.log_config import LogConfig
    from kbroker.log.manager import LogManager
    from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)

TELL_SECONDS = 1.0
"""The time until people are told how much is left, and between two times."""


class LogOpening:
    """Opens the logs of one node: at once where that is done in a moment, else beside the event loop.

    A thread would cost memory for good.
    """

    def __init__(self, env: Env, log_config: Callable[[], LogConfig], *, leaves_holes: bool) -> None:
        """``log_config`` gives the configuration of logs until the metadata say more. ``leaves_holes``: damage does not
        cut a log."""
        self._env = env
        self._leaves_holes = leaves_holes
        self._log_config = log_config
        self.progress: OpeningProgress | None = OpeningProgress()
        """None once the logs are open."""
        self.done = trio.Event()

    def open_if_quick(self, manager: LogManager) -> None:
        """Open the logs here and now, unless `run` is to open them."""
        if not (self._env.has_threads and takes_long(self._env.disk, [each.path for each in manager.log_dirs])):
            self._end(manager, self._load(manager, None))

    async def run(self, manager: LogManager) -> None:
        """Open the logs beside the event loop, if they are not open yet.

        A cancellation ends this soon; once all logs are open they are taken in all the same, and whoever asked closes
        them.
        """
        progress = self.progress
        if progress is None:
            return
        scope = trio.CancelScope()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_tell, progress, scope)
            try:
                self._end(manager, await self._env.run_long(partial(self._load, manager, progress)))
            except OpeningStopped:
                await trio.lowlevel.checkpoint()  # nothing but a cancellation stops it
                raise
            finally:
                scope.cancel()

    def _load(self, manager: LogManager, progress: OpeningProgress | None) -> LoadedLogs:
        config = self._log_config()  # once: a node may have ten thousand logs
        return manager.load(
            now_ms=self._env.wall_clock_ms(),
            log_config=lambda topic_partition: config,
            progress=progress,
            leaves_holes=self._leaves_holes,
        )

    def _end(self, manager: LogManager, loaded: LoadedLogs) -> None:
        manager.take_in(loaded)
        self.progress = None
        self.done.set()


async def _tell(progress: OpeningProgress, scope: trio.CancelScope) -> None:
    try:
        with scope:
            while True:
                await trio.sleep(TELL_SECONDS)
                logger.info("%s", progress)
    except trio.Cancelled:  # by the nursery, not by the scope
        progress.stop()
        logger.info("stopped while %s", progress)
        raise
