"""Faults in the broker's own thread: handlers of a listener's table are replaced while there is something to do.

Nothing of it is on the path of a request to an API without faults.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio

from kbroker.errors import ErrorCode
from kbroker.handlers.context import CloseConnection, DelayedResponse, RequestContext
from kbroker.handlers.registration import Registration
from kbroker.testing.error_answers import SESSION_ERRORS, can_fail, merge, named_partitions, split
from kbroker.testing.faults import Fault, Injection, Match
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kbroker.wire.registry import ApiDescription

if TYPE_CHECKING:
    from kbroker.node.broker import Broker

Named = tuple[tuple[str, "int | None"], ...]
Proceed = Callable[[Any], Awaitable[Any]]
"""Serves a request, through the faults that come later: the response."""

NO_ACKS = 0


@dataclass(frozen=True, slots=True)
class Call:
    """One request that a fault acts on."""

    fault: Fault
    request: Any
    ctx: RequestContext
    partitions: Named
    """What it names of what is meant."""
    proceed: Proceed
    undone: trio.Event
    """Set when the fault is undone."""
    note: Callable[[str], None]
    """Record what is done; to be called once, before anything of it can be seen."""


Action = Callable[[Call], Awaitable[Any]]
"""What a fault does; the response, or CloseConnection."""


class Interceptor:
    """The faults of a node's requests."""

    def __init__(self, node: Broker, record: Callable[..., Injection]) -> None:
        self._node = node
        self._record = record
        self._faults: dict[int, list[tuple[Fault, Action, trio.Event]]] = {}
        self._originals: dict[int, list[tuple[Any, Registration]]] = {}

    def add(self, fault: Fault, action: Action) -> None:
        """Have a fault act from the next request on. ValueError for an API that clients are not served."""
        key = fault.match.api.key
        if key not in self._faults:
            self._replace(fault.match.api)
            self._faults[key] = []
        self._faults[key].append((fault, action, trio.Event()))

    def remove(self, fault: Fault) -> None:
        """Have it act no more; what waits because of it goes on."""
        key = fault.match.api.key
        for entry in self._faults.get(key, ()):
            if entry[0] is fault:
                entry[2].set()
        left = [entry for entry in self._faults.get(key, ()) if entry[0] is not fault]
        self._faults[key] = left
        if not left:
            del self._faults[key]
            for listener, registration in self._originals.pop(key):
                listener.replace_handler(registration)

    def _replace(self, api: ApiDescription) -> None:
        originals = []
        for listener in self._node.listeners:
            registration = None if listener.is_controller else listener.registration(api.key)
            if registration is not None:
                handle = functools.partial(self._handle, registration)
                listener.replace_handler(dataclasses.replace(registration, handle=handle, is_async=True))
                originals.append((listener, registration))
        if not originals:
            raise ValueError(f"{api.name} is not served to clients here")
        self._originals[api.key] = originals

    async def _handle(self, original: Registration, request: Any, ctx: RequestContext) -> Any:
        faults = list(self._faults.get(original.api_key, ()))

        async def proceed(position: int, request: Any) -> Any:
            for index in range(position, len(faults)):
                fault, action, undone = faults[index]
                partitions = None if undone.is_set() else _meant(fault.match, request, ctx)
                if partitions is not None and fault.fires():
                    later = functools.partial(proceed, index + 1)
                    note = functools.partial(self._note, fault, ctx, partitions)
                    return await action(Call(fault, request, ctx, partitions, later, undone, note))
            response = original.handle(request, ctx)
            if original.is_async:
                response = await response
            return await _completed(response) if type(response) is DelayedResponse else response

        return await proceed(0, request)

    def _note(self, fault: Fault, ctx: RequestContext, partitions: Named, detail: str) -> None:
        fault.note(self._record(fault.action, fault.match.api.name, ctx.header, partitions, detail))


async def _completed(delayed: DelayedResponse) -> Any:
    event = trio.Event()
    delayed.on_complete(event.set)
    await event.wait()
    return delayed.response


def _meant(match: Match, request: Any, ctx: RequestContext) -> Named | None:
    """What the request names of what the fault is for; None if the fault is not for it."""
    if match.client_id is not None and not match.client_id.search(ctx.header.client_id or ""):
        return None
    named = _named(match.api, request, ctx)
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


def _named(api: ApiDescription, request: Any, ctx: RequestContext) -> list[tuple[str, int | None]]:
    manager = ctx.services.replica_manager
    if _is_about_all_topics(api, request, ctx.api_version):
        return [(name, None) for name in sorted(ctx.services.metadata.image.topics.by_name)]
    named = named_partitions(api, ctx.api_version, request, manager.topic_name)
    if api.name == "Fetch":
        known = dict.fromkeys(named)
        for key in ctx.services.fetch_sessions.partitions_of(request.session_id, request.session_epoch):
            name = manager.topic_name(key.topic_id) if key.topic_id != ZERO_UUID else key.topic
            if name is not None:
                known[name, key.partition] = None
        for topic in request.forgotten_topics_data:
            name = topic.topic or manager.topic_name(Uuid(topic.topic_id))
            for index in topic.partitions:
                known.pop((name, index), None)
        return list(known)
    return named


def _is_about_all_topics(api: ApiDescription, request: Any, version: int) -> bool:
    if api.name == "Metadata":
        return request.topics is None or (version == 0 and not request.topics)
    return api.name == "DescribeTopicPartitions" and not request.topics


# --- what faults do


def action_of(
    fault: Fault, *, seconds: float = 0.0, code: ErrorCode = ErrorCode.NONE, behind: int = 0
) -> Action:
    """What a fault of :class:`~kbroker.testing.faults.Faults` does. ValueError if the API cannot say the error."""
    if fault.action == "delay":
        return functools.partial(_delay, seconds)
    if fault.action == "hold":
        return functools.partial(_delay, float("inf"))
    if fault.action == "error":
        api = fault.match.api
        if not can_fail(api, api.valid_versions.highest):
            raise ValueError(f"{api.name} cannot be made to say an error")
        return functools.partial(_error, code)
    if fault.action == "stale latest":
        return functools.partial(_stale_latest, behind)
    return _drop_after if fault.action == "drop after" else _drop_before


async def _delay(seconds: float, call: Call) -> Any:
    call.note("" if seconds == float("inf") else f"{seconds:g} s")
    await call.ctx.connection.flush()  # earlier replies are not late
    with trio.move_on_after(seconds):
        await call.undone.wait()
    return await call.proceed(call.request)


async def _drop_before(call: Call) -> Any:
    call.note("")
    await call.ctx.connection.flush()
    raise CloseConnection(f"a test's fault: {call.fault}")


async def _drop_after(call: Call) -> Any:
    call.note("")
    await call.proceed(call.request)
    await call.ctx.connection.flush()
    raise CloseConnection(f"a test's fault: {call.fault}")


async def _error(code: ErrorCode, call: Call) -> Any:
    api, request, version = call.fault.match.api, call.request, call.ctx.api_version
    if not can_fail(api, version):
        return await call.proceed(request)
    call.note(code.name)
    if api.name == "Produce" and request.acks == NO_ACKS:
        raise CloseConnection(f"a test's fault, and a Produce with acks=0: {code.name}")
    if api.name == "Fetch":
        return await _fetch_error(code, call)
    if _is_about_all_topics(api, request, version):
        response = await call.proceed(request)
        _fail_topics(response.topics, {topic for topic, _ in call.partitions}, code)
        return response
    topic_name = call.ctx.services.replica_manager.topic_name
    answers, rest = split(api, version, request, code, topic_name, call.fault.match.chosen)
    if answers == []:
        return await call.proceed(request)
    served = None if rest is None else await call.proceed(rest)
    return merge(api, version, code, answers, served)


def _fail_topics(topics: Iterable[Any], names: set[str], code: ErrorCode) -> None:
    for topic in topics:
        if topic.name in names:
            topic.error_code = code
            topic.partitions = []


async def _fetch_error(code: ErrorCode, call: Call) -> Any:
    """In each partition that is meant, also one that the response would not mention; the others are read."""
    if code in SESSION_ERRORS:
        return FetchResponse(error_code=code)
    response = await call.proceed(dataclasses.replace(call.request, max_wait_ms=0))
    if response.error_code:
        return response
    manager = call.ctx.services.replica_manager
    by_id = call.ctx.api_version >= 13
    topics = {
        (manager.topic_name(topic.topic_id) if by_id else topic.topic): topic for topic in response.responses
    }
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
    manager = call.ctx.services.replica_manager
    changes = []
    for topic in response.topics:
        for answer in topic.partitions:
            key = (topic.name, answer.partition_index)
            if key in call.partitions and not answer.error_code:
                start = manager.get_partition(*key).log.log_start_offset
                older = max(start, answer.offset - behind)
                changes.append(f"{topic.name}-{answer.partition_index}: {older} instead of {answer.offset}")
                answer.offset = older
    call.note(", ".join(changes))
    return response


