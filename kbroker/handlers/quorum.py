"""What the handlers of the quorum's RPCs share: to a value for the Raft core, and its answer back."""

from __future__ import annotations

from typing import Any

from kbroker.errors import ErrorCode
from kbroker.handlers.context import RequestContext
from kbroker.handlers.refusals import tell_refusal


def _sender(request: Any) -> str:
    """Who a request says that it is from."""
    candidate = getattr(request, "candidate", None)
    sender = candidate.id if candidate is not None else getattr(request, "leader_id", None)
    return "a node" if sender is None else f"node {sender}"


async def ask_quorum(request: Any, ctx: RequestContext) -> Any:
    """Have the Raft core answer a request. One for another cluster or partition is refused without it."""
    # Imported when the first of these requests comes: a node alone in its quorum has none.
    from kbroker.raft_metadata import raft_requests, raft_responses

    services = ctx.services
    try:
        asked = raft_requests.decode_request(request, services.cluster_id, ctx.api_version)
    except raft_responses.RpcError as error:
        tell_refusal(ctx, "a node", error.code, error.message)
        return raft_responses.encode_refusal(request, error)
    response = await services.metadata.ask_quorum(asked)
    code = getattr(response, "error", ErrorCode.NONE)
    if code:
        tell_refusal(ctx, _sender(asked), code)
    return raft_responses.encode_response(response, ctx.api_version, ctx.connection.listener_name)
