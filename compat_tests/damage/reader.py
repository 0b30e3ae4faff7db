"""Reads everything with stock clients: a process of its own, since a client may end by an assertion.

It takes a JSON object a line, the arguments of `read_all`, and answers each with one.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import kafka
import kafka.errors
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from compat_tests.damage.content import QUICK, TRANSACTIONAL_ID
from compat_tests.damage.oracle import AFTERWARDS

PATIENCE = 2
"""Records that do not come within the limit are waited for so many times as long, to know whether any come."""

Partitions = dict[str, dict[str, Any]]


class Reading:
    """A reading of everything; `limit` is the time in which it must be done."""

    def __init__(self, bootstrap: str, limit: float) -> None:
        self.bootstrap = bootstrap
        self._limit = limit
        self._begin = time.monotonic()
        self.errors: list[str] = []
        self.late: list[str] = []
        self.out_of_sync: list[str] = []

    @property
    def left(self) -> float:
        """Returns the seconds that are left for what is late."""
        return max(0.0, self._begin + PATIENCE * self._limit - time.monotonic())

    @property
    def is_late(self) -> bool:
        """Returns whether the limit is over."""
        return time.monotonic() > self._begin + self._limit

    def done(self, what: str, is_whole: bool = True) -> None:
        """Note that `what` is done, if that took too long, and begin with the next part."""
        seconds = time.monotonic() - self._begin
        if is_whole and self._limit < seconds < PATIENCE * self._limit:
            self.late.append(f"{what} after {seconds:.1f} s")
        self._begin = time.monotonic()

    def confluent(self, wanted: Mapping[str, int]) -> Partitions:
        """Read partitions from their beginning to the offsets `wanted` and the end, with librdkafka."""
        found: Partitions = {name: {"records": [], "position": 0, "end": -1, "told": []} for name in wanted}
        settings = {"group.id": "reader", "enable.partition.eof": True, "auto.offset.reset": "earliest"}
        reads = {"fetch.wait.max.ms": 10, "fetch.error.backoff.ms": 20, "check.crcs": True}
        committed = {"isolation.level": "read_committed"}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, **QUICK, **settings, **reads, **committed})
        consumer.assign([TopicPartition(*_split(name), OFFSET_BEGINNING) for name in wanted])
        waiting, away_from_end = set(wanted), set(wanted)
        while waiting and self.left and (away_from_end or not self.is_late):
            for message in consumer.consume(1000, min(0.1, self.left)):
                state, error, offset = (
                    found[name := f"{message.topic()}-{message.partition()}"],
                    message.error(),
                    message.offset() or 0,
                )
                if error is None:
                    state["records"].append((offset, (message.value() or b"").decode(errors="replace")))
                elif error.code() != KafkaError._PARTITION_EOF:
                    state["told"].append(error.name())
                    continue
                state["position"] = offset + (error is None)
                away_from_end.discard(name) if error else away_from_end.add(name)
                if error and offset > wanted[name]:  # a high watermark that grows is no end
                    waiting.discard(name)
        for name in waiting:
            try:
                marks = consumer.get_watermark_offsets(TopicPartition(*_split(name)), 2, cached=False)
                found[name]["end"] = marks[1]
            except KafkaException as error:
                found[name]["told"].append(error.args[0].name())
        consumer.close()
        return found

    def python(self, wanted: Mapping[str, int]) -> Partitions:
        """Read the same with kafka-python."""
        found: Partitions = {name: {"records": [], "position": 0, "end": -1, "told": []} for name in wanted}
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap.split(","),
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=10,
            reconnect_backoff_ms=20,
            retry_backoff_ms=20,
            enable_auto_commit=False,
        )
        partitions = {name: kafka.TopicPartition(*_split(name)) for name in wanted}
        consumer.assign(list(partitions.values()))
        consumer.seek_to_beginning()
        waiting = set(wanted)
        while waiting and self.left:
            try:
                for messages in consumer.poll(100).values():
                    for each in messages:
                        value = each.value.decode(errors="replace")
                        found[f"{each.topic}-{each.partition}"]["records"].append((each.offset, value))
                for name in list(waiting):
                    found[name]["position"] = position = consumer.position(partitions[name], timeout_ms=100) or 0
                    if position > wanted[name]:
                        waiting.discard(name)
            except kafka.errors.KafkaError as error:
                found[next(iter(waiting))]["told"].append(type(error).__name__)
        for name in waiting:
            try:
                found[name]["end"] = consumer.end_offsets([partitions[name]], timeout_ms=2000)[partitions[name]]
            except kafka.errors.KafkaError as error:
                found[name]["told"].append(type(error).__name__)
        consumer.close()
        return found

    def offsets(self, groups: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """Ask for the committed offsets of groups, as their members do.

        An administration client ends by SIGSEGV while there is no coordinator (confluentinc/librdkafka#5040).
        """
        found: dict[str, Any] = {}
        for group, names in groups.items():
            consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, **QUICK})
            while group not in found:
                try:
                    answer = consumer.committed([TopicPartition(*_split(name)) for name in names], max(0.5, self.left))
                    told = {f"{each.topic}-{each.partition}": each for each in answer}
                    found[group] = {
                        name: each.error.name() if each.error else each.offset for name, each in told.items()
                    }
                except KafkaException as error:
                    if not self.left:
                        found[group] = dict.fromkeys(names, error.args[0].name())
            consumer.close()
        return found

    def topics(self, in_sync: bool) -> dict[str, int]:
        """List the topics, and wait until all replicas are in sync if that is asked."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUICK})
        listed: dict[str, int] = {}
        out = ["no answer"]
        while True:
            try:
                topics = admin.list_topics(timeout=max(1, self.left)).topics
                listed = {name: len(topic.partitions) for name, topic in topics.items() if not topic.error}
                out = [
                    f"{name}-{number} (leader {each.leader}, {sorted(each.isrs)} in sync)"
                    for name, topic in topics.items()
                    for number, each in topic.partitions.items()
                    if each.leader < 0 or set(each.isrs) != set(each.replicas)
                ]
            except KafkaException:
                pass
            if not out or not in_sync or not self.left:
                break
            time.sleep(0.05)
        if in_sync and out:
            self.out_of_sync.append(f"not in sync: {', '.join(out)}")
        return listed

    def write(self, names: Sequence[str]) -> None:
        """Write a record to each partition, in a transaction of the id that was there before."""
        settings = {"transactional.id": TRANSACTIONAL_ID, "linger.ms": 0}
        producer = Producer({"bootstrap.servers": self.bootstrap, **QUICK, **settings})
        try:
            producer.init_transactions(max(1, self.left))
            producer.begin_transaction()
            for name in names:
                topic, partition = _split(name)
                producer.produce(topic, f"{AFTERWARDS} {time.time_ns()}", partition=partition)
            producer.commit_transaction(max(1, self.left))
        except KafkaException as error:
            self.errors.append(f"cannot write: {error.args[0].str()}")
            producer.purge()


def _split(name: str) -> tuple[str, int]:
    topic, _, partition = name.rpartition("-")
    return topic, int(partition)


def read_all(
    bootstrap: str,
    wanted: Mapping[str, int],
    groups: Mapping[str, Sequence[str]],
    client: str,
    limit: float,
    in_sync: bool,
    write: bool,
) -> dict[str, Any]:
    """Read records up to the offsets `wanted`, committed offsets and topics, and `write`; tell what was seen."""
    reading = Reading(bootstrap, limit)
    partitions = reading.python(wanted) if client == "kafka-python" else reading.confluent(wanted)
    reading.done("all was read", all(state["position"] > wanted[name] for name, state in partitions.items()))
    offsets = reading.offsets(groups)
    reading.done("offsets of groups were told")
    topics = reading.topics(in_sync)
    reading.done("all replicas were in sync")
    if write:
        reading.write(list(wanted))
        reading.done("a transaction was written")
    return {
        "partitions": partitions,
        "offsets": offsets,
        "topics": topics,
        "errors": reading.errors,
        "late": reading.late,
        "not in sync": reading.out_of_sync,
    }


def main() -> None:
    """Answer each line of standard input."""
    for line in sys.stdin:
        arguments = json.loads(line)
        # kafka-python hangs after a damaged batch (3.0.12): its stack is told then, and the process ends.
        faulthandler.dump_traceback_later(6 * PATIENCE * arguments["limit"], exit=True)
        print(json.dumps(read_all(**arguments)), flush=True)
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
