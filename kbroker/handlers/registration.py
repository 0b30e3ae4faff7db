"""Which APIs this node serves: the table that the connection looks in and ApiVersions is computed from.

A handler module ends in a registration::

    VERSIONS = Versions(0, 4)

    @handler(HeartbeatRequest, versions=VERSIONS)
    async def handle(request: HeartbeatRequest, ctx: RequestContext) -> HeartbeatResponse: ...

What is not registered is not advertised, and a request for it closes the connection.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from kbroker.handlers.context import RepeatedRequest, RequestContext


class Versions(NamedTuple):
    """The versions of an API that are served, both ends included."""

    min: int
    max: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.min <= version <= self.max


class ListenerKind(enum.Flag):
    """What a listener is for. A CONTROLLER listener serves only what is registered for it."""

    BROKER = enum.auto()
    CONTROLLER = enum.auto()


BROKER = ListenerKind.BROKER
CONTROLLER = ListenerKind.CONTROLLER
BOTH = ListenerKind.BROKER | ListenerKind.CONTROLLER


@dataclass(frozen=True, slots=True)
class Registration:
    """One served API.

    ``advertised`` is what ApiVersions says, where it must differ from what is really served
    (Produce alone: see its handler). ``forwarded``: a broker that is not the active controller passes the
    request on to it; ``forwards``: the handler does that, after checks that only the broker that was asked can make.
    ``learn``, if there is one, takes from a served request what serves its repetitions
    (``RepeatedRequest``).
    """

    api_key: int
    request_class: type[Any]
    versions: Versions
    advertised: Versions
    listeners: ListenerKind
    forwarded: bool
    handle: Callable[[Any, Any], Any]
    is_async: bool
    learn: Callable[[memoryview, Any, Any, RequestContext], RepeatedRequest | None] | None = None
    forwards: bool = False

    @property
    def is_for_controller(self) -> bool:
        """Whether brokers pass it on to the active controller, one way or the other."""
        return self.forwarded or self.forwards


_registrations: dict[int, Registration] = {}
_tables: dict[ListenerKind, dict[int, Registration]] = {}

_Handle = TypeVar("_Handle", bound=Callable[..., Any])


def api_key_of(request_class: type[Any]) -> int:
    """The API key that ``@message`` gave the class."""
    return int(request_class.api_key)


def handler(
    request_class: type[Any],
    *,
    versions: Versions,
    advertised: Versions | None = None,
    listeners: ListenerKind = BROKER,
    forwarded: bool = False,
    learn: Callable[[memoryview, Any, Any, RequestContext], RepeatedRequest | None] | None = None,
    forwards: bool = False,
) -> Callable[[_Handle], _Handle]:
    """Register ``async def handle(request, ctx)`` for an API; a plain ``def`` if it never waits and must be fast.

    The function answers with the response object, with ``None`` when the client is to get no answer, or with a
    :class:`~kbroker.handlers.context.DelayedResponse` whose value comes later while the connection reads on.
    ``ApiError`` must not escape it: errors to clients are fields of the response.
    """

    def register(function: _Handle) -> _Handle:
        key = api_key_of(request_class)
        if key in _registrations and _registrations[key].handle.__module__ != function.__module__:
            raise ValueError(f"API key {key} is registered twice")
        _tables.clear()
        _registrations[key] = Registration(
            api_key=key,
            request_class=request_class,
            versions=versions,
            advertised=advertised or versions,
            listeners=listeners,
            forwarded=forwarded,
            handle=function,
            is_async=iscoroutinefunction(function),
            learn=learn,
            forwards=forwards,
        )
        return function

    return register


def registrations(listener: ListenerKind) -> Mapping[int, Registration]:
    """The APIs of a kind of listener by key, in key order. It is one table for all who ask."""
    table = _tables.get(listener)
    if table is None:
        table = {key: entry for key, entry in sorted(_registrations.items()) if listener & entry.listeners}
        _tables[listener] = table
    return table
