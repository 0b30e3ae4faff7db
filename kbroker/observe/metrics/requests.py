"""Requests by API (``RequestMetrics``): how many, with which errors, and how long some of them take in each stage.

Every request is counted. The times are those of a sample, as taking the time costs as much as serving some requests
takes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final, Protocol

from kbroker.observe.metrics.histogram import Histogram
from kbroker.wire.registry import API_KEYS

SAMPLE: Final = 32
"""The number of decoded requests of which one is measured."""
FIRST: Final = 8
"""The first requests of a connection are all measured, shortcuts aside."""
ALWAYS: Final = 64
"""Requests of an API and version that are measured without a gap, where a handler may wait."""

VERSION_BITS: Final = 5
"""Versions of an API are below 32."""

STAGES: Final = ("queue", "local", "remote", "response_queue", "send", "total")

FETCH: Final = 1
READERS: Final = ("Consumer", "Follower")


def place_of(api_key: int, version: int) -> int:
    """The place of an API's version in `RequestCounts.by_place`."""
    return api_key << VERSION_BITS | version


class StageTimes:
    """Times of the measured requests of one API, in each stage; nanoseconds."""

    __slots__ = ("local", "queue", "remote", "response_queue", "send", "size", "total")

    def __init__(self) -> None:
        self.queue = Histogram()
        """From the turn of the event loop in which the request was taken up to the begin of its work."""
        self.local = Histogram()
        """Work for the request on the event loop: decode, serve, encode."""
        self.remote = Histogram()
        """Wait for followers, coordinators, records, or other requests' turns."""
        self.response_queue = Histogram()
        """Wait of the complete response for earlier ones of its connection, and for the end of the round."""
        self.send = Histogram()
        """Until the socket has taken the response, and whatever was queued behind it meanwhile."""
        self.total = Histogram()
        self.size = Histogram()
        """Bytes of requests."""

    def observe(self, queue: int, local: int, remote: int, response_queue: int, send: int) -> None:
        """Count a request whose response is sent."""
        self.queue.observe(queue)
        self.local.observe(local)
        self.remote.observe(remote)
        self.response_queue.observe(response_queue)
        self.send.observe(send)
        self.total.observe(queue + local + remote + response_queue + send)


class CountingConnection(Protocol):
    """A connection that counts its requests itself (``kbroker.node.metrics.measured_requests``)."""

    def flush(self) -> None:
        """Add what it has counted."""

    def measure_next(self) -> None:
        """Measure the next request that a shortcut serves."""


class RequestMetrics:
    """Counts and times of all requests of a node."""

    def __init__(self) -> None:
        self.by_place = [0] * (place_of(max(API_KEYS), 0) + (1 << VERSION_BITS))
        """Requests by `place_of`: whoever serves one adds to it."""
        self.fetches: Counter[tuple[str, int]] = Counter()
        """Of Fetch by reader (``READERS``) and version."""
        self.connections: dict[CountingConnection, None] = {}
        """Those that are open."""
        self.errors: Counter[tuple[int, int]] = Counter()
        """Errors in responses by API key and code, NONE left out."""
        self.times: defaultdict[str, StageTimes] = defaultdict(StageTimes)
        """By name: an API's, or for Fetch also that of its reader (``FetchConsumer``, ``FetchFollower``)."""

    def measure_next(self) -> None:
        """Tell a connection to measure the next request that a shortcut serves; each in its turn."""
        connection = next(iter(self.connections), None)
        if connection is not None:
            del self.connections[connection]
            self.connections[connection] = None
            connection.measure_next()

    def counts(self) -> Iterator[tuple[str, int, int]]:
        """Name, version and number of the requests so far; each Fetch under two names."""
        for connection in self.connections:
            connection.flush()
        for place, count in enumerate(self.by_place):
            if count:
                yield API_KEYS[place >> VERSION_BITS].name, place & ((1 << VERSION_BITS) - 1), count
        for (reader, version), count in self.fetches.items():
            yield f"Fetch{reader}", version, count
