"""The states of a share group with more partitions than a request may name are kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kbroker.cores.share_state import SharePartitionKey
from kbroker.errors import ErrorCode
from kbroker.node.peers.peer_pool import NoAnswer
from kbroker.node.share.persister import SharePersister
from kbroker.types import Uuid
from kbroker.wire.compiler import decode, encode
from kbroker.wire.errors import WireError
from kbroker.wire.messages import share_group_state as wire

MANY = 100_000
TOPIC = Uuid(bytes([7] * 16))


async def _initialized(_broker_id: int, request: wire.InitializeShareGroupStateRequest) -> Any:
    """The answer of a share coordinator."""
    try:
        read, _ = decode(wire.InitializeShareGroupStateRequest, 0, encode(request, 0))
    except WireError as error:
        raise NoAnswer(str(error)) from None  # the connection is closed
    return wire.InitializeShareGroupStateResponse(
        results=[
            wire.InitializeStateResult(
                topic_id=topic.topic_id,
                partitions=[wire.PartitionResult(partition=each.partition) for each in topic.partitions],
            )
            for topic in read.topics
        ]
    )


async def test_all_states_of_a_large_group_begin(autojump_clock: object) -> None:
    async def ensure_topic() -> None:
        pass

    pool: Any = SimpleNamespace(ask=_initialized)
    coordinators: Any = SimpleNamespace(coordinator_of=lambda key: 2)
    persister = SharePersister(coordinators, lambda _: pool, node_id=1, ensure_topic=ensure_topic)
    keys = [SharePartitionKey("workers", TOPIC, partition) for partition in range(MANY)]
    errors = await persister.initialize("workers", dict.fromkeys(keys, (1, -1)))
    assert errors == dict.fromkeys(keys, ErrorCode.NONE)
