"""The shortcuts of a connection, with the counts of the requests that they serve.

They serve small requests as fast as it goes, so nothing is added to that. A connection has shortcuts of one API as a
rule, whose requests are all that were not decoded. If there are two APIs, each shortcut counts. Now and then a
connection is told to measure its next request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from kbroker.node.metrics.measured import Measured
from kbroker.node.shortcuts.cache import Shortcut, ShortcutCache
from kbroker.observe.metrics.requests import SAMPLE, RequestMetrics, place_of
from kbroker.wire.registry import API_KEYS

if TYPE_CHECKING:
    from kbroker.runtime.later import Later
    from kbroker.runtime.round import Round
    from kbroker.security.authorizer.types import Authorizer


class CountingRequests(Protocol):
    """The requests of the connection (``node.metrics.measured_requests``)."""

    measured: Measured | None

    def complete(self, *, is_queued: bool = True) -> None:
        """The response of the measured request is there; not ``is_queued``: it is queued as soon as this returns."""
        ...

    def flush(self) -> None:
        """Count the requests so far that were not decoded, in ``sole_place``."""
        ...


class MeasuredShortcut:
    """A shortcut whose next request is measured; then it takes its own place again."""

    __slots__ = ("_api_key", "_owner", "shortcut")

    grows: ClassVar[bool] = True

    def __init__(self, shortcut: Shortcut, api_key: int, owner: MeasuredShortcuts) -> None:
        self.shortcut = shortcut
        self._api_key = api_key
        self._owner = owner

    def try_serve(self, frame: memoryview, round: Round | None = None) -> bytes | Later[Any] | None:
        """Have the shortcut serve the request, and measure it."""
        owner = self._owner
        measured = Measured(owner.requests, owner.turn_began(), len(frame), (API_KEYS[self._api_key].name,))
        reply = self.shortcut.try_serve(frame, round)
        if reply is None:
            return None
        self._served()
        owner.counting.measured = measured
        if isinstance(reply, bytes):
            owner.counting.complete(is_queued=False)
        return reply

    def _served(self) -> None:
        self._owner.known[self._api_key] = self.shortcut


class CountedShortcut(MeasuredShortcut):
    """A shortcut beside those of other APIs: it counts, and measures one request in ``SAMPLE``."""

    __slots__ = ("_left", "_place")

    def __init__(self, shortcut: Shortcut, api_key: int, version: int, owner: MeasuredShortcuts) -> None:
        super().__init__(shortcut, api_key, owner)
        self._place = place_of(api_key, version)
        self._left = 0
        """Requests until the next one that is measured."""

    def try_serve(self, frame: memoryview, round: Round | None = None) -> bytes | Later[Any] | None:
        """Have the shortcut serve the request, and count it; measure it if it is its turn."""
        if not self._left:
            return super().try_serve(frame, round)
        reply = self.shortcut.try_serve(frame, round)
        if reply is not None:
            self._left -= 1
            self._owner.requests.by_place[self._place] += 1
        return reply

    def _served(self) -> None:
        self._left = SAMPLE - 1
        self._owner.requests.by_place[self._place] += 1


class MeasuredShortcuts(ShortcutCache):
    """Keeps shortcuts as `ShortcutCache` does."""

    __slots__ = ("_versions", "counting", "counts_each", "requests", "turn_began")

    def __init__(
        self,
        authorizer: Authorizer | None,
        requests: RequestMetrics,
        counting: CountingRequests,
        turn_began: Callable[[], int],
    ) -> None:
        super().__init__(authorizer)
        self.requests = requests
        self.counting = counting
        self.turn_began = turn_began
        self.counts_each = False
        """Whether shortcuts count for themselves, as there are some of several APIs or versions."""
        self._versions: dict[int, int] = {}
        """By API key: the version of its shortcut."""

    @property
    def sole_place(self) -> int:
        """The place that all requests of shortcuts are counted in, unless each counts for itself; -1 without any."""
        return -1 if self.counts_each or not self._versions else place_of(*next(iter(self._versions.items())))

    def on_unrecognised(self, api_key: int, frame: memoryview, request: Any, response: Any, ctx: Any) -> None:
        """Remember a request that no shortcut served: the cache judges by the shortcuts that are measured here."""
        before = self.known.get(api_key)
        if isinstance(before, MeasuredShortcut):
            self.known[api_key] = before.shortcut
        super().on_unrecognised(api_key, frame, request, response, ctx)
        shortcut = self.known.get(api_key)
        if shortcut is None:
            return
        version = ctx.api_version
        if self._versions.setdefault(api_key, version) != version or (len(self._versions) > 1 and not self.counts_each):
            self._count_each()
        self._versions[api_key] = version
        if self.counts_each and not isinstance(self.known[api_key], CountedShortcut):
            if isinstance(before, CountedShortcut) and before.shortcut is shortcut:
                self.known[api_key] = before
            else:
                self.known[api_key] = CountedShortcut(shortcut, api_key, version, self)

    def _count_each(self) -> None:
        if self.counts_each:
            return
        others = dict(self._versions)
        self._versions = dict(list(others.items())[:1])
        self.counting.flush()
        self._versions, self.counts_each = others, True
        for api_key, shortcut in list(self.known.items()):
            raw = shortcut.shortcut if isinstance(shortcut, MeasuredShortcut) else shortcut
            self.known[api_key] = CountedShortcut(raw, api_key, others[api_key], self)

    def measure_next(self) -> None:
        """Measure the next request that a shortcut serves."""
        if self.counts_each:
            return
        for api_key, shortcut in list(self.known.items()):
            if not isinstance(shortcut, MeasuredShortcut):
                self.known[api_key] = MeasuredShortcut(shortcut, api_key, self)
