"""High watermarks that leaders tell for scrapes: who is asked, how long an answer counts, and what if none comes."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.node.metrics.leader_offsets import FRESH_SECONDS, KEPT_SECONDS, SCRAPE_SECONDS, LeaderOffsets
from kbroker.node.peers.peer_pool import NoAnswer
from kbroker.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

NODE, OTHER, THIRD, GONE = 1, 2, 3, 4


class World:
    """Topics "t2" and "t3" are led by the nodes of these numbers, "t4" by one without an address, "t1" by this one."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, list[str]]] = []
        self.ends = {"t2": 20, "t3": 30}
        self.hangs: set[int] = set()
        self.fails: set[int] = set()
        topics = SimpleNamespace(partition=lambda topic, index: SimpleNamespace(leader=int(topic[1:])))
        image: Any = SimpleNamespace(topics=topics)
        env: Any = SimpleNamespace(now=trio.current_time)
        pool: Any = self
        self.offsets = LeaderOffsets(env, pool, NODE, lambda: image)

    async def ask(self, node: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        if node == GONE:
            raise NoAnswer
        names = [topic.name for topic in request.topics]
        self.asked.append((node, names))
        if node in self.hangs:
            await trio.sleep_forever()
        if node in self.fails:
            raise NoAnswer
        return ListOffsetsResponse(topics=[_answer(name, self.ends[name]) for name in names])

    async def scrape(self, *topics: str) -> list[int | None]:
        await self.offsets.look_up([*((topic, 0) for topic in topics), None])
        return [self.offsets.high_watermark(topic, 0) for topic in topics]


def _answer(name: str, end: int) -> ListOffsetsTopicResponse:
    return ListOffsetsTopicResponse(name=name, partitions=[ListOffsetsPartitionResponse(partition_index=0, offset=end)])


async def test_each_leader_is_asked_and_not_again_at_once(autojump_clock: trio.testing.MockClock) -> None:
    world = World()
    topics: Sequence[str] = ("t1", "t2", "t3", "t4")
    assert await world.scrape(*topics) == [None, 20, 30, None]
    assert sorted(world.asked) == [(OTHER, ["t2"]), (THIRD, ["t3"])]
    world.ends["t2"] = 21
    assert await world.scrape(*topics) == [None, 20, 30, None] and len(world.asked) == 2
    await trio.sleep(FRESH_SECONDS + 0.1)
    assert await world.scrape(*topics) == [None, 21, 30, None] and len(world.asked) == 4
    await world.scrape("t3")
    assert world.offsets.high_watermark("t2", 0) is None, "what nobody wants is forgotten"


@pytest.mark.parametrize("trouble", ["hangs", "fails"])
async def test_a_leader_that_does_not_answer_holds_up_no_scrape(
    autojump_clock: trio.testing.MockClock, trouble: str
) -> None:
    """Others' answers are there, and its own for a while."""
    world = World()
    assert await world.scrape("t2", "t3") == [20, 30]
    getattr(world, trouble).add(OTHER)
    world.ends["t3"] = 31
    await trio.sleep(FRESH_SECONDS + 0.1)
    before = trio.current_time()
    assert await world.scrape("t2", "t3") == [20, 31]
    assert trio.current_time() - before <= SCRAPE_SECONDS
    await trio.sleep(KEPT_SECONDS)
    assert await world.scrape("t2", "t3") == [None, 31]
    getattr(world, trouble).clear()
    assert await world.scrape("t2", "t3") == [20, 31]


async def test_two_scrapes_at_once_ask_once(autojump_clock: trio.testing.MockClock) -> None:
    world = World()
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(world.scrape, "t2")
    assert world.asked == [(OTHER, ["t2"])]
