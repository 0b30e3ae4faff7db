"""A request and its answer, as a node tells them to a test: in the words of the protocol explorer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kbroker.observe.explorer.decoded import Decoded, TopicNames, topics_of
from kbroker.observe.explorer.exchange import Exchange, Frame, unshown_frame
from kbroker.observe.explorer.summary import answer_summary, request_summary, topics_text
from kbroker.types import Uuid
from kbroker.wire.schema import Message

if TYPE_CHECKING:
    from kbroker.handlers.common.context import RequestContext
    from kbroker.wire.registry import ApiDescription


class _Handled(Decoded):
    """A request as its handler has it, in the place of one that is decoded from its bytes."""

    def __init__(self, api: ApiDescription, ctx: RequestContext, request: Any, response: Any, end: str) -> None:
        header = ctx.header
        frame = None if response is None else Frame(0, ())
        self.exchange = Exchange(ctx.services.node_id, 0, 0, 0.0, unshown_frame(0), frame, end=end)
        self.api = api
        self.version = self.response_version = header.api_version
        self.client_id = header.client_id
        self.correlation_id = header.correlation_id
        self.connection = None
        self.problem = self.run = ""
        self.request = request
        self.response = response if isinstance(response, Message) else None


class Names(TopicNames):
    """The names of topics as the node knows them."""

    def __init__(self, of_id: Callable[[Uuid], str | None]) -> None:
        super().__init__()
        self._of_id = of_id

    def __getitem__(self, topic_id: bytes) -> str:
        return self._of_id(Uuid(topic_id)) or super().__getitem__(topic_id)


def told(
    api: ApiDescription,
    ctx: RequestContext,
    request: Any,
    response: Any,
    end: str,
    at_ms: int,
    took_ms: float,
    named: Iterable[tuple[str, int | None]] | None,
) -> dict[str, Any]:
    """The fields of a request and its answer that ``RequestLog.add`` takes. ``end``: why there is no answer.

    ``named`` are the topics and partitions of a request that leaves out what its session remembers.
    """
    handled, connection = _Handled(api, ctx, request, response, end), ctx.connection
    names = Names(ctx.services.replica_manager.topic_name)
    topics: dict[str, list[int]] = handled.topics(names) if named is None else {}
    for name, index in named or ():
        topics.setdefault(name, []).extend([] if index is None else [index])
    return {
        "node": ctx.services.node_id,
        "at_ms": at_ms,
        "took_ms": round(took_ms, 3),
        "api": api.name,
        "version": handled.version,
        "client_id": handled.client_id,
        "correlation_id": handled.correlation_id,
        "peer": connection.peer,
        "principal": str(connection.principal),
        "software": f"{connection.client_software_name} {connection.client_software_version}".strip(),
        "topics": topics,
        "groups": handled.groups,
        "transactional_ids": handled.transactional_ids,
        "errors": [error.name for error in handled.errors],
        "request": request_summary(handled, names),
        "answer": _fetched(handled, names) if api.name in ("Fetch", "ShareFetch") else answer_summary(handled, names),
    }


def _fetched(handled: _Handled, names: TopicNames) -> str:
    """The answer to a Fetch, whose records are in files."""
    if handled.response is None or handled.errors:
        return answer_summary(handled, names)
    parts = [each.records for topic in handled.response.responses for each in topic.partitions]
    size = sum(len(records) for records in parts if records)
    return f"{size} bytes of {topics_text(topics_of(handled.response, names))}" if size else "nothing new"
