"""BeginQuorumEpoch (key 53): a new leader of the metadata quorum makes itself known (KIP-595).

Served: 0 and 1. 1: flexible, directory ids and addresses (KIP-853)."""

from __future__ import annotations

from typing import Any

from kbroker.handlers.context import RequestContext
from kbroker.handlers.quorum import ask_quorum
from kbroker.handlers.registration import handler
from kbroker.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest


@handler(BeginQuorumEpochRequest)
async def handle(request: BeginQuorumEpochRequest, ctx: RequestContext) -> Any:
    """Follow the leader, if its epoch is not of the past."""
    return await ask_quorum(request, ctx)
