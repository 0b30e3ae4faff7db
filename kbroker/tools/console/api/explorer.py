"""The protocol explorer for the page: requests of the cluster's nodes as they happen, for those who may see them.

Whoever sees it sees all that clients write and read. Where users sign in it is for those who may act as a broker
(CLUSTER_ACTION): a broker's Fetch reads every topic.
"""

from __future__ import annotations

from typing import Final

import trio
from starlette.responses import Response

from kbroker.client import Client
from kbroker.client.connected import connected_clients
from kbroker.client.nodes import cluster_operations
from kbroker.client.records_io.json_types import Json
from kbroker.observe.explorer.feed import FeedReader, event_of
from kbroker.security.authorizer.types import AclOperation
from kbroker.tools.console.call import Call, RequestRefused
from kbroker.tools.console.streaming import Give, Streamed
from kbroker.tools.console.watching import Watching

_PULSE_SECONDS: Final = 2.0
"""After so long the browser hears something in any case."""


_JUDGED_SECONDS: Final = 30.0
"""After so long it is asked again whether the session's user may look."""


async def list_nodes(call: Call) -> Json:
    """The addresses of the explorers, and which of them are not followed now, for which reason."""
    watching = await _watched(call)
    return {"all": list(watching.addresses), "silent": dict(watching.problems)}


async def describe_exchange(call: Call) -> Json:
    """An exchange with its fields beside their bytes."""
    watching = await _watched(call)
    node, number, run = call.number("node", lowest=-(2**31)), call.number("number"), call.text("run", "")
    found = await call.compute(lambda: watching.feed.details(node, run, number))
    if found is None:
        raise RequestRefused(404, "this request is kept no more")
    document: Json = found
    return document


async def list_clients(call: Call) -> Json:
    """The clients that are connected to the nodes, those that have all of ``words``; and who does not tell.

    With ``nodes=1`` brokers and controllers, too.
    """
    watching = await _watched(call)
    words, with_nodes = call.text("words", ""), call.text("nodes", "") == "1"
    found: Json = await call.compute(
        lambda: connected_clients(watching.nodes(), watching.feed, words, with_nodes=with_nodes)
    )
    return found


async def saved_exchanges(call: Call) -> Response:
    """A file of the exchanges that are kept, for ``kbroker watch --read``, ``kbroker decode`` and tests."""
    watching = await _watched(call)
    text = await call.compute(lambda: "".join(watching.feed.saved()))
    headers = {"Content-Disposition": 'attachment; filename="saved.exchanges"'}
    return Response(text, media_type="application/x-ndjson", headers=headers)


async def stream_exchanges(call: Call) -> Response:
    """Server-sent events: ``exchange`` and ``skipped`` of the feed, and ``nodes``, the explorers that do not answer."""
    watching = await _watched(call)
    reader = watching.enter()
    if reader is None:
        raise RequestRefused(429, "too many pages of the explorer are open: close one")
    return Streamed(
        lambda give: _follow(call, watching, reader, give), "text/event-stream", close=lambda: watching.leave(reader)
    )


async def _follow(call: Call, watching: Watching, reader: FeedReader, give: Give) -> None:
    thread = trio.CapacityLimiter(1)
    told: dict[str, str] | None = None
    judged_at = trio.current_time()
    with call.console.sessions.while_alive(call.session):
        while True:
            if trio.current_time() - judged_at > _JUDGED_SECONDS:
                try:
                    await _watched(call)
                except RequestRefused:
                    return  # the browser asks again, and is told why
                judged_at = trio.current_time()
            events = await trio.to_thread.run_sync(reader.take, _PULSE_SECONDS, limiter=thread, abandon_on_cancel=True)
            problems = watching.problems
            if problems != told:
                told = problems
                events += event_of("nodes", {"silent": problems, "all": list(watching.addresses)})
            await give(events.encode())


async def _watched(call: Call) -> Watching:
    """The explorers, if there are any and the session's user may see what they tell."""
    view, watching = call.view, call.console.watching
    if watching is None:
        raise RequestRefused(404, "this console watches no node: start it with --explorer HOST:PORT")
    if call.console.settings.sign_in and not await view.cluster.ask(_may_act_as_broker):
        raise RequestRefused(
            403,
            "the explorer shows everybody's requests and records: it is for users who may CLUSTER_ACTION on the"
            " cluster, as super users may",
        )
    return watching


def _may_act_as_broker(client: Client) -> bool:
    return AclOperation.CLUSTER_ACTION in cluster_operations(client)
