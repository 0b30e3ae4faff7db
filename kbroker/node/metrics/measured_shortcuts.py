"""The shortcuts of a connection, which count the requests that they serve and measure some."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from kbroker.metrics.requests import SAMPLE_OF_SHORTCUTS, RequestMetrics, place_of
from kbroker.node.metrics.measured import Measured
from kbroker.shortcuts.cache import Shortcut, ShortcutCache
from kbroker.wire.registry import API_KEYS

if TYPE_CHECKING:
    from kbroker.later import Later
    from kbroker.node.metrics.measured_replies import MeasuredReplyQueue
    from kbroker.round import Round
    from kbroker.security.authorizer.types import Authorizer


class MeasuredShortcut:
    """A shortcut and its count. What is added to each request here is all that metrics cost a small one."""

    __slots__ = ("_by_place", "_left", "_owner", "_place", "_try_serve", "shortcut")

    grows: ClassVar[bool] = True

    def __init__(self, shortcut: Shortcut, place: int, owner: MeasuredShortcuts) -> None:
        self.shortcut = shortcut
        self._try_serve = shortcut.try_serve
        self._by_place = owner.requests.by_place
        self._place = place
        self._owner = owner
        self._left = 0
        """Requests until the next one that is measured."""

    def try_serve(self, frame: memoryview, round: Round | None = None) -> bytes | Later[Any] | None:
        """As `Shortcut.try_serve`."""
        if not self._left:
            return self._measure(frame, round)
        reply = self._try_serve(frame, round)
        if reply is not None:
            self._left -= 1
            self._by_place[self._place] += 1
        return reply

    def _measure(self, frame: memoryview, round: Round | None) -> bytes | Later[Any] | None:
        owner = self._owner
        measured = Measured(owner.requests, owner.turn_began(), len(frame), (API_KEYS[frame[1]].name,))
        reply = self._try_serve(frame, round)
        if reply is None:
            return None
        self._left = SAMPLE_OF_SHORTCUTS - 1
        self._by_place[self._place] += 1
        owner.replies.measured = measured
        if isinstance(reply, bytes):
            owner.replies.complete()  # it is queued as soon as this has returned
        return reply


class MeasuredShortcuts(ShortcutCache):
    """Keeps shortcuts as `ShortcutCache` does, each with its count."""

    __slots__ = ("replies", "requests", "turn_began")

    def __init__(
        self,
        authorizer: Authorizer | None,
        requests: RequestMetrics,
        replies: MeasuredReplyQueue,
        turn_began: Callable[[], int],
    ) -> None:
        super().__init__(authorizer)
        self.requests = requests
        self.replies = replies
        self.turn_began = turn_began

    def on_unrecognised(self, api_key: int, frame: memoryview, request: Any, response: Any, ctx: Any) -> None:
        """As `ShortcutCache.on_unrecognised`, with the shortcut itself in the place of its count."""
        counted = self.known.get(api_key)
        if isinstance(counted, MeasuredShortcut):
            self.known[api_key] = counted.shortcut
        super().on_unrecognised(api_key, frame, request, response, ctx)
        shortcut = self.known.get(api_key)
        if shortcut is None:
            return
        if isinstance(counted, MeasuredShortcut) and counted.shortcut is shortcut:
            self.known[api_key] = counted
        else:
            self.known[api_key] = MeasuredShortcut(shortcut, place_of(api_key, ctx.api_version), self)
