"""Opens a node's logs beside its event loop: its controller works, and whoever asks is told how much is left."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio

from kbroker.log.dirs.start_up import LoadedLogs, OpeningProgress, OpeningStopped, takes_long

if TYPE_CHECKING:
    from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)

TELL_SECONDS = 1.0
"""The time until people are told how much is left, and between two times."""


def opens_beside(env: Env, log_dirs: Sequence[str]) -> bool:
    """Whether the logs are to be opened beside the event loop.

    Where it is done in a moment there is no thread, which would cost memory for good.
    """
    return env.has_threads and takes_long(env.disk, log_dirs)


async def open_beside(
    env: Env, nursery: trio.Nursery, progress: OpeningProgress, load: Callable[[], LoadedLogs]
) -> LoadedLogs:
    """All logs, as ``load`` returns them, which reports to ``progress``. ``nursery`` tells of it.

    Cancelling the nursery ends it soon; once all logs are open they are returned in any case, and whoever asked closes
    them.
    """
    scope = trio.CancelScope()
    nursery.start_soon(_tell, progress, scope)
    try:
        return await env.run_long(load)
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
    except trio.Cancelled:  # by the nursery, not by the scope
        progress.stop()
        logger.info("stopped while %s", progress)
        raise
