"""The processes in which clients are used in transactions."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import confluent_kafka

from compat_tests.line_process import LineProcess, command_of
from tests.patience import LONG

_HERE = Path(__file__).parent
_ELSEWHERE = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")
TRANSACTION_MS = 300_000
"""Longer than a test with a transaction takes that is not to be out of time."""


class ParticipantError(Exception):
    """A command was refused; the text is the client's."""


def participant_of(client: str, bootstrap: str) -> Participant:
    """Start the process of a client."""
    command, environment = command_of(
        client, _HERE / "Participant.java", _HERE / "participant.js", "compat_tests.transactions.participant"
    )
    return Participant(client, [*command, bootstrap], environment)


class Participant(LineProcess):
    """A process of a client, which carries out one command at a time."""

    def __init__(self, client: str, command: list[str], environment: dict[str, str]) -> None:
        super().__init__(client, command, environment)
        self._numbers = itertools.count(1)

    def call(self, op: str, *, within: float = 2 * LONG, **arguments: Any) -> Any:
        """Run one command and wait for its result, so many seconds at most. Raises ParticipantError."""
        number = next(self._numbers)
        assert self._process.stdout is not None
        hangs = threading.Event()

        def give_up() -> None:
            hangs.set()
            self._process.kill()

        watchdog = threading.Timer(within, give_up)
        watchdog.start()
        try:
            with contextlib.suppress(BrokenPipeError):
                self._send({"id": number, "op": op, **arguments})
            reply = None
            for line in self._process.stdout:
                if line.startswith("{") and (reply := json.loads(line)).get("id") == number:
                    break
                self._said.append(line)
            else:
                what = f"it hung for {within:.0f} s" if hangs.is_set() else "the process ended"
                raise ParticipantError(f"{self.client}, {op}: {what}; {''.join(self._said[-30:])}")
        finally:
            watchdog.cancel()
        assert reply is not None
        if "error" in reply:
            raise ParticipantError(f"{self.client}, {op}: {reply['error']}")
        return reply.get("result")

    def open(
        self, transactional_id: str | None = None, timeout_ms: int = TRANSACTION_MS, *, within: float = 2 * LONG
    ) -> Producer:
        """An initialized producer, which is there after so many seconds at most."""
        name = transactional_id or f"id-{uuid.uuid4().hex[:10]}"
        producer = Producer(self, uuid.uuid4().hex[:8])
        producer.call("open", transactional_id=name, timeout_ms=timeout_ms, within=within)
        return producer

    def read(self, topic: str, partition: int, isolation: str) -> list[str]:
        """All values from the start of a partition to the end that this isolation level sees."""
        values: list[str] = self.call("read", topic=topic, partition=partition, isolation=isolation)
        return values

    def await_committed(self, topic: str, partition: int, wanted: list[str]) -> None:
        """Wait until what is committed in a partition is as wanted; AssertionError when it can no more become so.

        A commit is answered before its markers are in each partition.
        """
        deadline = time.monotonic() + LONG
        while (found := self.read(topic, partition, "read_committed")) != wanted:
            assert found == wanted[: len(found)], "a message is missing, twice there, or out of order"
            assert time.monotonic() < deadline, f"{len(found)} of {len(wanted)} after {LONG} s"

    def kill(self) -> None:
        """SIGKILL, as a crash is."""
        self._process.kill()


class Producer:
    """A transactional producer in a participant."""

    def __init__(self, participant: Participant, name: str) -> None:
        self._participant = participant
        self._name = name

    def call(self, op: str, **arguments: Any) -> Any:
        """Run a command of this producer."""
        return self._participant.call(op, producer=self._name, **arguments)

    def begin(self) -> None:
        self.call("begin")

    def send(self, topic: str, partition: int, values: list[str]) -> None:
        """Send, and wait for the acknowledgements."""
        self.call("send", topic=topic, partition=partition, values=values)

    def close(self) -> None:
        self.call("close")


def committed_offsets(
    bootstrap: str, group: str, topic: str, partitions: Sequence[int] = (0, 1), timeout: float = LONG
) -> list[int]:
    """The group's offsets in these partitions, once they are stable; -1 where there is none.

    librdkafka does not ask again by itself where the broker that others call the coordinator is not yet, or no more.
    """
    asked = [confluent_kafka.TopicPartition(topic, partition) for partition in partitions]
    deadline = time.monotonic() + timeout
    while True:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
        try:
            offsets = [each.offset for each in consumer.committed(asked, timeout)]
        except confluent_kafka.KafkaException as error:
            if error.args[0].name() not in _ELSEWHERE or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return [-1 if offset < 0 else offset for offset in offsets]
        finally:
            consumer.close()
