"""The requests that clients have made, once a test wants to know them: for assertions, so that none is left out.

A node tells each request, with its answer, before the answer is sent (`told_requests`): what a client has been answered
is here.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, get_type_hints

from kbroker.testing.parameters import Parameter, arguments_of, expression
from kbroker.testing.seen import CannotNow, NotInTime, RequestSeen, RequestsSeen, Wanted

MOST_KEPT: Final = 20_000
"""Requests. The oldest give way to newer ones, and are counted."""

MOST_TOLD: Final = 1000
"""Requests in one answer."""


class RequestLog:
    """Keeps the requests of all nodes, while it is on."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._kept: deque[RequestSeen] = deque()
        self._next = self._lost = 0
        self.is_on = False
        """Whether nodes tell of their requests."""

    def add(self, fields: Mapping[str, Any]) -> None:
        """Take a request as a node tells it: the fields of ``RequestSeen`` but its number."""
        with self._changed:
            if len(self._kept) >= MOST_KEPT:
                self._kept.popleft()
                self._lost += 1
            self._kept.append(RequestSeen(self._next, **fields))
            self._next += 1
            self._changed.notify_all()

    def clear(self) -> None:
        """Forget them. Numbers go on."""
        with self._changed:
            self._kept.clear()
            self._lost = 0

    def find(self, wanted: Wanted) -> RequestsSeen:
        """Those that are asked for; ``CannotNow`` while it is off."""
        if not self.is_on:
            raise CannotNow("requests are not recorded: record them first")
        is_wanted = _filter(wanted)
        with self._changed:
            return self._find(is_wanted)

    def _find(self, is_wanted: Callable[[RequestSeen], bool]) -> RequestsSeen:
        found = [each for each in self._kept if is_wanted(each)]
        told = found[:MOST_TOLD]
        after = self._next if len(told) == len(found) else told[-1].number + 1
        return RequestsSeen(told, len(found), after, self._lost)

    def wait(self, count: int, timeout: float, wanted: Wanted) -> RequestsSeen:
        """Those that are asked for, once there are so many; ``NotInTime``."""
        self.find(wanted)
        is_wanted = _filter(wanted)
        with self._changed:
            in_time = self._changed.wait_for(lambda: sum(map(is_wanted, self._kept)) >= count, timeout)
            found = self._find(is_wanted)
        if not in_time:
            raise NotInTime(f"there are {found.count} such requests after {timeout:g} s, not {count}", found)
        return found


@cache
def _parameters() -> list[Parameter]:
    hints = get_type_hints(Wanted, include_extras=True)
    return [Parameter(name, kind, needed=False) for name, kind in hints.items()]


def _filter(wanted: Wanted) -> Callable[[RequestSeen], bool]:
    """Returns whether a request is asked for; ``ValueError`` for what none can be: no answer is none of it."""
    arguments_of(_parameters(), wanted)
    api, topic, partition = wanted.get("api"), wanted.get("topic"), wanted.get("partition")
    group, error, after = wanted.get("group"), wanted.get("error"), wanted.get("after", 0)
    text = wanted.get("client_id")
    client = None if text is None else expression("client_id", text)

    def is_wanted(seen: RequestSeen) -> bool:
        partitions = seen.topics.get(topic, []) if topic is not None else [p for s in seen.topics.values() for p in s]
        return (
            seen.number >= after
            and (api is None or seen.api == api)
            and (client is None or client.search(seen.client_id or "") is not None)
            and (topic is None or topic in seen.topics)
            and (partition is None or partition in partitions)
            and (group is None or group in seen.groups)
            and (error is None or error in seen.errors)
        )

    return is_wanted
