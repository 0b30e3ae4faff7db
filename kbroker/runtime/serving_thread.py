"""A server with a thread and an event loop of its own: a node's loop may be busy, its clock may stand or jump."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import trio

logger = logging.getLogger(__name__)


class ServingThread:
    """Serves until ``stop``, what ``_serve`` of a subclass does. An error before it is ready is raised at the start."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._loop: tuple[trio.lowlevel.TrioToken, trio.CancelScope] | None = None
        self._thread = threading.Thread(target=self._run, name=f"kbroker-{subject}", daemon=True)

    async def _serve(self, on_ready: Callable[[], None]) -> None:
        raise NotImplementedError

    @property
    def is_running(self) -> bool:
        """Whether it serves."""
        return self._thread.is_alive()

    def start(self) -> Self:
        """Serve from now on."""
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error
        return self

    def stop(self) -> None:
        """Serve no more; requests that are under way get no answer."""
        if self._loop is not None:
            token, scope = self._loop
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(scope.cancel)
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            trio.run(self._serve_in_scope)
        except BaseException as error:
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            self._error = error
            if self._ready.is_set():
                logger.exception("the %s has ended; all else goes on without it", self._subject)
        self._ready.set()

    async def _serve_in_scope(self) -> None:
        with trio.CancelScope() as scope:
            self._loop = trio.lowlevel.current_trio_token(), scope
            await self._serve(self._ready.set)
