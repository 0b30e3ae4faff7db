from __future__ import annotations

from kbroker.wire.schema import Bool, Int8, Int16, Int32, Request, Str, field, message, struct


@message(api_key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest(Request["DescribeClusterResponse"]):
    include_cluster_authorized_operations: Bool = False
    endpoint_type: Int8 = field("1+", default=1)
    include_fenced_brokers: Bool = field("2+")


@struct
class DescribeClusterBroker:
    broker_id: Int32 = 0
    host: Str = ""
    port: Int32 = 0
    rack: Str | None = field(nullable="0+", default=None)
    is_fenced: Bool = field("2+")


@message(api_key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+", default=None)
    endpoint_type: Int8 = field("1+", default=1)
    cluster_id: Str = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = field()
    cluster_authorized_operations: Int32 = -2147483648
