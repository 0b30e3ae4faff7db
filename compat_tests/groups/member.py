"""A process that holds group members of one Python client: ``python -m compat_tests.groups.member CLIENT``.

It takes one JSON command a line and writes one JSON line for each reply and for each thing that happens to a member
(``assigned``, ``revoked``, ``lost``, ``records``, ``error``), with the time on the machine's monotonic clock. A member
polls by itself, as an application does. The hosts in JavaScript and Java (``compat_tests/kafkajs/group_member.js``,
``compat_tests/java/GroupMember.java``) speak the same lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

Position = tuple[str, int]
"""Topic and partition."""

POLL_SECONDS = 0.1
COMMIT_NEVER_MS = 3_600_000
"""An interval of automatic commits that leaves only those before a rebalance and on closing."""

_output = threading.Lock()


def say(**line: Any) -> None:
    """Write one line to the test."""
    with _output:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


class Member:
    """Base of the members: the partitions that a member owns, and its reports of them."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.name: str = options["member"]
        self.owned: set[Position] = set()

    def tell(self, event: str, **more: Any) -> None:
        say(event=event, member=self.name, at=time.monotonic(), **more)

    def assigned(self, partitions: Iterable[Position], generation: int | None = None) -> None:
        gained = sorted(set(partitions) - self.owned)
        self.owned |= set(gained)
        self.tell("assigned", partitions=gained, generation=generation)

    def revoked(self, partitions: Iterable[Position], event: str = "revoked") -> None:
        given = sorted(set(partitions) & self.owned)
        self.owned -= set(given)
        self.tell(event, partitions=given)

    def records(self, read: list[tuple[str, int, int]]) -> None:
        if read:
            astray = [each for each in read if each[:2] not in self.owned]
            self.tell("records", records=read, astray=astray)

    def error(self, problem: object) -> None:
        self.tell("error", text=f"{type(problem).__name__}: {problem}")


class ThreadMember(Member):
    """A member whose library is synchronous: a thread polls it, and runs the commands between two polls."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._live, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _live(self) -> None:
        while not self._closed:
            with contextlib.suppress(queue.Empty):
                while not self._closed:
                    self._commands.get_nowait()()
            if not self._closed:
                try:
                    self.poll()
                except Exception as problem:
                    self.error(problem)

    def submit(self, op: str, command: dict[str, Any], answer: Callable[[Callable[[], Any]], None]) -> None:
        def work() -> None:
            if op == "close":
                # What a member does while it leaves is no longer owning.
                self.revoked(set(self.owned))
            answer(lambda: getattr(self, op)(command))
            self._closed = self._closed or op == "close"

        self._commands.put(work)

    def poll(self) -> None:
        """Let the library work for up to a tenth of a second."""
        raise NotImplementedError


class KafkaPythonMember(ThreadMember):
    """kafka-python's consumer."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        import kafka
        from kafka.consumer.subscription_state import ConsumerRebalanceListener
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

        from compat_tests.kafka_python.rejoining import remind

        self._kafka, self._remind = kafka, remind
        member = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, revoked: Any) -> None:
                member.revoked((each.topic, each.partition) for each in revoked)

            def on_partitions_assigned(self, assigned: Any) -> None:
                generation = member._consumer._coordinator.group_metadata().generation_id
                member.assigned(((each.topic, each.partition) for each in assigned), generation)

            def on_partitions_lost(self, lost: Any) -> None:
                member.revoked(((each.topic, each.partition) for each in lost), "lost")

        assignors = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "cooperative": CooperativeStickyAssignor,
        }
        more: dict[str, Any] = {}
        if options.get("assignor"):
            more["partition_assignment_strategy"] = [assignors[options["assignor"]]]
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=options["bootstrap"],
            group_id=options["group"],
            auto_offset_reset="earliest",
            group_instance_id=options.get("instance"),
            client_id=options.get("client_id") or "kafka-python",
            enable_auto_commit=bool(options.get("auto_commit")),
            auto_commit_interval_ms=COMMIT_NEVER_MS,
            heartbeat_interval_ms=300,
            session_timeout_ms=options["session_timeout_ms"],
            # A fetch sits in front of the position's own requests on the same connection.
            metadata_max_age_ms=500,
            fetch_max_wait_ms=100,
            **more,
        )
        for topic in options["topics"]:
            # A leader that assigns before its first metadata has to rejoin, and kafka-python 3.0.12 loses the
            # assignment when a poll() ends within such a rejoin (its README here says why).
            self._consumer.partitions_for_topic(topic)
        self._consumer.subscribe(topics=options["topics"] or (), pattern=options.get("pattern"), listener=Listener())

    def poll(self) -> None:
        polled = self._consumer.poll(timeout_ms=1000)
        self._remind(self._consumer)
        self.records([(each.topic, each.partition, each.offset) for records in polled.values() for each in records])

    def commit(self, command: dict[str, Any]) -> None:
        self._consumer.commit()

    def commit_offset(self, command: dict[str, Any]) -> None:
        where = self._kafka.TopicPartition(command["topic"], command["partition"])
        self._consumer.commit({where: self._kafka.OffsetAndMetadata(command["offset"], "", -1)})

    def seek(self, command: dict[str, Any]) -> None:
        self._consumer.seek(self._kafka.TopicPartition(command["topic"], command["partition"]), command["offset"])

    def rewind(self, command: dict[str, Any]) -> None:
        self._consumer.seek_to_beginning()

    def close(self, command: dict[str, Any]) -> None:
        self._consumer.close()


class ConfluentMember(ThreadMember):
    """librdkafka's consumer, of either group protocol."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        import confluent_kafka

        self._library = confluent_kafka
        self._auto_commit = bool(options.get("auto_commit"))
        settings: dict[str, Any] = {
            "bootstrap.servers": options["bootstrap"],
            "group.id": options["group"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
            "log_level": 0,
            "fetch.wait.max.ms": 100,
            "error_cb": self.error,
            "client.id": options.get("client_id") or "confluent",
        }
        if options["protocol"] == "consumer":
            settings["group.protocol"] = "consumer"
        else:
            settings |= {"heartbeat.interval.ms": 300, "session.timeout.ms": options["session_timeout_ms"]}
            if options.get("assignor"):
                names = {"cooperative": "cooperative-sticky"}
                assignor = options["assignor"]
                settings["partition.assignment.strategy"] = names.get(assignor, assignor)
        if options.get("instance"):
            settings["group.instance.id"] = options["instance"]
        self._consumer = confluent_kafka.Consumer(settings)
        self._consumer.subscribe(
            [options["pattern"]] if options.get("pattern") else options["topics"],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def _on_assign(self, _: Any, partitions: list[Any]) -> None:
        self.assigned((each.topic, each.partition) for each in partitions)

    def _on_revoke(self, _: Any, partitions: list[Any]) -> None:
        if self._auto_commit and partitions:
            self._commit_position()
        self.revoked((each.topic, each.partition) for each in partitions)

    def _on_lost(self, _: Any, partitions: list[Any]) -> None:
        self.revoked(((each.topic, each.partition) for each in partitions), "lost")

    def _commit_position(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except self._library.KafkaException as refused:
            if refused.args[0].code() != self._library.KafkaError._NO_OFFSET:
                self.error(refused)

    def poll(self) -> None:
        message = self._consumer.poll(POLL_SECONDS)
        if message is None:
            return
        if message.error():
            self.error(message.error())
        else:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None and partition is not None and offset is not None
            self.records([(topic, partition, offset)])

    def commit(self, command: dict[str, Any]) -> None:
        self._consumer.commit(asynchronous=False)

    def commit_offset(self, command: dict[str, Any]) -> None:
        offsets = [self._library.TopicPartition(command["topic"], command["partition"], command["offset"])]
        self._consumer.commit(offsets=offsets, asynchronous=False)

    def seek(self, command: dict[str, Any]) -> None:
        self._consumer.seek(self._library.TopicPartition(command["topic"], command["partition"], command["offset"]))

    def rewind(self, command: dict[str, Any]) -> None:
        for topic, partition in sorted(self.owned):
            self._consumer.seek(self._library.TopicPartition(topic, partition, self._library.OFFSET_BEGINNING))

    def member_id(self, command: dict[str, Any]) -> str:
        return str(self._consumer.memberid())

    def close(self, command: dict[str, Any]) -> None:
        if self._auto_commit:
            self._commit_position()
        self._consumer.close()


class AiokafkaMember(Member):
    """aiokafka's consumer, on the event loop that all members of the process share."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self._options = options
        self._consumer: Any = None
        self._closed = False

    async def live(self) -> None:
        from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

        member = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_revoked(self, revoked: Any) -> None:
                # It has no call for lost ones; it has forgotten its generation where the coordinator had removed it.
                event = "lost" if member._consumer._coordinator.generation < 0 else "revoked"
                member.revoked(((each.topic, each.partition) for each in revoked), event)

            async def on_partitions_assigned(self, assigned: Any) -> None:
                partitions = [(each.topic, each.partition) for each in assigned]
                member.assigned(partitions, member._consumer._coordinator.generation)

        options, more = self._options, {}
        if options.get("assignor"):
            assignors = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
            more["partition_assignment_strategy"] = [assignors[options["assignor"]]]
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=options["bootstrap"],
            group_id=options["group"],
            auto_offset_reset="earliest",
            group_instance_id=options.get("instance"),
            client_id=options.get("client_id") or "aiokafka",
            enable_auto_commit=bool(options.get("auto_commit")),
            auto_commit_interval_ms=COMMIT_NEVER_MS,
            heartbeat_interval_ms=300,
            session_timeout_ms=options["session_timeout_ms"],
            metadata_max_age_ms=500,
            fetch_max_wait_ms=100,
            **more,
        )
        pattern = options.get("pattern")
        self._consumer.subscribe(
            topics=options["topics"] or (), pattern=pattern and re.compile(pattern).pattern, listener=Listener()
        )
        await self._consumer.start()
        while not self._closed:
            try:
                got = await self._consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))
            except Exception as problem:
                if not self._closed:
                    self.error(problem)
                    await asyncio.sleep(POLL_SECONDS)
                continue
            self.records([(each.topic, each.partition, each.offset) for records in got.values() for each in records])

    async def _run(self, op: str, command: dict[str, Any]) -> Any:
        return await getattr(self, op)(command)

    async def commit(self, command: dict[str, Any]) -> None:
        await self._consumer.commit()

    async def commit_offset(self, command: dict[str, Any]) -> None:
        from aiokafka import TopicPartition

        await self._consumer.commit({TopicPartition(command["topic"], command["partition"]): command["offset"]})

    async def seek(self, command: dict[str, Any]) -> None:
        from aiokafka import TopicPartition

        self._consumer.seek(TopicPartition(command["topic"], command["partition"]), command["offset"])

    async def rewind(self, command: dict[str, Any]) -> None:
        await self._consumer.seek_to_beginning()

    async def close(self, command: dict[str, Any]) -> None:
        self._closed = True
        # Its records come from a task of their own, which reads to the end of its poll.
        await asyncio.wait([asyncio.wrap_future(self._task)], timeout=300 * POLL_SECONDS)
        self.revoked(set(self.owned))
        await self._consumer.stop()

    def start(self) -> None:
        self._task = asyncio.run_coroutine_threadsafe(self.live(), _loop())
        self._task.add_done_callback(self._on_end)

    def _on_end(self, done: Any) -> None:
        if done.exception() is not None:
            self.error(done.exception())

    def submit(self, op: str, command: dict[str, Any], answer: Callable[[Callable[[], Any]], None]) -> None:
        running = asyncio.run_coroutine_threadsafe(self._run(op, command), _loop())
        running.add_done_callback(lambda done: answer(done.result))


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


MEMBERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "kafka-python": KafkaPythonMember,
    "confluent-kafka": ConfluentMember,
    "aiokafka": AiokafkaMember,
}


def main() -> None:
    """Serve commands until standard input ends."""
    make = MEMBERS[sys.argv[1]]
    members: dict[str, Any] = {}

    def answer(number: int, work: Callable[[], Any]) -> None:
        try:
            say(id=number, result=work())
        except Exception as problem:
            say(id=number, error=f"{type(problem).__name__}: {problem}")

    def join(command: dict[str, Any]) -> None:
        member = make(command)
        members[command["member"]] = member
        member.start()

    for line in sys.stdin:
        command = json.loads(line)
        if command["op"] == "join":
            answer(command["id"], functools.partial(join, command))
        else:
            member = members[command["member"]]
            member.submit(command["op"], command, functools.partial(answer, command["id"]))


if __name__ == "__main__":
    main()
