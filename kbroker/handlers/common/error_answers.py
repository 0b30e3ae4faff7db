"""Errors in the place where each API has them: by partition, by group, by resource, or for the whole request.

Pure functions over requests and responses. :func:`error_answer` answers a request that failed as a whole, and
:func:`error_in_place` replaces an answer that cannot be sent. For faults in tests :func:`split` takes a request apart
into what is to fail and the rest; :func:`merge` builds the answer. Kafka's ``AbstractRequest.getErrorResponse`` is the
source of where errors go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kbroker.errors import ErrorCode
from kbroker.types import ZERO_UUID, Uuid
from kbroker.value_types import NamedTuple, replace
from kbroker.wire.registry import API_KEYS, ApiDescription
from kbroker.wire.schema import struct_spec

TopicName = Callable[[Uuid], "str | None"]
"""The name of a topic by its id; None for one that is not there."""

Chosen = Callable[[str, "int | None"], bool]
"""Whether a topic's partition is meant; without a partition, whether all of the topic is."""


class Rows(NamedTuple):
    """A list of a request that a list of the response answers, entry by entry."""

    asked: str
    answered: str
    """"" if there is no list for these: the answers to what is inside them stand in the list around."""
    same: tuple[tuple[str, str], ...]
    """(field of the request's entry, field of the answer's). "" is the entry itself, where that is no struct."""
    inner: Rows | None = None
    """The partitions of a topic; the error is theirs then."""
    kind: str = ""
    """"topic" or "partition" if the entries are that: such a request can be chosen by them."""
    constants: Mapping[str, Any] = {}
    error: str = "error_code"
    also_asked: str = ""
    """Another list of the request that the same list answers. Such a request fails as a whole or not at all."""


_INDEX = "partition_index"


def _partitions(
    index: str = _INDEX, answer: str = "", asked: str = "partitions", answered: str = "partitions", **constants: Any
) -> Rows:
    return Rows(asked, answered, ((index, answer or index or _INDEX),), kind="partition", constants=constants)


def _topics(
    inner: Rows | None, *names: tuple[str, str], asked: str = "topics", answered: str = "topics", **constants: Any
) -> Rows:
    return Rows(asked, answered, names or (("name", "name"),), inner, "topic", constants)


def _items(asked: str, answered: str, *same: tuple[str, str], **constants: Any) -> Rows:
    return Rows(asked, answered, same, constants=constants)


_BY_NAME_OR_ID = (("name", "name"), ("topic_id", "topic_id"))
_BY_ITS_NAME = ("topic", "topic")
_RESOURCE = (("resource_type", "resource_type"), ("resource_name", "resource_name"))
_DESCRIBED_GROUPS = _items("group_ids", "groups", ("", "group_id"))

_SHARE_STATES = _topics(_partitions("partition"), ("topic_id", "topic_id"), answered="results")
"""The requests of a group about the states of its share partitions."""

_ROWS: dict[str, Rows | dict[int, Rows | None]] = {
    # By API. {lowest version: rows}, the highest first, where versions differ; None: one error for the request.
    "Produce": _topics(
        _partitions("index", "", "partition_data", "partition_responses", base_offset=-1, log_append_time_ms=-1),
        *_BY_NAME_OR_ID,
        asked="topic_data",
        answered="responses",
    ),
    "ListOffsets": _topics(_partitions()),
    "Metadata": _topics(None, *_BY_NAME_OR_ID),
    "OffsetCommit": _topics(_partitions(), *_BY_NAME_OR_ID),
    "OffsetFetch": {
        8: _items("groups", "groups", ("group_id", "group_id")),
        2: None,
        0: _topics(_partitions("", asked="partition_indexes", committed_offset=-1)),
    },
    "FindCoordinator": {4: _items("coordinator_keys", "coordinators", ("", "key"), node_id=-1, port=-1)},
    "DescribeGroups": _items("groups", "groups", ("", "group_id")),
    "CreateTopics": _topics(None),
    "DeleteTopics": {
        6: _topics(None, *_BY_NAME_OR_ID, answered="responses"),
        0: _topics(None, ("", "name"), asked="topic_names", answered="responses"),
    },
    "DeleteRecords": _topics(_partitions(low_watermark=-1)),
    "OffsetForLeaderEpoch": _topics(_partitions("partition", leader_epoch=-1, end_offset=-1), _BY_ITS_NAME),
    "AddPartitionsToTxn": {
        4: None,  # for brokers
        0: _topics(
            Rows("partitions", "results_by_partition", (("", _INDEX),), kind="partition", error="partition_error_code"),
            asked="v3_and_below_topics",
            answered="results_by_topic_v3_and_below",
        ),
    },
    "TxnOffsetCommit": _topics(_partitions()),
    "WriteTxnMarkers": Rows(
        "markers", "markers", (("producer_id", "producer_id"),), _topics(_partitions("", asked="partition_indexes"))
    ),
    "AlterReplicaLogDirs": Rows("dirs", "", (), _topics(_partitions(""), ("name", "topic_name"), answered="results")),
    "ElectLeaders": {
        1: None,
        0: _topics(
            _partitions("", "partition_id", answered="partition_result"),
            _BY_ITS_NAME,
            asked="topic_partitions",
            answered="replica_election_results",
        ),
    },
    "CreateAcls": _items("creations", "results"),
    "DeleteAcls": _items("filters", "filter_results"),
    "DescribeConfigs": _items("resources", "results", *_RESOURCE),
    "AlterConfigs": _items("resources", "responses", *_RESOURCE),
    "IncrementalAlterConfigs": _items("resources", "responses", *_RESOURCE),
    "CreatePartitions": _topics(None, answered="results"),
    "DeleteGroups": _items("groups_names", "results", ("", "group_id")),
    "DescribeProducers": _topics(_partitions("", asked="partition_indexes")),
    "DescribeTransactions": _items("transactional_ids", "transaction_states", ("", "transactional_id")),
    "AlterClientQuotas": _items("entries", "entries", ("entity", "entity")),
    "AlterUserScramCredentials": Rows("upsertions", "results", (("name", "user"),), also_asked="deletions"),
    "StreamsGroupDescribe": _DESCRIBED_GROUPS,
    "ConsumerGroupDescribe": _DESCRIBED_GROUPS,
    "ShareGroupDescribe": _DESCRIBED_GROUPS,
    "DescribeShareGroupOffsets": _items("groups", "groups", ("group_id", "group_id")),
    "InitializeShareGroupState": _SHARE_STATES,
    "ReadShareGroupState": _SHARE_STATES,
    "WriteShareGroupState": _SHARE_STATES,
    "DeleteShareGroupState": _SHARE_STATES,
    "ReadShareGroupStateSummary": _SHARE_STATES,
    "DescribeTopicPartitions": _topics(None),
}

_FETCH_WITHOUT_SESSIONS = _topics(
    _partitions("partition", _INDEX, high_watermark=-1, records=b""), _BY_ITS_NAME, answered="responses"
)
"""Below version 7 a Fetch has no error at its top. From 7 on that is one of the session, and of every partition; up to
12 the partitions have it as well (``FetchRequest.getErrorResponse``)."""

SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Errors of a Fetch's session, which are at the top of the response; all others are at partitions."""


def rows_of(api: ApiDescription, version: int) -> Rows | None:
    """Where the API has its errors in this version; None if that is at the top of the response."""
    rows = _ROWS.get(api.name)
    if isinstance(rows, dict):
        return next((each for lowest, each in rows.items() if version >= lowest), None)
    return rows


def fails_by_topic(api: ApiDescription, version: int) -> bool:
    """Whether the errors are those of topics or partitions, so that a part of a request can fail."""
    rows = rows_of(api, version)
    while rows is not None and not rows.kind:
        rows = rows.inner
    return rows is not None


def fails_where_served(api: ApiDescription, version: int) -> str | None:
    """The list whose entries bear the error, if only who serves the request knows them; None for most.

    The first versions of DescribeLogDirs have an error for each directory of the broker, and none for all.
    """
    return "results" if api.name == "DescribeLogDirs" and version < 3 else None


def fail_all(served: Any, field: str, code: ErrorCode) -> Any:
    """A copy of the response with nothing but the error in each entry of the list ``field``."""
    entries = [
        replace(entry, error_code=code, **{spec.name: [] for spec in _lists(type(entry))})
        for entry in getattr(served, field)
    ]
    return replace(served, **{field: entries})


def _lists(cls: type[Any]) -> list[Any]:
    return [spec for spec in struct_spec(cls).fields if spec.type.element is not None]


def named_partitions(
    api: ApiDescription, version: int, request: Any, topic_name: TopicName
) -> list[tuple[str, int | None]]:
    """The topics and partitions that the request itself names, a topic without partitions as ``(name, None)``."""
    if api.name == "Fetch":
        return [
            (name, partition.partition)
            for topic in request.topics
            if (name := _name(topic, "topic", topic_name)) is not None
            for partition in topic.partitions
        ]
    rows = rows_of(api, version)
    found: list[tuple[str, int | None]] = []
    if rows is not None:
        _collect(rows, request, None, topic_name, found)
    return found


def _name(entry: Any, field: str, topic_name: TopicName) -> str | None:
    if not field:
        return str(entry)
    name = getattr(entry, field) if field != "topic_id" else None
    if not name and getattr(entry, "topic_id", ZERO_UUID) != ZERO_UUID:
        return topic_name(Uuid(entry.topic_id))
    return str(name) if name else None


def _value(entry: Any, field: str) -> Any:
    return getattr(entry, field) if field else entry


def _collect(
    rows: Rows, holder: Any, topic: str | None, topic_name: TopicName, found: list[tuple[str, int | None]]
) -> None:
    for entry in getattr(holder, rows.asked) or ():
        name = _name(entry, rows.same[0][0], topic_name) if rows.kind == "topic" else topic
        if rows.inner is not None:
            _collect(rows.inner, entry, name, topic_name, found)
        elif name is not None:
            found.append((name, _value(entry, rows.same[0][0]) if rows.kind == "partition" else None))


def split(
    api: ApiDescription, version: int, request: Any, code: ErrorCode, topic_name: TopicName, chosen: Chosen
) -> tuple[list[Any] | None, Any]:
    """The answers for what is to fail, and the request without it (None if nothing else was asked).

    The answers are None where the response has one error for all.
    """
    rows = rows_of(api, version)
    if rows is None:
        return None, None
    if rows.also_asked:
        if not chosen("", None):
            return [], request
        return _failed(rows, _answer_class(api.response, rows), request, code, is_request=True), None
    answers, rest = _split(rows, _answer_class(api.response, rows), request, code, topic_name, chosen, None)
    if not rest and api.name != "Metadata":  # whose answer also says where the brokers are
        return answers, None
    return answers, replace(request, **{rows.asked: rest})


def _answer_class(holder: type[Any], rows: Rows) -> type[Any]:
    return _element(holder, rows.answered) if rows.answered else holder


def _element(cls: type[Any], field: str) -> type[Any]:
    for spec in struct_spec(cls).fields:
        if spec.name == field and spec.type.element is not None and spec.type.element.struct is not None:
            return spec.type.element.struct
    raise LookupError(f"{cls.__name__} has no list {field}")


def _split(
    rows: Rows,
    answer_class: type[Any],
    holder: Any,
    code: ErrorCode,
    topic_name: TopicName,
    chosen: Chosen,
    topic: str | None,
) -> tuple[list[Any], list[Any]]:
    answers: list[Any] = []
    rest: list[Any] = []
    for entry in getattr(holder, rows.asked) or ():
        fields = {theirs: _value(entry, ours) for ours, theirs in rows.same}
        name = _name(entry, rows.same[0][0], topic_name) if rows.kind == "topic" else topic
        if rows.inner is not None:
            inner_class = _answer_class(answer_class, rows.inner)
            failing, others = _split(rows.inner, inner_class, entry, code, topic_name, chosen, name)
            if not rows.answered:
                answers.extend(failing)
            elif failing:
                answers.append(answer_class(**fields, **{rows.inner.answered: failing}))
            if others:
                rest.append(replace(entry, **{rows.inner.asked: others}) if failing else entry)
            continue
        if rows.kind == "partition":
            fails = name is not None and chosen(name, _value(entry, rows.same[0][0]))
        elif rows.kind == "topic":
            fails = name is not None and chosen(name, None)
        else:
            fails = chosen("", None)
        if fails:
            answers.append(answer_class(**fields, **rows.constants, **{rows.error: code}))
        else:
            rest.append(entry)
    return answers, rest


def merge(api: ApiDescription, version: int, code: ErrorCode, answers: list[Any] | None, served: Any) -> Any:
    """Put the answers that failed and the response that was served (None if none was) into one response."""
    rows = rows_of(api, version)
    if answers is None or rows is None:
        return api.response(error_code=code)
    response = api.response() if served is None else served
    while not rows.answered and rows.inner is not None:
        rows = rows.inner
    getattr(response, rows.answered).extend(answers)
    return response


def error_answer(api_key: int, version: int, request: Any, code: ErrorCode, message: str | None = None) -> Any:
    """The answer to a request that failed as a whole; None if it has no place where that could be said.

    ``message`` is told if the answer has one message for all. There is no place for the error where the client awaits
    nothing (Produce with acks=0), where the error is one of what only the broker knows, and where each thing that is
    asked for has its error and nothing is asked for.
    """
    api = API_KEYS[api_key]
    if fails_where_served(api, version) is not None or (api.name == "Produce" and request.acks == 0):
        return None
    answer = _all_failed(api, version, request, code, is_request=True)
    if answer is not None and message is not None and _has_field(api, version, "error_message"):
        answer.error_message = message
    return answer


def error_in_place(api_key: int, version: int, response: Any, code: ErrorCode) -> Any:
    """A response that says of each thing in another one that it failed, and no more; None if it has no place for it."""
    api = API_KEYS[api_key]
    field = fails_where_served(api, version)
    if field is not None:
        return fail_all(response, field, code)
    return _all_failed(api, version, response, code, is_request=False)


def _all_failed(api: ApiDescription, version: int, holder: Any, code: ErrorCode, *, is_request: bool) -> Any:
    rows = _FETCH_WITHOUT_SESSIONS if api.name == "Fetch" and version < 13 else rows_of(api, version)
    if rows is None:
        return api.response(error_code=code) if _has_field(api, version, "error_code") else None
    answers = _failed(rows, _answer_class(api.response, rows), holder, code, is_request)
    while not rows.answered and rows.inner is not None:
        rows = rows.inner
    if api.name == "Fetch" and version >= 7:
        return api.response(error_code=code, **{rows.answered: answers})
    return api.response(**{rows.answered: answers}) if answers else None


def _has_field(api: ApiDescription, version: int, name: str) -> bool:
    return any(spec.name == name and version in spec.versions for spec in struct_spec(api.response).fields)


def _failed(rows: Rows, answer_class: type[Any], holder: Any, code: ErrorCode, is_request: bool) -> list[Any]:
    inner = rows.inner
    if not rows.answered and not is_request:
        assert inner is not None
        return _failed(inner, _answer_class(answer_class, inner), holder, code, is_request)
    answers: list[Any] = []
    entries = list(getattr(holder, rows.asked if is_request else rows.answered) or ())
    if is_request and rows.also_asked:
        entries += getattr(holder, rows.also_asked)
    for entry in entries:
        fields = {theirs: _value(entry, ours if is_request else theirs) for ours, theirs in rows.same}
        if inner is None:
            answers.append(answer_class(**fields, **rows.constants, **{rows.error: code}))
            continue
        failed = _failed(inner, _answer_class(answer_class, inner), entry, code, is_request)
        if rows.answered:
            answers.append(answer_class(**fields, **{inner.answered: failed}))
        else:
            answers.extend(failed)
    return answers
