"""An exchange as messages, and what is found in them whatever the API: errors, groups, transactions, topics."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

from kbroker.errors import ErrorCode
from kbroker.observe.explorer.exchange import NO_API, ConnectionInfo, Exchange
from kbroker.types import METADATA_TOPIC, METADATA_TOPIC_ID, ZERO_UUID, uuid_to_str
from kbroker.wire.compiler import decode
from kbroker.wire.errors import WireError
from kbroker.wire.headers import decode_request_header, decode_response_header, response_version
from kbroker.wire.registry import API_KEYS, ASKED_BY_NODES
from kbroker.wire.schema import Message

_PARTITIONS: Final = (
    "partitions",
    "partition_data",
    "partition_indexes",
    "partition_responses",
    "results_by_partition",
    "results",
)
_INDEX: Final = ("partition_index", "index", "partition")
_GROUPS: Final = ("group_id", "groups", "group_ids", "groups_names")


MAX_DECODED: Final = 64 << 20
"""Bytes of a frame that is decoded, those that were cut included: zeros take their place meanwhile."""

TOO_LARGE: Final = "it is too large to be decoded"


class TopicNames:
    """Names of topics by the text of their ids, as far as they have been heard."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {uuid_to_str(METADATA_TOPIC_ID): METADATA_TOPIC}

    def learn(self, message: object) -> None:
        """Take the names that an answer tells."""
        for each in _structs(message):
            slots = type(each).__slots__
            if "topic_id" in slots:
                name = getattr(each, "name", None) or getattr(each, "topic", None)
                if name and each.topic_id != ZERO_UUID:
                    self.known[uuid_to_str(each.topic_id)] = name

    def __getitem__(self, topic_id: bytes) -> str:
        text = uuid_to_str(topic_id)  # type: ignore[arg-type]
        return self.known.get(text, text)


class Decoded:
    """One exchange, decoded as far as its bytes allow."""

    def __init__(self, exchange: Exchange, connection: ConnectionInfo | None, run: str = "") -> None:
        """``connection`` is None where nothing is known of it; ``run``: that of its node (`StreamStart`)."""
        self.exchange = exchange
        self.connection = connection
        self.run = run
        self.request: Any = None
        """The message; None if it cannot be decoded."""
        self.response: Any = None
        self.client_id: str | None = None
        self.correlation_id = int.from_bytes(exchange.request.pieces[0][1][4:8], "big", signed=True)
        self.problem = ""
        """The reason why something cannot be decoded."""
        self.api = API_KEYS.get(exchange.api_key)
        self.response_version = self.version = exchange.api_version
        try:
            self._decode()
        except (WireError, KeyError) as error:
            reason = str(error) if isinstance(error, WireError) else f"there is no version {self.version} of it"
            self.problem = "parts of it were cut" if self._is_cut else reason

    def _decode(self) -> None:
        exchange = self.exchange
        if max(exchange.request.size, exchange.response.size if exchange.response is not None else 0) > MAX_DECODED:
            raise WireError(TOO_LARGE)
        frame = exchange.request.filled()
        header, offset = decode_request_header(frame)
        self.client_id = header.client_id
        api = API_KEYS[header.api_key]
        self.request, _ = decode(api.request, header.api_version, frame, offset)
        if exchange.response is None:
            return
        answer = exchange.response.filled()
        _, offset = decode_response_header(header.api_key, header.api_version, answer)
        self.response_version = response_version(header.api_key, header.api_version, answer, offset)
        self.response, _ = decode(api.response, self.response_version, answer, offset)

    @property
    def _is_cut(self) -> bool:
        response = self.exchange.response
        return not self.exchange.request.is_whole or (response is not None and not response.is_whole)

    @property
    def name(self) -> str:
        """The API's."""
        if self.api is None:
            return "hidden frame" if self.exchange.api_key == NO_API else f"API key {self.exchange.api_key}"
        return self.api.name

    @cached_property
    def errors(self) -> list[ErrorCode]:
        """The errors in the answer, each once, in their order."""
        found: dict[ErrorCode, None] = {}
        for each in _structs(self.response):
            for slot in type(each).__slots__:
                if slot.endswith("error_code") and getattr(each, slot):
                    found[ErrorCode.of(getattr(each, slot))] = None
        return list(found)

    @cached_property
    def groups(self) -> list[str]:
        """The groups that the request names."""
        found: dict[str, None] = {}
        for each in _structs(self.request):
            for slot in _GROUPS:
                value = getattr(each, slot, None)
                for name in value if isinstance(value, list) else [value]:
                    if isinstance(name, str) and name:
                        found[name] = None
        if self.name == "FindCoordinator" and self.request is not None and self.request.key_type == 0:
            found.update(dict.fromkeys(self.request.coordinator_keys or [self.request.key]))
        return list(found)

    @cached_property
    def transactional_ids(self) -> list[str]:
        """The transactional ids that the request names."""
        found: dict[str, None] = {}
        for each in _structs(self.request):
            for slot in ("transactional_id", "v3_and_below_transactional_id"):
                if getattr(each, slot, None):
                    found[getattr(each, slot)] = None
        if self.name == "FindCoordinator" and self.request is not None and self.request.key_type == 1:
            found.update(dict.fromkeys(self.request.coordinator_keys or [self.request.key]))
        return list(found)

    @property
    def is_internal(self) -> bool:
        """Whether a broker or controller asks, not a client."""
        if self.exchange.api_key in ASKED_BY_NODES or (self.connection is not None and self.connection.is_controller):
            return True
        if self.name == "Fetch" and self.request is not None:
            return bool(max(self.request.replica_id, self.request.replica_state.replica_id) >= 0)
        return False

    def topics(self, names: TopicNames) -> dict[str, list[int]]:
        """The topics that the request names, each with its partitions."""
        return topics_of(self.request, names)


def topics_of(message: object, names: TopicNames) -> dict[str, list[int]]:
    """The topics in a message, each with the partitions that it names of them."""
    found: dict[str, list[int]] = {}
    for each, is_topic in _topic_structs(message):
        if isinstance(each, str):
            found.setdefault(each, [])
            continue
        topic_id = getattr(each, "topic_id", ZERO_UUID)
        name = getattr(each, "topic", None) or (getattr(each, "name", None) if is_topic else None)
        if not isinstance(name, str) or not name:
            if topic_id == ZERO_UUID:
                continue
            name = names[topic_id]
        found.setdefault(name, []).extend(_partitions(each))
    return found


def topic_ids_of(message: object) -> set[str]:
    """The texts of the ids of topics in a message."""
    return {
        uuid_to_str(each.topic_id)
        for each in _structs(message)
        if "topic_id" in type(each).__slots__ and each.topic_id != ZERO_UUID
    }


def _partitions(topic: Any) -> Iterator[int]:
    for slot in _PARTITIONS:
        value = getattr(topic, slot, None)
        if isinstance(value, list):
            for each in value:
                if isinstance(each, int):
                    yield each
                else:
                    yield next((getattr(each, index) for index in _INDEX if hasattr(each, index)), -1)


def _topic_structs(value: object, is_topic: bool = False) -> Iterator[tuple[Any, bool]]:
    if not isinstance(value, Message):
        return
    slots = type(value).__slots__
    if is_topic or "topic_id" in slots:
        yield value, is_topic
    for slot in slots:
        inner = getattr(value, slot)
        about_topics = "topic" in slot or slot == "responses"
        if isinstance(inner, list):
            for each in inner:
                if isinstance(each, Message):
                    yield from _topic_structs(each, about_topics)
                elif isinstance(each, str) and about_topics:
                    yield each, True
        else:
            yield from _topic_structs(inner, False)


def _structs(value: object) -> Iterator[Any]:
    """A message, and all structs in it."""
    if isinstance(value, Message):
        yield value
        for slot in type(value).__slots__:
            inner = getattr(value, slot)
            if isinstance(inner, list):
                for each in inner:
                    yield from _structs(each)
            else:
                yield from _structs(inner)
