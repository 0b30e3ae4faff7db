"""Faults of a broker that runs in this process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kbroker.testing import broker_actions
from kbroker.testing.faults import Arguments, Fault
from kbroker.testing.intercepted import Decision, Question
from kbroker.testing.interception import Interceptor, Named, Rule

if TYPE_CHECKING:
    from kbroker.node.broker import Broker

T = TypeVar("T")


class BrokerInThread(Protocol):
    """A :class:`~kbroker.testing.broker.RunningBroker`, as far as faults reach into it."""

    @property
    def is_running(self) -> bool:
        """Whether it serves."""

    def in_broker(self, function: Callable[[Broker], T]) -> T:
        """Run ``function(node)`` in the broker's thread."""

    def in_broker_async(self, function: Callable[[Broker], Awaitable[T]]) -> T:
        """Run a coroutine function in the broker's thread."""


class LocalHost:
    """The ``faults.Host`` of a :class:`~kbroker.testing.broker.RunningBroker`: faults act in its thread."""

    def __init__(self, broker: BrokerInThread) -> None:
        self._broker = broker
        self._interceptor: Interceptor | None = None
        self._faults: dict[int, Fault] = {}
        self._tell: Callable[[Mapping[str, Any]], object] | None = None

    def add(self, fault: Fault) -> None:
        """RuntimeError while the broker is down."""

        def add(node: Broker) -> None:
            if self._interceptor is None:
                self._interceptor = Interceptor(node)
            self._interceptor.add(self._rule(fault))
            self._faults[fault.number] = fault

        self._broker.in_broker(add)

    def remove(self, fault: Fault) -> None:
        """Remove a fault, also while the broker is down."""
        self._faults.pop(fault.number, None)

        def remove(node: Broker) -> None:
            if self._interceptor is not None:
                self._interceptor.remove(fault.number)

        if self._broker.is_running:
            self._broker.in_broker(remove)

    def observe(self, tell: Callable[[Mapping[str, Any]], object] | None) -> None:
        """Have each request of a client be told; None: no more."""
        self._tell = tell
        if self._broker.is_running:
            self._broker.in_broker(self._observe)

    def _observe(self, node: Broker) -> None:
        tell = self._tell
        if self._interceptor is None:
            self._interceptor = Interceptor(node)

        async def told(request: Mapping[str, Any]) -> None:
            if tell is not None:
                tell(request)

        self._interceptor.observe(None if tell is None else told)

    def restore(self, node: Broker) -> None:
        """Another node, not yet serving, takes the place of the one before; in its thread."""
        self._interceptor = None
        if self._tell is not None:
            self._observe(node)
        if self._faults:
            self._interceptor = self._interceptor or Interceptor(node)
            for fault in list(self._faults.values()):
                self._interceptor.add(self._rule(fault))

    def act(self, name: str, topic: str, partition: int | None, arguments: Arguments) -> dict[int, int]:
        """Do an action of ``broker_actions`` in the broker's own thread; partition -> what it tells."""
        function: Callable[..., Awaitable[dict[int, int]]] = getattr(broker_actions, name)
        partitions = None if partition is None else [partition]
        return self._broker.in_broker_async(lambda node: function(node, topic, partitions, **arguments))

    def _rule(self, fault: Fault) -> Rule:
        interceptor = self._interceptor

        def decide(number: int, decision: Decision) -> bool:
            with suppress(RuntimeError):  # the broker has gone down, and the request with it
                return interceptor is not None and self._broker.in_broker(
                    lambda node: interceptor.decide(number, decision)
                )
            return False

        return rule_of(fault, decide)


def rule_of(fault: Fault, decide: Callable[[int, Decision], bool], node: int | None = None) -> Rule:
    """Returns a fault as it acts in the thread of this node, which the record then names.

    ``decide``, of any thread, tells the node's interceptor what becomes of a request, and returns if it still waited.
    """

    async def fires() -> bool:
        return fault.fires()

    async def note(
        api: str, api_version: int, client_id: str | None, correlation_id: int, partitions: Named, detail: str
    ) -> None:
        fault.note(api, api_version, client_id, correlation_id, partitions, detail, node)

    async def ask(asked: Question) -> None:
        fault.intercepted.put(asked, partial(decide, asked.number))

    return Rule(fault.number, fault.match, fault.action, fault.parameters, fires, note, ask)
