"""Timestamps that leaders tell for scrapes: what is asked together, alone, and again."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.errors import ErrorCode
from kbroker.node import peer_pool
from kbroker.node.metrics.leader_times import FRESH_SECONDS, MOST_ASKED, PLACE_BYTES, LeaderTimes, Place
from kbroker.node.metrics.leaders import SCRAPE_SECONDS, Leaders
from kbroker.types import Uuid
from kbroker.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kbroker.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kbroker.wire.record_batch import Record, build_batch

NODE, OTHER = 1, 2
TOPIC_ID = Uuid(7)


class World:
    """Partitions of a topic that another node leads: a batch for each record, of which n is n seconds old."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[list[tuple[int, int]]] = []
        self.start = 0
        self.large: set[int] = set()
        self.hangs = False
        monkeypatch.setattr(peer_pool.PeerPool, "take", lambda pool, broker_id, address: Peer(self))
        topics = SimpleNamespace(
            partition=lambda topic, index: SimpleNamespace(leader=OTHER), by_name={"t": SimpleNamespace(id=TOPIC_ID)}
        )
        image: Any = SimpleNamespace(topics=topics)
        env: Any = SimpleNamespace(now=trio.current_time, wall_clock_ms=lambda: 1_000_000)
        network: Any = None
        self.times = LeaderTimes(env, Leaders(network, NODE, lambda node: ("host", node), lambda: image))

    async def scrape(self, *places: tuple[int, int]) -> list[float | None]:
        """The ages at partition and offset."""
        wanted = [Place("t", *place) for place in places]
        await self.times.look_up([*wanted, None])
        return [self.times.age_seconds(place) for place in wanted]


class Peer:
    is_open = True
    host, port = "host", OTHER

    def __init__(self, world: World) -> None:
        self._world = world

    async def ask(self, request: FetchRequest | ListOffsetsRequest) -> FetchResponse | ListOffsetsResponse:
        world = self._world
        if world.hangs:
            await trio.sleep_forever()
        if isinstance(request, ListOffsetsRequest):
            index = request.topics[0].partitions[0].partition_index
            start = ListOffsetsPartitionResponse(index, offset=world.start)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[start])])
        [topic] = request.topics
        assert (topic.topic, topic.topic_id) == ("t", TOPIC_ID)
        world.asked.append([(each.partition, each.fetch_offset) for each in topic.partitions])
        parts = [self._answer(each) for each in topic.partitions]
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=parts)])

    def _answer(self, asked: FetchPartition) -> PartitionData:
        answer = PartitionData(partition_index=asked.partition)
        if asked.fetch_offset < self._world.start:
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return answer
        if asked.partition in self._world.large and asked.partition_max_bytes == PLACE_BYTES:
            answer.records = memoryview(b"")
            return answer
        timestamp = 1_000_000 - asked.fetch_offset * 1000
        batch = build_batch([Record(0, timestamp, None, b"x")], base_offset=asked.fetch_offset)
        answer.records = memoryview(batch)
        return answer

    def close(self) -> None:
        pass


def run(test: Callable[[], Any]) -> None:
    trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0))


def test_places_share_a_request_and_are_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        assert await world.scrape((0, 5), (1, 6), (2, 7)) == [5, 6, 7]
        assert world.asked == [[(0, 5), (1, 6), (2, 7)]]
        assert await world.scrape((0, 5), (1, 8)) == [5, 8]
        assert world.asked[1:] == [[(1, 8)]]
        assert world.times.age_seconds(Place("t", 2, 7)) is None, "what nobody wants is forgotten"

    run(test)


def test_a_large_batch_another_place_of_a_partition_and_a_deleted_record(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        world.large, world.start = {1}, 4
        assert await world.scrape((0, 5), (1, 6), (0, 9), (2, 3)) == [5, 6, 9, 4]
        assert world.asked == [[(0, 5), (1, 6), (2, 3)], [(0, 9)], [(1, 6)], [(2, 4)]]
        # Retention goes on, and the group stands.
        world.start = 6
        await trio.sleep(FRESH_SECONDS + 1)
        assert await world.scrape((0, 5)) == [6]

    run(test)


def test_a_leader_that_does_not_answer_holds_up_no_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        world.hangs = True
        before = trio.current_time()
        assert await world.scrape((0, 5)) == [None]
        assert trio.current_time() - before <= SCRAPE_SECONDS
        world.hangs = False
        assert await world.scrape((0, 5)) == [5]

    run(test)


def test_a_scrape_asks_about_so_many_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        places = [(index, 1) for index in range(MOST_ASKED + 10)]
        assert (await world.scrape(*places)).count(None) == 10
        assert (await world.scrape(*places)).count(None) == 0
        assert sum(map(len, world.asked)) == MOST_ASKED + 10

    run(test)
