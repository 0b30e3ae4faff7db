"""Vote (key 52): a candidate of the metadata quorum asks for a vote (KIP-595).

Served: 0 to 2. 1: directory ids, and the leader's address in the response (KIP-853); 2: pre-votes (KIP-996)."""

from __future__ import annotations

from typing import Any

from kbroker.handlers.context import RequestContext
from kbroker.handlers.quorum import ask_quorum
from kbroker.handlers.registration import handler
from kbroker.wire.messages.vote import VoteRequest


@handler(VoteRequest)
async def handle(request: VoteRequest, ctx: RequestContext) -> Any:
    """Vote, or say why not."""
    return await ask_quorum(request, ctx)
