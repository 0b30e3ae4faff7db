"""The processes in which clients are used in transactions."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import confluent_kafka

_HERE = Path(__file__).parent
_ROOT = _HERE.parent.parent
PATIENCE_SECONDS = 120
CALL_SECONDS = 300
"""Limits that only a hang reaches."""


class ParticipantError(Exception):
    """A command was refused; the text is the client's."""


def _command(client: str, bootstrap: str) -> tuple[list[str], dict[str, str]]:
    if client == "java":
        from compat_tests.java.client import program

        return [*program(_HERE / "Participant.java"), bootstrap], {}
    if client == "kafkajs":
        from compat_tests.kafkajs.client import installed_modules

        environment = {"NODE_PATH": str(installed_modules()), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
        return ["node", str(_HERE / "participant.js"), bootstrap], environment
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    module = "compat_tests.transactions.participant"
    return [sys.executable, "-W", "ignore", "-m", module, client, bootstrap], {"PYTHONPATH": path}


def participant_of(client: str, bootstrap: str) -> Participant:
    """Start the process of a client."""
    return Participant(client, *_command(client, bootstrap))


class Participant:
    """One process of one client, which carries out one command at a time."""

    def __init__(self, client: str, command: list[str], environment: dict[str, str]) -> None:
        self.client = client
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._numbers = itertools.count(1)
        self._said: list[str] = []
        threading.Thread(target=self._read_errors, daemon=True).start()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line)
            del self._said[:-50]

    def call(self, op: str, **arguments: Any) -> Any:
        """Run one command and wait for its result, at most CALL_SECONDS. Raises ParticipantError."""
        number = next(self._numbers)
        assert self._process.stdin is not None and self._process.stdout is not None
        watchdog = threading.Timer(CALL_SECONDS, self._process.kill)
        watchdog.start()
        try:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps({"id": number, "op": op, **arguments}) + "\n")
                self._process.stdin.flush()
            reply = None
            for line in self._process.stdout:
                if line.startswith("{") and (reply := json.loads(line)).get("id") == number:
                    break
                self._said.append(line)
            else:
                raise ParticipantError(f"{self.client}, {op}: the process ended; {''.join(self._said[-30:])}")
        finally:
            watchdog.cancel()
        assert reply is not None
        if "error" in reply:
            raise ParticipantError(f"{self.client}, {op}: {reply['error']}")
        return reply.get("result")

    def open(self, transactional_id: str | None = None, timeout_ms: int = 30_000) -> Producer:
        """An initialized producer."""
        name = transactional_id or f"id-{uuid.uuid4().hex[:10]}"
        producer = Producer(self, uuid.uuid4().hex[:8])
        producer.call("open", transactional_id=name, timeout_ms=timeout_ms)
        return producer

    def read(self, topic: str, partition: int, isolation: str) -> list[str]:
        """All values from the start of a partition to the end that this isolation level sees."""
        values: list[str] = self.call("read", topic=topic, partition=partition, isolation=isolation)
        return values

    def await_committed(self, topic: str, partition: int, wanted: list[str]) -> None:
        """Wait until what is committed in a partition is as wanted; AssertionError when it can no more become so.

        A commit is answered before its markers are in each partition.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := self.read(topic, partition, "read_committed")) != wanted:
            assert found == wanted[: len(found)], "a message is missing, twice there, or out of order"
            assert time.monotonic() < deadline, f"{len(found)} of {len(wanted)} after {PATIENCE_SECONDS} s"

    def kill(self) -> None:
        """SIGKILL, as a crash is."""
        self._process.kill()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


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


def committed_offsets(bootstrap: str, group: str, topic: str, timeout: float = 60) -> list[int]:
    """The group's offsets in both partitions, once they are stable; -1 where there is none."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    asked = [confluent_kafka.TopicPartition(topic, partition) for partition in (0, 1)]
    offsets = [each.offset for each in consumer.committed(asked, timeout)]
    consumer.close()
    return [-1 if offset < 0 else offset for offset in offsets]
