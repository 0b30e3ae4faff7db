from __future__ import annotations

from kbroker.wire.schema import Bool, Int8, Int16, Int32, Int64, Request, Str, field, message, struct


@struct
class WritableTxnMarkerTopic:
    name: Str = ""
    partition_indexes: list[Int32] = field()


@struct
class WritableTxnMarker:
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: Bool = False
    topics: list[WritableTxnMarkerTopic] = field()
    coordinator_epoch: Int32 = 0
    transaction_version: Int8 = field("2+", ignorable=True)


@message(api_key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest(Request["WriteTxnMarkersResponse"]):
    markers: list[WritableTxnMarker] = field()


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class WritableTxnMarkerTopicResult:
    name: Str = ""
    partitions: list[WritableTxnMarkerPartitionResult] = field()


@struct
class WritableTxnMarkerResult:
    producer_id: Int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = field()


@message(api_key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = field()
