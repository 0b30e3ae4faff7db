"""FetchSnapshot (key 59): a replica of the metadata log fetches a snapshot, piece by piece (KIP-630).

Served: 0 and 1. 1: directory id of the replica, address of the leader (KIP-853)."""

from __future__ import annotations

from typing import Any

from kbroker.handlers.context import RequestContext
from kbroker.handlers.quorum import ask_quorum
from kbroker.handlers.registration import handler
from kbroker.wire.messages.fetch_snapshot import FetchSnapshotRequest


@handler(FetchSnapshotRequest)
async def handle(request: FetchSnapshotRequest, ctx: RequestContext) -> Any:
    """Bytes of the snapshot from a position on."""
    return await ask_quorum(request, ctx)
