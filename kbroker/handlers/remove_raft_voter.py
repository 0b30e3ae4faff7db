"""RemoveRaftVoter (key 81): make a voter of the metadata quorum an observer (KIP-853).

Served: 0."""

from __future__ import annotations

from typing import Any

from kbroker.handlers.context import RequestContext
from kbroker.handlers.quorum import ask_quorum
from kbroker.handlers.registration import handler
from kbroker.wire.messages.remove_raft_voter import RemoveRaftVoterRequest


@handler(RemoveRaftVoterRequest)
async def handle(request: RemoveRaftVoterRequest, ctx: RequestContext) -> Any:
    """Write the voter set without it."""
    return await ask_quorum(request, ctx)
