"""GetTelemetrySubscriptions (key 71): which metrics a client is asked for (KIP-714).

Served: 0. As in Apache Kafka, ApiVersions names it only where `metric.reporters` has a receiver of clients' metrics.
"""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


@handler(GetTelemetrySubscriptionsRequest)
async def handle(request: GetTelemetrySubscriptionsRequest, ctx: RequestContext) -> GetTelemetrySubscriptionsResponse:
    """Give the client its subscriptions, and an id if it has none."""
    telemetry = ctx.services.telemetry
    if telemetry is None:
        return GetTelemetrySubscriptionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return telemetry.subscriptions_of(request, ctx)
