from __future__ import annotations

from kbroker.wire.schema import Bool, Int16, Int32, Int64, Request, Str, field, message, struct


@message(api_key=18, versions="0-5", flexible="3+")
class ApiVersionsRequest(Request["ApiVersionsResponse"]):
    client_software_name: Str = field("3+", ignorable=True)
    client_software_version: Str = field("3+", ignorable=True)
    cluster_id: Str | None = field("5+", nullable="5+", ignorable=True, default=None)
    node_id: Int32 = field("5+", ignorable=True, default=-1)


@struct
class ApiVersion:
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


@struct
class SupportedFeatureKey:
    name: Str = field("3+")
    min_version: Int16 = field("3+")
    max_version: Int16 = field("3+")


@struct
class FinalizedFeatureKey:
    name: Str = field("3+")
    max_version_level: Int16 = field("3+")
    min_version_level: Int16 = field("3+")


@message(api_key=18, versions="0-5", flexible="3+")
class ApiVersionsResponse:
    error_code: Int16 = 0
    api_keys: list[ApiVersion] = field()
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = field("3+", tag=0, ignorable=True)
    finalized_features_epoch: Int64 = field("3+", tag=1, ignorable=True, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field("3+", tag=2, ignorable=True)
    zk_migration_ready: Bool = field("3+", tag=3, ignorable=True)
