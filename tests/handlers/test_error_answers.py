"""Each API that clients are served says an error where it has a place for it, in every version."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from kbroker.errors import ErrorCode
from kbroker.handlers import load_handlers
from kbroker.handlers.common.error_answers import (
    Rows,
    error_answer,
    error_in_place,
    fail_all,
    fails_where_served,
    merge,
    named_partitions,
    rows_of,
    split,
)
from kbroker.handlers.registration import BOTH, BROKER, registrations
from kbroker.types import Uuid
from kbroker.wire.compiler import decode, encode
from kbroker.wire.messages.fetch import FetchPartition, FetchTopic
from kbroker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from kbroker.wire.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kbroker.wire.messages.metadata import MetadataRequest
from kbroker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kbroker.wire.messages.topics import CreateTopicsRequest
from kbroker.wire.registry import API_KEYS, ApiDescription, api_named
from kbroker.wire.schema import struct_spec
from tests.with_each import with_each

load_handlers()
CODE = ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # that no broker of these tests would answer by itself
TOPIC_ID = Uuid(bytes(range(16)))

SERVED = [
    (API_KEYS[key], version)
    for key, registration in registrations(BROKER).items()
    for version in range(registration.versions.lowest, registration.versions.highest + 1)
]


def name_of(topic_id: Uuid) -> str | None:
    return "by-id" if topic_id == TOPIC_ID else None


def sample(cls: type[Any], rows: Rows, version: int) -> Any:
    """A request with two entries in each of the lists that are answered one by one."""
    element = next(spec.type.element for spec in struct_spec(cls).fields if spec.name == rows.asked)
    assert element is not None
    entries: list[Any] = []
    for number in (1, 2):
        if element.struct is None:
            entries.append(f"n{number}" if element.name == "Str" else number)
            continue
        fields: dict[str, Any] = {}
        for spec in struct_spec(element.struct).fields:
            if spec.name == "topic_id" and version in spec.versions:
                fields["topic_id"] = TOPIC_ID
            elif spec.type.name == "Str" and version in spec.versions:
                fields[spec.name] = f"n{number}"
            elif spec.type.name in ("Int32", "Int64") and version in spec.versions:
                fields[spec.name] = number
        entry = element.struct(**fields)
        if rows.inner is not None:
            inner = sample(element.struct, rows.inner, version)
            entry = dataclasses.replace(entry, **{rows.inner.asked: getattr(inner, rows.inner.asked)})
        entries.append(entry)
    return cls(**{rows.asked: entries})


def codes(value: Any) -> Iterator[int]:
    """Every error in a response."""
    if isinstance(value, list):
        for entry in value:
            yield from codes(entry)
    elif hasattr(value, "__slots__") and not isinstance(value, (bytes, memoryview)):
        for name in value.__slots__:
            if name in ("error_code", "partition_error_code"):
                yield getattr(value, name)
            else:
                yield from codes(getattr(value, name))


@with_each(SERVED)
def test_an_error_in_the_shape_of_the_api(api: ApiDescription, version: int) -> None:
    if api.name == "Fetch" or fails_where_served(api, version):
        return  # which are shown below, and with clients
    rows = rows_of(api, version)
    request = api.request() if rows is None else sample(api.request, rows, version)
    answers, rest = split(api, version, request, CODE, name_of, lambda topic, partition: True)
    assert rest is None or (api.name == "Metadata" and rest.topics == [])
    wire = encode(merge(api, version, CODE, answers, None), version)
    response, end = decode(api.response, version, wire)
    assert end == len(wire)
    found = [code for code in codes(response) if code]
    assert set(found) == {CODE}
    depth = 1
    while rows is not None:
        depth, rows = depth * 2, rows.inner
    assert len(found) == depth


ALL_SERVED = [
    (API_KEYS[key], version)
    for key, registration in registrations(BOTH).items()
    for version in range(registration.versions.lowest, registration.versions.highest + 1)
]


@with_each(ALL_SERVED)
def test_a_request_that_fails_as_a_whole_is_answered_in_each_version(api: ApiDescription, version: int) -> None:
    rows = rows_of(api, version)
    if api.name == "Fetch" and version < 7:
        partitions = [FetchPartition(partition=1), FetchPartition(partition=2)]
        request = api.request(topics=[FetchTopic(topic=name, partitions=partitions) for name in ("n1", "n2")])
    else:
        request = api.request() if rows is None else sample(api.request, rows, version)
    if api.name == "Produce":
        request.acks = 1
    answer = error_answer(api.key, version, request, CODE)
    if fails_where_served(api, version):
        assert answer is None
        return
    response, _ = decode(api.response, version, encode(answer, version))
    found = [code for code in codes(response) if code]
    assert set(found) == {CODE}
    depth = 4 if api.name == "Fetch" and version < 7 else 1
    while rows is not None:
        depth, rows = depth * 2, rows.inner
    assert len(found) == depth
    # An answer that cannot be sent becomes the same, whatever else is in it.
    assert error_in_place(api.key, version, answer, CODE) == answer


def test_a_request_that_has_no_place_for_an_error_has_no_answer() -> None:
    assert error_answer(0, 9, ProduceRequest(acks=0), CODE) is None
    assert error_answer(3, 12, MetadataRequest(topics=None), CODE) is None
    assert error_answer(19, 7, CreateTopicsRequest(topics=[]), CODE) is None


def test_only_what_is_asked_for_is_left_of_an_answer_that_cannot_be_sent() -> None:
    partition = PartitionProduceResponse(index=7, base_offset=1 << 70, log_start_offset=5)
    response = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition])])
    left = error_in_place(0, 9, response, CODE).responses[0]
    assert left.name == "t"
    assert left.partition_responses == [
        PartitionProduceResponse(index=7, error_code=CODE, base_offset=-1, log_append_time_ms=-1)
    ]


def test_what_is_not_meant_is_left_in_the_request() -> None:
    request = ListOffsetsRequest(
        topics=[
            ListOffsetsTopic(name="a", partitions=[ListOffsetsPartition(partition_index=n) for n in range(3)]),
            ListOffsetsTopic(name="b", partitions=[ListOffsetsPartition(partition_index=1)]),
        ]
    )
    api = api_named("ListOffsets")
    answers, rest = split(api, 7, request, CODE, name_of, lambda topic, partition: (topic, partition) == ("a", 1))
    assert [[p.partition_index for p in topic.partitions] for topic in rest.topics] == [[0, 2], [1]]
    assert len(request.topics[0].partitions) == 3, "the request itself is not changed"
    served = ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse(name="b", partitions=[ListOffsetsPartitionResponse(partition_index=1)])]
    )
    merged = merge(api, 7, CODE, answers, served)
    assert [(t.name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in merged.topics] == [
        ("b", [(1, 0)]),
        ("a", [(1, CODE)]),
    ]


def test_topics_are_known_by_their_ids() -> None:
    request = ProduceRequest(
        topic_data=[
            TopicProduceData(topic_id=TOPIC_ID, partition_data=[PartitionProduceData(index=4)]),
            TopicProduceData(topic_id=Uuid(bytes(15) + b"x"), partition_data=[PartitionProduceData(index=5)]),
        ]
    )
    api = api_named("Produce")
    assert named_partitions(api, 13, request, name_of) == [("by-id", 4)]
    answers, rest = split(api, 13, request, CODE, name_of, lambda topic, partition: topic == "by-id")
    assert answers is not None
    assert [(a.topic_id, a.partition_responses[0].index) for a in answers] == [(TOPIC_ID, 4)]
    assert [t.partition_data[0].index for t in rest.topic_data] == [5]


def test_an_api_that_asks_by_directory_and_answers_by_topic() -> None:
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(path="/a", topics=[AlterReplicaLogDirTopic(name="t", partitions=[0, 1])]),
            AlterReplicaLogDir(path="/b", topics=[AlterReplicaLogDirTopic(name="t", partitions=[2])]),
        ]
    )
    api = api_named("AlterReplicaLogDirs")
    assert named_partitions(api, 2, request, name_of) == [("t", 0), ("t", 1), ("t", 2)]
    answers, rest = split(api, 2, request, CODE, name_of, lambda topic, partition: partition != 1)
    merged = merge(api, 2, CODE, answers, AlterReplicaLogDirsResponse())
    assert [(t.topic_name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in merged.results] == [
        ("t", [(0, CODE)]),
        ("t", [(2, CODE)]),
    ]
    assert [(d.path, [(t.name, t.partitions) for t in d.topics]) for d in rest.dirs] == [("/a", [("t", [1])])]


def test_the_directories_of_the_first_versions_of_describe_log_dirs() -> None:
    api = api_named("DescribeLogDirs")
    field = fails_where_served(api, 2)
    assert field == "results" and fails_where_served(api, 3) is None
    served = DescribeLogDirsResponse(
        results=[DescribeLogDirsResult(log_dir="/a", topics=[DescribeLogDirsTopic(name="t")])]
    )
    failed = fail_all(served, field, CODE)
    assert failed.results == [DescribeLogDirsResult(error_code=CODE, log_dir="/a", topics=[])]
