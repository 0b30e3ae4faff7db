"""The quotas of clients and of connections, as handlers see them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from kbroker.handlers.services.requester import Requester
from kbroker.security.principal import KafkaPrincipal
from kbroker.security.quotas.entities import ClientLimits

T = TypeVar("T")


class RequestMeter(Protocol):
    """Measures a request of a client with a quota (``node.serving.client_quotas``)."""

    is_exempt: bool

    def cap_fetch(self, max_bytes: int) -> int:
        """At most ``max_bytes``: so many that not every answer is throttled."""

    def fetched(self, size: int) -> int:
        """Count an answer of so many bytes. Milliseconds of throttling: the client is to get no records then."""


class MutationQuota(Protocol):
    """The quota of one request that creates or deletes partitions (``node.serving.client_quotas``)."""

    def anew(self) -> Callable[[int], None]:
        """Begin a decision on the request. Returns what counts changes of so many partitions: ``ApiError``
        THROTTLING_QUOTA_EXCEEDED if there may be none now."""

    @property
    def throttle_ms(self) -> int:
        """Milliseconds that the client is to wait, from now on."""


class DispatchedMeter(RequestMeter, Protocol):
    """A meter as the dispatcher uses it, which makes it when the request begins."""

    def start(self) -> None:
        """Work for the request goes on."""

    def stop(self) -> None:
        """Others work from now on."""

    async def run(self, work: Awaitable[T]) -> T:
        """The outcome of a handler's coroutine, whose work is measured."""

    def finish(self, api_key: int, request: object, response: object, size: int) -> int:
        """Count a request of ``size`` bytes that has been served; the milliseconds that its client is throttled."""

    def close(self) -> None:
        """The answer is encoded."""


class Quotas(Protocol):
    """The quotas of users and client ids (``node.serving.client_quotas``)."""

    @property
    def state(self) -> object:
        """Another object after each change."""

    def limits(self, principal: KafkaPrincipal, client_id: str | None) -> ClientLimits | None:
        """The quotas of a client; None if it has none."""

    def meter(self, limits: ClientLimits) -> DispatchedMeter:
        """A meter of one request, from now on."""

    def mutations(self, requester: Requester, strict_since: int) -> MutationQuota | None:
        """The quota of a request that changes topics; None if its client has none.

        From version ``strict_since`` on changes beyond it are refused; before, the client is throttled afterwards.
        """


class NodeQuotas(Protocol):
    """The quotas of a node, as the metadata have them now."""

    @property
    def clients(self) -> Quotas | None:
        """Returns the quotas of users and client ids; None if there is none."""

    @property
    def connections(self) -> ConnectionRates | None:
        """Returns the limits of connections' rates; None if there is none."""


class ConnectionRates(Protocol):
    """Limits the rate of connections (``node.serving.connection_rates``)."""

    def wait_ms(self, listener: str) -> int:
        """Count a connection. For how long its listener is to wait with it."""

    def refusal_ms(self, listener: str, address: str) -> int:
        """Count a connection from an address: 0 if it may be had. Else for how long to keep it before it is closed."""
