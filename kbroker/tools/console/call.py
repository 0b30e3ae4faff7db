"""One request of the page: its parameters, its session, the questions it puts to the cluster, its errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import trio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from kbroker.client import ApiNotServed, Client, ClientError, ResponseError
from kbroker.client.errors import AuthenticationFailed
from kbroker.client.records_io.json_types import Json, load_json
from kbroker.client.schemas.wire_format import (
    PackageMissing,
    RegistryError,
    RegistryRefused,
    UndecodableRecord,
    UnfitValue,
)
from kbroker.errors import ErrorCode
from kbroker.tools.console.audit import write_audit
from kbroker.tools.console.guard import MAX_BODY, TooLarge, is_secure
from kbroker.tools.console.sessions import Session, View
from kbroker.wire.errors import EncodeError, WireError

if TYPE_CHECKING:
    from kbroker.tools.console.state import Console

T = TypeVar("T")

_FORBIDDEN: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_NOT_FOUND: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    }
)


class RequestRefused(Exception):
    """A request that is not carried out, with its HTTP status; the text is one line for a person."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Call:
    """A request with its session. Bad parameters raise ``RequestRefused``."""

    def __init__(self, console: Console, request: Request, session: Session, body: Mapping[str, Json]) -> None:
        self.console = console
        self.request = request
        self.session = session
        self._given: Mapping[str, Json] = body if request.method == "POST" else dict(request.query_params)

    @property
    def view(self) -> View:
        """The cluster as the session's user sees it."""
        if self.session.view is None:
            raise RequestRefused(401, "sign in first")
        return self.session.view

    @property
    def address(self) -> str:
        """The address that the request came from."""
        return self.request.client.host if self.request.client is not None else ""

    # --- Parameters -------------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether a parameter is given, and not empty."""
        return self._given.get(name) not in (None, "")

    def text(self, name: str, default: str | None = None) -> str:
        """A parameter that is text; without a default it has to be there."""
        value = self._given.get(name)
        if value is None or (value == "" and default is None):
            if default is None:
                raise RequestRefused(400, f"{name} is missing")
            return default
        if not isinstance(value, str):
            raise RequestRefused(400, f"{name} has to be text")
        return value

    def number(self, name: str, default: int | None = None, *, lowest: int = 0, highest: int = 2**63 - 1) -> int:
        """A parameter that is a whole number, within limits."""
        value = self._given.get(name)
        if value is None or value == "":
            if default is None:
                raise RequestRefused(400, f"{name} is missing")
            return default
        try:
            number = int(value) if isinstance(value, str) and len(value) < 20 else value
        except ValueError:
            number = None
        if not isinstance(number, int) or isinstance(number, bool) or not lowest <= number <= highest:
            raise RequestRefused(400, f"{name} has to be a whole number from {lowest} to {highest}")
        return number

    def flag(self, name: str) -> bool:
        """A parameter that is yes or no; no if it is not given."""
        return self._given.get(name) in (True, "1", "true", "yes")

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """A parameter that is one of some words."""
        value = self.text(name, default)
        if value not in choices:
            raise RequestRefused(400, f"{name} has to be one of {', '.join(choices)}")
        return value

    def texts(self, name: str) -> dict[str, str]:
        """A parameter that maps names to texts; empty if it is not given."""
        value = self._given.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise RequestRefused(400, f"{name} has to be an object")
        found = {key: each for key, each in value.items() if isinstance(each, str)}
        if len(found) != len(value):
            raise RequestRefused(400, f"{name} has to hold texts")
        return found

    # --- The cluster ------------------------------------------------------------------------------------------------

    async def ask(self, question: Callable[[Client], T]) -> T:
        """Ask the cluster as the session's user."""
        return await self.view.cluster.ask(question)

    async def compute(self, work: Callable[[], T]) -> T:
        """Do what takes long with many topics in a thread: the other requests go on meanwhile."""
        return await trio.to_thread.run_sync(work, limiter=self.console.limiter)

    def audit(self, action: str, target: str, details: Json, outcome: str) -> None:
        """Write a line into the audit log."""
        write_audit(self.session.user, self.address, action, target, details, outcome, self.console.settings.cluster)

    def refuse_read_only(self, action: str, target: str, details: Json) -> None:
        """``RequestRefused``, with a line in the audit log, where no writes are allowed."""
        if not self.console.settings.writes:
            self.audit(action, target, details, "refused: read-only")
            raise RequestRefused(403, "this console is read-only: it was started without --writes")

    async def write(self, action: str, target: str, details: Json, question: Callable[[Client], T]) -> T:
        """Change something: only where writes are allowed, and never without a line in the audit log."""
        self.refuse_read_only(action, target, details)
        try:
            result = await self.ask(question)
        except Exception as error:
            self.audit(action, target, details, f"failed: {error}")
            raise
        self.audit(action, target, details, "done")
        return result


Handler = Callable[[Call], Awaitable["Json | Response"]]


async def read_body(request: Request) -> dict[str, Json]:
    """The object that a POST carries."""
    if request.method != "POST":
        return {}
    try:
        document = load_json(await request.body())
    except TooLarge:
        raise RequestRefused(413, f"more than {MAX_BODY >> 20} MiB cannot be sent") from None
    except ValueError:
        raise RequestRefused(400, "what is sent has to be JSON") from None
    if not isinstance(document, dict):
        raise RequestRefused(400, "what is sent has to be an object")
    return document


def set_cookie(response: Response, session: Session, request: Request) -> None:
    """Name the session to the browser, for this page alone."""
    secure = is_secure(request.headers, request.scope)
    response.set_cookie(request.state.cookie, session.id, httponly=True, samesite="strict", secure=secure, path="/")


def error_answer(error: Exception) -> JSONResponse | None:
    """The page's answer for an error; None for one that is a defect of the console."""
    match error:
        case RequestRefused():
            return _told(error.status, str(error))
        case AuthenticationFailed():
            return _told(401, str(error))
        case ResponseError():
            status = 403 if error.code in _FORBIDDEN else 404 if error.code in _NOT_FOUND else 409
            return _told(status, str(error), error.name)
        case ApiNotServed():
            return _told(501, str(error))
        case ClientError():
            return _told(502, str(error))
        case WireError():
            return _told(502, f"a broker sent bytes that cannot be right: {error}")
        case RegistryRefused():
            return _told(404 if error.status == 404 else 409, f"the schema registry: {error}")
        case RegistryError():
            return _told(502, str(error))
        case PackageMissing():
            return _told(501, str(error))
        case UndecodableRecord() | UnfitValue():
            return _told(400, str(error))
        case EncodeError():
            return _told(400, f"this cannot be put into a request: {error}")
        case ClientDisconnect():
            return _told(400, "the browser has gone")
    return None


def _told(status: int, text: str, name: str | None = None) -> JSONResponse:
    return JSONResponse({"error": text, "name": name}, status)
