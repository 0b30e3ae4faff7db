"""An exchange in one line: ``Produce v13 orders-0 3 records -> offset 12``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kbroker.observe.explorer.decoded import Decoded, TopicNames, topics_of
from kbroker.wire.batch_header import walk_headers
from kbroker.wire.errors import WireError
from kbroker.wire.registry import API_KEYS

_SHOWN_TOPICS: Final = 3
_SHOWN_PARTITIONS: Final = 6


class Records(NamedTuple):
    """Records in batches: how many as far as their headers are there, and bytes."""

    number: int
    size: int
    is_exact: bool

    def __str__(self) -> str:
        if not self.size:
            return "no records"
        return f"{'' if self.is_exact else 'at least '}{_count(self.number, 'record')}, {self.size} bytes"


def summary(decoded: Decoded, names: TopicNames) -> str:
    """The line."""
    return f"{request_summary(decoded, names)} -> {answer_summary(decoded, names)}"


def request_summary(decoded: Decoded, names: TopicNames) -> str:
    """The request alone."""
    parts = [f"{decoded.name} v{decoded.version}"]
    if decoded.request is None:
        parts.append(f"({decoded.problem or 'it cannot be decoded'})")
        return " ".join(parts)
    parts += [f"group={name}" for name in decoded.groups[:_SHOWN_TOPICS]]
    parts += [f"txn={name}" for name in decoded.transactional_ids[:_SHOWN_TOPICS]]
    detail = _REQUESTS.get(decoded.name)
    if detail is not None:
        parts += detail(decoded.request)
    topics = topics_text(decoded.topics(names))
    if topics:
        parts.append(topics)
    if decoded.name == "Produce":
        parts.append(str(produced(decoded.request)))
    return " ".join(part for part in parts if part)


def answer_summary(decoded: Decoded, names: TopicNames) -> str:
    """The answer alone."""
    exchange = decoded.exchange
    if exchange.response is None:
        return exchange.end or "no answer yet"
    if decoded.response is None:
        return f"{exchange.response.size} bytes ({decoded.problem or 'they cannot be decoded'})"
    throttle = getattr(decoded.response, "throttle_time_ms", 0)
    suffix = f", throttled for {throttle} ms" if throttle and throttle > 0 else ""
    if decoded.errors:
        return ", ".join(code.name for code in decoded.errors) + suffix
    detail = _ANSWERS.get(decoded.name)
    return ("ok" if detail is None else detail(decoded.response, names)) + suffix


def topics_text(topics: Mapping[str, list[int]]) -> str:
    """Topics with their partitions, a few of them: ``orders-0``, ``orders[0,1]``."""
    texts = []
    for name, partitions in list(topics.items())[:_SHOWN_TOPICS]:
        if not partitions:
            texts.append(name)
        elif len(partitions) == 1:
            texts.append(f"{name}-{partitions[0]}")
        elif len(partitions) <= _SHOWN_PARTITIONS:
            texts.append(f"{name}[{','.join(map(str, partitions))}]")
        else:
            texts.append(f"{name} ({len(partitions)} partitions)")
    left = len(topics) - len(texts)
    if left > 0:
        texts.append(f"and {_count(left, 'more topic')}")
    return " ".join(texts)


def produced(request: Any) -> Records:
    """The records of a ProduceRequest."""
    return _records([each.records for topic in request.topic_data for each in topic.partition_data])


def fetched(response: Any) -> Records:
    """The records of a FetchResponse."""
    return _records([each.records for topic in response.responses for each in topic.partitions])


def _records(fields: list[Any]) -> Records:
    count = size = 0
    is_exact = True
    for field in fields:
        if not field:
            continue
        size += len(field)
        end = 0
        try:
            for position, header in walk_headers(field):
                count += header.records_count
                end = position + header.size
        except WireError:
            is_exact = False  # it was cut
        is_exact = is_exact and end == len(field)
    return Records(count, size, is_exact)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _fetch_request(request: Any) -> list[str]:
    if request.session_epoch == -1:
        return ["session closed"] if request.session_id else []
    if not request.session_id:
        return ["new session"]
    return [f"session {request.session_id & 0xFFFFFFFF} epoch {request.session_epoch}"]


def _epoch(request: Any) -> list[str]:
    names = {0: "joins", -1: "leaves", -2: "leaves for a while"}
    epoch = request.member_epoch
    return [names.get(epoch, f"epoch={epoch}")]


_REQUESTS: Final[dict[str, Callable[[Any], list[str]]]] = {
    "Fetch": _fetch_request,
    "Heartbeat": lambda request: [f"gen={request.generation_id}"],
    "SyncGroup": lambda request: [
        f"gen={request.generation_id}",
        f"with {_count(len(request.assignments), 'assignment')}" if request.assignments else "",
    ],
    "JoinGroup": lambda request: ["as a new member" if not request.member_id else f"member={request.member_id}"],
    "ConsumerGroupHeartbeat": _epoch,
    "ShareGroupHeartbeat": _epoch,
    "StreamsGroupHeartbeat": _epoch,
    "EndTxn": lambda request: ["commit" if request.committed else "abort"],
    "SaslHandshake": lambda request: [request.mechanism],
    "ApiVersions": lambda request: [f"{request.client_software_name} {request.client_software_version}".strip()],
    "ListOffsets": lambda request: [
        _timestamp(each.timestamp) for topic in request.topics[:1] for each in topic.partitions[:1]
    ],
    "BrokerHeartbeat": lambda request: [f"broker {request.broker_id}"],
    "BrokerRegistration": lambda request: [f"broker {request.broker_id}"],
    "Envelope": lambda request: [_inner(request)],
}


def _inner(request: Any) -> str:
    api = API_KEYS.get(int.from_bytes(bytes(request.request_data[:2]), "big", signed=True))
    return f"with {api.name} of a client" if api is not None else ""


def _timestamp(timestamp: int) -> str:
    names = {-1: "latest", -2: "earliest", -3: "largest time", -4: "earliest local", -5: "latest tiered"}
    return names.get(timestamp, f"at {timestamp}")


def _produce_answer(response: Any, names: TopicNames) -> str:
    offsets = [each.base_offset for topic in response.responses for each in topic.partition_responses]
    return f"offset{'' if len(offsets) == 1 else 's'} {_few(offsets)}"


def _fetch_answer(response: Any, names: TopicNames) -> str:
    records = fetched(response)
    if not records.size:
        return "nothing new"
    return f"{records} of {topics_text(topics_of(response, names))}"


def _metadata_answer(response: Any, names: TopicNames) -> str:
    return f"{_count(len(response.brokers), 'broker')}, {_count(len(response.topics), 'topic')}"


def _coordinator_answer(response: Any, names: TopicNames) -> str:
    found = [each.node_id for each in response.coordinators] or [response.node_id]
    return f"broker {_few(found)}"


def _join_answer(response: Any, names: TopicNames) -> str:
    role = "leader" if response.leader == response.member_id else "member"
    members = f" of {_count(len(response.members), 'member')}" if response.members else ""
    return f"generation {response.generation_id}, {role}{members}"


def _offsets_answer(response: Any, names: TopicNames) -> str:
    topics = [*getattr(response, "topics", []), *(each for group in response.groups for each in group.topics)]
    offsets = [each.committed_offset for topic in topics for each in topic.partitions]
    return f"offset {_few(['none' if offset < 0 else offset for offset in offsets])}" if offsets else "none"


def _heartbeat_answer(response: Any, names: TopicNames) -> str:
    assigned = topics_of(response, names)
    if response.assignment is None:
        return f"epoch {response.member_epoch}"
    return f"epoch {response.member_epoch}, to read {topics_text(assigned) or 'nothing'}"


def _few(values: list[Any]) -> str:
    return ", ".join(map(str, values[:4])) + (f" and {len(values) - 4} more" if len(values) > 4 else "")


_ANSWERS: Final[dict[str, Callable[[Any, TopicNames], str]]] = {
    "Produce": _produce_answer,
    "Fetch": _fetch_answer,
    "Metadata": _metadata_answer,
    "FindCoordinator": _coordinator_answer,
    "JoinGroup": _join_answer,
    "SyncGroup": lambda response, names: f"assignment of {len(response.assignment)} bytes",
    "OffsetFetch": _offsets_answer,
    "InitProducerId": lambda response, names: f"producer {response.producer_id} epoch {response.producer_epoch}",
    "ConsumerGroupHeartbeat": _heartbeat_answer,
    "ApiVersions": lambda response, names: _count(len(response.api_keys), "API"),
    "ListOffsets": lambda response, names: (
        f"offset {_few([each.offset for topic in response.topics for each in topic.partitions])}"
    ),
    "CreateTopics": lambda response, names: f"{_count(len(response.topics), 'topic')} made",
    "DescribeCluster": lambda response, names: _count(len(response.brokers), "broker"),
}
