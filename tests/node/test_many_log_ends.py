"""A power cut of everything leaves a broker with more partitions in question than a request may name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import trio.testing

from kbroker.node.controller.broker_lifecycle import BrokerLifecycle
from kbroker.raft_metadata.image import MetadataDelta, MetadataImage, PartitionImage, TopicImage
from kbroker.raft_metadata.image.topics import TopicsImage
from kbroker.types import OffsetAndEpoch, Uuid
from kbroker.value_types import replace
from kbroker.wire.compiler import decode, encode
from kbroker.wire.messages.nodes import BrokerHeartbeatRequest
from kbroker.wire.records.metadata import PartitionChangeRecord, RemoveTopicRecord

MANY = 100_001
INTERVAL = 2.0


class World:
    """Broker 1, and a controller that reads its heartbeats as they come over a connection."""

    def __init__(self, partitions: int) -> None:
        partition = PartitionImage(replicas=(1, 2), isr=(), leader=-1)
        self.topic = TopicImage("t", Uuid(bytes([7] * 16)), dict.fromkeys(range(partitions), partition))
        topics = TopicsImage({"t": self.topic}, {self.topic.id: self.topic})
        self.image = MetadataImage(offset=9, topics=topics, controller_id=3)
        self.heard: list[tuple[float, list[int]]] = []
        """When each heartbeat came, and the partitions that it tells of."""
        self.loses_the_next = self.is_late = False
        config: Any = SimpleNamespace(
            broker_heartbeat_interval_ms=int(INTERVAL * 1000),
            broker_session_timeout_ms=9_000,
            log_dir_failure_timeout_ms=30_000,
        )
        metadata: Any = SimpleNamespace(
            client=SimpleNamespace(ask=self._ask),
            node_id=1,
            image=self.image,
            is_alone=False,
            subscribe=self._subscribe,
        )
        epochs = SimpleNamespace(entries=[(0, 0)])
        log = SimpleNamespace(damage=[], log_start_offset=0, log_end_offset=7, leader_epochs=epochs)
        log_manager: Any = SimpleNamespace(
            on_offline=[], check_any_online=lambda: None, log_dirs=[], log_of=lambda _: log
        )
        self.metadata = metadata
        self.broker = BrokerLifecycle(config, metadata, log_manager)

    def _subscribe(self, subscriber: Any) -> None:
        self.subscriber = subscriber
        subscriber(MetadataDelta.whole(self.image), self.image)

    async def _ask(self, request: BrokerHeartbeatRequest, *_: object, **__: object) -> Any:
        await trio.lowlevel.checkpoint()
        if self.loses_the_next:
            self.loses_the_next = False
            return None
        read, _end = decode(BrokerHeartbeatRequest, 2, encode(request, 2))
        self.heard.append((trio.current_time(), [each.partition for each in read.log_ends or ()]))
        if self.is_late:
            return None
        return SimpleNamespace(error_code=0, is_fenced=False, should_shut_down=False)

    def changes(self, *records: object, **fields: Any) -> None:
        """The next image."""
        delta = MetadataDelta(self.metadata.image)
        for record in records:
            delta.replay(record)
        self.metadata.image = replace(delta.apply(OffsetAndEpoch(self.metadata.image.offset + 1, 0)), **fields)
        self.subscriber(delta, self.metadata.image)

    def take_heard(self) -> list[int]:
        """Returns the partitions told of since the last call, as often as they were."""
        heard, self.heard = self.heard, []
        return [each for _, partitions in heard for each in partitions]


async def test_all_of_them_are_told_at_once_in_several_heartbeats(autojump_clock: trio.testing.MockClock) -> None:
    """A request with more than 100,000 of them is refused, and the broker stays fenced."""
    world = World(MANY)
    async with trio.open_nursery() as nursery:
        await nursery.start(world.broker.run)
        await trio.sleep(INTERVAL / 2)
        assert len({at for at, _ in world.heard}) == 1
        assert set(world.take_heard()) == set(range(MANY))
        # Once that is done, some are told with each heartbeat, and none is left out for ever.
        await trio.sleep(INTERVAL * 12)
        assert len({at for at, _ in world.heard}) == len(world.heard)
        assert set(world.take_heard()) == set(range(MANY))
        # Another controller has been told nothing.
        world.changes(controller_id=2)
        await trio.sleep(INTERVAL / 2)
        assert set(world.take_heard()) == set(range(MANY))
        nursery.cancel_scope.cancel()


async def test_what_a_lost_heartbeat_told_is_told_with_the_next(autojump_clock: trio.testing.MockClock) -> None:
    world = World(20_000)
    async with trio.open_nursery() as nursery:
        world.loses_the_next = True
        await nursery.start(world.broker.run)
        await trio.sleep(INTERVAL / 2)
        assert sorted(world.take_heard()) == list(range(20_000))
        nursery.cancel_scope.cancel()


async def test_a_controller_whose_answers_come_too_late_hears_of_all(autojump_clock: trio.testing.MockClock) -> None:
    """It decides by what it has heard: of the rest nobody would have told it in time."""
    world = World(20_000)
    world.is_late = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.broker.run)
        await trio.sleep(INTERVAL / 10)
        assert set(world.take_heard()) == set(range(20_000))
        nursery.cancel_scope.cancel()


async def test_what_is_no_question_any_more_is_not_told(autojump_clock: trio.testing.MockClock) -> None:
    """And what comes up again is told again at once."""
    world = World(3)
    async with trio.open_nursery() as nursery:
        await nursery.start(world.broker.run)
        await trio.sleep(INTERVAL / 2)
        assert world.take_heard() == [0, 1, 2]
        led = PartitionChangeRecord(topic_id=world.topic.id, partition_id=1, isr=[2], leader=2)
        world.changes(led)
        await trio.sleep(INTERVAL)
        assert world.take_heard() == [0, 2]
        world.changes(replace(led, isr=[], leader=-1))
        await trio.sleep(INTERVAL / 4)
        assert sorted(world.take_heard()) == [0, 1, 2]
        world.changes(RemoveTopicRecord(topic_id=world.topic.id))
        await trio.sleep(2 * INTERVAL)
        assert world.heard and not world.take_heard()
        nursery.cancel_scope.cancel()
