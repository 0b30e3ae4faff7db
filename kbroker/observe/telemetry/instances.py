"""The clients that are asked for metrics, and when each may ask and push (Kafka's ``ClientMetricsInstance``)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kbroker.errors import ApiError, ErrorCode
from kbroker.observe.telemetry.subscriptions import ClientAttributes, Subscription, SubscriptionRequest, wanted_of
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.messages.client_telemetry import PushTelemetryRequest

MOST_INSTANCES: Final = 16_384
"""Clients remembered at once, as in Kafka; the one not heard of for longest is forgotten first."""

SHORTEST_LIFE_SECONDS: Final = 60.0
COMPRESSION_TYPES: Final = (4, 3, 1, 2)
"""zstd, lz4, gzip, snappy: those that a client may use, in the order in which Kafka likes them."""

_ONE: Final = Uuid(bytes(15) + b"\x01")
_RESERVED: Final = (ZERO_UUID, _ONE)
_LONG_AGO: Final = float("-inf")


@dataclass(slots=True, eq=False)
class Instance:
    """A client instance that pushes metrics (KIP-714). Times are seconds of the node's clock."""

    attributes: ClientAttributes
    wanted: SubscriptionRequest
    version: int
    """That of the subscriptions that ``wanted`` was made from."""
    heard_at: float
    got_at: float = _LONG_AGO
    pushed_at: float = _LONG_AGO
    terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE

    @property
    def life_seconds(self) -> float:
        """The time that it is remembered without a request."""
        return max(SHORTEST_LIFE_SECONDS, self.wanted.interval_ms * 3 / 1000)

    def may_get(self, now: float) -> bool:
        """Whether a GetTelemetrySubscriptions is in time; if so, it counts."""
        if now - max(self.got_at, self.pushed_at) < self.wanted.interval_ms / 1000:
            return False
        self.got_at = now
        return True

    def may_push(self, now: float) -> bool:
        """Whether a push is in time: the first after the subscriptions were got, or after the interval."""
        if self.got_at <= self.pushed_at and now - self.pushed_at < self.wanted.interval_ms / 1000:
            return False
        self.pushed_at = now
        return True


class Instances:
    """All clients that this node remembers, and the subscriptions."""

    def __init__(self) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self.version = 0
        """Grows with each change of the subscriptions."""
        self._known: OrderedDict[Uuid, Instance] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, instance_id: Uuid) -> bool:
        return instance_id in self._known

    def changed(self) -> None:
        """The subscriptions are others now: what a client is asked for is found out again with its next request."""
        self.version += 1

    def instance(
        self, instance_id: Uuid, attributes: Callable[[], ClientAttributes], now: float
    ) -> tuple[Instance, bool]:
        """The client of an id, as of the present subscriptions; and whether it was not known before."""
        self._forget_old(now)
        known = self._known.get(instance_id)
        if known is not None and known.version == self.version:
            known.heard_at = now
            self._known.move_to_end(instance_id)
            return known, False
        who = attributes() if known is None else known.attributes
        made = Instance(who, wanted_of(self.subscriptions.values(), who, instance_id), self.version, now)
        self._known[instance_id] = made
        self._known.move_to_end(instance_id)
        if len(self._known) > MOST_INSTANCES:
            self._known.popitem(last=False)
        return made, known is None

    def forget(self, instance_id: Uuid) -> None:
        """The client's connection has ended."""
        self._known.pop(instance_id, None)

    def _forget_old(self, now: float) -> None:
        """Forget those not heard of; a few in each turn, those heard of longest ago first."""
        for _ in range(2):
            oldest = next(iter(self._known), None)
            if oldest is None or now - self._known[oldest].heard_at < self._known[oldest].life_seconds:
                return
            del self._known[oldest]


def check_get(instance: Instance, now: float) -> None:
    """:class:`ApiError` for a GetTelemetrySubscriptions before its time, unless the last push made it necessary."""
    if not instance.may_get(now) and instance.last_error not in (
        ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ):
        raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "it came before the push interval was over")


def check_instance_id(instance_id: Uuid) -> None:
    """:class:`ApiError` for an id that no client may push with."""
    if instance_id in _RESERVED:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the client instance id is reserved")


def check_push(instance: Instance, push: PushTelemetryRequest, now: float, most_bytes: int) -> None:
    """:class:`ApiError` for a push that is not to be taken, in Kafka's order. ``most_bytes``: as it is sent."""
    if instance.terminating:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the client has said that its push before was the last")
    if not instance.may_push(now) and not push.terminating:
        raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "it came before the push interval was over")
    if push.subscription_id != instance.wanted.subscription_id:
        raise ApiError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "the subscriptions have changed")
    if push.compression_type not in (0, *COMPRESSION_TYPES):
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression type {push.compression_type}")
    if len(push.metrics) > most_bytes:
        raise ApiError(ErrorCode.TELEMETRY_TOO_LARGE, f"{len(push.metrics)} bytes are more than {most_bytes}")
