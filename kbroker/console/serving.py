"""The console's socket: the application served by Hypercorn on Trio."""

from __future__ import annotations

import logging
import os
import socket
import sys
from dataclasses import replace
from typing import Final

import trio
from hypercorn.config import Config
from hypercorn.trio import serve as serve_asgi
from starlette.applications import Starlette

from kbroker.console.application import application
from kbroker.console.settings import ConsoleSettings
from kbroker.console.state import Console
from kbroker.errors import FatalError

SEND_SECONDS: Final = 60.0
"""A connection ends when its browser has taken nothing for so long of what is sent."""


async def serve(
    settings: ConsoleSettings,
    listening: socket.socket,
    host: str,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve on a socket until cancelled; the task's status is the page's address."""
    try:
        url, hosts = page_address(host, int(listening.getsockname()[1]))
        served = application(Console(replace(settings, hosts=settings.hosts | hosts)))
        config = Config()
        # Hypercorn opens what it binds itself; a socket that is open already is handed to it by a number of its own.
        config.bind = [f"fd://{os.dup(listening.fileno())}"]
        config.accesslog = None
        config.errorlog = logging.getLogger("hypercorn.error")
        config.include_server_header = False
        config.graceful_timeout = 1.0
        config.keep_alive_timeout = 30.0
        config.h11_max_incomplete_size = 64 << 10
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_serve_asgi, served, config)
            task_status.started(url)
    finally:
        listening.close()


async def _serve_asgi(served: Starlette, config: Config) -> None:
    await serve_asgi(served, config, shutdown_trigger=trio.sleep_forever)  # type: ignore[arg-type]


def page_address(host: str, port: int) -> tuple[str, frozenset[str]]:
    """The page's URL, and the values of Host by which a browser on this machine may name it."""
    shown = f"[{host}]" if ":" in host else host
    names = {f"{shown}:{port}"}
    if host in ("127.0.0.1", "::1", "localhost"):
        names |= {f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"}
    if port == 80:
        names |= {name.removesuffix(":80") for name in names}
    return f"http://{shown}:{port}/", frozenset(name.lower() for name in names)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; ``FatalError`` if the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise FatalError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sys.platform == "linux":
            # A browser that stays and takes nothing would keep its answer, and the console from stopping, for ever.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SEND_SECONDS * 1000))
        listening.bind(address)
        listening.listen(128)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise FatalError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    return listening
