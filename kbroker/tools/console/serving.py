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
from starlette.types import ASGIApp

from kbroker.runtime.bound_ports import addresses_of, bind_all, cannot_listen
from kbroker.runtime.bound_ports import listen as listen_at
from kbroker.tools.console.application import applications
from kbroker.tools.console.settings import ConsoleSettings

SEND_SECONDS: Final = 60.0
"""A connection ends when its browser has taken nothing for so long of what is sent."""


async def serve(
    settings: ConsoleSettings,
    listening: list[socket.socket],
    host: str,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve on sockets of one port until cancelled; the task's status is the page's address."""
    try:
        url, hosts = page_address(host, int(listening[0].getsockname()[1]))
        served = applications(replace(settings, hosts=settings.hosts | hosts))
        config = Config()
        # Hypercorn opens what it binds itself; a socket that is open already is handed to it by a number of its own.
        config.bind = [f"fd://{os.dup(each.fileno())}" for each in listening]
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
        for each in listening:
            each.close()


async def _serve_asgi(served: ASGIApp, config: Config) -> None:
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


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen at each address of a host; ``FatalError`` if the port cannot be had."""
    try:
        listening = bind_all(host, addresses_of(host), port)
    except OSError as error:
        raise cannot_listen(host, port, error) from None
    if sys.platform == "linux":
        for each in listening:
            # A browser that stays and takes nothing would keep its answer, and the console from stopping, for ever.
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SEND_SECONDS * 1000))
    listen_at(listening, 128)
    return listening
