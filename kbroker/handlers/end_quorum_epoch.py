"""EndQuorumEpoch (key 54): the leader of the metadata quorum resigns (KIP-595).

Served: 0 and 1. 1: flexible, directory ids and addresses (KIP-853)."""

from __future__ import annotations

from typing import Any

from kbroker.handlers.context import RequestContext
from kbroker.handlers.quorum import ask_quorum
from kbroker.handlers.registration import handler
from kbroker.wire.messages.end_quorum_epoch import EndQuorumEpochRequest


@handler(EndQuorumEpochRequest)
async def handle(request: EndQuorumEpochRequest, ctx: RequestContext) -> Any:
    """Stand for election soon, the sooner the better a successor this node is."""
    return await ask_quorum(request, ctx)
