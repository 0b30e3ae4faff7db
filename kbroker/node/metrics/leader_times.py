"""Timestamps of records in partitions that this node has no replica of, as their leaders tell them when a scrape asks.

A Fetch at the place brings the batch that holds it, and only whole batches, though the header would do. Many places
share a request, with few bytes for each at first; larger batches are asked for with more, and at last alone. A group
that goes on costs a batch for each scrape; one that stands, one in `FRESH_SECONDS`, after which retention may have
deleted what it waits for. Where there is no batch, that is remembered, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from kbroker.errors import ErrorCode
from kbroker.node.metrics.figures import STRIDE
from kbroker.node.metrics.leaders import SCRAPE_SECONDS
from kbroker.node.metrics.record_times import NO_TIMESTAMP, batch_time

if TYPE_CHECKING:
    from kbroker.node.metrics.leaders import Leaders
    from kbroker.node.peers.peer import Peer
    from kbroker.runtime.env import Env
    from kbroker.wire.messages.fetch import FetchResponse, PartitionData

MOST_ASKED: Final = 1000
"""Places that a scrape asks about; the next one goes on with others."""
FRESH_SECONDS: Final = 300.0
"""Age up to which an answer is not asked for again."""
EMPTY_SECONDS: Final = 30.0
"""Age up to which a place is not asked about again where there was no batch."""
PORTION: Final = 50
"""Places of a request."""
ROOM: Final = 1 << 20
"""Bytes of an answer. The first batch comes whole, however large, and may leave no room for others."""


class Step(NamedTuple):
    """A way to ask: bytes that each place may bring, and the places of a request."""

    place_bytes: int
    portion: int


STEPS: Final = (Step(1 << 10, PORTION), Step(4 << 10, PORTION), Step(16 << 10, PORTION), Step(1, 1))
"""Small batches first; then up to a Java producer's ``batch.size``; then any, alone: the first one comes whole."""

_EARLIEST: Final = -2
_CONSUMER: Final = -1
_TIME_TO_ASK: Final = SCRAPE_SECONDS / 4
"""Seconds of a scrape that must be left for one more request: who gives up a sent one has to connect anew."""


class Place(NamedTuple):
    """The place of a record: the first one at ``offset`` or after it."""

    topic: str
    number: int
    """Of the partition in its topic."""
    offset: int


class _Time(NamedTuple):
    timestamp: int
    """`NO_TIMESTAMP` where there is no batch, or it has none."""
    fresh_until: float


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
        return found is None or self._env.now() > found.fresh_until

    async def _ask(self, peer: Peer, places: Sequence[Place]) -> None:
        """Ask a leader for the batches at places, and where records are deleted for the first ones that are left."""
        try:
            deleted = await self._ask_at(peer, places)
            if not deleted:
                return
            _go_on()
            starts = await _starts_of(peer, deleted)
            first_left: dict[Place, Place] = {}
            for place in deleted:
                start = starts.get((place.topic, place.number), -1)
                if start < place.offset:
                    self._remember_nothing(place)
                else:
                    first_left[place] = place._replace(offset=start)
            for start_place in await self._ask_at(peer, list(filter(self._is_due, dict.fromkeys(first_left.values())))):
                self._remember_nothing(start_place)  # retention was quicker
            for place, start_place in first_left.items():
                if start_place in self._known:
                    self._known[place] = self._known[start_place]
        except _Enough:
            pass

    async def _ask_at(self, peer: Peer, places: Sequence[Place]) -> list[Place]:
        """Remember the timestamps at places. Those whose records are deleted are given back."""
        deleted: list[Place] = []
        for step in STEPS:
            told = await self._fetch_all(peer, places, step)
            again = await self._fetch_all(peer, told.crowded, step)
            deleted += told.deleted + again.deleted
            places = told.larger + again.larger + again.crowded
        for place in places:
            self._remember_nothing(place)  # asked alone, and there was no batch: compacted away
        return deleted

    async def _fetch_all(self, peer: Peer, places: Sequence[Place], step: Step) -> _Told:
        told = _Told([], [], [])
        for portion in _portions(places, step.portion):
            await self._fetch(peer, portion, step.place_bytes, told)
        return told

    async def _fetch(self, peer: Peer, places: Sequence[Place], most: int, told: _Told) -> None:
        """Remember the timestamps at places of different partitions; the others are added to ``told``."""
        from kbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

        topics: dict[str, FetchTopic] = {}
        asked: dict[tuple[object, int], Place] = {}
        for place in places:
            topic_id = self._leaders.topic_id(place.topic)
            if topic_id is None:
                continue  # deleted meanwhile
            topic = topics.setdefault(place.topic, FetchTopic(topic=place.topic, topic_id=topic_id))
            topic.partitions.append(
                FetchPartition(partition=place.number, fetch_offset=place.offset, partition_max_bytes=most)
            )
            asked[place.topic, place.number] = asked[topic_id, place.number] = place
        if not topics:
            return
        _go_on()
        request = FetchRequest(replica_id=_CONSUMER, max_bytes=ROOM, topics=list(topics.values()))
        response = await peer.ask(request)
        room = ROOM
        for place, part in _parts(response, asked):
            records = part.records
            if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                told.deleted.append(place)
            elif part.error_code:
                continue
            elif isinstance(records, memoryview) and records:
                room -= len(records)
                self._remember(place, records)
            elif place.offset >= part.high_watermark:
                self._remember_nothing(place)
            else:
                (told.crowded if room < most else told.larger).append(place)
        _heed(response.throttle_time_ms)

    def _remember(self, place: Place, records: memoryview) -> None:
        from kbroker.wire.batch_header import parse_header
        from kbroker.wire.errors import WireError

        try:
            timestamp = batch_time(parse_header(records))
        except WireError:
            timestamp = NO_TIMESTAMP
        self._known[place] = _Time(timestamp, self._env.now() + FRESH_SECONDS)

    def _remember_nothing(self, place: Place) -> None:
        self._known[place] = _Time(NO_TIMESTAMP, self._env.now() + EMPTY_SECONDS)


class _Told(NamedTuple):
    """Places that answers leave open."""

    larger: list[Place]
    """Their batches are larger than what they may bring."""
    crowded: list[Place]
    """Earlier batches have used up the answer's room."""
    deleted: list[Place]
    """Their records are deleted, or never were."""


class _Enough(Exception):
    """The leader is to be asked no more for this scrape."""


def _go_on() -> None:
    """`_Enough` if too little of the scrape's time is left for one more answer."""
    if trio.current_effective_deadline() - trio.current_time() < _TIME_TO_ASK:
        raise _Enough


def _heed(throttle_ms: int) -> None:
    """`_Enough` if a leader throttles its clients: it would let the next request wait."""
    if throttle_ms > 0:
        raise _Enough


def _portions(places: Iterable[Place], size: int) -> Iterator[list[Place]]:
    """Places of one request each: so many at most, and one of each partition."""
    seen: dict[tuple[str, int], int] = {}
    layers: list[list[Place]] = []
    for place in places:
        key = place.topic, place.number
        number = seen[key] = seen.get(key, -1) + 1
        if number == len(layers):
            layers.append([])
        layers[number].append(place)
    for layer in layers:
        for begin in range(0, len(layer), size):
            yield layer[begin : begin + size]


def _parts(response: FetchResponse, asked: Mapping[tuple[object, int], Place]) -> Iterator[tuple[Place, PartitionData]]:
    """The parts of an answer, in its order, with the places that were asked about."""
    for topic in response.responses:
        for part in topic.partitions:
            place = asked.get((topic.topic or topic.topic_id, part.partition_index))
            if place is not None:
                yield place, part


async def _starts_of(peer: Peer, places: Iterable[Place]) -> dict[tuple[str, int], int]:
    """The starts of the logs that places are in, as far as their leader tells them."""
    from kbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

    topics: dict[str, ListOffsetsTopic] = {}
    for name, number in dict.fromkeys((place.topic, place.number) for place in places):
        topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
        topic.partitions.append(ListOffsetsPartition(partition_index=number, timestamp=_EARLIEST))
    response = await peer.ask(ListOffsetsRequest(replica_id=_CONSUMER, topics=list(topics.values())))
    _heed(response.throttle_time_ms)
    return {
        (told.name, answer.partition_index): answer.offset
        for told in response.topics
        for answer in told.partitions
        if not answer.error_code
    }
