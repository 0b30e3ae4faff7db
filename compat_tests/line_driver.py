"""A client in another language: a process that takes one JSON command a line and answers with one JSON line."""

from __future__ import annotations

import base64
import contextlib
import copy
import itertools
import json
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Self

from compat_tests.client import Client, ClientError, Cluster, Producing, Reading, ReadTimeout, Record, Step, Stepping
from tests.patience import LONG, SHORT


def encode_bytes(value: bytes | None) -> str | None:
    """Bytes as the line drivers carry them."""
    return None if value is None else base64.b64encode(value).decode()


def decode_bytes(value: str | None) -> bytes | None:
    """The opposite of encode_bytes."""
    return None if value is None else base64.b64decode(value)


def _carried(how: Producing | Stepping | Reading) -> dict[str, Any]:
    """Returns settings as the line drivers carry them, and the time that the process gets."""
    return {**how._asdict(), "timeout_ms": int(how.timeout * 1000), "timeout": how.timeout + 30}


class LineDriverClient(Client):
    """A client that lives in another process (Java, Node) and takes one JSON command a line.

    Request: ``{"id": 1, "op": "produce", ...}``; reply: ``{"id": 1, "result": ...}`` or
    ``{"id": 1, "error": NAME, "message":
    TEXT, "records": [...]}``. Replies may come in any order, so a read can wait while something is produced.
    """

    def __init__(
        self,
        command: Sequence[str],
        bootstrap: str,
        environment: Mapping[str, str] | None = None,
        security: Mapping[str, Any] | None = None,
    ) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._stderr: list[bytes] = []
        threading.Thread(target=self._read_replies, daemon=True).start()
        threading.Thread(target=self._read_errors, daemon=True).start()

    def secured(self, bootstrap: str, security: Mapping[str, Any]) -> Self:
        """The same process as the client of `bootstrap` and `security`; close only the first."""
        other = copy.copy(self)
        other._bootstrap, other._security = bootstrap, security
        return other

    def _read_replies(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith(b"{"):
                self._stderr.append(line)
                continue
            reply = json.loads(line)
            with self._lock:
                waiting = self._waiting.pop(reply["id"], None)
            if waiting is not None:
                waiting.put(reply)
        with self._lock:
            for waiting in self._waiting.values():
                waiting.put({"error": "DRIVER_ENDED", "message": b"".join(self._stderr[-20:]).decode(errors="replace")})
            self._waiting.clear()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._stderr.append(line)
            del self._stderr[:-200]

    def call(self, op: str, timeout: float = LONG, **arguments: Any) -> Any:
        """Run one command in the driver."""
        waiting: queue.Queue[dict[str, Any]] = queue.Queue()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = waiting
        request = {"id": number, "op": op, "bootstrap": self._bootstrap, **arguments}
        if self._security is not None:
            request["security"] = self._security
        line = json.dumps(request)
        assert self._process.stdin is not None
        try:
            with self._lock:
                self._process.stdin.write(line.encode() + b"\n")
                self._process.stdin.flush()
            reply = waiting.get(timeout=timeout)
        except BrokenPipeError:
            raise ClientError("DRIVER_ENDED", b"".join(self._stderr[-20:]).decode(errors="replace")) from None
        except queue.Empty:
            raise ClientError("DRIVER_TIMEOUT", f"{op} took more than {timeout} s") from None
        if reply.get("error") == "READ_TIMEOUT":
            raise ReadTimeout([self._record(item) for item in reply["records"]])
        if "error" in reply:
            raise ClientError(reply["error"], reply.get("message", ""))
        return reply.get("result")

    @staticmethod
    def _record(item: Mapping[str, Any]) -> Record:
        return Record(
            value=decode_bytes(item["value"]),
            key=decode_bytes(item["key"]),
            headers=tuple((name, decode_bytes(value)) for name, value in item["headers"]),
            timestamp=item["timestamp"],
            partition=item["partition"],
            offset=item["offset"],
            timestamp_type=item.get("timestamp_type"),
        )

    def close(self) -> None:
        """End the process; it ends by itself when its input does."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(SHORT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None, replication_factor: int = 1
    ) -> None:
        self.call(
            "create_topic",
            topic=topic,
            partitions=partitions,
            configs=dict(configs or {}),
            replication_factor=replication_factor,
        )

    def delete_topic(self, topic: str) -> None:
        self.call("delete_topic", topic=topic)

    def create_partitions(self, topic: str, total: int) -> None:
        self.call("create_partitions", topic=topic, total=total)

    def list_topics(self) -> set[str]:
        return set(self.call("list_topics"))

    def partition_count(self, topic: str) -> int:
        return int(self.call("partition_count", topic=topic))

    def describe_cluster(self) -> Cluster:
        told = self.call("describe_cluster")
        brokers = tuple((node["id"], node["host"], node["port"]) for node in told["brokers"])
        return Cluster(told["cluster_id"], told["controller_id"], brokers)

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        return dict(self.call("describe_configs", topic=topic))

    def alter_configs(self, topic: str, configs: Mapping[str, str | None]) -> None:
        self.call("alter_configs", topic=topic, configs=dict(configs))

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        self.call("delete_records", topic=topic, partition=partition, offset=offset)

    def _produce(self, topic: str, records: Sequence[Record], how: Producing) -> list[int]:
        items = [
            {
                "value": encode_bytes(record.value),
                "key": encode_bytes(record.key),
                "headers": [[name, encode_bytes(value)] for name, value in record.headers],
                "timestamp": record.timestamp,
                "partition": record.partition,
            }
            for record in records
        ]
        result = self.call("produce", topic=topic, records=items, **_carried(how))
        return [int(offset) for offset in result]

    def _produce_steps(self, steps: Sequence[Step], how: Stepping) -> None:
        items = [
            {
                "topic": step.topic,
                "records": [[encode_bytes(record.key), encode_bytes(record.value)] for record in step.records],
                "then": step.then,
            }
            for step in steps
        ]
        self.call("produce_steps", steps=items, **_carried(how))

    def _read(self, topic: str, partition: int, start: int | str, count: int, how: Reading) -> list[Record]:
        result = self.call("read", topic=topic, partition=partition, start=start, count=count, **_carried(how))
        return [self._record(item) for item in result]

    def read_to_end(
        self, topic: str, *, isolation: str = "read_uncommitted", fetch_bytes: int | None = None, timeout: float = LONG
    ) -> list[Record]:
        result = self.call(
            "read_to_end",
            topic=topic,
            isolation=isolation,
            fetch_bytes=fetch_bytes,
            timeout_ms=int(timeout * 1000),
            timeout=timeout + 30,
        )
        return [self._record(item) for item in result]

    def consume(
        self, topic: str, group: str, count: int, *, isolation: str = "read_uncommitted", timeout: float = LONG
    ) -> list[Record]:
        result = self.call(
            "consume",
            topic=topic,
            group=group,
            count=count,
            isolation=isolation,
            timeout_ms=int(timeout * 1000),
            timeout=timeout + 30,
        )
        return [self._record(item) for item in result]

    def list_offset(self, topic: str, partition: int, spec: int | str) -> int:
        return int(self.call("list_offset", topic=topic, partition=partition, spec=spec))
