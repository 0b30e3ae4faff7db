from __future__ import annotations

from kbroker.wire.schema import Bool, Int8, Int16, Int32, Request, Str, field, message, struct


@struct
class FeatureUpdateKey:
    feature: Str = ""
    max_version_level: Int16 = 0
    allow_downgrade: Bool = field("0")
    upgrade_type: Int8 = field("1+", default=1)


@message(api_key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest(Request["UpdateFeaturesResponse"]):
    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey] = field()
    validate_only: Bool = field("1+")


@struct
class UpdatableFeatureResult:
    feature: Str = ""
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")


@message(api_key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = field(nullable="0+")
    results: list[UpdatableFeatureResult] = field("0-1", ignorable=True)
