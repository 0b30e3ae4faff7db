"""Faults in the broker's own thread: handlers of a listener's table are replaced while there is something to do.

Nothing of it is on the path of a request to an API without faults.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

import trio

from kbroker.cores.share_partitions.sessions import FINAL_EPOCH, INITIAL_EPOCH
from kbroker.errors import ApiError, ErrorCode
from kbroker.handlers import load_handlers
from kbroker.handlers.common.context import CloseConnection, RequestContext
from kbroker.handlers.common.error_answers import (
    SESSION_ERRORS,
    fail_all,
    fails_by_topic,
    fails_where_served,
    merge,
    named_partitions,
    split,
)
from kbroker.handlers.metadata import asks_for_all
from kbroker.handlers.registration import BROKER, Forwarding, Registration, registrations
from kbroker.node.serving.dispatcher import answer_of
from kbroker.observe.explorer.decoded import topics_of
from kbroker.runtime.later import Later
from kbroker.testing.faults import Match, Parameters
from kbroker.testing.intercepted import INTERCEPT, PASS, Decision, Question
from kbroker.testing.link import OWN_CLIENT_ID
from kbroker.testing.told_requests import Names, told
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.compiler import decode, encode
from kbroker.wire.errors import WireError
from kbroker.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kbroker.wire.messages.metadata import MetadataRequest
from kbroker.wire.registry import API_KEYS, ASKED_BY_NODES, ApiDescription

Named = tuple[tuple[str, "int | None"], ...]
Proceed = Callable[[Any], Awaitable[Any]]
"""Serves a request, through the faults that come later: the response."""

NO_ACKS = 0

WITH_SESSIONS = ("Fetch", "ShareFetch")
"""The APIs whose requests leave out what their sessions remember."""

EARLIEST = -2
"""As the timestamp of a ListOffsets."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A fault, as a node is told of it."""

    number: int
    match: Match
    action: str
    parameters: Parameters
    fires: Callable[[], Awaitable[bool]]
    """Whether it is to act on one more request that it is for."""
    note: Callable[[str, int, str | None, int, Named, str], Awaitable[None]]
    """Record what is done: API, version, client id and correlation id of the request, what it names, details."""
    ask: Callable[[Question], Awaitable[None]]
    """Hand a request over to the test, which decides about it (:meth:`Interceptor.decide`)."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request that a fault acts on."""

    rule: Rule
    api: ApiDescription
    request: Any
    ctx: RequestContext
    partitions: Named
    """The topics and partitions of the fault that the request names."""
    proceed: Proceed
    serve: Proceed
    """Serves a request as if there were no faults: for what a fault itself wants to know."""
    undone: trio.Event
    """Set when the fault is undone."""

    async def note(self, detail: str = "") -> None:
        """Record what is done; to be called once, before the client can see anything of it."""
        header = self.ctx.header
        await self.rule.note(
            self.api.name, header.api_version, header.client_id, header.correlation_id, self.partitions, detail
        )

    def close(self, why: str = "") -> CloseConnection:
        """The value that a fault returns to close the connection."""
        return CloseConnection(f"a test's fault: {self.rule.action} {self.api.name}{why}")


Action = Callable[[Call], Awaitable[Any]]
"""The action of a fault: it returns the response, or CloseConnection."""


class Served(Protocol):
    """A table of handlers that APIs are served by: a listener of a node, or one that stands for it."""

    @property
    def is_controller(self) -> bool: ...

    def registration(self, api_key: int) -> Registration | None:
        """By what an API is served; None if it is not."""

    def replace_handler(self, registration: Registration) -> None:
        """Serve an API otherwise, from each connection's next request on."""


class Intercepted(Protocol):
    """A node, as far as faults reach into it."""

    @property
    def listeners(self) -> Sequence[Served]: ...

    @property
    def on_opening(self) -> list[Callable[[], object]]:
        """Called when the listeners are there."""


class Interceptor:
    """The faults of a node's requests. Those that are added before it serves are there for the first request."""

    def __init__(self, node: Intercepted) -> None:
        self._node = node
        self._rules: dict[int, list[tuple[Rule, Action, trio.Event]]] = {}
        self._originals: dict[int, list[tuple[Any, Registration]]] = {}
        self._tell: Callable[[dict[str, Any]], Awaitable[None]] | None = None
        self._questions = itertools.count()
        self._asked: dict[int, _Waiting] = {}
        self._opened = any(not listener.is_controller for listener in node.listeners)
        if not self._opened:
            load_handlers()  # which a node does only when it starts
            node.on_opening.append(self._on_opening)

    def add(self, rule: Rule) -> None:
        """Have a fault act from the next request on. ValueError for an API that clients are not served."""
        api = rule.match.api
        if api is not None and api.key not in registrations(BROKER):
            raise ValueError(f"{api.name} is not served to clients here")
        action = self._intercept if rule.action == INTERCEPT else _action_of(rule)
        entry = rule, action, trio.Event()
        for key in _keys_of_clients() if api is None else (api.key,):
            self._rules.setdefault(key, []).append(entry)
        self._update()

    def remove(self, number: int) -> None:
        """Have it act no more; what waits because of it goes on. Does nothing if it is not there."""
        for key, entries in list(self._rules.items()):
            for rule, _, undone in entries:
                if rule.number == number:
                    undone.set()
            self._rules[key] = left = [entry for entry in entries if entry[0].number != number]
            if not left:
                del self._rules[key]
        self._update()

    def observe(self, tell: Callable[[dict[str, Any]], Awaitable[None]] | None) -> None:
        """Have each request of a client be told, before its answer is sent (`requests.told`); None: no more."""
        self._tell = tell
        self._update()

    def _on_opening(self) -> None:
        self._opened = True
        self._update()

    def _update(self) -> None:
        """Replace the handlers of the APIs that there is something to do for, and of no others."""
        if not self._opened:
            return
        wanted = set(self._rules)
        if self._tell is not None:
            wanted.update(_keys_of_clients())
        for key in self._originals.keys() - wanted:
            for listener, registration in self._originals.pop(key):
                listener.replace_handler(registration)
        for key in wanted - self._originals.keys():
            self._replace(API_KEYS[key])

    def _replace(self, api: ApiDescription) -> None:
        originals = []
        for listener in self._node.listeners:
            registration = None if listener.is_controller else listener.registration(api.key)
            if registration is not None:
                handle = functools.partial(self._handle, registration)
                # What the connection would pass on to the active controller comes to the faults first.
                replaced = dataclasses.replace(
                    registration, handle=handle, is_async=True, forwarding=Forwarding.NONE, check=None
                )
                listener.replace_handler(replaced)
                originals.append((listener, registration))
        self._originals[api.key] = originals

    async def _handle(self, original: Registration, request: Any, ctx: RequestContext) -> Any:
        tell = self._tell
        if tell is None or ctx.header.client_id == OWN_CLIENT_ID or _is_of_node(request, ctx):
            return await self._serve(original, request, ctx)
        api, at_ms, began = API_KEYS[original.api_key], ctx.services.env.wall_clock_ms(), perf_counter()
        named = _named(api, request, ctx) if api.name in WITH_SESSIONS else None

        async def say(response: Any, end: str) -> None:
            await tell(told(api, ctx, request, response, end, at_ms, (perf_counter() - began) * 1000, named))

        try:
            response = await self._serve(original, request, ctx)
        except (CloseConnection, WireError) as error:
            await say(None, f"the connection was closed: {error}")
            raise
        await say(response, "" if response is not None else "none is expected")
        return response

    async def _serve(self, original: Registration, request: Any, ctx: RequestContext) -> Any:
        api, entries = API_KEYS[original.api_key], list(self._rules.get(original.api_key, ()))

        async def proceed(position: int, request: Any) -> Any:
            for index in range(position, len(entries)):
                rule, action, undone = entries[index]
                partitions = None if undone.is_set() else _meant(rule.match, api, request, ctx)
                if partitions is not None and await rule.fires():
                    later, past_all = (functools.partial(proceed, each) for each in (index + 1, len(entries)))
                    return await action(Call(rule, api, request, ctx, partitions, later, past_all, undone))
            response = await answer_of(original, request, ctx) if original.is_async else original.handle(request, ctx)
            return await response if isinstance(response, Later) else response

        return await proceed(0, request)

    async def _intercept(self, call: Call) -> Any:
        """Do with a request what the test decides, or pass it on when the fault is undone or nobody decides in time."""
        header, version = call.ctx.header, call.ctx.api_version
        number = next(self._questions)
        self._asked[number] = waiting = _Waiting(trio.Event(), call.undone)
        try:
            await call.ctx.connection.flush()  # earlier replies do not wait
            body = encode(call.request, version)
            asked = (call.api.key, version, header.client_id, header.correlation_id, body)
            await call.rule.ask(Question(call.rule.number, number, call.ctx.services.node_id, *asked))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_after, call.undone, nursery.cancel_scope)
                with trio.move_on_after(call.rule.parameters["seconds"]):
                    await waiting.decided.wait()
                nursery.cancel_scope.cancel()
        finally:
            del self._asked[number]
        decision, request, api = waiting.decision, call.request, call.api
        if waiting.decided.is_set():
            await call.note(decision.action)
        elif not call.undone.is_set():
            await call.note("pass, as nobody has decided in time")
        if decision.action == "close":
            raise call.close()
        if decision.action == "answer":
            if api.name == "Produce" and request.acks == NO_ACKS:
                return None  # no client expects one
            return decode(api.response, version, decision.body)[0]
        return await call.proceed(decode(api.request, version, decision.body)[0] if decision.body else request)

    def decide(self, number: int, decision: Decision) -> bool:
        """Have a request that waits go its way. Returns False, and does nothing, for one that waits no more."""
        waiting = self._asked.get(number)
        if waiting is None or waiting.undone.is_set():
            return False
        waiting.decision = decision
        waiting.decided.set()
        return True


@dataclass(slots=True)
class _Waiting:
    """A request that waits for a decision."""

    decided: trio.Event
    undone: trio.Event
    decision: Decision = PASS


async def _cancel_after(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def _keys_of_clients() -> list[int]:
    return [key for key in registrations(BROKER) if key not in ASKED_BY_NODES]


def _meant(match: Match, api: ApiDescription, request: Any, ctx: RequestContext) -> Named | None:
    """The topics and partitions of the fault that the request names; None if the fault is not for this request."""
    if ctx.header.client_id == OWN_CLIENT_ID or match.followers != _is_of_follower(request):
        return None
    if match.api is None and _is_of_node(request, ctx):
        return None
    if match.client_id is not None and not match.client_id.search(ctx.header.client_id or ""):
        return None
    named = _named(api, request, ctx)
    if match.timestamp is not None:
        asked = {
            (topic.name, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
            if partition.timestamp == match.timestamp
        }
        named = [key for key in named if key in asked]
    if not match.by_partition:
        return tuple(named)
    meant = tuple((topic, index) for topic, index in named if match.chosen(topic, index))
    return meant or None


def _is_of_node(request: Any, ctx: RequestContext) -> bool:
    """Whether another node asks: as a follower, or on a connection that it has begun, or begins."""
    software = getattr(request, "client_software_name", "") or ctx.connection.client_software_name
    return _is_of_follower(request) or (software == "kbroker" and (ctx.header.client_id or "").startswith("broker-"))


def _is_of_follower(request: Any) -> bool:
    replica_id = getattr(request, "replica_id", -1)
    state = getattr(request, "replica_state", None)
    return replica_id >= 0 or (state is not None and state.replica_id >= 0)


def _named(api: ApiDescription, request: Any, ctx: RequestContext) -> list[tuple[str, int | None]]:
    manager = ctx.services.replica_manager
    if is_about_all_topics(api, request, ctx.api_version):
        return [(name, None) for name in sorted(ctx.services.metadata.image.topics.by_name)]
    named = named_partitions(api, ctx.api_version, request, manager.topic_name)
    if not named and api.name != "Fetch":  # or its errors are not by topic
        found = topics_of(request, Names(manager.topic_name))
        named = [(name, index) for name, indexes in found.items() for index in indexes or (None,)]
    if api.name in WITH_SESSIONS:
        known: dict[tuple[str | None, int | None], None] = dict.fromkeys(named)
        for topic_id, told, index in _in_session(api, request, ctx):
            known[manager.topic_name(topic_id) if topic_id != ZERO_UUID else told, index] = None
        for topic in request.forgotten_topics_data:
            forgotten = getattr(topic, "topic", "") or manager.topic_name(Uuid(topic.topic_id))
            for index in topic.partitions:
                known.pop((forgotten, index), None)
        return [(name, index) for name, index in known if name is not None]
    return named


def _in_session(api: ApiDescription, request: Any, ctx: RequestContext) -> list[tuple[Uuid, str, int]]:
    """The partitions that a request reads without naming them: id and name of the topic, whichever is known; index."""
    if api.name == "Fetch":
        keys = ctx.services.fetch_sessions.partitions_of(request.session_id, request.session_epoch)
        return [(Uuid(key.topic_id), key.topic, key.partition) for key in keys]
    share_groups = getattr(ctx.services, "share_groups", None)  # a door to a foreign broker does not know them
    if share_groups is None or request.share_session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        return []
    try:
        session = share_groups().partitions.sessions.find(request.group_id or "", request.member_id or "")
    except ApiError:
        return []
    return [(each.topic_id, "", each.partition) for each in session.partitions]


def is_about_all_topics(api: ApiDescription, request: Any, version: int) -> bool:
    """Whether a request asks for all topics by naming none."""
    if isinstance(request, MetadataRequest):
        return asks_for_all(request, version)
    return api.name == "DescribeTopicPartitions" and not request.topics


# --- what faults do


def _action_of(rule: Rule) -> Action:
    """The action of a rule of :class:`~kbroker.testing.faults.Faults`."""
    parameters = rule.parameters
    match rule.action:
        case "delay":
            return functools.partial(_delay, parameters["seconds"])
        case "hold":
            return functools.partial(_delay, float("inf"))
        case "error":
            return functools.partial(_error, ErrorCode(parameters["code"]))
        case "stale latest":
            return functools.partial(_stale_latest, parameters["behind"])
        case "drop after":
            return _drop_after
        case "drop before":
            return _drop_before
    raise ValueError(f"there is no fault {rule.action!r}")


async def _delay(seconds: float, call: Call) -> Any:
    await call.note("" if seconds == float("inf") else f"{seconds:g} s")
    await call.ctx.connection.flush()  # earlier replies are not late
    with trio.move_on_after(seconds):
        await call.undone.wait()
    return await call.proceed(call.request)


async def _drop_before(call: Call) -> Any:
    await call.note()
    await call.ctx.connection.flush()
    raise call.close()


async def _drop_after(call: Call) -> Any:
    await call.proceed(call.request)
    await call.note()  # not before: who waits for it counts on the effect
    await call.ctx.connection.flush()
    raise call.close()


async def _error(code: ErrorCode, call: Call) -> Any:
    api, request, version = call.api, call.request, call.ctx.api_version
    await call.note(code.name)
    if api.name == "Produce" and request.acks == NO_ACKS:
        raise call.close(f" with acks=0: {code.name}")
    if api.name == "Fetch":
        return await _fetch_error(code, call)
    if is_about_all_topics(api, request, version):
        response = await call.proceed(request)
        _fail_topics(response.topics, {topic for topic, _ in call.partitions}, code)
        return response
    field = fails_where_served(api, version)
    if field is not None:
        return fail_all(await call.proceed(request), field, code)
    topic_name = call.ctx.services.replica_manager.topic_name
    chosen = call.rule.match.chosen if fails_by_topic(api, version) else _all_of_it
    answers, rest = split(api, version, request, code, topic_name, chosen)
    if answers == []:
        return await call.proceed(request)
    served = None if rest is None else await call.proceed(rest)
    return merge(api, version, code, answers, served)


def _all_of_it(topic: str, partition: int | None) -> bool:
    return True


def _fail_topics(topics: Iterable[Any], names: set[str], code: ErrorCode) -> None:
    for topic in topics:
        if topic.name in names:
            topic.error_code = code
            topic.partitions = []


async def _fetch_error(code: ErrorCode, call: Call) -> Any:
    """Put an error into each partition that is meant, also one that the response would not name; others are read."""
    if code in SESSION_ERRORS:
        return FetchResponse(error_code=code)
    response = await call.proceed(dataclasses.replace(call.request, max_wait_ms=0))
    if response.error_code:
        return response
    manager = call.ctx.services.replica_manager
    by_id = call.ctx.api_version >= 13
    topics = {(manager.topic_name(topic.topic_id) if by_id else topic.topic): topic for topic in response.responses}
    for name, index in call.partitions:
        assert index is not None  # a Fetch names partitions
        topic = topics.get(name)
        if topic is None:
            topic_id = (manager.topic_id(name) or ZERO_UUID) if by_id else ZERO_UUID
            topic = FetchableTopicResponse(topic="" if by_id else name, topic_id=topic_id)
            topics[name] = topic
            response.responses.append(topic)
        topic.partitions = [data for data in topic.partitions if data.partition_index != index]
        topic.partitions.append(
            PartitionData(
                partition_index=index,
                error_code=code,
                high_watermark=-1,
                log_start_offset=-1,
                aborted_transactions=None,
                records=b"",
            )
        )
    return response


async def _stale_latest(behind: int, call: Call) -> Any:
    response = await call.proceed(call.request)
    earliest = [
        dataclasses.replace(
            topic, partitions=[dataclasses.replace(each, timestamp=EARLIEST) for each in topic.partitions]
        )
        for topic in call.request.topics
    ]
    starts = {
        (topic.name, answer.partition_index): answer.offset
        for topic in (await call.serve(dataclasses.replace(call.request, topics=earliest))).topics
        for answer in topic.partitions
    }
    changes = []
    for topic in response.topics:
        for answer in topic.partitions:
            key = (topic.name, answer.partition_index)
            if key in call.partitions and not answer.error_code:
                older = max(starts[key], answer.offset - behind)
                changes.append(f"{topic.name}-{answer.partition_index}: {older} instead of {answer.offset}")
                answer.offset = older
    await call.note(", ".join(changes))
    return response
