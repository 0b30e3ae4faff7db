"""The console's server: routes, sessions, clients of the cluster, put together as an ASGI application."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import trio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from kbroker.client import Client
from kbroker.client.properties import ClientProperties
from kbroker.client.security import security_of
from kbroker.console.asking import THREADS, Cluster
from kbroker.console.call import Call, Handler, Refused, error_answer, read_body, set_cookie
from kbroker.console.guard import Guard
from kbroker.console.routes import API
from kbroker.console.sessions import Session, Sessions, View
from kbroker.console.settings import ConsoleSettings

logger = logging.getLogger(__name__)

STATIC: Final = Path(__file__).parent / "static"

TAILS: Final = 16
"""Live tails at once."""

EXPORTS: Final = 4
"""Exports at once."""

_CLIENT_ID: Final = "kbroker-console"


class Console:
    """The state of one console: its settings, its sessions, and the clients by which it asks."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.sessions = Sessions()
        self.limiter = trio.CapacityLimiter(THREADS)
        self.tails = trio.CapacityLimiter(TAILS)
        self.exports = trio.CapacityLimiter(EXPORTS)
        self.sign_ins = trio.CapacityLimiter(2)
        self._everybody = None if settings.sign_in else self.view_of(settings.properties)

    def view_of(self, properties: ClientProperties | None) -> View:
        """The cluster as whoever the properties name sees it."""
        return View(Cluster(partial(self._client, properties), self.limiter))

    def _client(self, properties: ClientProperties | None) -> Client:
        return Client(
            self.settings.addresses,
            client_id=(properties and properties["client.id"]) or _CLIENT_ID,
            timeout=self.settings.timeout,
            security=None if properties is None else security_of(properties),
        )

    def begin_session(self) -> Session:
        """A session of a browser that has none: of everybody, or of nobody yet where users sign in."""
        return self.sessions.begin(self._everybody)

    def application(self) -> Starlette:
        """The ASGI application."""
        routes: list[BaseRoute] = [
            Route(path, self._endpoint(handler), methods=[method]) for method, path, handler in API
        ]
        # Whatever is not known below /api is told in JSON, too.
        routes.append(Mount("/api", routes=[Route("/{rest:path}", _unknown, methods=["GET", "POST"])]))
        routes.append(Mount("/", StaticFiles(directory=STATIC, html=True)))
        return Starlette(
            routes=routes,
            middleware=[Middleware(Guard, hosts=self.settings.hosts, sessions=self.sessions)],
        )

    def _endpoint(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            session: Session | None = request.state.session
            made = session is None
            if session is None:
                session = self.begin_session()
            try:
                answer = await handler(Call(self, request, session, await read_body(request)))
            except Exception as error:
                told = error_answer(error)
                if told is None:
                    logger.exception("the console could not answer %s", request.url.path)
                    told = JSONResponse({"error": "the console failed unexpectedly; its log says more"}, 500)
                answer = told
            response = answer if isinstance(answer, Response) else JSONResponse(answer)
            if made:
                set_cookie(response, session, request)
            return response

        return endpoint


async def _unknown(request: Request) -> Response:
    answer = error_answer(Refused(404, "there is nothing at this address"))
    assert answer is not None
    return answer
