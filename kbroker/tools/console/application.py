"""The console as an ASGI application: routes, the guard before them, the files of the page."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from kbroker.observe import explorer
from kbroker.tools.console.call import Call, Handler, RequestRefused, error_answer, read_body, set_cookie
from kbroker.tools.console.guard import Guard
from kbroker.tools.console.routes import API
from kbroker.tools.console.sessions import Session
from kbroker.tools.console.state import Console

logger = logging.getLogger(__name__)

EXPLORER: Final = Path(explorer.__file__).parent / "static"
STATIC: Final = Path(__file__).parent / "static"

_OF_EXPLORER: Final = ("clients.js", "elements.js", "explorer.js", "explorer.css")
"""Files of the protocol explorer that the page takes."""


def application(console: Console) -> Starlette:
    """The application; a page of another site gets no further than the guard."""
    routes: list[BaseRoute] = [
        Route(path, _endpoint(console, handler), methods=[method]) for method, path, handler in API
    ]
    # Whatever is not known below /api is told in JSON, too.
    routes.append(Mount("/api", routes=[Route("/{rest:path}", _unknown, methods=["GET", "POST"])]))
    routes += [Route(f"/explorer/{name}", _file(EXPLORER / name)) for name in _OF_EXPLORER]
    routes.append(Mount("/", StaticFiles(directory=STATIC, html=True)))
    guard = Middleware(Guard, hosts=console.settings.hosts, sessions=console.sessions)
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
