"""The console as an ASGI application: routes, the guard before them, the files of the page."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from kbroker.observe import explorer
from kbroker.tools.console.call import Call, Handler, RequestRefused, error_answer, read_body, set_cookie
from kbroker.tools.console.guard import Guard
from kbroker.tools.console.routes import API
from kbroker.tools.console.sessions import Session
from kbroker.tools.console.settings import ConsoleSettings
from kbroker.tools.console.state import Console

logger = logging.getLogger(__name__)

EXPLORER: Final = Path(explorer.__file__).parent / "static"
STATIC: Final = Path(__file__).parent / "static"

_OF_EXPLORER: Final = ("clients.js", "elements.js", "explorer.js", "explorer.css")
"""Files of the protocol explorer that the page takes."""


def applications(settings: ConsoleSettings) -> ASGIApp:
    """The page of a cluster, and of each other one at ``/at/NAME/``: with sessions, limits and clients of its own."""
    others = {each.cluster: replace(each, hosts=settings.hosts) for each in settings.others}
    paths = [(settings.cluster, "/"), *((name, f"/at/{name}/") for name in others)] if others else []
    first = _application(Console(settings, paths))
    served = {name: _application(Console(each, paths), name) for name, each in others.items()}

    async def at_cluster(scope: Scope, receive: Receive, send: Send) -> None:
        begin, _, rest = scope.get("path", "").removeprefix("/at/").partition("/")
        if scope["type"] != "http" or not scope["path"].startswith("/at/") or begin not in served:
            await first(scope, receive, send)
        elif scope["path"] == f"/at/{begin}":
            await RedirectResponse(f"/at/{begin}/")(scope, receive, send)
        else:
            # All that the page asks for is relative to its own address, so nothing of it comes to another cluster.
            await served[begin]({**scope, "path": f"/{rest}"}, receive, send)

    return at_cluster


def _application(console: Console, place: str = "") -> Starlette:
    """The application of one cluster; a page of another site gets no further than the guard.

    ``place``: the name of a cluster that is not the first.
    """
    routes: list[BaseRoute] = [
        Route(path, _endpoint(console, handler), methods=[method]) for method, path, handler in API
    ]
    # Whatever is not known below /api is told in JSON, too.
    routes.append(Mount("/api", routes=[Route("/{rest:path}", _unknown, methods=["GET", "POST"])]))
    routes += [Route(f"/explorer/{name}", _file(EXPLORER / name)) for name in _OF_EXPLORER]
    routes.append(Mount("/", StaticFiles(directory=STATIC, html=True)))
    guard = Middleware(Guard, hosts=console.settings.hosts, sessions=console.sessions, cluster=place)
    return Starlette(routes=routes, middleware=[guard])


def _endpoint(console: Console, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        session: Session | None = request.state.session
        made = session is None
        if session is None:
            session = console.begin_session()
        try:
            answer = await handler(Call(console, request, session, await read_body(request)))
            response = answer if isinstance(answer, Response) else JSONResponse(answer)
        except Exception as error:
            told = error_answer(error)
            if told is None:
                logger.exception("the console could not answer %s", request.url.path)
                told = JSONResponse({"error": "the console failed unexpectedly; its log says more"}, 500)
            response = told
        if made:
            set_cookie(response, session, request)
        return response

    return endpoint


def _file(path: Path) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return FileResponse(path)

    return endpoint


async def _unknown(request: Request) -> Response:
    answer = error_answer(RequestRefused(404, "there is nothing at this address"))
    assert answer is not None
    return answer
