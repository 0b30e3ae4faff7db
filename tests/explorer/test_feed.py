"""The documents that a page in the browser is fed with."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Collection
from typing import Any

from kbroker.client.connected import connected_clients
from kbroker.client.errors import ClientError
from kbroker.observe.explorer.decoded import TOO_LARGE
from kbroker.observe.explorer.exchange import ClientInfo, Closed, Skipped, StreamStart
from kbroker.observe.explorer.explained import Story
from kbroker.observe.explorer.feed import MAX_KEPT, MAX_WAITING, Feed
from kbroker.observe.explorer.lines import MAX_FRAME, read_items
from kbroker.types import Uuid
from kbroker.wire.messages.classic_groups import HeartbeatRequest, HeartbeatResponse
from kbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kbroker.wire.messages.sasl import SaslHandshakeRequest, SaslHandshakeResponse
from tests.explorer.exchanges import CONNECTION, exchange


def events(text: str) -> list[tuple[str, dict[str, object]]]:
    found = []
    for event in text.split("\n\n")[:-1]:
        kind, data = event.split("\n")
        found.append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def test_a_reader_gets_what_was_there_and_what_comes() -> None:
    feed = Feed()
    feed.add(CONNECTION)
    feed.add(exchange(HeartbeatRequest(group_id="g"), HeartbeatResponse(error_code=27)))
    reader = feed.read()
    feed.add(Skipped({0: 5, 999: 1}, "why"))
    (kind, first), (other, skipped) = events(reader.take(0))
    assert (kind, other) == ("exchange", "skipped") and skipped["counts"] == {"Produce": 5, "999": 1}
    assert first["errors"] == ["REBALANCE_IN_PROGRESS"] and first["peer"] == CONNECTION.peer
    assert "request_fields" not in first and reader.take(0).startswith(":")
    reader.close()
    feed.add(Skipped({0: 5}, "why"))
    assert reader.take(0).startswith(":") and [each.number for each in feed.connections()] == [7]


def test_the_fields_of_an_exchange_are_asked_for() -> None:
    feed = Feed()
    one = exchange(HeartbeatRequest(group_id="g"), HeartbeatResponse())
    feed.add(one)
    details = feed.details(one.node, "", one.number)
    assert details is not None and details["request_fields"]["size"] == one.request.size
    assert feed.details(one.node, "", 0) is None and feed.details(one.node, "other", one.number) is None


def test_what_is_kept_is_bounded_and_can_be_saved() -> None:
    feed = Feed()
    feed.add(StreamStart(1, "c", "kbroker", 0.0))
    feed.add(CONNECTION)
    first = exchange(HeartbeatRequest(group_id="g"), HeartbeatResponse())
    feed.add(first)
    reader = feed.read()
    for _ in range(MAX_KEPT):
        feed.add(exchange(HeartbeatRequest(group_id="g"), HeartbeatResponse()))
    assert feed.details(first.node, "", first.number) is None
    told = events(reader.take(0))
    lost = {"counts": {"": MAX_KEPT + 1 - MAX_WAITING}, "why": "this page does not read fast enough"}
    assert len(told) == MAX_WAITING + 1 and told[0] == ("skipped", lost)
    assert len(list(read_items(feed.saved()))) == MAX_KEPT + 3


def test_a_node_that_was_started_anew_counts_anew() -> None:
    """Exchanges of both runs are kept, told, looked into and saved; connections of the first one are none any more."""
    feed = Feed()
    reader = feed.read()
    numbers = []
    for run, group, peer in (("a", "old", "127.0.0.1:1"), ("b", "new", "127.0.0.1:2")):
        feed.add(StreamStart(1, "c", "kbroker", 0.0, run))
        assert feed.connections() == []
        feed.add(CONNECTION._replace(peer=peer))
        for number in (1, 2):
            one = exchange(HeartbeatRequest(group_id=group), HeartbeatResponse())
            one.number = number
            feed.add(one)
            numbers.append((run, number))
    told = [told for _, told in events(reader.take(0))]
    assert [(each["run"], each["exchange"]) for each in told] == numbers
    for run, group in (("a", "old"), ("b", "new")):
        details = feed.details(1, run, 1)
        assert details is not None and details["groups"] == [group]
    story = Story()
    saved = [each for each in map(story.add, read_items(feed.saved())) if each is not None]
    assert [each.decoded.groups for each in saved] == [["old"], ["old"], ["new"], ["new"]]
    assert [each.decoded.run for each in saved] == ["a", "a", "b", "b"]
    peers = [each.decoded.connection.peer for each in saved if each.decoded.connection is not None]
    assert peers == ["127.0.0.1:1"] * 2 + ["127.0.0.1:2"] * 2


def test_a_saved_exchange_keeps_its_connection_after_that_has_ended() -> None:
    feed = Feed()
    feed.add(StreamStart(1, "c", "kbroker", 0.0, "a"))
    feed.add(CONNECTION)
    feed.add(exchange(HeartbeatRequest(group_id="g"), HeartbeatResponse()))
    feed.add(Closed(CONNECTION.number, 1))
    items = list(read_items(feed.saved()))
    assert CONNECTION in items and feed.connections() == []


def test_the_sequence_that_a_connection_is_in_is_known_until_it_ends() -> None:
    feed = Feed()
    feed.add(CONNECTION)
    for answer in (SaslHandshakeResponse(mechanisms=["PLAIN"]), SaslHandshakeResponse(error_code=33)):
        feed.add(exchange(SaslHandshakeRequest(mechanism="PLAIN"), answer))
        steps = feed.open_steps()
        assert [step.kind for step in steps.values()] == ([] if answer.error_code else ["login"])
    feed.add(exchange(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse(mechanisms=["PLAIN"])))
    assert list(feed.open_steps()) == [(1, 7)]
    feed.add(Closed(7, 1))
    assert feed.open_steps() == {}


class Node:
    """Takes the place of a node that tells who is connected, or does not answer."""

    def __init__(self, address: str, clients: list[ClientInfo] | None) -> None:
        self.address = address
        self._clients = clients

    def connections(self) -> list[ClientInfo]:
        if self._clients is None:
            raise ClientError(f"no explorer at {self.address}")
        return self._clients


def test_connected_clients_are_found_by_words_and_what_is_not_shown_is_counted() -> None:
    feed = Feed()
    feed.add(CONNECTION)
    feed.add(exchange(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse(mechanisms=["PLAIN"])))
    clients = [
        ClientInfo(CONNECTION._replace(number=number), f"writer-{number}", "PLAIN", "", 5.0, number, 10, "a")
        for number in (9, 8, 7, 6)
    ]
    clients.append(ClientInfo(CONNECTION._replace(number=5, software="Java 4")))
    nodes: Any = [Node("a:1", clients), Node("b:2", None)]
    told = connected_clients(nodes, feed, most=3)
    assert [row["connection"] for row in told["rows"]] == [5, 6, 7]
    assert (told["total"], told["all"], told["silent"]) == (5, 5, {"b:2": "no explorer at b:2"})
    clients[0] = clients[0]._replace(is_of_node=True)
    told = connected_clients(nodes, feed, most=3)
    assert [row["connection"] for row in told["rows"]] == [5, 6, 7]
    assert (told["total"], told["all"], told["left_out"]) == (4, 5, 1)
    told = connected_clients(nodes, feed, with_nodes=True, most=3)
    assert (told["total"], told["left_out"]) == (5, 0)
    assert connected_clients(nodes, feed, "writer-8")["left_out"] == 0
    told = connected_clients(nodes, feed, "WRITER-7 librdkafka")
    [row] = told["rows"]
    assert (row["client_id"], row["sasl"], row["requests"], row["run"]) == ("writer-7", "PLAIN", 7, "a")
    assert (row["sequence"]["kind"], told["total"], told["all"]) == ("login", 1, 5)


def test_others_are_served_while_a_name_is_looked_up() -> None:
    feed = Feed()
    topic = OffsetFetchRequestTopics(topic_id=Uuid(b"t" * 16), partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[topic])])
    asked: list[object] = []

    def look_up(ids: Collection[str]) -> dict[str, str]:
        asked.append(ids)
        assert feed.connections() == []  # which waits for nobody
        return dict.fromkeys(ids, "orders")

    one = exchange(request, version=10)
    for _ in range(2):
        feed.add(one, look_up)
    details = feed.details(one.node, "", one.number)
    assert len(asked) == 1 and details is not None and details["topics"] == {"orders": [0]}


def test_documents_count_too() -> None:
    feed = Feed(max_kept_bytes=100_000, max_waiting_bytes=10_000)
    reader = feed.read()
    for _ in range(200):
        feed.add(exchange(HeartbeatRequest(group_id="g"), HeartbeatResponse()))
    assert 5 < len(feed._kept) < 80 and feed._bytes == sum(kept.size for kept in feed._kept.values()) <= 100_000
    assert len(reader.take(0)) < 11_000
    assert feed.details(1, "", 0) is None


def test_a_frame_that_claims_to_be_huge_is_not_filled() -> None:
    one = exchange(HeartbeatRequest(group_id="g"), HeartbeatResponse())
    one.request = one.request._replace(size=MAX_FRAME)
    tracemalloc.start()
    feed = Feed()
    feed.add(one)
    details = feed.details(one.node, "", one.number)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert details is not None and details["request_fields"]["problem"] == TOO_LARGE
    assert details["api"] == "Heartbeat" and peak < 1 << 20
