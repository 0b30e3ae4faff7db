"""The HTTP side of the registry: Confluent's addresses and answers. Requests are done in threads, one at a time."""

from __future__ import annotations

import base64
import hmac
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote_to_bytes

import trio

from kbroker.client.cluster import Client
from kbroker.client.errors import ClientError, RequestTimedOut, ResponseError
from kbroker.errors import ErrorCode
from kbroker.node.peers.http_server import Exchange, HttpServer, HttpThread, Manners, may_ask
from kbroker.registry.formats import KINDS, InvalidSchema
from kbroker.registry.registry import Problem, Registry
from kbroker.registry.store import Store

if TYPE_CHECKING:
    from kbroker.client.security import ClientSecurity

logger = logging.getLogger(__name__)

JSON: Final = "application/vnd.schemaregistry.v1+json"
MOST_BODY: Final = 4 << 20
MOST_CONNECTIONS: Final = 512
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE")

T = TypeVar("T")


class RegistryServer(HttpThread):
    """Serves a registry whose schemas are in a cluster, until ``stop``. ``FatalError`` if the address cannot be had."""

    def __init__(
        self,
        bootstrap: str | Sequence[tuple[str, int]],
        address: tuple[str, int] = ("127.0.0.1", 0),
        *,
        security: ClientSecurity | None = None,
        token: str | None = None,
        timeout: float = 30.0,
    ) -> None:
        """``token``: what a client shows as its bearer token, or as the password of any user."""
        self._host = address[0]
        self._token = token
        self._store = Store(Client(bootstrap, client_id="kbroker-registry", timeout=timeout, security=security))
        self._registry = Registry(self._store)
        manners = Manners(_METHODS, MOST_BODY, _problem, False, MOST_CONNECTIONS, self._is_known)
        super().__init__("registry", HttpServer("registry", address, self._answer, manners))

    def stop(self) -> None:
        super().stop()
        self._store.close()

    def _is_known(self, headers: Mapping[str, str]) -> bool:
        return self._token is None or _shows(headers.get("authorization", ""), self._token)

    async def _answer(self, exchange: Exchange, target: str) -> None:
        exchange.has_no_end()  # a cluster may take long
        try:
            if not may_ask(exchange.headers, self._host, has_token=self._token is not None):
                raise Problem(403, "this address is not for pages of other sites, nor under other names")
            if not self._is_known(exchange.headers):
                raise Problem(401, "Unauthorized: this registry needs the token of --registry-token-file")
            call = _call_of(self._registry, exchange.method, target, exchange.body)
            answer = await trio.to_thread.run_sync(call, abandon_on_cancel=True)
        except Exception as error:
            problem = _shaped(error)
            await exchange.answer(int(str(problem.code)[:3]), _told(problem), JSON)
        else:
            # A schema alone is its own text, all else is JSON.
            await exchange.answer(200, answer if isinstance(answer, _Text) else json.dumps(answer), JSON)


class _Text(str):
    """An answer that is sent as it is."""


def _shows(authorization: str, token: str) -> bool:
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except ValueError:
            return False
    return hmac.compare_digest(given.encode(), token.encode())


def _problem(text: str) -> tuple[str, str]:
    return _told(Problem(400, text)), JSON


def _told(problem: Problem) -> str:
    return json.dumps({"error_code": problem.code, "message": str(problem)})


def _shaped(error: Exception) -> Problem:
    if isinstance(error, Problem):
        return error
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, InvalidSchema):
        return Problem(42201, text)
    if isinstance(error, RecursionError):
        return Problem(42201, "Invalid schema: it is nested too deep")
    if isinstance(error, ResponseError) and error.code == ErrorCode.MESSAGE_TOO_LARGE:
        return Problem(42209, f"Write failed because schema is too large: {text}")
    if isinstance(error, ClientError):
        return Problem(
            50002 if isinstance(error, RequestTimedOut) else 50001, f"Error in the backend data store: {text}"
        )
    logger.error("%s: a request failed", "registry", exc_info=error)
    return Problem(50001, f"{type(error).__name__}: {text}")


class _Query:
    """The arguments of a request. Each is taken by name; what nobody has taken is refused."""

    def __init__(self, text: str) -> None:
        self._given = dict(parse_qsl(text, keep_blank_values=True))

    def text(self, name: str) -> str:
        """Returns an argument, empty if it is not given."""
        return self._given.pop(name, "")

    def flag(self, *names: str) -> bool:
        """Whether an argument is given as true, under any of its names."""
        found = [self.text(name).lower() for name in names]
        if wrong := [text for text in found if text not in ("true", "false", "")]:
            raise Problem(400, f"{names[0]} is to be true or false, not {wrong[0][:60]!r}")
        return "true" in found

    def page(self) -> Callable[[Sequence[T]], list[T]]:
        """Returns what takes the part of a list that is asked for."""
        try:
            offset, limit = int(self.text("offset") or 0), int(self.text("limit") or -1)
        except ValueError:
            raise Problem(400, "offset and limit are to be numbers") from None
        return lambda found: list(found[max(offset, 0) :][: limit if limit >= 0 else None])

    def end(self) -> None:
        """Refuse what nobody has taken. Clients give arguments without a value for nothing."""
        if unknown := [name for name, text in self._given.items() if text.lower() not in ("", "false")]:
            raise Problem(400, f"nothing is done here with the argument {unknown[0][:60]!r}")


def _call_of(registry: Registry, method: str, target: str, body: bytes) -> Callable[[], Any]:
    """Returns what a request asks for, with all its arguments; ``Problem`` if it is none."""
    path, _, text = target.partition("?")
    try:
        parts = [unquote_to_bytes(each).decode() for each in path.strip("/").split("/")]
    except UnicodeDecodeError:
        raise Problem(400, "the address is not UTF-8") from None
    query = _Query(text)
    # The subject of a schema that is asked for by its id tells a context, and there is one alone.
    match ("GET" if method == "HEAD" else method, *parts):
        case ("GET", *_):
            call = _reading(registry, parts, query)
        case ("POST", *_):
            call = _posting(registry, parts, query, _document(body))
        case ("PUT", "config" | "mode" as what, *subject) if len(subject) < 2:
            call = _setting(registry, what, subject[0] if subject else None, query, _document(body))
        case ("DELETE", *_):
            call = _deleting(registry, parts, query)
        case _:
            call = None
    if call is None:
        raise Problem(404, f"HTTP 404 Not Found: there is no {method} {path[:100]}")
    query.end()
    return call


def _reading(registry: Registry, parts: list[str], query: _Query) -> Callable[[], Any] | None:
    match parts:
        case [""]:
            return dict
        case ["contexts"]:
            return lambda: ["."]
        case ["schemas"]:
            prefix, deleted, latest = query.text("subjectPrefix"), query.flag("deleted"), query.flag("latestOnly")
            page = query.page()
            return lambda: page(registry.all_versions(prefix=_prefix(prefix), deleted=deleted, latest_only=latest))
        case ["schemas", "types"]:
            return lambda: list(KINDS)
        case ["schemas", "ids", number, *rest]:
            return _reading_id(registry, _number(number), rest, query)
        case ["schemas", "guids", guid]:
            format = query.text("format")
            return lambda: registry.schema_with_guid(guid, format=format)
        case ["subjects"]:
            prefix, deleted, page = query.text("subjectPrefix"), query.flag("deleted"), query.page()
            only = query.flag("deletedOnly", "deleted_only")
            return lambda: page(registry.subjects(prefix=_prefix(prefix), deleted=deleted, deleted_only=only))
        case ["subjects", subject, "versions"]:
            deleted, only, page = query.flag("deleted"), query.flag("deletedOnly", "deleted_only"), query.page()
            return lambda: page(registry.versions(subject, deleted=deleted, deleted_only=only))
        case ["subjects", subject, "versions", version, *rest] if rest in ([], ["schema"]):
            deleted, format = query.flag("deleted"), query.text("format")

            def told() -> Any:
                found = registry.version(subject, version, deleted=deleted, format=format)
                return _Text(found["schema"]) if rest else found

            return told
        case ["subjects", subject, "versions", version, "referencedby"]:
            deleted, page = query.flag("deleted"), query.page()
            return lambda: page(registry.referring(subject, version, deleted=deleted))
        case ["config" | "mode" as what, *subjects] if len(subjects) < 2:
            default, place = query.flag("defaultToGlobal"), subjects[0] if subjects else None
            ask = registry.config if what == "config" else registry.mode
            return lambda: ask(place, default_to_global=default)
    return None


def _reading_id(registry: Registry, number: int, rest: list[str], query: _Query) -> Callable[[], Any] | None:
    query.text("subject")
    match rest:
        case [] | ["schema"]:
            format, highest = query.text("format"), query.flag("fetchMaxId")

            def told() -> Any:
                found = registry.schema(number, format=format)
                return _Text(found["schema"]) if rest else found | ({"maxId": registry.highest_id()} if highest else {})

            return told
        case ["subjects"]:
            deleted, page = query.flag("deleted"), query.page()
            return lambda: page(sorted({subject for subject, _ in registry.places(number, deleted=deleted)}))
        case ["versions"]:
            deleted, page = query.flag("deleted"), query.page()
            return lambda: page(
                [{"subject": each, "version": version} for each, version in registry.places(number, deleted=deleted)]
            )
    return None


def _posting(registry: Registry, parts: list[str], query: _Query, document: Any) -> Callable[[], Any] | None:
    normalize = query.flag("normalize")
    match parts:
        case ["subjects", subject]:
            deleted, format = query.flag("deleted"), query.text("format")
            return lambda: registry.lookup(subject, document, normalize=normalize, deleted=deleted, format=format)
        case ["subjects", subject, "versions"]:
            return lambda: registry.register(subject, document, normalize=normalize)
        case ["compatibility", "subjects", subject, "versions", *rest] if len(rest) < 2:
            version, verbose = rest[0] if rest else None, query.flag("verbose")
            return lambda: registry.compatibility(subject, version, document, normalize=normalize, verbose=verbose)
    return None


def _setting(
    registry: Registry, what: str, subject: str | None, query: _Query, document: Any
) -> Callable[[], Any] | None:
    if what == "config":
        return lambda: registry.set_config(subject, document)
    force = query.flag("force")
    return lambda: registry.set_mode(subject, document, force=force)


def _deleting(registry: Registry, parts: list[str], query: _Query) -> Callable[[], Any] | None:
    match parts:
        case ["subjects", subject]:
            permanent = query.flag("permanent")
            return lambda: registry.delete_subject(subject, permanent=permanent)
        case ["subjects", subject, "versions", version]:
            permanent = query.flag("permanent")
            return lambda: registry.delete_version(subject, version, permanent=permanent)
        case ["config", *subjects] if len(subjects) < 2:
            return lambda: registry.delete_config(subjects[0] if subjects else None)
        case ["mode", *subjects] if len(subjects) < 2:
            return lambda: registry.delete_mode(subjects[0] if subjects else None)
    return None


def _prefix(text: str) -> str:
    """The prefix of subjects; ``:*:`` stands for those of all contexts."""
    return text.removeprefix(":*:").removeprefix(":.:")


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 10:
        raise Problem(404, f"HTTP 404 Not Found: {text[:60]!r} is no id")
    return int(text)


def _document(body: bytes) -> Any:
    try:
        document = json.loads(body)
        # NaN and halves of characters would be in the topic, where no other registry can read them.
        json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise Problem(42201, "Unrecognized request: the body is no JSON") from None
    return document
