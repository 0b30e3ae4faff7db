"""Timestamps that leaders tell for scrapes: what is asked together, alone, and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.errors import ErrorCode
from kbroker.node.metrics.leader_times import (
    EMPTY_SECONDS,
    FRESH_SECONDS,
    MOST_ASKED,
    PORTION,
    ROOM,
    STEPS,
    LeaderTimes,
    Place,
)
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
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from kbroker.wire.record_batch import Record, build_batch

NODE, OTHER = 1, 2
TOPIC_ID = Uuid(b"topic-of-a-leader")


class World:
    """Partitions of a topic that another node leads: a batch for each record, of which n is n seconds old."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[list[tuple[int, int]]] = []
        """Partitions and offsets of each Fetch."""
        self.limits: list[int] = []
        """Bytes for each partition of each Fetch."""
        self.starts_asked: list[list[int]] = []
        """Partitions of each ListOffsets."""
        self.brought = 0
        self.start, self.end = 0, 1_000_000
        self.sizes: dict[int, int] = {}
        """Of the batches of a partition, if not as small as can be."""
        self.knows_starts = True
        self.throttle_ms = 0
        self.answer_seconds = 0.0
        self.opened = self.closed = 0
        monkeypatch.setattr("kbroker.node.peers.peer.Peer", lambda *_, **__: Peer(self))
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
    """A connection to a leader that sends the first batch of an answer whole, others as far as they have room."""

    is_open = True
    host, port = "host", OTHER

    def __init__(self, world: World) -> None:
        self._world = world
        world.opened += 1

    async def ask(self, request: FetchRequest | ListOffsetsRequest) -> FetchResponse | ListOffsetsResponse:
        world = self._world
        await trio.sleep(world.answer_seconds)
        [topic] = request.topics
        if isinstance(topic, ListOffsetsTopic):
            indexes = [each.partition_index for each in topic.partitions]
            world.starts_asked.append(indexes)
            if not world.knows_starts:
                return ListOffsetsResponse(topics=[])
            starts = [ListOffsetsPartitionResponse(partition_index=index, offset=world.start) for index in indexes]
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=starts)])
        assert isinstance(request, FetchRequest)
        assert (topic.topic, topic.topic_id) == ("t", TOPIC_ID)
        world.asked.append([(each.partition, each.fetch_offset) for each in topic.partitions])
        world.limits += {each.partition_max_bytes for each in topic.partitions}
        parts = self._answers(topic.partitions, request.max_bytes)
        return FetchResponse(
            throttle_time_ms=world.throttle_ms,
            responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=parts)],
        )

    def _answers(self, asked: Sequence[FetchPartition], max_bytes: int) -> list[PartitionData]:
        world, size, parts = self._world, 0, []
        for each in asked:
            answer = PartitionData(partition_index=each.partition, high_watermark=world.end, records=memoryview(b""))
            parts.append(answer)
            if not world.start <= each.fetch_offset <= world.end:
                answer.error_code, answer.high_watermark = ErrorCode.OFFSET_OUT_OF_RANGE, -1
            elif each.fetch_offset < world.end:
                timestamp = 1_000_000 - each.fetch_offset * 1000
                batch = build_batch([Record(0, timestamp, None, b"x")], base_offset=each.fetch_offset)
                batch = batch.ljust(world.sizes.get(each.partition, 0), b"x")  # nobody looks beyond the header
                if not size or len(batch) <= min(each.partition_max_bytes, max_bytes - size):
                    answer.records = memoryview(batch)
                    size += len(batch)
        world.brought += size
        return parts

    def close(self) -> None:
        self._world.closed += 1


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
        world.sizes, world.start = {1: 100_000}, 4
        assert await world.scrape((0, 5), (1, 6), (0, 9), (2, 3)) == [5, 6, 9, 4]
        assert world.asked == [[(0, 5), (1, 6), (2, 3)], [(0, 9)], [(1, 6)], [(2, 4)]]
        # Retention goes on, and the group stands.
        world.start = 6
        await trio.sleep(FRESH_SECONDS + 1)
        assert await world.scrape((0, 5)) == [6]

    run(test)


def test_little_is_asked_for_and_more_where_batches_are_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        places = [(index, 1) for index in range(PORTION)]
        assert None not in await world.scrape(*places)
        assert world.limits == [STEPS[0].place_bytes] and world.brought < PORTION * 100
        world.limits.clear()
        # The largest five are left to be asked alone.
        world.sizes = {20: 3_000, 21: 10_000, 22: 10_000} | dict.fromkeys(range(30, 35), 50_000)
        assert None not in await world.scrape(*((index, 2) for index in range(PORTION)))
        assert world.limits == [step.place_bytes for step in STEPS[:3]] + [STEPS[3].place_bytes] * 5
        assert world.asked[2:4] == [
            [(index, 2) for index in (20, 21, 22, *range(30, 35))],
            [(index, 2) for index in (21, 22, *range(30, 35))],
        ]

    run(test)


def test_places_that_a_huge_batch_left_no_room_for_share_one_more_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        world.sizes[0] = ROOM
        assert None not in await world.scrape(*((index, 5) for index in range(PORTION)))
        assert [len(request) for request in world.asked] == [PORTION, PORTION - 1]
        assert set(world.limits) == {STEPS[0].place_bytes}

    run(test)


@pytest.mark.parametrize("trouble", ["empty", "no start"])
def test_that_there_is_nothing_is_remembered(monkeypatch: pytest.MonkeyPatch, trouble: str) -> None:
    """Places below the start of an empty log take one ListOffsets, and are not asked about at the next scrape."""

    async def test() -> None:
        world = World(monkeypatch)
        world.start = world.end = 10
        world.knows_starts = trouble == "empty"
        places = [(index, 3) for index in range(2 * PORTION)]
        for _ in range(3):
            assert await world.scrape(*places) == [None] * len(places)
        assert world.starts_asked == [list(range(2 * PORTION))]
        assert len(world.asked) == (4 if world.knows_starts else 2)
        await trio.sleep(EMPTY_SECONDS + 1)
        world.end, world.knows_starts = 11, True
        assert await world.scrape(*places) == [10] * len(places)

    run(test)


def test_deleted_places_are_asked_about_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups are behind in each partition, below its start: both wait for the same record."""

    async def test() -> None:
        world = World(monkeypatch)
        world.start = 10
        assert set(await world.scrape(*((index, offset) for index in range(PORTION) for offset in (3, 4)))) == {10}
        everywhere = list(range(PORTION))
        assert world.starts_asked == [everywhere]
        assert world.asked == [[(index, offset) for index in everywhere] for offset in (3, 4, 10)]

    run(test)


def test_what_is_compacted_away_is_asked_for_alone_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        monkeypatch.setattr(
            Peer, "_answers", lambda *_: [PartitionData(partition_index=0, high_watermark=9, records=memoryview(b""))]
        )
        for _ in range(2):
            assert await world.scrape((0, 5)) == [None]
            assert world.limits == [step.place_bytes for step in STEPS]

    run(test)


def test_a_leader_that_throttles_is_asked_no_more_by_this_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        world.throttle_ms = 1
        places = [(index, 1) for index in range(2 * PORTION)]
        assert (await world.scrape(*places)).count(None) == PORTION and len(world.asked) == 1
        assert (await world.scrape(*places)).count(None) == 0 and len(world.asked) == 2
        assert (world.opened, world.closed) == (1, 0)

    run(test)


def test_a_slow_leader_keeps_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        world.answer_seconds = 0.2
        places = [(index, 1) for index in range(MOST_ASKED)]
        unknown = len(places)
        while unknown:
            before, unknown = unknown, (await world.scrape(*places)).count(None)
            assert unknown < before
        assert (world.opened, world.closed) == (1, 0)

    run(test)


def test_a_leader_that_does_not_answer_holds_up_no_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        world.answer_seconds = 1_000
        before = trio.current_time()
        assert await world.scrape((0, 5)) == [None]
        assert trio.current_time() - before <= SCRAPE_SECONDS
        world.answer_seconds = 0
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
