"""Markers that gather while a broker stands still are written, however many they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import trio

from kbroker.cores.transactions.transaction import TransactionMarker
from kbroker.errors import ErrorCode
from kbroker.node.coordinators.broker_requests import MARKERS, BrokerRequests, MarkerQuestion
from kbroker.node.peers.peer_pool import NoAnswer
from kbroker.types import TopicPartition
from kbroker.wire.compiler import decode, encode
from kbroker.wire.errors import WireError
from kbroker.wire.messages import write_txn_markers as api

MANY = 40_000
"""A marker, a topic and a partition each: a request may have 100,000 elements in all."""


async def _written(_broker_id: int, request: api.WriteTxnMarkersRequest, **_: object) -> api.WriteTxnMarkersResponse:
    """The answer of a broker."""
    await trio.lowlevel.checkpoint()
    try:
        read, _rest = decode(api.WriteTxnMarkersRequest, 2, encode(request, 2))
    except WireError as error:
        raise NoAnswer(str(error)) from None  # the connection is closed
    done = api.WritableTxnMarkerPartitionResult(partition_index=0)
    topics = [api.WritableTxnMarkerTopicResult(name="t", partitions=[done])]
    return api.WriteTxnMarkersResponse(
        markers=[api.WritableTxnMarkerResult(producer_id=each.producer_id, topics=topics) for each in read.markers]
    )


async def test_markers_that_have_gathered_are_written() -> None:
    partition = TopicPartition("t", 0)
    answers: list[Any] = []
    pool: Any = SimpleNamespace(ask=_written, give_up=None)
    async with trio.open_nursery() as nursery:
        requests = BrokerRequests[MarkerQuestion](MARKERS, lambda _: pool, nursery.start_soon)
        for producer_id in range(MANY):
            marker = TransactionMarker(producer_id, 0, True, 0, 2)
            requests.ask(2, MarkerQuestion(marker, [partition], answers.append))
    assert answers == [{partition: ErrorCode.NONE}] * MANY
