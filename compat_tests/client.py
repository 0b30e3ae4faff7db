"""What a case may ask of a client: one small synchronous interface over very different libraries.

Each client's folder has an adapter (``client.py``) that implements :class:`Client` with the library's own calls
and nothing else:
what is judged is the library's way of talking to the broker. What a library cannot do is left out of its `features`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kbroker.errors import ErrorCode

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

#: A start position for reading: an offset, or one of these two.
EARLIEST = "earliest"
LATEST = "latest"
MAX_TIMESTAMP = "max_timestamp"

#: Everything that a client may be able to do; see :class:`Client`.
ALL_FEATURES = frozenset(
    {
        "read",
        "create_topic",
        "delete_topic",
        "create_partitions",
        "delete_records",
        "describe_configs",
        "alter_configs",
        "describe_cluster",
        "list_topics",
        "list_offsets",
        "offset_for_timestamp",
        "offset_of_max_timestamp",
        "idempotent_producer",
        "produced_offsets",
        "produced_timestamps",
        "record_timestamps",
        "timestamp_type",
        "null_header_value",
        "duplicate_header_keys",
        "fetch_limits",
        "offset_out_of_range_error",
        "unknown_topic_error",
        "auto_create_topic",
        "no_auto_create",
        "groups",
        *(f"codec_{codec}" for codec in CODECS),
    }
)


class ClientError(Exception):
    """The broker (or the client on its own) refused; `name` is Kafka's error name where the client tells it."""

    def __init__(self, name: str, message: str = "") -> None:
        super().__init__(f"{name}: {message}" if message else name)
        self.name = name


class ReadTimeout(Exception):
    """Fewer records than asked for came in time; `records` are those that did."""

    def __init__(self, records: Sequence[Record]) -> None:
        super().__init__(f"only {len(records)} records came in time")
        self.records = list(records)


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"ERROR_{code}"


@dataclass(frozen=True, slots=True)
class Record:
    """A record to produce, or one that was read. `timestamp` in milliseconds, None leaves it to the client."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    partition: int = 0
    offset: int = -1
    #: "CreateTime" or "LogAppendTime", where the client tells it.
    timestamp_type: str | None = None

    def content(self) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
        """What must come back as it was sent."""
        return (self.key, self.value, self.headers)


@dataclass(frozen=True, slots=True)
class Cluster:
    """What DescribeCluster (or Metadata) told."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[tuple[int, str, int], ...]


class Client:
    """A client under test. Every method raises ClientError when the broker refuses."""

    name = "?"
    version = "?"
    features: frozenset[str] = frozenset()

    def close(self) -> None:
        """Let go of connections and processes."""

    # topics
    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None, replication_factor: int = 1
    ) -> None:
        raise NotImplementedError

    def delete_topic(self, topic: str) -> None:
        raise NotImplementedError

    def create_partitions(self, topic: str, total: int) -> None:
        raise NotImplementedError

    def list_topics(self) -> set[str]:
        raise NotImplementedError

    def partition_count(self, topic: str) -> int:
        """Number of partitions, without creating the topic; UNKNOWN_TOPIC_OR_PARTITION if there is none."""
        raise NotImplementedError

    def describe_cluster(self) -> Cluster:
        raise NotImplementedError

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        """All configs of the topic, defaults included."""
        raise NotImplementedError

    def alter_configs(self, topic: str, configs: Mapping[str, str | None]) -> None:
        """Set configs; None puts one back to its default. Others stay as they are."""
        raise NotImplementedError

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        raise NotImplementedError

    # producing
    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        acks: int = -1,
        compression: str = "none",
        idempotent: bool = False,
        max_request_size: int | None = None,
        linger_ms: int = 5,
        timeout: float = 30,
    ) -> list[int]:
        """Send `records` to the partitions they name, wait for the acknowledgements, return their offsets.

        Offsets are -1 with acks=0 or where the client does not tell them.
        """
        raise NotImplementedError

    # reading
    def read(
        self,
        topic: str,
        partition: int = 0,
        start: int | str = EARLIEST,
        count: int = 1,
        *,
        timeout: float = 30,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int | None = None,
        max_partition_bytes: int | None = None,
    ) -> list[Record]:
        """Assign one partition, seek to `start`, read `count` records. ReadTimeout if they do not come in `timeout` s.

        An offset that does not exist is an error (OFFSET_OUT_OF_RANGE), never a reset.
        """
        raise NotImplementedError

    def list_offset(self, topic: str, partition: int, spec: int | str) -> int:
        """Offset of EARLIEST, LATEST or MAX_TIMESTAMP, or the first at or after a timestamp (ms); -1 if there is
        none."""
        raise NotImplementedError


def encode_bytes(value: bytes | None) -> str | None:
    """Bytes as the line drivers carry them."""
    return None if value is None else base64.b64encode(value).decode()


def decode_bytes(value: str | None) -> bytes | None:
    """The opposite of encode_bytes."""
    return None if value is None else base64.b64decode(value)


class LineDriverClient(Client):
    """A client that lives in another process (Java, Node) and takes one JSON command a line.

    Request: ``{"id": 1, "op": "produce", ...}``; reply: ``{"id": 1, "result": ...}`` or
    ``{"id": 1, "error": NAME, "message":
    TEXT, "records": [...]}``. Replies may come in any order, so a read can wait while something is produced.
    """

    def __init__(self, command: Sequence[str], bootstrap: str, environment: Mapping[str, str] | None = None) -> None:
        self._bootstrap = bootstrap
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._lock = threading.Lock()
        self._next_id = 0
        self._waiting: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._stderr: list[bytes] = []
        threading.Thread(target=self._read_replies, daemon=True).start()
        threading.Thread(target=self._read_errors, daemon=True).start()

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

    def call(self, op: str, timeout: float = 60, **arguments: Any) -> Any:
        """Run one command in the driver."""
        waiting: queue.Queue[dict[str, Any]] = queue.Queue()
        with self._lock:
            self._next_id += 1
            number = self._next_id
            self._waiting[number] = waiting
        line = json.dumps({"id": number, "op": op, "bootstrap": self._bootstrap, **arguments})
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
            self._process.wait(5)
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

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        acks: int = -1,
        compression: str = "none",
        idempotent: bool = False,
        max_request_size: int | None = None,
        linger_ms: int = 5,
        timeout: float = 30,
    ) -> list[int]:
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
        result = self.call(
            "produce",
            topic=topic,
            records=items,
            acks=acks,
            compression=compression,
            idempotent=idempotent,
            max_request_size=max_request_size,
            linger_ms=linger_ms,
            timeout_ms=int(timeout * 1000),
            timeout=timeout + 30,
        )
        return [int(offset) for offset in result]

    def read(
        self,
        topic: str,
        partition: int = 0,
        start: int | str = EARLIEST,
        count: int = 1,
        *,
        timeout: float = 30,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int | None = None,
        max_partition_bytes: int | None = None,
    ) -> list[Record]:
        result = self.call(
            "read",
            topic=topic,
            partition=partition,
            start=start,
            count=count,
            timeout_ms=int(timeout * 1000),
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            max_partition_bytes=max_partition_bytes,
            timeout=timeout + 30,
        )
        return [self._record(item) for item in result]

    def list_offset(self, topic: str, partition: int, spec: int | str) -> int:
        return int(self.call("list_offset", topic=topic, partition=partition, spec=spec))


def as_read(record: Record, offset: int) -> Record:
    """`record` as it should come back from `offset`."""
    return replace(record, offset=offset)
