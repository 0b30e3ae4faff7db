"""PushTelemetry (key 72): a client sends its metrics (KIP-714).

Served: 0. As in Apache Kafka, ApiVersions names it only where `metric.reporters` has a receiver of clients' metrics.
"""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import handler
from kbroker.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


@handler(PushTelemetryRequest)
async def handle(request: PushTelemetryRequest, ctx: RequestContext) -> PushTelemetryResponse:
    """Judge the push, and hand what is in it to the receivers."""
    telemetry = ctx.services.telemetry
    if telemetry is None:
        return PushTelemetryResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return PushTelemetryResponse(error_code=await telemetry.push(request, ctx))
