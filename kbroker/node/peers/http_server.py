"""A small HTTP server inside a node, for programs: GET and HEAD, and what its owner serves besides, over h11.

It is bounded in all that a stranger may ask of it: connections, size of a request, time of an exchange. It serves no
clients of Kafka and shares nothing with their listeners but the event loop.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from math import inf
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import trio

from kbroker.errors import FatalError
from kbroker.runtime.bound_ports import addresses_of, bind_all, cannot_listen, listen
from kbroker.runtime.serving_thread import ServingThread
from kbroker.version import __version__

try:
    import h11
except ImportError as error:
    raise FatalError(
        "metrics, the explorer, the control and the registry need the package h11: pip install 'kbroker[metrics]'"
    ) from error

logger = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 32
MAX_HEAD: Final = 8 << 10
"""Bytes of a request's line and headers."""
REQUEST_SECONDS: Final = 15.0
"""For a request to arrive; a reader that keeps its connection comes more often than this, or connects anew."""
RESPONSE_SECONDS: Final = 60.0
"""For a page to be taken, unless it says that it has no end."""
STALLED_SECONDS: Final = 30.0
"""For a piece of a response without an end to be taken: a reader that stands still makes place for others."""
PLAIN: Final = "text/plain; charset=utf-8"

PASS_OVER_SECONDS: Final = 1.0
"""For the rest of a request that is refused."""


class Manners(NamedTuple):
    """The ways in which a server treats those who ask."""

    methods: Collection[str] = ("GET", "HEAD")
    most_body: int = 0
    """Bytes of a request's body that are taken; with 0 it is read and forgotten."""
    problem: Callable[[str], tuple[str, str]] = lambda text: (f"{text}\n", PLAIN)
    """Makes text and content type of an answer that says what is wrong with a request."""
    keeps_connections: bool = True
    """Whether a connection serves more than one request. A client may send one just when an idle one is closed, and
    cannot tell whether it was done."""
    most_connections: int = MAX_CONNECTIONS
    may_send: Callable[[Mapping[str, str]], bool] = lambda headers: True
    """Whether the body of a request with these headers is read before it is answered: strangers fill no memory."""


READ_ONLY: Final = Manners()

Respond = Callable[["Exchange", str], Awaitable[None]]
"""Answers the request for a target."""


class HttpServer:
    """Serves one address, from ``bind`` until it is cancelled."""

    def __init__(
        self,
        subject: str,
        address: tuple[str, int],
        respond: Respond,
        manners: Manners = READ_ONLY,
        *,
        stalled: float = STALLED_SECONDS,
    ) -> None:
        """``subject`` begins its messages."""
        self._stalled = stalled
        self._subject = subject
        self._address = address
        self._respond = respond
        self._manners = manners
        self._listeners: list[trio.SocketListener] = []
        self._connections = 0

    @property
    def port(self) -> int:
        """The bound port."""
        bound: int = self._listeners[0].socket.getsockname()[1]
        return bound

    @property
    def url(self) -> str:
        """Where it is, without a path."""
        host = self._address[0] or "all interfaces"
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    async def bind(self) -> None:
        """Take the address. ``FatalError`` if it cannot be had."""
        host, port = self._address
        try:
            sockets = bind_all(host, await trio.to_thread.run_sync(addresses_of, host), port)
            listen(sockets, 512)
        except OSError as error:
            raise FatalError(f"{self._subject}: {cannot_listen(host, port, error)}") from error
        except FatalError as error:
            raise FatalError(f"{self._subject}: {error}") from error
        self._listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(each)) for each in sockets]

    async def serve(self) -> None:
        """Answer until cancelled."""
        await trio.serve_listeners(self._serve_connection, self._listeners)

    async def _serve_connection(self, stream: trio.SocketStream) -> None:
        if self._connections >= self._manners.most_connections:
            await trio.aclose_forcefully(stream)
            return
        self._connections += 1
        try:
            await Exchange(stream, self._respond, self._manners, self._stalled).run()
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the reader is gone, which is no news
        except Exception:
            logger.exception("%s: a request failed", self._subject)
        finally:
            self._connections -= 1
            with trio.move_on_after(1) as scope:
                scope.shield = True
                await trio.aclose_forcefully(stream)


class Exchange:
    """The requests of one connection, one after the other."""

    def __init__(self, stream: trio.SocketStream, respond: Respond, manners: Manners, stalled: float) -> None:
        self._stalled = stalled
        self._stream = stream
        self._respond = respond
        self._manners = manners
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self._is_head = False
        self._is_endless = False
        self._scope = trio.CancelScope()
        self.method = ""
        self.headers: dict[str, str] = {}
        """Headers of the request, by names in lower case."""
        self.body = b""

    async def run(self) -> None:
        """Serve until the reader closes, is too slow, or sends nonsense."""
        while True:
            with trio.move_on_after(REQUEST_SECONDS) as scope:
                request = await self._next_request()
            if scope.cancelled_caught or request is None:
                return
            self._is_endless = False
            with trio.move_on_after(RESPONSE_SECONDS) as self._scope:
                await self._answer_request(request)
            if (
                self._scope.cancelled_caught
                or self._http.our_state is not h11.DONE
                or self._http.their_state is not h11.DONE
            ):
                if self._http.their_state is h11.SEND_BODY and not self._scope.cancelled_caught:
                    await self._pass_over()
                return
            self._http.start_next_cycle()

    async def _next_request(self) -> h11.Request | None:
        request: h11.Request | None = None
        body = bytearray()
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    await self.refuse(error.error_status_hint, "this is no request that can be understood")
                return None
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._stream.receive_some(MAX_HEAD))
            elif isinstance(event, h11.Request):
                request = event
                self.headers = {name.decode("ascii"): value.decode("latin-1") for name, value in request.headers}
                if request.method.decode() not in self._manners.methods or not self._manners.may_send(self.headers):
                    return request  # whatever comes with it is not read
                if self._http.they_are_waiting_for_100_continue:
                    await self._write(h11.InformationalResponse(status_code=100, headers=[]))
            elif isinstance(event, h11.EndOfMessage):
                self.body = bytes(body)
                return request
            elif isinstance(event, h11.Data):
                most = self._manners.most_body
                body += event.data if most else b""
                if len(body) > most:
                    await self.refuse(413, f"no more than {most} bytes are taken")
                    await self._pass_over()
                    return None
            else:
                return None

    async def _pass_over(self) -> None:
        """Read what still comes, and forget it: who has not sent all yet might not see the answer."""
        await self._stream.send_eof()
        with trio.move_on_after(PASS_OVER_SECONDS):
            while await self._stream.receive_some(MAX_HEAD):
                pass

    async def _answer_request(self, request: h11.Request) -> None:
        self.method = request.method.decode()
        self._is_head = self.method == "HEAD"
        methods = self._manners.methods
        if self.method not in methods:
            await self.refuse(405, f"only {' and '.join(methods)} are served", allow=methods)
            return
        await self._respond(self, request.target.decode("ascii", "replace"))

    @property
    def is_head(self) -> bool:
        """Whether only the headers of the response are asked for."""
        return self._is_head

    def has_no_end(self) -> None:
        """The response is a stream: it takes as long as the reader stays, and takes each piece in time."""
        self._is_endless = True
        self._scope.deadline = inf

    async def refuse(self, status: int, text: str, *, allow: Collection[str] = ()) -> None:
        """Say in one line what is wrong with a request; ``allow``: the methods of its target."""
        await self.answer(status, *self._manners.problem(text), allow=allow)

    async def answer(self, status: int, text: str, content_type: str = PLAIN, *, allow: Collection[str] = ()) -> None:
        """A whole response; ``allow`` tells the methods of the target."""
        await self.begin(status, content_type, length=len(text.encode()), allow=allow)
        await self.send(text)
        await self.end()

    async def begin(
        self, status: int, content_type: str, length: int | None = None, *, allow: Collection[str] = ()
    ) -> None:
        """Begin a response; without a ``length`` it is sent in chunks."""
        headers = [
            ("Content-Type", content_type),
            ("Server", f"kbroker/{__version__}"),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ]
        if not self._manners.keeps_connections:
            headers.append(("Connection", "close"))
        if allow:
            headers.append(("Allow", ", ".join(allow)))
        if status == 401:
            headers.append(("WWW-Authenticate", "Bearer"))
        if length is not None:
            headers.append(("Content-Length", str(length)))
        await self._write(h11.Response(status_code=status, headers=headers))

    async def send(self, text: str) -> None:
        """Send some of the body, as fast as the reader takes it."""
        if not self._is_head:
            await self._write(h11.Data(data=text.encode()))

    async def end(self) -> None:
        """The response is complete."""
        await self._write(h11.EndOfMessage())

    async def _write(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            if self._is_endless:
                self._scope.deadline = trio.current_time() + self._stalled
            await self._stream.send_all(data)
            if self._is_endless:
                self._scope.deadline = inf
        else:
            await trio.lowlevel.checkpoint()


def may_ask(headers: Mapping[str, str], own_host: str, *, has_token: bool = False) -> bool:
    """Whether a request comes from no page of another site; names of ``headers`` are in lower case.

    A browser that is made to take a foreign name for this address tells that name (DNS rebinding). A page of another
    origin tells its own. Where neither is told, as for an image, the browser says whose page asks (``Sec-Fetch-Site``).
    ``has_token``: who asks shows a token, which no browser does under a foreign name: the address may have any.
    """
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return False
    host = headers.get("host", "")
    origin = headers.get("origin")
    if origin is not None and origin != f"http://{host}":
        return False
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return has_token or name == "localhost" or _is_address(name) or (bool(own_host) and name == own_host.lower())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class HttpThread(ServingThread):
    """An HTTP server with a thread of its own. ``FatalError`` at the start if the address cannot be had."""

    def __init__(self, subject: str, server: HttpServer) -> None:
        super().__init__(subject)
        self._server = server

    @property
    def url(self) -> str:
        """Where it is."""
        return self._server.url

    async def _serve(self, on_ready: Callable[[], None]) -> None:
        await self._server.bind()
        on_ready()
        await self._server.serve()
