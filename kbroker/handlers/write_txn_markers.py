"""WriteTxnMarkers (key 27): the markers that end transactions, from a coordinator or from an administrator.

Served: 1 to 2. 1: flexible; 2: transaction_version (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import trio

from kbroker.cores.transactions.transaction import TransactionMarker, partitions_by_topic
from kbroker.errors import ErrorCode
from kbroker.handlers.common.authorization import may_on_cluster
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.security.authorizer.types import AclOperation
from kbroker.types import TopicPartition
from kbroker.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


@handler(WriteTxnMarkersRequest)
async def handle(request: WriteTxnMarkersRequest, ctx: RequestContext) -> WriteTxnMarkersResponse:
    """Write each marker to its partitions; the results of one producer's markers are answered together, as in Kafka."""
    if not may_on_cluster(ctx, AclOperation.ALTER, audits_denial=False) and not may_on_cluster(
        ctx, AclOperation.CLUSTER_ACTION
    ):
        return _all_refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    ctx.connection.is_of_node = True  # or an administrator's, which nothing here tells apart
    errors: dict[int, dict[TopicPartition, ErrorCode]] = {}
    missing = len(request.markers)
    all_done = trio.Event()

    def done(producer_id: int, written: dict[TopicPartition, ErrorCode]) -> None:
        nonlocal missing
        if written:  # a marker for no partition has no result
            errors.setdefault(producer_id, {}).update(written)
        missing -= 1
        if not missing:
            all_done.set()

    for marker in request.markers:
        _write(marker, ctx, partial(done, marker.producer_id))
    if missing:
        await all_done.wait()
    return _response(errors)


def _all_refused(request: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    errors: dict[int, dict[TopicPartition, ErrorCode]] = {}
    for marker in request.markers:
        partitions = (TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes)
        errors.setdefault(marker.producer_id, {}).update(dict.fromkeys(partitions, code))
    return _response(errors)


def _response(errors: Mapping[int, dict[TopicPartition, ErrorCode]]) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=by_partition[TopicPartition(topic, index)]
                            )
                            for index in indexes
                        ],
                    )
                    for topic, indexes in partitions_by_topic(by_partition).items()
                ],
            )
            for producer_id, by_partition in errors.items()
        ]
    )


def _write(
    marker: WritableTxnMarker, ctx: RequestContext, on_done: Callable[[dict[TopicPartition, ErrorCode]], None]
) -> None:
    partitions = [TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
    if marker.transaction_version < 0:  # no log could judge its epoch
        on_done(dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST))
        return
    ctx.services.markers.write(
        TransactionMarker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            commit=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
        ),
        partitions,
        on_done,
    )
