"""Observers of requests are told of each request's events, in their order, and of nothing that they do not ask for."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kbroker.handlers.common.context import RequestContext
from kbroker.handlers.registration import Registration
from kbroker.handlers.services.connection import Connection
from kbroker.node import broker
from kbroker.node.serving.observed_requests import (
    ObservedDispatcher,
    ObservedReplyQueue,
    RequestObserver,
    RequestObservers,
    WorkTimes,
)
from kbroker.runtime.later import Later
from kbroker.runtime.round import Round
from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kbroker.wire.messages.metadata import MetadataRequest
from tests.node.node_harness import Client, Node, batch, produce_request


class Events(list[str]):
    """The events of requests, in their order."""

    see_each: Callable[[bool], None]
    """`ObservedDispatcher.see_each` of the last connection."""

    def told(self) -> list[str]:
        """Those since the last call."""
        told = list(self)
        self.clear()
        return told


class Meter(RequestObserver):
    """Sees what is decoded and answered, and takes the times of handlers that wait."""

    def __init__(self, events: Events) -> None:
        self.events = events

    def received(self, frame: memoryview) -> None:
        self.events.append("received")

    def waits(self, frame: memoryview) -> WorkTimes | None:
        self.events.append("waits")
        return self

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def decoded(self, registration: Registration, request: Any, context: RequestContext) -> None:
        self.events.append(f"decoded {type(request).__name__}")

    def answers_later(self, later: Later[Any], api_key: int, version: int, correlation_id: int) -> None:
        self.events.append("answers later")

    def answered(self, response: Any, api_key: int, queued: int) -> None:
        self.events.append("answered")

    def served(self, round: Round | None) -> None:
        self.events.append("served")

    def failed(self, error: BaseException) -> None:
        self.events.append(f"failed {type(error).__name__}")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    """Those of all connections of the node that the test runs."""
    events = Events()

    def meter(connection: Connection, dispatcher: ObservedDispatcher, replies: ObservedReplyQueue) -> Meter:
        meter = Meter(events)
        events.see_each = partial(dispatcher.see_each, meter)
        return meter

    monkeypatch.setattr(broker, "make_observers", lambda *parts: RequestObservers([meter]))
    return events


async def test_events_of_requests_come_in_their_order(node: Node, events: Events) -> None:
    await node.create_topic("t")
    client = await node.connect()
    events.clear()
    await client.ask(MetadataRequest(topics=[]))
    assert events.told() == ["waits", "decoded MetadataRequest", "answered", "served"]
    await client.ask(produce_request("t", batch(b"x"), acks=1), 9)
    assert events.told() == ["decoded ProduceRequest", "answered"]
    await client.ask(produce_request("t", batch(b"x"), acks=1), 9)
    events.clear()
    # A shortcut serves the third that is alike.
    await client.ask(produce_request("t", batch(b"x"), acks=1), 9)
    assert not events


async def test_an_observer_that_asks_for_each_request_is_told_of_those_of_shortcuts_too(
    node: Node, events: Events
) -> None:
    await node.create_topic("t")
    client = await node.connect()
    events.see_each(True)
    for _ in range(3):
        events.clear()
        await client.ask(produce_request("t", batch(b"x"), acks=1), 9)
    assert events.told() == ["received", "served"]
    await client.ask(MetadataRequest(topics=[]))
    assert events.told() == ["received", "waits", "decoded MetadataRequest", "answered", "served"]
    events.see_each(False)
    await client.ask(produce_request("t", batch(b"x"), acks=1), 9)
    assert not events


async def test_what_ends_a_connection_is_told(client: Client, events: Events) -> None:
    await client.stream.send_all(struct.pack(">ihhih", 10, 3, 99, 1, -1))
    assert await client.closed()
    assert events.told() == ["waits", "failed WireError"]


async def test_an_answer_that_comes_later_is_told_of_before_it_is_queued(node: Node, events: Events) -> None:
    await node.create_topic("t")
    client = await node.connect()
    await client.ask(produce_request("t", batch(b"x"), acks=1), 9)
    events.clear()
    partition = ListOffsetsPartition(partition_index=0, timestamp=1000)
    await client.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[partition])]))
    assert events.told() == ["decoded ListOffsetsRequest", "answers later", "answered"]
