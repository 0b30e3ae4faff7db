"""The shortcuts of one connection, by API, and the policy of when to remember another request.

A shortcut asks no handler, and so no authorizer. With an authorizer it is made for what the principal may do
(``remember`` asks), and forgotten as soon as the rules change (:class:`UnderAuthorizer`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, MutableMapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from kbroker.handlers.common.context import RequestContext
    from kbroker.runtime.later import Later
    from kbroker.runtime.round import Round
    from kbroker.security.authorizer.types import Authorizer

MODULES: Final = {0: "produce", 2: "list_offsets", 8: "offset_commit", 12: "heartbeat"}
"""By API key: the module of this package whose ``remember`` makes the shortcut. Imported on first use."""

REMEMBER_EVERY: Final = 32
"""Remember one in 32 unrecognised requests: to remember a request costs as much as to serve it."""

HITS_PER_GROWTH: Final = 2
"""Recognised requests that save as much as it costs to add another one to a shortcut that grows."""

FIRST_CREDIT: Final = 32
"""Recognised requests that a new connection is expected to bring."""


class Tally:
    """Counts the requests of one version of an API that a connection's shortcuts have served."""

    __slots__ = ("served", "spent")

    def __init__(self) -> None:
        self.served = 0
        self.spent = -FIRST_CREDIT
        """Those among the ``served`` that have paid for a growth."""


class Shortcut:
    """Serves requests of one connection and version of an API that are like an earlier one."""

    __slots__ = ("tally",)

    grows: ClassVar[bool]
    """Whether remembering another request adds to what is known, rather than replaces it."""
    tally: Tally
    """Set by the cache; whoever asks the shortcut adds a request that was served."""

    def try_serve(self, frame: memoryview, round: Round | None = None) -> bytes | Later[Any] | None:
        """Serve the request in ``frame``, a frame of this API: the whole response frame, or what will have it.

        ``round`` is the crowded round of the poller that the request came in: the reply is not sent before its end.
        ``None`` lets the request through to its handler. Nothing has been done then that may not be done twice.
        """
        raise NotImplementedError


Remember = Callable[[memoryview, Any, Any, "RequestContext", Any], Shortcut | None]
"""``remember(frame, request, response, ctx, known)``: the shortcut for requests like one that its handler has served.

``known`` is the connection's present shortcut of this API, or None; one that grows may be returned itself. ``None`` if
requests of this kind have no shortcut, and if the principal may not do at present what they ask: the response may be
one that comes later, and nothing have been asked yet.
"""

_audit_log = logging.getLogger("kbroker.authorizer")


@cache
def _remember_of(api_key: int) -> Remember:
    remember: Remember = import_module(f"kbroker.node.shortcuts.{MODULES[api_key]}").remember
    return remember


class UnderAuthorizer(MutableMapping[int, Shortcut]):
    """Shortcuts by API key, that are of no use under other rules than those that they were made under.

    Nor are they while the audit log takes what is allowed: it is to have each request. It is no ``dict``: a compiler
    that knows a dict calls the dict's own ``get``, not this one.
    """

    __slots__ = ("_authorizer", "_shortcuts", "_version")

    def __init__(self, authorizer: Authorizer) -> None:
        self._shortcuts: dict[int, Shortcut] = {}
        self._authorizer = authorizer
        self._version = authorizer.version

    def get(self, api_key: int, default: object = None) -> Any:
        """The shortcut of an API, if the rules are still those that it was made under."""
        version = self._authorizer.version
        if version != self._version or _audit_log.isEnabledFor(logging.DEBUG):
            self._version = version
            self._shortcuts.clear()
            return default
        return self._shortcuts.get(api_key, default)

    def __getitem__(self, api_key: int) -> Shortcut:
        return self._shortcuts[api_key]

    def __setitem__(self, api_key: int, shortcut: Shortcut) -> None:
        self._shortcuts[api_key] = shortcut

    def __delitem__(self, api_key: int) -> None:
        del self._shortcuts[api_key]

    def __iter__(self) -> Iterator[int]:
        return iter(self._shortcuts)

    def __len__(self) -> int:
        return len(self._shortcuts)


class ShortcutCache:
    """One connection's shortcuts."""

    __slots__ = ("_remember_of", "_unrecognised", "known", "tallies")

    def __init__(
        self, authorizer: Authorizer | None = None, remember_of: Callable[[int], Remember] = _remember_of
    ) -> None:
        self._remember_of = remember_of
        self.known: MutableMapping[int, Shortcut] = {} if authorizer is None else UnderAuthorizer(authorizer)
        """By API key."""
        self.tallies: dict[tuple[int, int], Tally] = {}
        """By API key and version. They outlive shortcuts."""
        self._unrecognised = 0

    def on_unrecognised(
        self, api_key: int, frame: memoryview, request: object, response: object, ctx: RequestContext
    ) -> None:
        """A handler has served a request: remember it if that promises to pay."""
        if api_key not in MODULES or not ctx.budgets.remembers:
            return
        known = self.known.get(api_key)
        self._unrecognised += 1
        if known is not None and known.grows and known.tally.served - known.tally.spent >= HITS_PER_GROWTH:
            known.tally.spent += HITS_PER_GROWTH
        elif self._unrecognised % REMEMBER_EVERY != 2:  # the second: many connections bring one request only
            return
        shortcut = self._remember_of(api_key)(frame, request, response, ctx, known)
        if shortcut is not None:
            shortcut.tally = self.tallies.get((api_key, ctx.api_version)) or Tally()
            self.tallies[api_key, ctx.api_version] = shortcut.tally
            self.known[api_key] = shortcut

    def clear(self) -> None:
        """Forget everything: shortcuts know the connection, and must not keep it alive."""
        self.known.clear()
