"""The part of the node that takes clients' metrics, as handlers see it (``node.telemetry``)."""

from __future__ import annotations

from typing import Protocol

from kbroker.errors import ErrorCode
from kbroker.handlers.services.connection import Connection
from kbroker.handlers.services.requester import Requester
from kbroker.wire.messages.client_telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
)


class AskedNode(Protocol):
    """The node that was asked: the request's ``Services``."""

    @property
    def node_id(self) -> int: ...


class TelemetryRequester(Requester, Protocol):
    """The request of a client that has metrics: a ``RequestContext``."""

    @property
    def connection(self) -> Connection: ...

    @property
    def services(self) -> AskedNode: ...


class Telemetry(Protocol):
    """Subscriptions, and the pushes of clients."""

    def subscriptions_of(
        self, request: GetTelemetrySubscriptionsRequest, ctx: TelemetryRequester
    ) -> GetTelemetrySubscriptionsResponse:
        """The answer to a GetTelemetrySubscriptions."""

    async def push(self, request: PushTelemetryRequest, ctx: TelemetryRequester) -> ErrorCode:
        """Take what a client pushes; the error that it is told."""
