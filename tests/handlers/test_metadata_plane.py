"""Conversations with the metadata plane. The expected codes and texts were taken from a running Apache Kafka 4.3.1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ErrorCode as E
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.messages import configs as dc
from kbroker.wire.messages import configs as inc
from kbroker.wire.messages import describe_topic_partitions as dtp
from kbroker.wire.messages import elect_leaders as el
from kbroker.wire.messages import metadata as md
from kbroker.wire.messages import topics as cp
from kbroker.wire.messages import topics as ct
from kbroker.wire.messages import topics as dt
from tests.handlers.metadata_plane import metadata_plane


def topic(name: str, partitions: int = 1, factor: int = 1, assign: Any = (), configs: Any = ()) -> ct.CreatableTopic:
    return ct.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[ct.CreatableReplicaAssignment(partition_index=p, broker_ids=b) for p, b in assign],
        configs=[ct.CreatableTopicConfig(name=n, value=v) for n, v in configs],
    )


def create(*topics: ct.CreatableTopic, validate_only: bool = False) -> ct.CreateTopicsRequest:
    return ct.CreateTopicsRequest(topics=list(topics), validate_only=validate_only)


def metadata(*names: str, auto: bool = False, **more: Any) -> md.MetadataRequest:
    return md.MetadataRequest(
        topics=[md.MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=auto, **more
    )


BAD_TOPICS = [
    (topic("x_y"), E.INVALID_TOPIC_EXCEPTION, "Topic 'x_y' collides with existing topic: x.y"),
    (topic("x.y"), E.TOPIC_ALREADY_EXISTS, "Topic 'x.y' already exists."),
    (topic(""), E.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
    (topic("line\n"), E.INVALID_TOPIC_EXCEPTION, None),
    (topic("__cluster_metadata"), E.INVALID_REQUEST, "Creation of internal topic __cluster_metadata is prohibited."),
    (
        topic("r5", 1, 5),
        E.INVALID_REPLICATION_FACTOR,
        "Unable to replicate the partition 5 time(s): The target replication factor of 5 cannot be reached because "
        "only 1 broker(s) are registered or some brokers have all their log directories cordoned.",
    ),
    (topic("m1", 1, -1, [(0, [1])]), E.INVALID_REQUEST, None),
    (topic("m2", -1, 1, [(0, [1])]), E.INVALID_REQUEST, None),
    (topic("m3", -1, -1, [(0, [9])]), E.INVALID_REPLICA_ASSIGNMENT, None),
    (topic("m4", -1, -1, [(0, [1, 1])]), E.INVALID_REPLICA_ASSIGNMENT, None),
    (topic("m5", -1, -1, [(1, [1])]), E.INVALID_REPLICA_ASSIGNMENT, None),
    (topic("m6", -1, -1, [(0, [])]), E.INVALID_REPLICA_ASSIGNMENT, None),
    (topic("m7", -1, -1, [(0, [1]), (0, [1])]), E.INVALID_REPLICA_ASSIGNMENT, None),
    (topic("c4", configs=[("segment.bytes", "14")]), E.INVALID_CONFIG, None),
]


async def test_bad_topics_get_kafkas_error_and_the_others_are_created(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        await plane.ask(create(topic("x.y")))
        answer = await plane.ask(create(*[bad for bad, _, _ in BAD_TOPICS], topic("good"), topic("d"), topic("d")))
        by_name = {entry.name: entry for entry in answer.topics}
        for bad, code, text in BAD_TOPICS:
            assert by_name[bad.name].error_code == code, bad
            if text is not None:
                assert by_name[bad.name].error_message == text
        assert by_name["good"].error_code == 0
        assert (by_name["d"].error_code, by_name["d"].error_message) == (E.INVALID_REQUEST, "Duplicate topic name.")
        assert set(plane.metadata.image.topics.by_name) == {"x.y", "good"}


async def test_metadata_of_missing_topics_and_auto_creation(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path, num_partitions="2") as plane:
        answer = await plane.ask(metadata("new", "b d"), 9)
        assert [t.error_code for t in answer.topics] == [E.UNKNOWN_TOPIC_OR_PARTITION, E.INVALID_TOPIC_EXCEPTION]
        assert not plane.metadata.image.topics.by_name
        answer = await plane.ask(metadata("new", "b d", auto=True), 9)
        assert [t.error_code for t in answer.topics] == [E.UNKNOWN_TOPIC_OR_PARTITION, E.INVALID_TOPIC_EXCEPTION]
        answer = await plane.ask(metadata("new", auto=True), 9)
        assert answer.topics[0].error_code == 0 and len(answer.topics[0].partitions) == 2


async def test_auto_creation_can_be_off(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path, auto_create_topics_enable="false") as plane:
        await plane.ask(metadata("new", auto=True))
        assert not plane.metadata.image.topics.by_name


async def test_endpoints_are_those_of_the_clients_listener(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        await plane.ask(create(topic("a")))
        answer = await plane.ask(metadata("a"), listener="OTHER")
        assert not answer.brokers
        partition = answer.topics[0].partitions[0]
        assert (partition.error_code, partition.leader_id) == (E.LISTENER_NOT_FOUND, -1)
        assert partition.offline_replicas == [1]
        old = await plane.ask(metadata("a"), 5, listener="OTHER")
        assert old.topics[0].partitions[0].error_code == E.LEADER_NOT_AVAILABLE


async def test_describe_topic_partitions_pages(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        await plane.ask(create(topic("a", 3), topic("b", 2), topic("c")))
        seen: list[tuple[str, int]] = []
        cursor = None
        for _ in range(10):
            answer = await plane.ask(dtp.DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=cursor))
            seen += [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
            if answer.next_cursor is None:
                break
            cursor = dtp.Cursor(
                topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
            )
        assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0)]
        named = [dtp.TopicRequest(name=name) for name in ("zz", "a", "b d")]
        answer = await plane.ask(dtp.DescribeTopicPartitionsRequest(topics=named))
        assert [(t.name, t.error_code) for t in answer.topics] == [
            ("a", 0),
            ("b d", E.INVALID_TOPIC_EXCEPTION),
            ("zz", E.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        for bad in (dtp.Cursor(topic_name="b", partition_index=0), dtp.Cursor(topic_name="a", partition_index=-1)):
            request = dtp.DescribeTopicPartitionsRequest(topics=[dtp.TopicRequest(name="a")], cursor=bad)
            assert (await plane.ask(request)).topics[0].error_code == E.INVALID_REQUEST


async def test_delete_topics_by_name_and_id(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        made = (await plane.ask(create(topic("a"), topic("b", configs=[("retention.ms", "1")]), topic("c")))).topics
        ids = {entry.name: entry.topic_id for entry in made}
        state = dt.DeleteTopicState
        request = dt.DeleteTopicsRequest(
            topics=[
                state(name=None, topic_id=ids["a"]),
                state(name="b"),
                state(name="zz"),
                state(name=None, topic_id=Uuid(b"q" * 16)),
                state(name=None),
                state(name="c", topic_id=ids["c"]),
            ]
        )
        answer = await plane.ask(request)
        codes = {(entry.name, bytes(entry.topic_id)): entry.error_code for entry in answer.responses}
        assert codes == {
            ("a", ids["a"]): 0,
            ("b", ids["b"]): 0,
            ("zz", ZERO_UUID): E.UNKNOWN_TOPIC_OR_PARTITION,
            (None, b"q" * 16): E.UNKNOWN_TOPIC_ID,
            (None, ZERO_UUID): E.INVALID_REQUEST,
            ("c", ids["c"]): E.INVALID_REQUEST,
        }
        assert set(plane.metadata.image.topics.by_name) == {"c"}
        assert set(plane.metadata.image.configs.by_resource) == {(4, "")}
        again = dt.DeleteTopicsRequest(topics=[state(name="c"), state(name=None, topic_id=ids["c"])])
        assert [entry.error_code for entry in (await plane.ask(again)).responses] == [E.INVALID_REQUEST]
        assert set(plane.metadata.image.topics.by_name) == {"c"}
        twice = dt.DeleteTopicsRequest(topic_names=["c", "c"])
        assert [entry.error_code for entry in (await plane.ask(twice, 3)).responses] == [E.INVALID_REQUEST]
        assert [e.error_code for e in (await plane.ask(dt.DeleteTopicsRequest(topic_names=["c"]), 1)).responses] == [0]


async def test_deletion_can_be_disabled(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path, delete_topic_enable="false") as plane:
        await plane.ask(create(topic("a")))
        answer = await plane.ask(dt.DeleteTopicsRequest(topic_names=["a"]), 5)
        assert answer.responses[0].error_code == E.TOPIC_DELETION_DISABLED
        answer = await plane.ask(dt.DeleteTopicsRequest(topic_names=["a"]), 2)
        assert answer.responses[0].error_code == E.INVALID_REQUEST


async def test_create_partitions(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        await plane.ask(create(topic("a", 3), topic("b", 2), topic("c")))

        def more(name: str, count: int, assign: list[list[int]] | None = None) -> cp.CreatePartitionsTopic:
            assignments = None
            if assign is not None:
                assignments = [cp.CreatePartitionsAssignment(broker_ids=brokers) for brokers in assign]
            return cp.CreatePartitionsTopic(name=name, count=count, assignments=assignments)

        request = cp.CreatePartitionsRequest(
            topics=[more("a", 5), more("b", 1), more("c", 1), more("zz", 2), more("d", 2), more("d", 3)]
        )
        answer = await plane.ask(request)
        results = {entry.name: (entry.error_code, entry.error_message) for entry in answer.results}
        assert results == {
            "a": (0, None),
            "b": (E.INVALID_PARTITIONS, "The topic b currently has 2 partition(s); 1 would not be an increase."),
            "c": (E.INVALID_PARTITIONS, "Topic already has 1 partition(s)."),
            "zz": (E.UNKNOWN_TOPIC_OR_PARTITION, None),
            "d": (E.INVALID_REQUEST, "Duplicate topic name."),
        }
        assert list(plane.metadata.image.topics.by_name["a"].partitions) == [0, 1, 2, 3, 4]
        manual = cp.CreatePartitionsRequest(topics=[more("b", 3, [[1]]), more("c", 3, [[1]])])
        codes = [entry.error_code for entry in (await plane.ask(manual)).results]
        assert codes == [0, E.INVALID_REPLICA_ASSIGNMENT]
        checked = cp.CreatePartitionsRequest(topics=[more("c", 9)], validate_only=True)
        assert (await plane.ask(checked)).results[0].error_code == 0
        assert len(plane.metadata.image.topics.by_name["c"].partitions) == 1


def change(kind: int, name: str, *configs: tuple[str, int, str | None]) -> inc.IncrementalAlterConfigsResource:
    return inc.IncrementalAlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[inc.IncrementalAlterableConfig(name=n, config_operation=o, value=v) for n, o, v in configs],
    )


def describe(kind: int, name: str, *keys: str) -> dc.DescribeConfigsRequest:
    resource = dc.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    return dc.DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)


async def test_configs_are_changed_and_described_with_their_sources(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        await plane.ask(create(topic("a"), topic("b", configs=[("cleanup.policy", "compact")])))
        answer = await plane.ask(
            inc.IncrementalAlterConfigsRequest(
                resources=[
                    change(2, "a", ("retention.ms", 0, "5")),
                    change(2, "b", ("cleanup.policy", 2, "delete")),
                    change(4, "1", ("log.retention.ms", 0, "5000")),
                    change(4, "", ("log.cleaner.threads", 0, "2")),
                ]
            )
        )
        assert [entry.error_code for entry in answer.responses] == [0, 0, 0, 0]
        retention = (await plane.ask(describe(2, "a", "retention.ms"))).results[0].configs[0]
        assert [(s.name, s.value, s.source) for s in retention.synonyms] == [
            ("retention.ms", "5", 1),
            ("log.retention.ms", "5000", 2),
            ("log.retention.hours", "168", 5),
        ]
        inherited = (await plane.ask(describe(2, "b", "retention.ms", "cleanup.policy"))).results[0].configs
        assert {(c.name, c.value, c.config_source) for c in inherited} == {
            ("retention.ms", "5000", 2),
            ("cleanup.policy", "compact,delete", 1),
        }
        broker = (await plane.ask(describe(4, "1", "log.cleaner.threads", "node.id"))).results[0].configs
        assert {(c.name, c.value, c.config_source, c.read_only) for c in broker} == {
            ("log.cleaner.threads", "2", 3, False),
            ("node.id", "1", 4, True),
        }
        assert all(c.documentation for c in broker)
        undo = inc.IncrementalAlterConfigsRequest(
            resources=[change(2, "a", ("retention.ms", 1, None)), change(2, "b", ("cleanup.policy", 3, "compact"))]
        )
        await plane.ask(undo)
        assert dict(plane.metadata.image.configs.for_topic("a")) == {}
        assert dict(plane.metadata.image.configs.for_topic("b")) == {"cleanup.policy": "delete"}


BAD_CHANGES = [
    (change(2, "zz", ("retention.ms", 0, "5")), E.UNKNOWN_TOPIC_OR_PARTITION),
    (change(2, "", ("retention.ms", 0, "5")), E.INVALID_REQUEST),
    (change(2, "a", ("retention.ms", 2, "5")), E.INVALID_CONFIG),
    (change(2, "a", ("nope", 0, "5")), E.INVALID_CONFIG),
    (change(2, "a", ("retention.ms", 0, "x")), E.INVALID_CONFIG),
    (change(2, "a", ("retention.ms", 0, None)), E.INVALID_REQUEST),
    (change(2, "a", ("retention.ms", 0, "1"), ("retention.ms", 1, None)), E.INVALID_REQUEST),
    (change(2, "a", ("retention.ms", 9, "1")), E.INVALID_REQUEST),
    (change(4, "7", ("log.retention.ms", 0, "5")), E.INVALID_REQUEST),
    (change(4, "x", ("log.retention.ms", 0, "5")), E.INVALID_REQUEST),
    (change(4, "1", ("node.id", 0, "5")), E.INVALID_REQUEST),
    (change(4, "1", ("log.retention.ms", 0, "xx")), E.INVALID_REQUEST),
    (change(4, "", ("ssl.keystore.location", 0, "/x")), E.INVALID_REQUEST),
    (change(0, "f"), E.INVALID_REQUEST),
    (change(32, "", ("consumer.session.timeout.ms", 0, "46000")), E.INVALID_REQUEST),
]


@pytest.mark.parametrize(("resource", "code"), BAD_CHANGES)
async def test_bad_config_changes(tmp_path: Path, resource: inc.IncrementalAlterConfigsResource, code: E) -> None:
    async with metadata_plane(tmp_path) as plane:
        await plane.ask(create(topic("a"), topic("b")))
        good = change(2, "b", ("retention.ms", 0, "5"))
        answer = await plane.ask(inc.IncrementalAlterConfigsRequest(resources=[resource, good]))
        assert [entry.error_code for entry in answer.responses] == [code, 0]
        assert set(plane.metadata.image.configs.by_resource) == {(2, "b"), (4, "")}


async def test_properties_in_one_answer_are_bounded(tmp_path: Path) -> None:
    """A thousand times the same broker took 400 MB, and nobody else was served for seconds."""
    async with metadata_plane(tmp_path) as plane:
        env = plane.services.env
        env.budgets = env.budgets._replace(described_properties=300)
        request = describe(4, "1")
        answer = await plane.ask(dc.DescribeConfigsRequest(resources=request.resources * 5))
        codes = [result.error_code for result in answer.results]
        assert codes[0] == 0 and codes[-1] == E.INVALID_REQUEST and codes == sorted(codes)
        told = [result.configs for result in answer.results if not result.error_code]
        assert len(told[0]) > 100 and all(configs == told[0] for configs in told)


async def test_describe_configs_errors(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        for kind, name, code in (
            (2, "zz", E.UNKNOWN_TOPIC_OR_PARTITION),
            (2, "b d", E.INVALID_TOPIC_EXCEPTION),
            (4, "7", E.INVALID_REQUEST),
            (4, "x", E.INVALID_REQUEST),
            (8, "", E.INVALID_REQUEST),
            (32, "", E.INVALID_REQUEST),
        ):
            assert (await plane.ask(describe(kind, name))).results[0].error_code == code


async def test_elections(tmp_path: Path) -> None:
    async with metadata_plane(tmp_path) as plane:
        await plane.ask(create(topic("a")))
        wanted = el.TopicPartitions(topic="a", partitions=[0, 9])
        answer = await plane.ask(el.ElectLeadersRequest(topic_partitions=[wanted]))
        assert [p.error_code for p in answer.replica_election_results[0].partition_result] == [
            E.ELECTION_NOT_NEEDED,
            E.UNKNOWN_TOPIC_OR_PARTITION,
        ]
