"""A keeper of descriptions of one's own (KIP-1331), as a node asks it: in threads, for five seconds at most."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from kbroker.errors import FatalError
from kbroker.node.rules.connection_calls import AwaitedCalls, NoAnswer
from kbroker.rules.descriptions import DescriptionRefused, TopologyDescription

METHODS: Final = ("store", "get", "delete")


class DescriptionKeeper:
    """The keeper of a node. Its failures are logged, and an outcome here. `FatalError` if a method is missing."""

    def __init__(self, rule: Any, name: str) -> None:
        """``name`` is the rule's in the node's file."""
        self.counts: Counter[str] = Counter()
        """Calls by what they were for and how they ended, by the names of Kafka's metrics; and rounds of cleaning."""
        for method in METHODS:
            if not callable(getattr(rule, method, None)):
                raise FatalError(f"{name}: it has no method {method}; a keeper of descriptions has {_listed()}")
        self._store = _calls(rule, "store", name, "the description is asked for again later")
        self._get = _calls(rule, "get", name, "the description is not shown")
        self._delete = _calls(rule, "delete", name, "the group stays, to be deleted later")

    async def store(self, group_id: str, topology_epoch: int, description: TopologyDescription) -> bool:
        """Have a description stored; whether it is. `DescriptionRefused` if it never will be."""
        try:
            refused = await self._store.call((group_id, topology_epoch, description))
        except NoAnswer:
            self.counts["set-error"] += 1
            return False
        if isinstance(refused, DescriptionRefused):
            self.counts["set-error"] += 1
            raise refused
        self.counts["set-success"] += 1
        return True

    async def get(self, group_id: str, topology_epoch: int) -> TopologyDescription | None:
        """The description, None if it is not there. `NoAnswer` if the keeper fails."""
        found = await self._get.call((group_id, topology_epoch))
        if found is not None and not isinstance(found, TopologyDescription):
            raise self._get.nonsense(found)
        return found

    async def delete(self, group_id: str) -> bool:
        """Have what is kept of a group deleted; whether it is."""
        try:
            await self._delete.call((group_id,))
        except NoAnswer:
            self.counts["delete-error"] += 1
            return False
        self.counts["delete-success"] += 1
        return True


def _listed() -> str:
    return f"{', '.join(METHODS[:-1])} and {METHODS[-1]}"


def _calls(rule: Any, method: str, name: str, consequence: str) -> AwaitedCalls:
    return AwaitedCalls(_Method(rule, method), "call", name, consequence, tells_errors=True)


class _Method:
    """One method of a rule, with the settings of the rule. A refusal is an answer, not a failure."""

    def __init__(self, rule: Any, method: str) -> None:
        function: Callable[..., Any] = getattr(rule, method)
        for setting in ("timeout_seconds", "threads"):
            if hasattr(rule, setting):
                setattr(self, setting, getattr(rule, setting))

        def plain(arguments: tuple[object, ...]) -> object:
            try:
                return function(*arguments)
            except DescriptionRefused as refused:
                return refused

        async def waiting(arguments: tuple[object, ...]) -> object:
            try:
                return await function(*arguments)
            except DescriptionRefused as refused:
                return refused

        self.call = waiting if inspect.iscoroutinefunction(function) else plain
