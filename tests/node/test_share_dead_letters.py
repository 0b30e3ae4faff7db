"""Dead-letter queues of share groups (KIP-1191): what a node writes, when it must not, and what a stop leaves to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from kbroker.cores.share_state import DeliveryState
from kbroker.errors import ErrorCode
from kbroker.node.peers.peer_pool import PeerPool
from kbroker.types import Uuid
from kbroker.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from kbroker.wire.messages.produce import ProduceRequest
from kbroker.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kbroker.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kbroker.wire.record_batch import Record, build_batch
from tests.node.node_harness import Client, Node, produce_request, run, running_node
from tests.node.quorum_harness import Quorum, three_nodes
from tests.node.share_member import ACCEPT, GROUP_TYPE, REJECT, RELEASE, Member, begin, configure, records_of
from tests.node.share_state_harness import GROUP, errors, find, read, summary
from tests.patience import until

DLQ = "dlq.jobs"
NAME = {"errors_deadletterqueue_topic_name": DLQ}
COPY = {**NAME, "errors_deadletterqueue_copy_record_enable": "true"}
FEW = {"share_coordinator_state_topic_num_partitions": "1"}
CREATES = {**FEW, "errors_deadletterqueue_auto_create_topics_enable": "true"}
ENABLED = {"errors_deadletterqueue_group_enable": "true"}
REJECTED = b"Offset rejected by client."
WORN_OUT = b"Offset delivery count exceeded the threshold."


def headers(record: Record) -> dict[str, bytes | None]:
    return {name.removeprefix("__dlq.errors."): value for name, value in record.headers}


async def prepared(node: Node, *values: bytes, **configs: str) -> tuple[Client, Uuid, Member]:
    """A topic with records, a group of these configs, and a member of it."""
    topic_id = await node.create_topic("jobs")
    client = await node.connect()
    await configure(client, GROUP_TYPE, GROUP, **configs)
    stored = [Record(number, 1, b"key", value) for number, value in enumerate(values)]
    answer = await client.ask(produce_request("jobs", build_batch(stored), topic_id=topic_id))
    assert not answer.responses[0].partition_responses[0].error_code
    await begin(client, topic_id)
    return client, topic_id, Member(await node.connect(), topic_id)


def dead_letter_topic(node: Node) -> Uuid | None:
    topic = node.broker.metadata.image.topics.by_name.get(DLQ)
    return None if topic is None else topic.id


async def letters(node: Node, count: int) -> list[Record]:
    """The dead letters, once there are so many."""
    client = await node.connect()
    found: list[Record] = []

    async def enough() -> bool:
        topic_id = dead_letter_topic(node)
        if topic_id is not None:
            found[:] = await records_of(client, DLQ, topic_id)
        return len(found) >= count

    await until(enough)
    return found


async def until_done(client: Client, topic_id: Uuid, count: int) -> None:
    """Wait until so many records, the first ones, are done with. The start that is kept may lag behind."""

    async def is_done() -> bool:
        told = errors(await client.ask(summary(topic_id, 0)))[0]
        return bool(told.start_offset + told.delivery_complete_count == count)

    await until(is_done)


def test_a_rejected_record_goes_to_a_topic_that_is_made_for_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_node(tmp_path, **CREATES) as node:
            client, topic_id, member = await prepared(node, b"good", b"bad", b"fine", **COPY)
            assert await member.fetch() == [(0, 2, 1)]
            await member.acknowledge(0, 2, ACCEPT, REJECT, ACCEPT)
            (letter,) = await letters(node, 1)
            assert (letter.key, letter.value) == (b"key", b"bad")
            assert letter.headers == (
                ("__dlq.errors.topic", b"jobs"),
                ("__dlq.errors.partition", b"0"),
                ("__dlq.errors.offset", b"1"),
                ("__dlq.errors.group", GROUP.encode()),
                ("__dlq.errors.delivery.count", b"1"),
                ("__dlq.errors.message", REJECTED),
            )
            await until_done(client, topic_id, 3)
            asked = DescribeConfigsResource(resource_type=2, resource_name=DLQ, configuration_keys=None)
            told: Any = await client.ask(DescribeConfigsRequest(resources=[asked]))
            own = {each.name: each.value for each in told.results[0].configs if each.config_source == 1}
            assert own == {"errors.deadletterqueue.group.enable": "true", "message.timestamp.type": "CreateTime"}

    run(scenario)


def test_a_record_that_is_delivered_too_often_goes_there_without_its_content_unless_that_is_asked_for(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with running_node(tmp_path, **FEW) as node:
            await node.create_topic(DLQ, **ENABLED)
            client, topic_id, member = await prepared(node, b"poison", **NAME, share_delivery_count_limit="2")
            for count in (1, 2):
                assert await member.fetch() == [(0, 0, count)]
                await member.acknowledge(0, 0, RELEASE)
            (letter,) = await letters(node, 1)
            assert (letter.key, letter.value) == (None, None)
            assert (headers(letter)["delivery.count"], headers(letter)["message"]) == (b"2", WORN_OUT)
            await until_done(client, topic_id, 1)

    run(scenario)


def test_many_letters_take_batches_that_the_topic_accepts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_node(tmp_path, **FEW) as node:
            await node.create_topic(DLQ, **ENABLED, max_message_bytes="1500")
            values = [b"%d" % number + bytes(400) for number in range(6)] + [bytes(1400)]
            client, topic_id, member = await prepared(node, *values, **COPY)
            assert await member.fetch() == [(0, 6, 1)]
            await member.acknowledge(0, 6, REJECT)
            found = await letters(node, 7)
            assert [each.value for each in found] == [*values[:6], None], "the last one fits into no batch"
            assert [headers(each)["offset"] for each in found] == [b"%d" % number for number in range(7)]
            await until_done(client, topic_id, 7)

    run(scenario)


@pytest.mark.parametrize(
    ("configs", "properties", "reason"),
    [
        (NAME, FEW, "there is no topic dlq.jobs"),
        (
            {**NAME, "errors_deadletterqueue_topic_name": "jobs"},
            FEW,
            "has not errors.deadletterqueue.group.enable=true",
        ),
        ({**NAME, "errors_deadletterqueue_topic_name": "dead"}, CREATES, "does not begin with"),
    ],
)
def test_where_no_letter_can_be_written_the_record_is_given_up_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, configs: dict[str, str], properties: dict[str, str], reason: str
) -> None:
    async def scenario() -> None:
        async with running_node(tmp_path, **properties) as node:
            client, topic_id, member = await prepared(node, b"bad", **configs)
            await member.fetch()
            await member.acknowledge(0, 0, REJECT)
            await until_done(client, topic_id, 1)
            said = f"the share group {GROUP} gives up offsets 0 of jobs-0 without a dead letter: "
            assert any(line.startswith(said) and reason in line for line in caplog.messages)

    run(scenario)


def test_a_cluster_below_level_2_has_no_dead_letters_and_one_below_1_no_share_groups(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_node(tmp_path, **CREATES) as node:
            client, topic_id, member = await prepared(node, b"bad", b"good", **NAME)
            update = FeatureUpdateKey(feature="share.version", max_version_level=1, upgrade_type=2)
            assert not (await client.ask(UpdateFeaturesRequest(feature_updates=[update]))).error_code
            assert await member.fetch(1) == [(0, 0, 1)]
            await member.acknowledge(0, 0, REJECT)
            await until_done(client, topic_id, 1)
            assert dead_letter_topic(node) is None
            update.max_version_level = 0
            assert not (await client.ask(UpdateFeaturesRequest(feature_updates=[update]))).error_code
            with pytest.raises(AssertionError, match="error_code=35"):
                await member.fetch()
            update.max_version_level, update.upgrade_type = 2, 1
            assert not (await client.ask(UpdateFeaturesRequest(feature_updates=[update]))).error_code
            assert await Member(client, topic_id).fetch() == [(1, 1, 1)]

    run(scenario)


async def until_archiving(client: Client, topic_id: Uuid) -> None:
    async def is_archiving() -> bool:
        state = errors(await client.ask(read(topic_id, (0, 0))))[0]
        return [each.delivery_state for each in state.state_batches] == [DeliveryState.ARCHIVING]

    await until(is_archiving)


def gate(monkeypatch: pytest.MonkeyPatch) -> trio.Event:
    """Dead letters cannot be written, until the event is set."""
    ask, may_write = PeerPool.ask, trio.Event()

    async def ask_if_may(peers: PeerPool, node_id: int, request: Any, *version: Any, **more: Any) -> Any:
        if isinstance(request, ProduceRequest):
            await may_write.wait()
        return await ask(peers, node_id, request, *version, **more)

    monkeypatch.setattr(PeerPool, "ask", ask_if_may)
    return may_write


def test_a_node_that_is_stopped_in_the_middle_goes_on_when_somebody_reads_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write = gate(monkeypatch)

    async def scenario() -> None:
        async with running_node(tmp_path, **FEW) as node:
            await node.create_topic(DLQ, **ENABLED)
            client, topic_id, member = await prepared(node, b"bad", b"good", **COPY)
            assert await member.fetch(1) == [(0, 0, 1)]
            await member.acknowledge(0, 0, REJECT)
            await until_archiving(client, topic_id)
        async with running_node(tmp_path, **FEW) as node:
            client = await node.connect()
            may_write.set()
            assert await Member(await node.connect(), topic_id).fetch() == [(1, 1, 1)]
            (letter,) = await letters(node, 1)
            assert letter.value == b"bad" and headers(letter)["message"] == REJECTED
            await until_done(client, topic_id, 1)

    run(scenario)


def test_a_letter_whose_state_could_not_be_kept_is_written_when_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running_node(tmp_path, **FEW) as node:
            node.allow(retry_pauses=0.01)
            await node.create_topic(DLQ, **ENABLED)
            client, topic_id, member = await prepared(node, b"poison", **NAME, share_delivery_count_limit="2")
            services: Any = node.broker.services
            partitions, persister = services.share_groups().partitions, services.share_groups().persister
            assert await member.fetch() == [(0, 0, 1)]
            assert partitions.end_all_locks() == 1
            assert await member.fetch() == [(0, 0, 2)]
            write = persister.write
            states: list[int] = []

            async def fail_twice(group_id: str, written: Any) -> Any:
                states.extend(each.delivery_state for state in written.values() for each in state.batches)
                if len(states) <= 2:
                    return dict.fromkeys(written, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                return await write(group_id, written)

            monkeypatch.setattr(persister, "write", fail_twice)
            assert partitions.end_all_locks() == 1
            (letter,) = await letters(node, 1)
            assert headers(letter)["message"] == WORN_OUT
            await until_done(client, topic_id, 1)
            assert states == [DeliveryState.ARCHIVING] * 3 + [DeliveryState.ARCHIVED]

    run(scenario)


def test_readers_that_come_and_go_while_letters_wait_leave_one_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write = gate(monkeypatch)

    async def scenario() -> None:
        async with running_node(tmp_path, **FEW) as node:
            await node.create_topic(DLQ, **ENABLED)
            client, topic_id, member = await prepared(node, b"bad", b"good", **NAME)
            assert await member.fetch(1) == [(0, 0, 1)]
            await member.acknowledge(0, 0, REJECT)
            await until_archiving(client, topic_id)
            services: Any = node.broker.services
            partitions, started = services.share_groups().partitions, []
            start_soon = node.broker.replica_manager.start_soon

            def count(function: Any, *args: Any) -> None:
                started.append(function.__name__)
                start_soon(function, *args)

            async def has_left() -> bool:
                return not partitions.sessions.has_members(GROUP)

            monkeypatch.setattr(node.broker.replica_manager, "start_soon", count)
            for deliveries in (1, 2, 3):
                reader = await node.connect()
                assert await Member(reader, topic_id).fetch() == [(1, 1, deliveries)]
                await reader.stream.aclose()
                await until(has_left)
            assert started.count("_forget_later") == 1 and partitions.led()
            may_write.set()

            async def is_forgotten() -> bool:
                return not partitions.led()

            await until(is_forgotten)
            assert len(await letters(node, 1)) == 1

    run(scenario)


async def create(client: Client, name: str, **configs: str) -> Uuid:
    """A topic with a replica on each of three nodes."""
    pairs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=3, configs=pairs)
    answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
    assert not answer.topics[0].error_code, answer
    return Uuid(bytes(answer.topics[0].topic_id))


def leader_of(cluster: Quorum, topic: str) -> int:
    return int(cluster.newest_image().topics.by_name[topic].partitions[0].leader)


def is_led(cluster: Quorum, topic: str, before: int) -> bool:
    """Whether another node than ``before`` leads the topic's partition, and has heard of it."""
    leader = leader_of(cluster, topic)
    return leader not in (before, -1) and cluster.nodes[leader].replica_manager.partitions[topic, 0].state.is_leader


def test_another_leader_goes_on_with_what_was_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_write = gate(monkeypatch)

    async def scenario() -> None:
        properties = {
            **FEW,
            "share_coordinator_state_topic_replication_factor": "3",
            "share_coordinator_state_topic_min_isr": "1",
        }
        async with three_nodes(tmp_path, **properties) as cluster:
            client = await cluster.node(1).connect()
            await create(client, DLQ, **ENABLED)
            topic_id = await create(client, "jobs")
            await configure(client, GROUP_TYPE, GROUP, **COPY)
            coordinator = await find(client, topic_id)
            await cluster.topics_everywhere([DLQ, "jobs"])
            leader = leader_of(cluster, "jobs")
            at_leader = await cluster.node(leader).connect()
            stored = build_batch([Record(0, 1, b"key", b"bad"), Record(1, 1, b"key", b"good")])
            answer = await at_leader.ask(produce_request("jobs", stored, topic_id=topic_id))
            assert not answer.responses[0].partition_responses[0].error_code
            at_coordinator = await cluster.node(coordinator).connect()
            await begin(at_coordinator, topic_id)
            member = Member(at_leader, topic_id)
            assert await member.fetch(1) == [(0, 0, 1)]
            await member.acknowledge(0, 0, REJECT)
            await until_archiving(at_coordinator, topic_id)

            await cluster.stop(leader)
            await cluster.until(lambda: is_led(cluster, "jobs", leader))
            client = await cluster.node(leader_of(cluster, "jobs")).connect()
            may_write.set()
            assert await Member(client, topic_id).fetch() == [(1, 1, 1)]
            await cluster.until(lambda: is_led(cluster, DLQ, leader))
            (letter,) = await letters(cluster.node(leader_of(cluster, DLQ)), 1)
            assert letter.value == b"bad" and headers(letter)["message"] == REJECTED

    run(scenario)
