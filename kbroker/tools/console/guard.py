"""The guard of the console: who may ask, from which page, and what the browser is told to refuse.

A page of another site can make a browser send requests here. Host keeps out names that somebody else's DNS points to
this machine; Origin and a token that only this page knows keep out requests of other pages.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kbroker.tools.console.sessions import Sessions, cookie_name

MAX_BODY: Final = 2 << 20

SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
        " require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Sent with every answer. No script but the wheel's runs, and none can make a document out of text."""

_READING: Final = ("GET", "HEAD")


def refusal(
    method: str, path: str, headers: Mapping[str, str], hosts: frozenset[str], csrf: str | None
) -> tuple[int, str] | None:
    """The status and the reason why a request is refused, or None. Header names are lower case; pure.

    ``csrf``: the token of the request's session, None without one.
    """
    if headers.get("host", "").lower() not in hosts:
        return 421, "this console is not known by that name: start it with --allow-host NAME:PORT"
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() not in hosts:
        return 403, "requests of other pages are refused"
    if path.startswith("/api/") and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return 403, "requests of other pages are refused"
    if method in _READING:
        return None
    if method != "POST":
        return 405, "this method is not served"
    if origin is None and headers.get("sec-fetch-site") != "same-origin":
        return 403, "a request that changes something has to say where it comes from"
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return 415, "what is sent has to be JSON"
    if "transfer-encoding" in headers:
        # It would hold in place of Content-Length, and says nothing of how much comes.
        return 411, "the length of what is sent has to be known"
    if not (headers.get("content-length") or "").isdigit():
        return 411, "the length of what is sent has to be known"
    if int(headers["content-length"]) > MAX_BODY:
        return 413, f"more than {MAX_BODY >> 20} MiB cannot be sent"
    if csrf is None or not secrets.compare_digest(csrf.encode(), headers.get("x-csrf-token", "").encode()):
        return 403, "the page is too old: load it again"
    return None


def is_secure(headers: Mapping[str, str], scope: Scope) -> bool:
    """Whether the browser speaks TLS, with the console or with the proxy before it."""
    return headers.get("x-forwarded-proto", scope.get("scheme", "http")) == "https"


class Guard:
    """ASGI middleware that applies ``refusal`` and adds the headers to every answer."""

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str], sessions: Sessions, cluster: str = "") -> None:
        self._app = app
        self._cluster = cluster
        self._hosts = hosts
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of ASGI."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        name = cookie_name(headers.get("host", ""), secure=is_secure(headers, scope), cluster=self._cluster)
        session = self._sessions.find(cookie_parser(headers.get("cookie", "")).get(name))
        scope.setdefault("state", {}).update(session=session, cookie=name)
        refused = refusal(
            scope["method"], scope["path"], headers, self._hosts, None if session is None else session.csrf
        )

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    sent[name] = value
                sent.setdefault("Cache-Control", "no-store" if scope["path"].startswith("/api/") else "no-cache")
            await send(message)

        if refused is None:
            await self._app(scope, _bounded(receive), send_with_headers)
        else:
            status, reason = refused
            await JSONResponse({"error": reason}, status)(scope, receive, send_with_headers)


class TooLarge(Exception):
    """The body of a request is larger than it may be, whatever its headers said."""


def _bounded(receive: Receive) -> Receive:
    """Messages of a request; ``TooLarge`` when its body is longer than ``MAX_BODY``."""
    size = 0

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MAX_BODY:
            raise TooLarge
        return message

    return bounded
