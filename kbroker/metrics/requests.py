"""Requests by API (``RequestMetrics``): how many, and how long they take in each stage."""

from __future__ import annotations

from collections import Counter

from kbroker.metrics.histogram import Histogram


class ApiTimes:
    """The requests of one API. Times are nanoseconds."""

    __slots__ = ("by_version", "local", "remote", "total")

    def __init__(self) -> None:
        self.by_version: Counter[int] = Counter()
        self.local = Histogram()
        """Work for the request on the event loop: decode, serve, encode."""
        self.remote = Histogram()
        """Wait for followers, coordinators, records, or other requests' turns."""
        self.total = Histogram()

    def served(self, local: int, total: int) -> None:
        """Count a request whose response is complete."""
        self.local.observe(local)
        self.remote.observe(max(0, total - local))
        self.total.observe(total)


class RequestTimes(dict[str, ApiTimes]):
    """Times by request name: an API's, or for Fetch that of its reader (``FetchConsumer``, ``FetchFollower``)."""

    def __missing__(self, name: str) -> ApiTimes:
        found = self[name] = ApiTimes()
        return found
