"""UpdateRaftVoter (key 82): a voter tells its leader where it is and what it can do (KIP-853).

Served: 0."""

from __future__ import annotations

from typing import Any

from kbroker.handlers.context import RequestContext
from kbroker.handlers.quorum import ask_quorum
from kbroker.handlers.registration import handler
from kbroker.wire.messages.update_raft_voter import UpdateRaftVoterRequest


@handler(UpdateRaftVoterRequest)
async def handle(request: UpdateRaftVoterRequest, ctx: RequestContext) -> Any:
    """Write the voter down as it is now."""
    return await ask_quorum(request, ctx)
