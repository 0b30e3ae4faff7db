"""A node's quotas of clients, in step with the metadata: what they have used, and for how long they have to wait.

Each node counts for itself, as in Apache Kafka: a quota holds for each broker. ``kbroker.security.quotas`` counts; the
dispatcher measures the requests of clients with a quota by a :class:`RequestMeter`, and keeps the connection from
reading on for as long as the client is throttled (KIP-219).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kbroker.errors import ApiError, ErrorCode
from kbroker.node.serving.timed_steps import timed_steps
from kbroker.runtime.later import Later
from kbroker.security.quotas.entities import ClientLimits, Limit, QuotaTable
from kbroker.security.quotas.meters import QuotaRate, TokenBucket

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.handlers.services.requester import Requester
    from kbroker.security.principal import KafkaPrincipal

T = TypeVar("T")

logger = logging.getLogger(__name__)

PRODUCE, FETCH, WRITE_TXN_MARKERS = 0, 1, 27

KEPT_METERS = 1024
"""From so many clients on, those that have done nothing lately are forgotten before another one is counted."""


class _Meter(Protocol):
    def is_idle(self, now_ms: int) -> bool: ...


M = TypeVar("M", bound=_Meter)


class _Meters(Generic[M]):
    """The meters of one kind of quota, by the user and client id that share it."""

    def __init__(self, make: Callable[[], M]) -> None:
        self._make = make
        self._by_sharers: dict[tuple[str, str], M] = {}
        self._sweep_at = KEPT_METERS

    def of(self, limit: Limit, now_ms: int) -> M:
        """The meter of those who share a limit."""
        meter = self._by_sharers.get(limit.sharers)
        if meter is None:
            if len(self._by_sharers) >= self._sweep_at:
                # A client may name itself anew with each request: what is as good as new takes no memory.
                kept = {sharers: each for sharers, each in self._by_sharers.items() if not each.is_idle(now_ms)}
                self._by_sharers = kept
                self._sweep_at = max(KEPT_METERS, 2 * len(kept))
            meter = self._by_sharers[limit.sharers] = self._make()
        return meter


class ClientQuotas:
    """Counts for the quotas of users and client ids. Times are milliseconds of the clock that is given."""

    def __init__(
        self, config: BrokerConfig, now: Callable[[], float], busy_clock: Callable[[], float] = perf_counter
    ) -> None:
        """``now`` gives seconds; ``busy_clock``, in seconds too, measures the node's work for a request."""
        samples, window_ms = config.quota_window_num, config.quota_window_size_seconds * 1000
        self.table = QuotaTable({})
        self.busy_clock = busy_clock
        self._now = now
        self._window_ms = window_ms
        self._whole_windows_s = (samples - 1) * window_ms / 1000
        self._produce = _Meters(lambda: QuotaRate(samples, window_ms))
        self._fetch = _Meters(lambda: QuotaRate(samples, window_ms))
        self._request = _Meters(lambda: QuotaRate(samples, window_ms))
        mutation_samples = config.controller_quota_window_num
        mutation_window_ms = config.controller_quota_window_size_seconds * 1000
        self._mutation = _Meters(lambda: TokenBucket(mutation_samples, mutation_window_ms))

    def _now_ms(self) -> int:
        return int(self._now() * 1000)

    @property
    def state(self) -> object:
        """Another object whenever the quotas of a client may be other ones."""
        return self.table

    def limits(self, principal: KafkaPrincipal, client_id: str | None) -> ClientLimits | None:
        """The quotas of a client; None if it has none."""
        return self.table.limits(principal.name, client_id or "")

    def produced(self, limit: Limit, size: int) -> int:
        """Count the bytes of a Produce; for how long its client is to wait."""
        now_ms = self._now_ms()
        rate = self._produce.of(limit, now_ms)
        rate.record(size, now_ms)
        return rate.throttle_ms(limit.bound, now_ms)

    def fetched(self, limit: Limit, size: int) -> int:
        """Count the bytes of the answer to a Fetch; for how long its client is to wait."""
        now_ms = self._now_ms()
        rate = self._fetch.of(limit, now_ms)
        rate.record(size, now_ms)
        return rate.throttle_ms(limit.bound, now_ms)

    def not_fetched(self, limit: Limit, size: int) -> None:
        """Take back bytes of an answer that is not sent."""
        now_ms = self._now_ms()
        self._fetch.of(limit, now_ms).record(-size, now_ms)

    def max_fetch_bytes(self, limit: Limit) -> int:
        """The most bytes that an answer may have without being throttled in any case."""
        return int(min(limit.bound * self._whole_windows_s, 2**31 - 1))

    def worked(self, limit: Limit, seconds: float) -> int:
        """Count the node's work for a request; for how long its client is to wait, one window at most.

        The unit of the quota is a hundredth of the time of the node's event loop.
        """
        now_ms = self._now_ms()
        rate = self._request.of(limit, now_ms)
        rate.record(seconds * 100, now_ms)
        return min(rate.throttle_ms(limit.bound, now_ms), self._window_ms)

    def worked_after(self, limit: Limit, seconds: float) -> None:
        """Count work for a request whose client has been told already how long it is to wait."""
        now_ms = self._now_ms()
        self._request.of(limit, now_ms).record(seconds * 100, now_ms)

    def mutations(self, requester: Requester, strict_since: int) -> MutationQuota | None:
        """The quota of a request that changes topics; None if its client has none.

        From version ``strict_since`` on changes beyond it are refused; before, the client is throttled afterwards.
        """
        limits = self.limits(requester.principal, requester.header.client_id)
        if limits is None or limits.mutation is None:
            return None
        bucket = self._mutation.of(limits.mutation, self._now_ms())
        is_strict = requester.header.api_version >= strict_since
        return MutationQuota(bucket, limits.mutation.bound, self._now_ms, is_strict=is_strict)

    def meter(self, limits: ClientLimits) -> RequestMeter:
        """A meter of one request, from now on."""
        return RequestMeter(self, limits)


class MutationQuota:
    """The quota of one request that creates or deletes partitions (KIP-599)."""

    def __init__(self, bucket: TokenBucket, bound: float, now_ms: Callable[[], int], *, is_strict: bool) -> None:
        self._bucket = bucket
        self._bound = bound
        self._now_ms = now_ms
        self._is_strict = is_strict
        self._taken = 0
        self._throttled_ms = 0
        self._throttled_at_ms = 0

    def anew(self) -> Callable[[int], None]:
        """Begin a decision on the request: what an earlier one, which was overtaken, has counted is given back.

        Returns what counts changes of so many partitions: ``ApiError`` THROTTLING_QUOTA_EXCEEDED if there may be none
        now. A change may exceed the quota, however large: what comes after it waits until that is made up for.
        """
        self._take(-self._taken, self._now_ms())
        self._throttled_ms = 0
        return self._record

    def _take(self, partitions: int, now_ms: int) -> None:
        self._bucket.take(partitions, self._bound, now_ms)
        self._taken += partitions

    def _record(self, partitions: int) -> None:
        now_ms = self._now_ms()
        if not self._is_strict:
            self._take(partitions, now_ms)
        throttled_ms = self._bucket.throttle_ms(self._bound, now_ms)
        if throttled_ms:
            self._throttled_ms, self._throttled_at_ms = throttled_ms, now_ms
            if self._is_strict:
                raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        elif self._is_strict:
            self._take(partitions, now_ms)

    @property
    def throttle_ms(self) -> int:
        """The time that the client is to wait, from now on."""
        return max(0, self._throttled_ms - (self._now_ms() - self._throttled_at_ms)) if self._throttled_ms else 0


class RequestMeter:
    """Measures one request of a client with a quota: its bytes, and the time that the event loop works for it."""

    __slots__ = ("_clock", "_quotas", "_since", "_spent", "is_exempt", "limits", "throttle_ms")

    def __init__(self, quotas: ClientQuotas, limits: ClientLimits) -> None:
        self._quotas = quotas
        self._clock = quotas.busy_clock
        self._spent = 0.0
        self._since: float | None = self._clock()
        self.limits = limits
        self.is_exempt = False
        """The request is a broker's: no quota holds for it."""
        self.throttle_ms: int | None = None
        """Set once the request is counted."""

    def stop(self) -> None:
        """Others work from now on, until `start` or `run`."""
        if self._since is not None:
            self._spent += self._clock() - self._since
            self._since = None

    def start(self) -> None:
        """Work for the request goes on."""
        if self._since is None:
            self._since = self._clock()

    async def run(self, work: Awaitable[T]) -> T:
        """The outcome of a handler's coroutine, whose work is measured."""
        result: T = await timed_steps(work, self.start, self.stop)
        return result

    # --- what the handler of Fetch asks

    def cap_fetch(self, max_bytes: int) -> int:
        """At most ``max_bytes``: so many that not every answer is throttled."""
        limit = self.limits.fetch
        return max_bytes if limit is None else min(max_bytes, self._quotas.max_fetch_bytes(limit))

    def fetched(self, size: int) -> int:
        """Count an answer of so many bytes. For how long the client is throttled: it is to get no records then."""
        limit = self.limits.fetch
        bandwidth_ms = 0 if limit is None else self._quotas.fetched(limit, size)
        throttle_ms = self.throttle_ms = max(bandwidth_ms, self._count_work())
        if throttle_ms and limit is not None:
            self._quotas.not_fetched(limit, size)
        return throttle_ms

    # --- what the dispatcher asks

    def _count_work(self) -> int:
        limit = self.limits.request
        if limit is None or self.is_exempt:
            return 0
        self.stop()
        seconds, self._spent = self._spent, 0.0
        return self._quotas.worked(limit, seconds)

    def finish(self, api_key: int, request: Any, response: Any, size: int) -> int:
        """Count a request of ``size`` bytes that has been served, and tell its client for how long it is throttled.

        A controller that was asked may have throttled it for longer; that counts, too.
        """
        if api_key == WRITE_TXN_MARKERS:
            self.is_exempt = True
        throttle_ms = self.throttle_ms
        if throttle_ms is None:
            is_answered = api_key != PRODUCE or request.acks != 0
            throttle_ms = self._count_work() if is_answered else 0
            if api_key == PRODUCE and self.limits.produce is not None:
                throttle_ms = max(throttle_ms, self._quotas.produced(self.limits.produce, size))
        if isinstance(response, Later):
            if throttle_ms:
                told_ms = throttle_ms
                response.on_done(lambda: _tell(response.value, told_ms))
        else:
            throttle_ms = max(throttle_ms, getattr(response, "throttle_time_ms", 0))
            _tell(response, throttle_ms)
        self.start()
        return throttle_ms

    def close(self) -> None:
        """The answer is encoded: that work counts for the next request."""
        self.stop()
        limit = self.limits.request
        if limit is not None and not self.is_exempt:
            self._quotas.worked_after(limit, self._spent)


def _tell(response: object, throttle_ms: int) -> None:
    if throttle_ms and hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = throttle_ms
