"""A node and the metrics of clients: subscriptions, clients, receivers (Kafka's ``ClientMetricsManager``)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import trio

from kbroker.config.client_metrics import UnusableExpression
from kbroker.config.config_key import InvalidConfig
from kbroker.errors import ApiError, ErrorCode
from kbroker.node.rules.connection_calls import AwaitedCalls, NoAnswer
from kbroker.observe.telemetry.instances import (
    COMPRESSION_TYPES,
    Instance,
    Instances,
    check_get,
    check_instance_id,
    check_push,
)
from kbroker.observe.telemetry.otlp import MalformedMetrics, Metrics, decode_metrics
from kbroker.observe.telemetry.subscriptions import ClientAttributes, Subscription, parse_subscription
from kbroker.raft_metadata.image import MetadataDelta, MetadataImage, ResourceType
from kbroker.rules.records import ClientMetrics
from kbroker.types import ZERO_UUID, Uuid, random_uuid, uuid_to_str
from kbroker.wire.compression import CompressionType, decompress
from kbroker.wire.errors import WireError
from kbroker.wire.messages.client_telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
)

if TYPE_CHECKING:
    from kbroker.handlers.services.connection import Connection
    from kbroker.handlers.services.telemetry import TelemetryRequester
    from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)

MOST_WAITING: Final = 64
"""Pushes that are decoded or with a receiver; a client beyond them is told to come again after its interval."""


Page = Callable[[ClientMetrics, float], None]
"""Takes a push and its time, in seconds (``kbroker.observe.metrics.clients.ClientSeries.push``)."""


class Telemetry:
    """Answers keys 71 and 72."""

    def __init__(self, env: Env, receivers: list[AwaitedCalls], most_bytes: int, page: Page | None = None) -> None:
        """``most_bytes``: of one push, as it is sent, and again when it is decompressed (``telemetry.max.bytes``).

        ``page`` is the node's own page of metrics.
        """
        self._env = env
        self._receivers = receivers
        self._page = page
        self._most_bytes = most_bytes
        self._instances = Instances()
        self._configs: dict[str, Mapping[str, str]] = {}
        self._last_of: dict[Connection, Uuid] = {}
        """The client of each open connection: it is forgotten with it, as in Kafka."""
        self._decoding = trio.CapacityLimiter(1)
        self._waiting = 0

    @property
    def instances(self) -> int:
        """The number of clients that are remembered."""
        return len(self._instances)

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow the CLIENT_METRICS resources."""
        configs = {
            resource.name: values
            for resource, values in image.configs.by_resource.items()
            if resource.type == ResourceType.CLIENT_METRICS
        }
        if configs == self._configs:
            return
        kept = self._instances.subscriptions
        self._instances.subscriptions = {
            name: subscription
            for name, values in configs.items()
            if (subscription := kept.get(name) if self._configs.get(name) == values else _parsed(name, values))
        }
        self._configs = configs
        self._instances.changed()

    def subscriptions_of(
        self, request: GetTelemetrySubscriptionsRequest, ctx: TelemetryRequester
    ) -> GetTelemetrySubscriptionsResponse:
        """The subscriptions of a client. A client without an id gets one."""
        instance_id = Uuid(request.client_instance_id)
        while instance_id == ZERO_UUID or (request.client_instance_id == ZERO_UUID and instance_id in self._instances):
            instance_id = random_uuid(self._env.rng)
        instance = self._instance(instance_id, ctx)
        try:
            check_get(instance, self._env.now())
        except ApiError as error:
            return GetTelemetrySubscriptionsResponse(error_code=error.code)
        instance.last_error = ErrorCode.NONE
        wanted = instance.wanted
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance_id,
            subscription_id=wanted.subscription_id,
            accepted_compression_types=list(COMPRESSION_TYPES),
            push_interval_ms=wanted.interval_ms,
            telemetry_max_bytes=self._most_bytes,
            delta_temporality=True,
            requested_metrics=list(wanted.metrics),
        )

    async def push(self, request: PushTelemetryRequest, ctx: TelemetryRequester) -> ErrorCode:
        """Take what a client pushes; the error that it is told."""
        instance_id = Uuid(request.client_instance_id)
        instance = None
        try:
            check_instance_id(instance_id)
            instance = self._instance(instance_id, ctx)
            try:
                check_push(instance, request, self._env.now(), self._most_bytes)
            finally:
                instance.terminating = request.terminating
            if len(request.metrics):
                await self._hand_over(request, instance, ctx)
        except ApiError as error:
            logger.debug("a push of client %s is refused: %s", uuid_to_str(instance_id), error)
            if instance is not None:
                instance.last_error = error.code
            return error.code
        instance.last_error = ErrorCode.NONE
        return ErrorCode.NONE

    async def _hand_over(self, request: PushTelemetryRequest, instance: Instance, ctx: TelemetryRequester) -> None:
        """Decode a push in a thread, and give it to each receiver; ``ApiError`` if it is not taken."""
        if self._waiting >= MOST_WAITING:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{MOST_WAITING} pushes wait already")
        self._waiting += 1
        try:
            payload, metrics = await trio.to_thread.run_sync(
                _decoded, request.compression_type, bytes(request.metrics), self._most_bytes, limiter=self._decoding
            )
            pushed = self._record(request, instance, ctx, payload, metrics)
            for receiver in self._receivers:
                await receiver.call(pushed)
            if self._page is not None:
                self._page(pushed, self._env.now())
        except (WireError, MalformedMetrics) as error:
            raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from None
        except NoAnswer:
            raise ApiError(ErrorCode.INVALID_RECORD, "a receiver did not take it") from None
        finally:
            self._waiting -= 1

    def _record(
        self,
        request: PushTelemetryRequest,
        instance: Instance,
        ctx: TelemetryRequester,
        payload: bytes,
        metrics: Metrics,
    ) -> ClientMetrics:
        who = instance.attributes
        return ClientMetrics(
            client_instance_id=who.client_instance_id,
            client_id=ctx.header.client_id or "",
            software_name=who.client_software_name,
            software_version=who.client_software_version,
            principal=ctx.principal,
            host=ctx.host,
            port=int(who.client_source_port),
            listener=ctx.connection.listener_name,
            node_id=ctx.services.node_id,
            received_at_ms=self._env.wall_clock_ms(),
            push_interval_ms=instance.wanted.interval_ms,
            terminating=request.terminating,
            resource=metrics.resource,
            points=tuple(point for point in metrics.points if math.isfinite(point.value)),
            payload=payload,
        )

    def _instance(self, instance_id: Uuid, ctx: TelemetryRequester) -> Instance:
        instance, is_new = self._instances.instance(instance_id, lambda: _attributes(instance_id, ctx), self._env.now())
        connection = ctx.connection
        if is_new:
            if connection not in self._last_of:
                connection.when_closed.append(self._forgetting(connection))
            self._last_of[connection] = instance_id
        return instance

    def _forgetting(self, connection: Connection) -> Callable[[], None]:
        return lambda: self._instances.forget(self._last_of.pop(connection))


def _attributes(instance_id: Uuid, ctx: TelemetryRequester) -> ClientAttributes:
    host, _, port = ctx.connection.peer.rpartition(":")
    connection = ctx.connection
    return ClientAttributes(
        uuid_to_str(instance_id),
        ctx.header.client_id,
        connection.client_software_name,
        connection.client_software_version,
        host,
        port,
    )


def _decoded(compression_type: int, data: bytes, most_bytes: int) -> tuple[bytes, Metrics]:
    payload = decompress(CompressionType(compression_type), data, most_bytes)
    return payload, decode_metrics(payload)


def _parsed(name: str, configs: Mapping[str, str]) -> Subscription | None:
    try:
        return parse_subscription(name, configs)
    except (UnusableExpression, InvalidConfig) as error:
        logger.warning("the subscription %s to clients' metrics asks nobody: RE2 does not know %s", name, error)
        return None
