"""AddRaftVoter (key 80): make an observer of the metadata log a voter (KIP-853).

Served: 0 and 1. 1: ack_when_committed."""

from __future__ import annotations

from typing import Any

from kbroker.handlers.context import RequestContext
from kbroker.handlers.quorum import ask_quorum
from kbroker.handlers.registration import handler
from kbroker.wire.messages.add_raft_voter import AddRaftVoterRequest


@handler(AddRaftVoterRequest)
async def handle(request: AddRaftVoterRequest, ctx: RequestContext) -> Any:
    """Ask the new voter what it can do, and write it down."""
    return await ask_quorum(request, ctx)
