"""Adapter for kcat: every call is one run of the program."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from itertools import groupby

from compat_tests.client import (
    ALL_FEATURES,
    EARLIEST,
    LATEST,
    MAX_TRANSACTION_MS,
    Client,
    ClientError,
    Cluster,
    Producing,
    Reading,
    ReadTimeout,
    Record,
    Step,
    Stepping,
)
from compat_tests.client_security import Security
from tests.patience import LONG

_ERRORS = {
    "Unknown topic or partition": "UNKNOWN_TOPIC_OR_PARTITION",
    "Message size too large": "MESSAGE_TOO_LARGE",
    "Offset out of range": "OFFSET_OUT_OF_RANGE",
    "failed to validate record": "INVALID_RECORD",
    "Topic authorization failed": "TOPIC_AUTHORIZATION_FAILED",
    "Group authorization failed": "GROUP_AUTHORIZATION_FAILED",
    "Transactional Id authorization failed": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
}
"""librdkafka's texts for the broker's errors in the cases."""

_FAILED = re.compile(rb"% ERROR(?!: Local: Broker transport failure)|Delivery failed")
"""kcat also reports an unreachable broker, though the others took the records."""

_NO_ADMIN = {"create_topic", "delete_topic", "create_partitions", "delete_records", "describe_configs", "alter_configs"}


def _version() -> str:
    try:
        text = subprocess.run(["kcat", "-V"], capture_output=True, text=True).stdout
    except OSError:
        return "?"
    found = re.search(r"Version (\S+) .*librdkafka (\S+)", text)
    return f"{found[1]} (librdkafka {found[2]})" if found else "?"


class KcatClient(Client):
    """kcat as a person at a shell uses it."""

    name = "kcat"
    version = _version()
    features = (
        ALL_FEATURES
        - _NO_ADMIN
        - {
            "aborted_transactions",
            "transaction_version_2",
            # The program has no options for these.
            "offset_of_max_timestamp",
            "produced_offsets",
            "produced_timestamps",
            "null_header_value",
            "no_auto_create",
        }
    )

    def __init__(self, bootstrap: str, security: Security | None = None) -> None:
        self._bootstrap = bootstrap
        settings = security.librdkafka() if security else {}
        self._security = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]

    def _kcat(self, *arguments: str, stdin: bytes = b"", timeout: float = LONG) -> subprocess.CompletedProcess[bytes]:
        command = ["kcat", "-b", self._bootstrap, "-X", "topic.metadata.refresh.fast.interval.ms=50"]
        command += [*self._security, *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, timeout=timeout)

    @staticmethod
    def _fail(result: subprocess.CompletedProcess[bytes]) -> ClientError:
        text = result.stderr.decode(errors="replace")
        for said, name in _ERRORS.items():
            if said in text:
                return ClientError(name, text.strip())
        return ClientError("KCAT_FAILED", text.strip() or f"exit code {result.returncode}")

    def _metadata(self, *arguments: str) -> dict[str, object]:
        result = self._kcat("-L", "-J", "-m", "60", *arguments)
        if result.returncode:
            raise self._fail(result)
        told: dict[str, object] = json.loads(result.stdout)
        return told

    def list_topics(self) -> set[str]:
        return {topic["topic"] for topic in self._metadata()["topics"]}  # type: ignore[attr-defined]

    def partition_count(self, topic: str) -> int:
        for found in self._metadata()["topics"]:  # type: ignore[attr-defined]
            if found["topic"] == topic:
                return len(found["partitions"])
        raise ClientError("UNKNOWN_TOPIC_OR_PARTITION", topic)

    def describe_cluster(self) -> Cluster:
        told = self._metadata()
        brokers = []
        for node in told["brokers"]:  # type: ignore[attr-defined]
            host, port = node["name"].rsplit(":", 1)
            brokers.append((node["id"], host, int(port)))
        return Cluster(None, told["controllerid"], tuple(brokers))  # type: ignore[arg-type]

    def _produce(self, topic: str, records: Sequence[Record], how: Producing) -> list[int]:
        # Partition and headers are options of a run; null and empty need their own, since -Z turns empty into null.
        def kind(record: Record) -> tuple[object, ...]:
            return (record.partition, record.headers, record.key is None, record.key == b"", record.value is None)

        for (partition, headers, no_key, _empty_key, no_value), group in groupby(records, kind):
            options = ["-P", "-t", topic, "-p", str(partition), "-D", "\x1e", "-z", how.compression]
            options += ["-X", f"acks={how.acks}", "-X", f"linger.ms={how.linger_ms}"]
            options += ["-X", f"message.timeout.ms={int(how.timeout * 1000)}"]
            options += ["-X", f"enable.idempotence={str(how.idempotent).lower()}"]
            if how.max_request_size:
                options += ["-X", f"message.max.bytes={how.max_request_size}"]
            for name, value in headers:  # type: ignore[attr-defined]
                options += ["-H", f"{name}={(value or b'').decode()}"]
            if not no_key:
                options += ["-K", "\x1f"]
            if no_value:
                options.append("-Z")
            lines = []
            for record in group:
                key = b"" if record.key is None else record.key + b"\x1f"
                lines.append(key + (record.value or b""))
            result = self._kcat(
                *options, stdin=b"\x1e".join(lines) + (b"\x1e" if len(lines) == 1 else b""), timeout=how.timeout + 30
            )
            if result.returncode or _FAILED.search(result.stderr):
                raise self._fail(result)
        return [-1] * len(records)

    def produce_one_by_one(self, topic: str, values: Sequence[bytes], timeout: float = LONG) -> None:
        """In one run of the program, a request for each value."""
        options = ["-P", "-t", topic, "-p", "0", "-D", "\x1e", "-X", "linger.ms=0", "-X", "batch.num.messages=1"]
        result = self._kcat(*options, "-X", "max.in.flight=1", stdin=b"\x1e".join(values), timeout=timeout)
        if result.returncode or _FAILED.search(result.stderr):
            raise self._fail(result)

    def _produce_steps(self, steps: Sequence[Step], how: Stepping) -> None:
        # A run of the program is a producer, and a transaction: steps of one topic up to its end go into one.
        run: list[Record] = []
        for step in steps:
            run += step.records
            if step.then == "abort" or (how.transactional_id and step.then == "flush"):
                raise ValueError(f"kcat has no {step.then} in a transaction")
            if not step.then and step is not steps[-1]:
                continue
            options = ["-P", "-t", step.topic, "-D", "\x1e", "-K", "\x1f"]
            exact = how.idempotent or how.transactional_id is not None
            options += ["-X", "acks=all", "-X", f"enable.idempotence={str(exact).lower()}"]
            options += ["-X", "linger.ms=5", "-X", f"batch.size={how.batch_bytes}"]
            milliseconds = min(int(how.timeout * 1000), MAX_TRANSACTION_MS)
            options += ["-X", "max.in.flight=5", "-X", f"message.timeout.ms={milliseconds}"]
            if how.transactional_id:
                # librdkafka wants that no message outlives its transaction.
                options += ["-X", f"transactional.id={how.transactional_id}", "-X"]
                options += [f"transaction.timeout.ms={milliseconds}"]
            lines = [(record.key or b"") + b"\x1f" + (record.value or b"") for record in run]
            result = self._kcat(*options, stdin=b"\x1e".join(lines), timeout=how.timeout + 30)
            if result.returncode or _FAILED.search(result.stderr):
                raise self._fail(result)
            run = []

    def _read(self, topic: str, partition: int, start: int | str, count: int, how: Reading) -> list[Record]:
        offset = {EARLIEST: "beginning", LATEST: "end"}.get(str(start), str(start))
        options = ["-C", "-t", topic, "-p", str(partition), "-o", offset, "-c", str(count), "-J", "-u"]
        options += ["-X", f"fetch.wait.max.ms={how.max_wait_ms}", "-X", f"fetch.min.bytes={how.min_bytes}"]
        options += ["-X", f"socket.timeout.ms={how.max_wait_ms + 30000}", "-X", "topic.auto.offset.reset=error"]
        if how.max_partition_bytes is not None:
            options += ["-X", f"max.partition.fetch.bytes={how.max_partition_bytes}"]
        if how.max_bytes is not None:
            options += ["-X", f"fetch.max.bytes={how.max_bytes}", "-X", f"message.max.bytes={how.max_bytes}"]
        try:
            result = self._kcat(*options, timeout=how.timeout)
        except subprocess.TimeoutExpired as expired:
            raise ReadTimeout(self._records(expired.stdout or b"")) from None
        records = self._records(result.stdout)
        if len(records) < count:
            raise self._fail(result)
        return records

    def read_to_end(
        self, topic: str, *, isolation: str = "read_uncommitted", fetch_bytes: int | None = None, timeout: float = LONG
    ) -> list[Record]:
        options = ["-C", "-t", topic, "-o", "beginning", "-e", "-J", "-u", "-X", f"isolation.level={isolation}"]
        if fetch_bytes is not None:
            options += ["-X", f"fetch.max.bytes={fetch_bytes}", "-X", f"message.max.bytes={fetch_bytes}"]
        return self._consume(options, timeout)

    def consume(
        self, topic: str, group: str, count: int, *, isolation: str = "read_uncommitted", timeout: float = LONG
    ) -> list[Record]:
        options = ["-G", group, "-c", str(count), "-J", "-u", "-X", f"isolation.level={isolation}"]
        return self._consume([*options, "-X", "auto.offset.reset=earliest", topic], timeout)

    def _consume(self, options: Sequence[str], timeout: float) -> list[Record]:
        try:
            result = self._kcat(*options, timeout=timeout)
        except subprocess.TimeoutExpired as expired:
            raise ReadTimeout(self._records(expired.stdout or b"")) from None
        if result.returncode:
            raise self._fail(result)
        return self._records(result.stdout)

    @staticmethod
    def _records(output: bytes) -> list[Record]:
        records = []
        for line in output.decode(errors="surrogateescape").split("\n"):
            if not line.startswith("{"):
                continue
            item = json.loads(line)
            names = item.get("headers", [])
            records.append(
                Record(
                    value=None if item.get("payload") is None else item["payload"].encode(),
                    key=None if item.get("key") is None else item["key"].encode(),
                    headers=tuple(
                        (names[index], None if names[index + 1] is None else names[index + 1].encode())
                        for index in range(0, len(names), 2)
                    ),
                    timestamp=item["ts"],
                    partition=item["partition"],
                    offset=item["offset"],
                    timestamp_type={"create": "CreateTime", "logappend": "LogAppendTime"}.get(item["tstype"]),
                )
            )
        return records

    def list_offset(self, topic: str, partition: int, spec: int | str) -> int:
        time = {EARLIEST: -2, LATEST: -1}.get(str(spec), spec)
        result = self._kcat("-Q", "-t", f"{topic}:{partition}:{time}")
        found = re.search(rb"offset (-?\d+)", result.stdout)
        if result.returncode or found is None:
            raise self._fail(result)
        return int(found[1])
