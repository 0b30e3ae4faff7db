"""The load while nodes are killed: writers, readers, a group; all of them stock clients (librdkafka)."""

from __future__ import annotations

import itertools
import logging
import re
import threading
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compat_tests.cluster.history import Commit, Copy, History, Seen, parse, value_of
from compat_tests.coordinators import COORDINATOR_ELSEWHERE
from compat_tests.transactions.participants import committed_offsets
from kbroker.log.read_only import find_partitions
from kbroker.wire.record_batch import iter_records
from tests.patience import LONG, SHORT, eventually

QUICK: dict[str, Any] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 5_000,
    "log_level": 0,
}
"""Clients whose own pauses do not hide the brokers'."""


def create_topic(bootstrap: str, name: str, partitions: int, replicas: int = 3, **config: str) -> None:
    """Create a topic and wait until it is there."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    client.create_topics([NewTopic(name, partitions, replicas, config=settings)])[name].result(LONG)

    def has_leaders() -> bool:
        found = client.list_topics(name, timeout=SHORT).topics[name].partitions
        return len(found) == partitions and all(each.leader >= 0 for each in found.values())

    eventually(has_leaders, f"{name} has leaders")


_OWN_EPOCH = re.compile(r"bumped epoch to PID\{Id:(\d+),Epoch:(\d+)\}")


class _Keeper(logging.Handler):
    """Keeps what librdkafka tells of itself, for when a test fails."""

    def __init__(self, said: deque[str]) -> None:
        super().__init__()
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        self._said.append(f"{record.created:.3f} {record.getMessage()}")


class _EpochsKeeper(_Keeper):
    def __init__(self, said: deque[str], own_epochs: set[tuple[int, int]]) -> None:
        super().__init__(said)
        self._own_epochs = own_epochs

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        found = _OWN_EPOCH.search(record.getMessage())
        if found is not None:
            self._own_epochs.add((int(found[1]), int(found[2])))


def _logger(handler: logging.Handler) -> logging.Logger:
    logger = logging.Logger("librdkafka")
    logger.addHandler(handler)
    return logger


def idempotent_producer(
    settings: Mapping[str, Any], said: deque[str], own_epochs: set[tuple[int, int]]
) -> confluent_kafka.Producer:
    """An idempotent producer that puts its log into ``said``, and by producer id the epochs that it gives itself.

    librdkafka 2.16 does so when leaders change, and not because of a broker's error: it counts a batch that the
    old leader refused as no longer under way before it has put its messages back, and its thread for the new leader
    may in this moment send the next batch, which is out of sequence there. The new epoch is for all partitions.
    """
    own: dict[str, Any] = {"enable.idempotence": True, "acks": "all", "debug": "eos", "log_level": 7}
    return confluent_kafka.Producer({**settings, **own}, logger=_logger(_EpochsKeeper(said, own_epochs)))


class Writer:
    """An idempotent producer with ``acks=all`` and five requests in flight that writes until it is told to stop."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, history: History, *, name: str = "w", per_second: int = 2000
    ) -> None:
        self._topic, self._partitions, self._history, self._name = topic, partitions, history, name
        self._per_second = per_second
        self.said: deque[str] = deque(maxlen=400)
        """librdkafka's log of its producer id, epoch and gaps: it takes a new epoch after some errors, and the broker
        then cannot recognise its repeated batches."""
        self.own_epochs: set[tuple[int, int]] = set()
        """By producer id: the epochs that it gave itself."""
        self._producer = idempotent_producer(
            {
                "bootstrap.servers": bootstrap,
                "max.in.flight.requests.per.connection": 5,
                "linger.ms": 5,
                "batch.num.messages": 50,
                "message.timeout.ms": 300_000,
                "request.timeout.ms": 5_000,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                **QUICK,
            },
            self.said,
            self.own_epochs,
        )
        self._ended = threading.Event()
        self.failures: list[str] = []
        """Errors that have ended the writing."""
        self.acknowledged_at: list[tuple[float, int]] = []
        """When acknowledgements came (``time.monotonic``), and for which partition."""
        self._last_known: dict[int, int] = defaultdict(lambda: -1)
        """Partition -> number of the last value that was acknowledged."""
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        try:
            self._send_at_its_pace()
        except BaseException as error:
            self.failures.append(repr(error))
            raise

    def _send_at_its_pace(self) -> None:
        sent, began = 0, time.monotonic()
        while not self._ended.is_set():
            due = int((time.monotonic() - began) * self._per_second)
            if sent >= due or len(self._producer) > 10_000:
                began += 0 if sent >= due else 0.02  # who waits for acknowledgements need not make up for it
                self._producer.poll(0.005)
                continue
            self._send(sent % self._partitions)
            sent += 1
            if not sent % 50:
                self._producer.poll(0)

    def _send(self, partition: int) -> None:
        key = self._name, partition
        value = value_of(self._name, partition, self._history.sent[key])
        self._history.sent[key] += 1
        self._producer.produce(self._topic, value.encode(), partition=partition, on_delivery=self._on_delivery)

    def _on_delivery(self, error: Any, message: Any) -> None:
        value = message.value().decode()
        if error is not None:
            self._history.failed.add(value)
            return
        self.acknowledged_at.append((time.monotonic(), message.partition()))
        self._last_known[message.partition()] = parse(value)[2]
        self._history.acknowledge(message.partition(), message.offset(), value)

    @property
    def count(self) -> int:
        """Acknowledged so far."""
        return len(self.acknowledged_at)

    def await_more(self, count: int, within: float = LONG) -> None:
        """Wait until so many more have been acknowledged."""
        goal, deadline = self.count + count, time.monotonic() + within
        while self.count < goal:
            assert not self.failures, self.failures
            assert time.monotonic() < deadline, f"{goal - self.count} acknowledgements did not come within {within} s"
            time.sleep(0.01)

    def await_every_partition(self, within: float = LONG) -> None:
        """Wait until something that was sent from now on has been acknowledged in each partition."""
        sent = [self._history.sent[self._name, partition] for partition in range(self._partitions)]
        deadline = time.monotonic() + within
        while not all(self._last_known[partition] >= number for partition, number in enumerate(sent)):
            assert not self.failures, self.failures
            assert time.monotonic() < deadline, (
                f"within {within} s only up to {dict(self._last_known)} was written, not behind {sent}"
            )
            time.sleep(0.01)

    def longest_pause(self, partition: int | None = None) -> float:
        """The longest time without an acknowledgement (of a partition), in seconds."""
        times = [at for at, of in self.acknowledged_at if partition in (None, of)]
        return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)

    def stop(self, within: float = LONG) -> None:
        """Send no more, and wait for what is under way."""
        self._ended.set()
        self._thread.join()
        assert not self.failures, self.failures
        left = self._producer.flush(within)
        assert left == 0, f"{left} records were neither acknowledged nor failed within {within} s"


class Group:
    """Members of one consumer group that commit what they have seen."""

    def __init__(self, bootstrap: str, topic: str, members: int = 2, *, protocol: str = "classic") -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._protocol = protocol
        self.name = f"group-of-{topic}"
        self.seen: dict[int, list[Seen]] = defaultdict(list)
        self.commits: dict[int, list[Commit]] = defaultdict(list)
        """Partition -> committed offsets that the coordinator has accepted."""
        self.failures: list[str] = []
        """Errors that have ended a member."""
        self.said: deque[str] = deque(maxlen=2000)
        """The log of the members' librdkafka about the group."""
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._consume, daemon=True) for _ in range(members)]
        for thread in self._threads:
            thread.start()

    def _consume(self) -> None:
        try:
            while not self._ended.is_set():
                consumer = confluent_kafka.Consumer(self._settings(), logger=_logger(_Keeper(self.said)))
                consumer.subscribe([self._topic])
                self._read_and_commit(consumer)
                consumer.close()
        except BaseException as error:
            self.failures.append(repr(error))
            raise

    def _settings(self) -> dict[str, Any]:
        settings = {
            "bootstrap.servers": self._bootstrap,
            "group.id": self.name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.wait.max.ms": 100,
            **QUICK,
            "debug": "cgrp",
            "log_level": 7,
        }
        if self._protocol == "consumer":
            return settings | {"group.protocol": "consumer"}
        return settings | {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}

    def _read_and_commit(self, consumer: confluent_kafka.Consumer) -> None:
        """Until the end, or until this consumer has to be replaced, as `COORDINATOR_ELSEWHERE` says."""
        committed = time.monotonic()
        while not self._ended.is_set():
            for message in consumer.consume(500, 0.1):
                error: Any = message.error()
                if error is None:
                    self._take(message)
                elif error.code() in COORDINATOR_ELSEWHERE:
                    return
            if time.monotonic() - committed > 0.3:
                begun = committed = time.monotonic()
                try:
                    done = consumer.commit(asynchronous=False)
                except confluent_kafka.KafkaException:
                    continue  # nothing to commit, or the group has gone on without this member
                answered = time.monotonic()
                with self._lock:
                    for each in done or ():
                        if each.error is None and each.offset >= 0:
                            self.commits[each.partition].append(Commit(each.offset, begun, answered))

    def _take(self, message: Any) -> None:
        with self._lock:
            self.seen[message.partition()].append(_seen(message))

    def await_up_to(self, ends: dict[int, int], within: float = LONG) -> None:
        """Wait until the last record of each partition (below these offsets) has been seen."""
        deadline = time.monotonic() + within
        while True:
            with self._lock:
                behind = {p: end for p, end in ends.items() if end and self._highest(p) < end - 1}
            if not behind:
                return
            if self.failures or time.monotonic() >= deadline:
                print(*self.said, sep="\n")
                raise AssertionError(f"the group has not read up to {behind} within {within} s: {self.failures}")
            time.sleep(0.05)

    def _highest(self, partition: int) -> int:
        return max((seen.offset for seen in self.seen.get(partition, ())), default=-1)

    def stop(self, within: float = LONG) -> None:
        """Have all members leave; AssertionError if one has not after so many seconds, and may still commit."""
        self._ended.set()
        deadline = time.monotonic() + within
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        assert not any(thread.is_alive() for thread in self._threads), f"members are there after {within} s"

    def committed(self) -> dict[int, int]:
        """Partition -> the offset that the coordinator has, of those that members committed for."""
        asked = sorted(self.commits)
        found = committed_offsets(self._bootstrap, self.name, self._topic, asked, timeout=LONG) if asked else []
        return dict(zip(asked, found, strict=True))


def read_all(
    bootstrap: str,
    topic: str,
    partitions: int,
    *,
    committed: bool = False,
    ends: Mapping[int, int] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> dict[int, list[Seen]]:
    """Every partition from its start to its end, which is at ``ends`` or behind it.

    A leader that was just elected tells of an earlier end than there is, until its followers have fetched from it.
    """
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            **QUICK,
            **(settings or {}),
        }
    )
    found: dict[int, list[Seen]] = {}
    try:
        for partition in range(partitions):
            records = found[partition] = []
            consumer.assign([confluent_kafka.TopicPartition(topic, partition, confluent_kafka.OFFSET_BEGINNING)])
            deadline = time.monotonic() + LONG
            end, at_end = (ends or {}).get(partition, 0), False
            while not at_end:
                assert time.monotonic() < deadline, f"the end of {topic}-{partition} was not reached"
                for message in consumer.consume(1000, 1.0):
                    error: Any = message.error()
                    if error is None:
                        records.append(_seen(message))
                    elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                        at_end = (message.offset() or 0) >= end
    finally:
        consumer.close()
    return found


def _seen(message: Any) -> Seen:
    return Seen(message.offset(), message.value().decode())


def read_directory(directory: Path, topic: str) -> dict[int, list[Seen]]:
    """Read a replica's records of a topic from its files; the node must not run."""
    return {
        each.topic_partition.partition: [
            Seen(record.offset, bytes(record.value or b"").decode()) for record in each.records(read_committed=False)
        ]
        for each in find_partitions(directory, topic)
    }


def copies_of(directory: Path, topic: str, values: set[str]) -> dict[int, list[Copy]]:
    """Where a replica holds any of these values, and under which epoch of its producer."""
    return {
        partition.topic_partition.partition: [
            Copy(record.offset, value, batch.header.producer_id, batch.header.producer_epoch)
            for batch in partition.batches()
            if not batch.header.is_control
            for record in iter_records(batch.data)
            if (value := bytes(record.value or b"").decode()) in values
        ]
        for partition in find_partitions(directory, topic)
    }


def batches_of(directory: Path, topic: str, values: set[str]) -> list[str]:
    """Where the files of a replica hold any of these values, and who wrote them when."""
    return [
        f"{partition.topic_partition}: {batch.header}"
        for partition in find_partitions(directory, topic)
        for batch in partition.batches()
        if {bytes(record.value or b"").decode() for record in iter_records(batch.data)} & values
    ]
