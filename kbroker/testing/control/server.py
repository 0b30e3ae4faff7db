"""The HTTP side of the control: it decodes what is asked, has a verb of the table done, and shapes what is answered.

Verbs are done in threads of their own, as a test in Python calls them from its own.
"""

from __future__ import annotations

import hmac
import json
import logging
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote_to_bytes

import trio

from kbroker.errors import ApiError, ErrorCode, FatalError, name_of
from kbroker.node.peers.http_server import Exchange, HttpServer, HttpThread, Manners, may_ask
from kbroker.testing.parameters import Wrong, arguments_of, from_text
from kbroker.testing.seen import CannotNow, NotInTime, NotThere

if TYPE_CHECKING:
    from kbroker.testing.control.routes import Verb
    from kbroker.testing.verbs import Verbs

logger = logging.getLogger(__name__)

JSON: Final = "application/json"
MOST_BODY: Final = 8 << 20
"""Enough for an intercepted request, changed, of ``message.max.bytes``."""
_METHODS: Final = ("GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "TRACE", "QUERY")
"""Those that are told, in the control's words, which of them are for an address."""
_NOT_THERE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.GROUP_ID_NOT_FOUND)


class Refused(Exception):
    """A request that is answered with a status of 4xx, and one line."""

    def __init__(self, status: int, text: str, allow: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.allow = allow


class ControlServer(HttpThread):
    """Serves the verbs of a broker or a cluster until ``stop``. ``FatalError`` if the address cannot be had."""

    def __init__(self, target: Verbs, address: tuple[str, int], token: str | None = None) -> None:
        self._target = target
        self._host = address[0]
        self._token = None if token is None else f"Bearer {token}".encode()
        manners = Manners(_METHODS, MOST_BODY, _problem, keeps_connections=False, may_send=self._is_known)
        super().__init__("control", HttpServer("control", address, self._answer, manners))

    # --- one request

    def _is_known(self, headers: Mapping[str, str]) -> bool:
        given = headers.get("authorization", "").encode("latin-1")
        return self._token is None or hmac.compare_digest(given, self._token)

    async def _answer(self, exchange: Exchange, target: str) -> None:
        exchange.has_no_end()  # a wait may take long
        try:
            document = await self._document(exchange, target)
        except Refused as refused:
            await exchange.refuse(refused.status, str(refused), allow=refused.allow)
        except Exception as error:
            status, problem = _shaped_error(error)
            await exchange.answer(status, json.dumps(problem), JSON)
        else:
            await exchange.answer(200, json.dumps(document), JSON)

    async def _document(self, exchange: Exchange, target: str) -> Any:
        if not may_ask(exchange.headers, self._host, has_token=self._token is not None):
            raise Refused(403, "this address is not for pages of other sites, nor under other names")
        if not self._is_known(exchange.headers):
            raise Refused(401, "this needs the token of --control-token-file: Authorization: Bearer TOKEN")
        path, _, query = target.partition("?")
        if path == "/openapi.json" and exchange.method in ("GET", "HEAD"):
            from kbroker.testing.control.openapi import document

            return document()
        verb, arguments = _asked(exchange.method, path, query, exchange.body)
        value = await trio.to_thread.run_sync(lambda: verb.call(self._target, **arguments), abandon_on_cancel=True)
        return shaped(value)


def _asked(method: str, path: str, query: str, body: bytes) -> tuple[Verb, dict[str, Any]]:
    """The verb that is meant, and its arguments; ``Refused`` or ``Wrong``."""
    from kbroker.testing.control.routes import verbs

    method = "GET" if method == "HEAD" else method
    try:
        segments = [unquote_to_bytes(each).decode() for each in path.split("/")[1:]]
    except UnicodeDecodeError:
        raise Refused(400, "the address is not UTF-8") from None
    fitting = [(verb, found) for verb in verbs() if (found := verb.match(segments)) is not None]
    literal = {verb.path for verb, found in fitting if not found}  # a fault's kind is no number of one
    here = [(verb, found) for verb, found in fitting if not literal or verb.path in literal]
    for verb, found in here:
        if verb.method != method:
            continue
        known = {each.name: each for each in verb.parameters}
        given: dict[str, Any] = {name: from_text(known[name], text) for name, text in found.items()}
        if verb.method == "GET":
            for name, text in parse_qsl(query, keep_blank_values=True):
                if name not in known:
                    raise Wrong(f"there is no {name[:60]!r} here; there is {', '.join(known) or 'nothing'}")
                given[name] = from_text(known[name], text)
        elif query:
            raise Wrong("arguments go into the body, as an object of JSON")
        else:
            fields = _object(body)
            if inside := sorted(found.keys() & fields.keys()):
                raise Wrong(f"{inside[0]} is in the address already")
            given |= fields
        return verb, arguments_of(verb.parameters, given)
    if allowed := [verb.method for verb, found in here if _is_place_of(verb, found)]:
        heads = ["HEAD"] if "GET" in allowed else []
        raise Refused(405, f"{path[:100]} is for {' and '.join(allowed)}", (*allowed, *heads))
    start, _, _ = path.rpartition("/")
    near = [verb.path for verb in verbs() if verb.method == method and verb.path.rpartition("/")[0] == start]
    there = ", ".join(each for each in near if "{" not in each) if start else ""
    raise Refused(404, f"there is no {path[:100]} here; there is {there or 'what /openapi.json tells'}")


def _is_place_of(verb: Verb, found: dict[str, str]) -> bool:
    """Whether what an address has in the place of a verb's arguments can be those arguments."""
    try:
        for each in verb.parameters:
            if each.name in found:
                from_text(each, found[each.name])
    except Wrong:
        return False
    return True


def _object(body: bytes) -> dict[str, Any]:
    if not body:
        return {}
    try:
        found = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise Wrong(f"the body is no JSON: {why}") from None
    if not isinstance(found, dict):
        raise Wrong("the body is to be an object of JSON")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def _problem(text: str) -> tuple[str, str]:
    return json.dumps({"error": text}), JSON


def _shaped_error(error: Exception) -> tuple[int, dict[str, Any]]:
    """The status and the body that tell an error in one line."""
    from kbroker.client.errors import ClientError, ResponseError

    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, NotInTime):
        return 504, {"error": text, "seen": None if error.seen is None else shaped(error.seen)}
    if isinstance(error, ApiError | ResponseError):
        code = int(error.code)
        text = text if isinstance(error, ResponseError) else str(error.message or error.code.name)
        return 404 if code in _NOT_THERE else 409, {"error": text, "code": name_of(code)}
    for kinds, status in _STATUSES:
        if isinstance(error, kinds):
            return status, {"error": text}
    if isinstance(error, ClientError):
        return 503, {"error": text}
    logger.error("control: a verb failed", exc_info=error)
    return 500, {"error": f"{type(error).__name__}: {text}"}


_STATUSES: Final[tuple[tuple[tuple[type[Exception], ...], int], ...]] = (
    ((ValueError,), 400),
    ((NotThere,), 404),
    ((CannotNow, RuntimeError, FatalError), 409),
    ((TimeoutError,), 504),
)


def shaped(value: Any) -> Any:
    """A value in the types of JSON."""
    if is_dataclass(value):
        return {each.name: shaped(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): shaped(each) for key, each in value.items()}
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return [shaped(each) for each in value] if isinstance(value, list | tuple) else value
