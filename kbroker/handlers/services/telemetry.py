"""The part of the node that takes clients' metrics, as handlers see it (``node.telemetry``)."""

from __future__ import annotations

from typing import Any, Protocol

from kbroker.errors import ErrorCode
from kbroker.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kbroker.wire.messages.push_telemetry import PushTelemetryRequest


class Telemetry(Protocol):
    """Subscriptions, and the pushes of clients."""

    def subscriptions_of(
        self, request: GetTelemetrySubscriptionsRequest, ctx: Any
    ) -> GetTelemetrySubscriptionsResponse:
        """The answer to a GetTelemetrySubscriptions."""

    async def push(self, request: PushTelemetryRequest, ctx: Any) -> ErrorCode:
        """Take what a client pushes; the error that it is told."""
