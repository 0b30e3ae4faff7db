"""Timestamps of records in partitions that this node has no replica of, as their leaders tell them when a scrape asks.

A Fetch at the place brings the batch that holds it. Many places share a request, with few bytes for each: enough for
the batches of most producers; a larger one is asked for alone. A group that goes on costs a batch for each scrape; one
that stands, one in `FRESH_SECONDS`, after which retention may have deleted what it waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from kbroker.errors import ErrorCode
from kbroker.node.metrics.figures import STRIDE
from kbroker.node.metrics.record_times import NO_TIMESTAMP, batch_time

if TYPE_CHECKING:
    from kbroker.env import Env
    from kbroker.node.metrics.leaders import Leaders
    from kbroker.node.peer import Peer
    from kbroker.wire.messages.fetch import FetchResponse

MOST_ASKED: Final = 1000
"""Places that a scrape asks about; the next one goes on with others."""
FRESH_SECONDS: Final = 300.0
"""Age up to which an answer is not asked for again."""
PORTION: Final = 50
"""Places of a request."""
PLACE_BYTES: Final = 16 << 10
"""Bytes that a place may bring in a request of several: as many as a Java producer's ``batch.size``."""
_ALONE_BYTES: Final = 1
"""Bytes for a place alone: a broker sends the first batch of a request whole, however large."""

_EARLIEST: Final = -2
_CONSUMER: Final = -1


class Place(NamedTuple):
    """The place of a record: the first one at ``offset`` or after it."""

    topic: str
    number: int
    """Of the partition in its topic."""
    offset: int


class _Time(NamedTuple):
    timestamp: int
    at: float
    """When it was told."""


class LeaderTimes:
    """The timestamps that leaders have told. ``look_up`` asks for them; then call ``age_seconds``."""

    def __init__(self, env: Env, leaders: Leaders) -> None:
        self._env = env
        self._leaders = leaders
        self._known: dict[Place, _Time] = {}
        self._next = 0
        """Where the next scrape begins among what is wanted, if this one could not do all."""
        self._turn = trio.Lock()

    def age_seconds(self, place: Place) -> float | None:
        """Seconds since the timestamp of the batch at a place; None if it is not known."""
        found = self._known.get(place)
        if found is None or found.timestamp < 0:
            return None
        return max(0, self._env.wall_clock_ms() - found.timestamp) / 1000

    async def look_up(self, wanted: Iterable[Place | None]) -> None:
        """Ask the leaders for the timestamps that are not known; forget all that is not wanted.

        At None others have a turn. One look-up is made at a time.
        """
        async with self._turn:
            places: dict[Place, None] = {}
            for place in wanted:
                if place is None:
                    await trio.lowlevel.checkpoint()
                else:
                    places[place] = None
            self._known = {place: time for place, time in self._known.items() if place in places}
            missing = [place for place in places if self._is_due(place)]
            if not missing:
                self._next = 0
                return
            begin = self._next % len(missing)
            chosen = (missing[begin:] + missing[:begin])[:MOST_ASKED]
            questions: dict[int, list[Place]] = {}
            for number, place in enumerate(chosen, 1):
                if not number % STRIDE:
                    await trio.lowlevel.checkpoint()
                leader = self._leaders.leader_of(place.topic, place.number)
                if leader is not None:
                    questions.setdefault(leader, []).append(place)
            await self._leaders.ask(questions, self._ask)
            # What was answered is missing no more: so many places further on are those that were not asked about.
            self._next = begin + sum(map(self._is_due, chosen))

    def _is_due(self, place: Place) -> bool:
        found = self._known.get(place)
        return found is None or self._env.now() - found.at > FRESH_SECONDS

    async def _ask(self, peer: Peer, places: list[Place]) -> None:
        """Ask a leader, first for many places at once, then alone for those with large batches or deleted records."""
        left: list[Place] = []
        deleted: list[Place] = []
        for begin in range(0, len(places), PORTION):
            portion = places[begin : begin + PORTION]
            # A partition is in a request once: of several places in it the rest are asked alone.
            first: dict[tuple[str, int], Place] = {}
            left += [each for each in portion if first.setdefault((each.topic, each.number), each) != each]
            told = await self._fetch(peer, {each: each.offset for each in first.values()}, PLACE_BYTES)
            left += told.larger
            deleted += told.deleted
        for place in left:
            deleted += (await self._fetch(peer, {place: place.offset}, _ALONE_BYTES)).deleted
        for place in deleted:
            start = await _start_of(peer, place)
            if start is not None:
                await self._fetch(peer, {place: start}, _ALONE_BYTES)

    async def _fetch(self, peer: Peer, offsets: Mapping[Place, int], most: int) -> _Told:
        """Remember the timestamps at some places, whose records begin at ``offsets``; the others are given back."""
        from kbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

        topics: dict[str, FetchTopic] = {}
        ids = {place.topic: self._leaders.topic_id(place.topic) for place in offsets}
        asked: dict[tuple[object, int], Place] = {}
        for place, offset in offsets.items():
            topic_id = ids[place.topic]
            if topic_id is None:
                continue  # deleted meanwhile
            topic = topics.setdefault(place.topic, FetchTopic(topic=place.topic, topic_id=topic_id))
            topic.partitions.append(
                FetchPartition(partition=place.number, fetch_offset=offset, partition_max_bytes=most)
            )
            asked[place.topic, place.number] = asked[topic_id, place.number] = place
        if not topics:
            return _Told([], [])
        request = FetchRequest(replica_id=_CONSUMER, max_bytes=PORTION * most, topics=list(topics.values()))
        return self._read(await peer.ask(request), asked)

    def _read(self, response: FetchResponse, asked: Mapping[tuple[object, int], Place]) -> _Told:
        from kbroker.wire.batch_header import parse_header
        from kbroker.wire.errors import WireError

        told = _Told([], [])
        for topic in response.responses:
            for part in topic.partitions:
                place = asked.get((topic.topic or topic.topic_id, part.partition_index))
                if place is None:
                    continue
                if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    told.deleted.append(place)
                elif not part.error_code:
                    records = part.records
                    if not isinstance(records, memoryview) or not records:
                        told.larger.append(place)
                        continue
                    try:
                        timestamp = batch_time(parse_header(records))
                    except WireError:
                        timestamp = NO_TIMESTAMP
                    self._known[place] = _Time(timestamp, self._env.now())
        return told


class _Told(NamedTuple):
    """Places that an answer leaves open: their batches are too large for it, or their records are deleted."""

    larger: list[Place]
    deleted: list[Place]


async def _start_of(peer: Peer, place: Place) -> int | None:
    """The start of a partition's log, as its leader tells it."""
    from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

    partition = ListOffsetsPartition(partition_index=place.number, timestamp=_EARLIEST)
    topic = ListOffsetsTopic(name=place.topic, partitions=[partition])
    response = await peer.ask(ListOffsetsRequest(replica_id=_CONSUMER, topics=[topic]))
    [answer] = response.topics[0].partitions
    return None if answer.error_code or answer.offset < place.offset else answer.offset
