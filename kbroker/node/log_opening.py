"""Opens a node's logs beside its event loop, so that others may ask meanwhile how much is left, and a stop is heard."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio

from kbroker.log.dirs.start_up import OpeningProgress, OpeningStopped, takes_long
from kbroker.log.disk import OsDisk
from kbroker.log.manager import LogManager

if TYPE_CHECKING:
    from kbroker.env import Env

logger = logging.getLogger(__name__)

TELL_SECONDS = 1.0
"""The time until people are told how much is left, and between two times."""


async def open_logs(
    env: Env,
    nursery: trio.Nursery,
    log_dirs: Sequence[str],
    progress: OpeningProgress,
    opened: Callable[[], LogManager],
) -> LogManager:
    """All logs in the log dirs, as ``opened`` returns them, which reports to ``progress``. ``nursery`` tells of it.

    Cancelling the nursery ends it after the present segment; once all logs are open they are returned in any case, and
    whoever asked closes them. Where it is done in a moment there is no thread, which would cost memory for good; nor is
    there on a simulated disk.
    """
    if not isinstance(env.disk, OsDisk) or not takes_long(env.disk, log_dirs):
        return opened()
    scope = trio.CancelScope()
    nursery.start_soon(_tell, progress, scope)
    try:
        return await env.run_blocking(opened)
    except OpeningStopped:
        await trio.lowlevel.checkpoint()  # nothing but a cancellation stops it
        raise
    finally:
        scope.cancel()


async def _tell(progress: OpeningProgress, scope: trio.CancelScope) -> None:
    try:
        with scope:
            while True:
                await trio.sleep(TELL_SECONDS)
                logger.info("%s", progress)
    finally:
        progress.stop()  # after the end it changes nothing
