"""A raw conversation with a broker, and its answers in a form in which two brokers can be compared."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterator
from typing import Any

from compat_tests.raw_socket import RawSocket
from compat_tests.wire_differential.generator import TOPICS, id_marker
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.conversation import Conversation
from kbroker.wire.messages.fetch import FetchResponse
from kbroker.wire.primitives import Buffer
from kbroker.wire.record_batch import iter_records
from kbroker.wire.schema import struct_spec
from tests.patience import SHORT

CLOSED = "connection closed"
"""The result if the broker closes the connection instead of answering."""
SILENT = f"no answer within {SHORT} s"


class Dialogue:
    """A connection that is opened again when the broker closes it; knows the broker's topic ids."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.topic_ids: dict[str, bytes] = {}
        self.labels: dict[str, str] = {}
        """Strings that the broker has chosen -> what stands for them in a comparison."""
        self._socket = RawSocket(bootstrap, SHORT)
        self._conversation = Conversation("differential", is_exact=True)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
        self._conversation.pending.clear()

    def frame(self, request: Any, version: int) -> bytes:
        """A request as bytes without their size, with this broker's topic ids; it is not sent."""
        return self._with_topic_ids(self._conversation.send(request, version, expect_response=False))[4:]

    def ask(self, request: Any, version: int) -> Any:
        """The response, or CLOSED or SILENT."""
        data = self._with_topic_ids(self._conversation.send(request, version))
        try:
            self._socket.send(data)
            frame = self._socket.receive()
        except TimeoutError:
            self.close()
            return SILENT
        except OSError:
            self.close()
            return CLOSED
        return self._conversation.receive(frame)

    def _with_topic_ids(self, parts: list[Buffer]) -> bytes:
        data = b"".join(parts)
        for topic in TOPICS:
            data = data.replace(id_marker(topic), self.topic_ids.get(topic, bytes(16)))
        return data

    def plain(self, response: Any) -> Any:
        """The response without what no two brokers share."""
        if isinstance(response, str):
            return response
        names: _Names = {value: f"id of {topic}" for topic, value in self.topic_ids.items()}
        for value, label in self.labels.items():
            names[value] = label
        plain = _plain(response, "", names, self._socket.address[1])
        if isinstance(response, FetchResponse):
            # Sessions answer partition by partition: one topic may come in several pieces.
            pieces: dict[tuple[str, str], list[Any]] = {}
            for topic in plain["responses"]:
                pieces.setdefault((topic["topic"], topic["topic_id"]), []).extend(topic["partitions"])
            plain["responses"] = [[*key, sorted(value, key=_list_key)] for key, value in sorted(pieces.items())]
        return plain


_TIME_FIELDS = {"log_append_time_ms", "timestamp"}
_RECENT = 1_750_000_000_000
"""A millisecond of today; the times that the requests carry on purpose are older."""


_Names = dict[bytes | str, str]
"""Topic ids, and strings that the broker has chosen, with what stands for them."""


def _plain(value: Any, name: str, names: _Names, port: int) -> Any:
    if hasattr(value, "__kafka__"):
        return {
            spec.name: _plain(getattr(value, spec.name), spec.name, names, port)
            for spec in struct_spec(type(value)).fields
            if spec.name != "throttle_time_ms"
        }
    if isinstance(value, list):
        # Many lists come in no order (hash maps); where they say their names they are put in that order.
        return sorted((_plain(item, name, names, port) for item in value), key=_list_key)
    if name == "records":
        return _records(value)
    if name == "cluster_id" and value is not None:
        return "CLUSTER"
    if name == "port" and value == port:
        return "PORT"
    if name == "log_dir":
        return "LOG DIR"
    if name in {"total_bytes", "usable_bytes"} and value > 0:
        return "SOME"
    if name == "session_id" and value:
        return "SESSION"
    if name == "producer_id" and value >= 0:
        return "PRODUCER ID"
    if name in _TIME_FIELDS and isinstance(value, int) and value > _RECENT:
        return "TIME"
    if isinstance(value, bytes) and len(value) == 16:
        return names.get(value, "no id" if value == bytes(16) else "ID")
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).hex()
    if isinstance(value, str):
        for known, label in names.items():
            value = value.replace(known if isinstance(known, str) else _uuid_text(known), label)
        value = re.sub(r"\b127\.0\.0\.1:\d+", "HOST:PORT", value)
        return re.sub(r"\b[A-Za-z0-9_-]{22}\b", "UUID", value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


_LIST_KEYS = (
    "user",
    "resource_type",
    "resource_name",
    "name",
    "config_name",
    "topic",
    "topic_id",
    "partition_index",
    "partition",
    "index",
    "api_key",
)


def _list_key(item: Any) -> tuple[str, ...]:
    if isinstance(item, dict):
        return tuple(f"{item[name]!s:>12}" for name in _LIST_KEYS if name in item)
    return ()


def _uuid_text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def _records(value: Any) -> Any:
    if value is None:
        return None
    data = bytes(value)
    found: list[Any] = []
    with contextlib.suppress(Exception):
        found.extend(
            (record.offset, bytes(record.value or b"").decode(errors="replace")) for record in iter_records(data)
        )
    whole = 0
    with contextlib.suppress(Exception):
        for at, header in walk_headers(data):
            whole = at + header.size
    return {"empty": not data, "records": [list(item) for item in found], "cut off": len(data) - whole}


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(path, ours, theirs) wherever two plain answers differ; positions in lists are left out of the path."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        for name in ours:
            yield from differences(ours[name], theirs[name], f"{path}.{name}" if path else name)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for mine, other in zip(ours, theirs, strict=True):
            yield from differences(mine, other, f"{path}[]")
    elif ours != theirs:
        yield path, ours, theirs
