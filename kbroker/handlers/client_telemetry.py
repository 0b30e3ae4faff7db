"""Metrics that clients push (KIP-714).

GetTelemetrySubscriptions (key 71): which metrics a client is asked for (KIP-714).
Served: 0. As in Apache Kafka, ApiVersions names it only where `metric.reporters` has a receiver of clients' metrics.

PushTelemetry (key 72): a client sends its metrics (KIP-714).
Served: 0. As in Apache Kafka, ApiVersions names it only where `metric.reporters` has a receiver of clients' metrics.
"""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.wire.messages.client_telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)


@handler(GetTelemetrySubscriptionsRequest)
async def handle_get_telemetry_subscriptions(
    request: GetTelemetrySubscriptionsRequest, ctx: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    """Give the client its subscriptions, and an id if it has none."""
    telemetry = ctx.services.telemetry
    if telemetry is None:
        return GetTelemetrySubscriptionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return telemetry.subscriptions_of(request, ctx)


@handler(PushTelemetryRequest)
async def handle_push_telemetry(request: PushTelemetryRequest, ctx: RequestContext) -> PushTelemetryResponse:
    """Judge the push, and hand what is in it to the receivers."""
    telemetry = ctx.services.telemetry
    if telemetry is None:
        return PushTelemetryResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return PushTelemetryResponse(error_code=await telemetry.push(request, ctx))
