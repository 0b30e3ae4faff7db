"""An HTTP server with a thread and an event loop of its own: a node's loop may be busy, its clock may stand or jump."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

import trio

from kbroker.node.peers.http_server import HttpServer

logger = logging.getLogger(__name__)


class HttpThread:
    """Serves an address until ``stop``. ``FatalError`` at the start if the address cannot be had."""

    def __init__(self, subject: str, server: HttpServer) -> None:
        self._subject = subject
        self._server = server
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._loop: tuple[trio.lowlevel.TrioToken, trio.CancelScope] | None = None
        self._thread = threading.Thread(target=self._run, name=f"kbroker-{subject}", daemon=True)

    @property
    def url(self) -> str:
        """Where it is."""
        return self._server.url

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
            trio.run(self._serve)
        except BaseException as error:
            self._error = error
            if self._ready.is_set():
                logger.exception("the %s has ended; the node goes on without it", self._subject)
        self._ready.set()

    async def _serve(self) -> None:
        await self._server.bind()
        with trio.CancelScope() as scope:
            self._loop = trio.lowlevel.current_trio_token(), scope
            self._ready.set()
            await self._server.serve()
