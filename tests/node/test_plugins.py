"""Assignors, policies and config providers of one's own, as stock clients meet them: on one node, and on three."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.client import Client
from kbroker.client.configs import ConfigChange, Operation, ResourceType, alter_configs, describe_configs
from kbroker.client.errors import ResponseError
from kbroker.client.topics import NewTopic as ClientTopic
from kbroker.client.topics import create_topics
from kbroker.config import BrokerConfig
from kbroker.node.rules.setup import NodeRules
from kbroker.rules import ConfigChanges, ConsumerGroup, NewTopic, PolicyViolation, TopicPartition
from kbroker.runtime.env import RealEnv
from kbroker.testing import RunningBroker, running_broker, running_cluster
from tests.every_node import await_topics
from tests.patience import LONG, eventually

MINUTES = 31_415_926
"""A value that is to be told nowhere. No port and no directory of a test has a number like it."""


def complaints(broker: RunningBroker) -> list[str]:
    """The lines about rules that fail; nothing else has a traceback."""
    assert not [record for record in broker.logs if record.exc_info]
    return [record.getMessage() for record in broker.logs if record.name == "kbroker.rules"]


# --- Assignors ------------------------------------------------------------------------------------------------------


class Apart:
    """Gives each member the topics that its instance id names; the rest to the first."""

    def __init__(self) -> None:
        self.groups: list[ConsumerGroup] = []
        self.fails = False

    def assign(self, group: ConsumerGroup) -> Any:
        self.groups.append(group)
        if self.fails:
            raise RuntimeError("broken")
        first = min(group.members)
        found: dict[str, list[TopicPartition]] = {member: [] for member in group.members}
        for partition in group.partitions:
            owner = next((m for m, one in group.members.items() if one.instance_id == partition.topic), first)
            found[owner].append(partition)
        return found


def consumer(broker: RunningBroker, instance: str, assignor: str | None = None) -> Any:
    ck = pytest.importorskip("confluent_kafka")
    given = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "group.instance.id": instance,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
    }
    if assignor is not None:
        given["group.remote.assignor"] = assignor
    made = ck.Consumer(given)
    made.subscribe(["a", "b"])
    return made


def assigned(*consumers: Any) -> list[set[str]]:
    """The topics of each; polls."""
    for each in consumers:
        each.poll(0.05)
    return [{f"{part.topic}-{part.partition}" for part in each.assignment()} for each in consumers]


@pytest.mark.parametrize("chosen", [None, "apart"])
def test_consumers_have_the_partitions_that_an_assignor_gives_them(chosen: str | None) -> None:
    rule = Apart()
    with running_broker(
        {
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.heartbeat.interval.ms": "100",
            "group.consumer.assignment.interval.ms": "0",
        },
        consumer_assignors={"apart": rule},
    ) as broker:
        with Client(broker.bootstrap_servers) as client:
            create_topics(client, [ClientTopic("a", 2, 1), ClientTopic("b", 1, 1)])
        one, two = consumer(broker, "a", chosen), consumer(broker, "b", chosen)
        try:
            wanted = [{"a-0", "a-1"}, {"b-0"}]
            eventually(lambda: assigned(one, two) == wanted, "both have their partitions")
            group = rule.groups[-1]
            assert {each.instance_id for each in group.members.values()} == {"a", "b"}
            assert {name: topic.partitions for name, topic in group.topics.items()} == {"a": (0, 1), "b": (0,)}

            rule.fails = True
            three = consumer(broker, "other", chosen)
            eventually(lambda: three.poll(0.05) or complaints(broker), "the failure is told")
            (line,) = complaints(broker)
            assert "apart fails, and the group keeps the assignment that it has: RuntimeError: broken" in line
            assert assigned(one, two, three) == [*wanted, set()]
            three.close()
        finally:
            one.close()
            two.close()


def test_a_share_consumer_has_what_the_assignor_gives_it() -> None:
    ck = pytest.importorskip("confluent_kafka")
    rule = Apart()
    with running_broker(share_assignor=rule) as broker:
        with Client(broker.bootstrap_servers) as client:
            create_topics(client, [ClientTopic("a", 2, 1)])
            begin = ConfigChange("share.auto.offset.reset", Operation.SET, "earliest")
            alter_configs(client, ResourceType.GROUP, "g", [begin])
        producer = ck.Producer({"bootstrap.servers": broker.bootstrap_servers})
        for partition in (0, 1):
            producer.produce("a", str(partition), partition=partition)
        assert producer.flush(LONG) == 0
        one = ck.ShareConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        one.subscribe(["a"])
        read: set[bytes] = set()

        def all_read() -> bool:
            read.update(message.value() for message in one.poll(0.2))
            return read == {b"0", b"1"}

        eventually(all_read, "both partitions are read")
        one.close()
        assert rule.groups[-1].topics["a"].partitions == (0, 1) and not complaints(broker)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (
            lambda group: None,
            "cannot be, and the group keeps the assignment that it has: it is a value of type NoneType",
        ),
        (lambda group: {}, "partition a-0 is nobody's, like 2 more"),
        (
            lambda group: {member: (x for x in iter(lambda: ("z", 1), 0)) for member in group.members},
            "no partition z-1",
        ),
    ],
)
def test_an_assignment_that_cannot_be_is_told_in_a_line(rule: Any, said: str) -> None:
    with running_broker(consumer_assignors={"wrong": rule}) as broker:
        with Client(broker.bootstrap_servers) as client:
            create_topics(client, [ClientTopic("a", 2, 1), ClientTopic("b", 1, 1)])
        one = consumer(broker, "a")
        eventually(lambda: one.poll(0.05) or complaints(broker), "the failure is told")
        assert said in complaints(broker)[0]
        assert one.assignment() == []
        one.close()


def test_an_assignor_that_hangs_costs_the_node_a_moment() -> None:
    gate = threading.Event()

    def hang(group: ConsumerGroup) -> Any:
        gate.wait()

    hang.timeout_seconds = 0.1  # type: ignore[attr-defined]
    try:
        with running_broker(consumer_assignors={"hang": hang}) as broker, Client(broker.bootstrap_servers) as client:
            create_topics(client, [ClientTopic("a", 1, 1), ClientTopic("b", 1, 1)])
            one = consumer(broker, "a")
            eventually(lambda: one.poll(0.05) or complaints(broker), "the delay is told")
            assert "has not answered within 0.1 s" in complaints(broker)[0]
            client.refresh(())
            one.close()
    finally:
        gate.set()


# --- Policies -------------------------------------------------------------------------------------------------------


def naming(topic: NewTopic) -> None:
    """Topics of teams, with few partitions."""
    if "." not in topic.topic:
        raise PolicyViolation("topics are named TEAM.NAME")
    if topic.num_partitions is not None and topic.num_partitions > 10:
        raise PolicyViolation("ten partitions are enough")


class Retention:
    """A policy as a class."""

    def validate(self, changes: ConfigChanges) -> None:
        if changes.resource_type == "TOPIC" and changes.configs.get("retention.ms") == "-1":
            raise PolicyViolation(f"{changes.resource_name}: nothing is kept for ever")


def admin_of(bootstrap: str) -> Any:
    admin = pytest.importorskip("confluent_kafka.admin")
    return admin.AdminClient({"bootstrap.servers": bootstrap})


def outcome(future: Any) -> tuple[str, str] | None:
    """The error of an admin's call, None for none."""
    try:
        future.result(LONG)
    except Exception as error:
        return error.args[0].name(), error.args[0].str()
    return None


def creation(bootstrap: str, name: str, partitions: int = 1, **options: Any) -> tuple[str, str] | None:
    admin = pytest.importorskip("confluent_kafka.admin")
    client = admin_of(bootstrap)  # its calls end with it
    (future,) = client.create_topics([admin.NewTopic(name, partitions, 1)], **options).values()
    return outcome(future)


def alteration(bootstrap: str, topic: str, value: str, **options: Any) -> tuple[str, str] | None:
    admin = pytest.importorskip("confluent_kafka.admin")
    entry = admin.ConfigEntry("retention.ms", value, incremental_operation=admin.AlterConfigOpType.SET)
    resource = admin.ConfigResource("topic", topic, incremental_configs=[entry])
    client = admin_of(bootstrap)
    (future,) = client.incremental_alter_configs([resource], **options).values()
    return outcome(future)


def test_policies_judge_topics_and_configs() -> None:
    with running_broker(create_topic_policy=naming, alter_config_policy=Retention()) as broker:
        at = broker.bootstrap_servers
        assert creation(at, "plain") == ("POLICY_VIOLATION", "topics are named TEAM.NAME")
        assert creation(at, "a.b", 11) == ("POLICY_VIOLATION", "ten partitions are enough")
        assert creation(at, "plain", validate_only=True) == ("POLICY_VIOLATION", "topics are named TEAM.NAME")
        assert creation(at, "a.b", validate_only=True) is None
        assert creation(at, "a.b") is None
        refused = ("POLICY_VIOLATION", "a.b: nothing is kept for ever")
        assert alteration(at, "a.b", "-1", validate_only=True) == refused == alteration(at, "a.b", "-1")
        assert alteration(at, "a.b", "1000") is None
        with Client(at) as client:
            configs = {entry.name: entry.value for entry in describe_configs(client, ResourceType.TOPIC, "a.b")}
        assert configs["retention.ms"] == "1000" and not complaints(broker)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (lambda _: 1 / 0, "fails, and what was asked for is refused: ZeroDivisionError"),
        (lambda _: False, "has answered a value of type bool, which means nothing, and what was asked for is refused"),
    ],
)
def test_a_hostile_policy_lets_nothing_through(rule: Any, said: str) -> None:
    with running_broker(create_topic_policy=rule) as broker:
        for _ in range(2):
            error = creation(broker.bootstrap_servers, "t")
            assert error is not None and error[0] == "UNKNOWN" and "policy has failed" in error[1]
        (line,) = complaints(broker)
        assert said in line


def test_a_slow_policy_leaves_the_rest_of_a_request_undecided_and_the_node_alive() -> None:
    """The topics that were in time are created; the rest may be asked for again."""
    admin = pytest.importorskip("confluent_kafka.admin")

    def slow(topic: NewTopic) -> None:
        threading.Event().wait(0.06)

    slow.timeout_seconds = 0.1  # type: ignore[attr-defined]
    with running_broker(create_topic_policy=slow) as broker:
        client = admin_of(broker.bootstrap_servers)
        topics = [admin.NewTopic(f"t{number}", 1, 1) for number in range(6)]
        outcomes = [outcome(each) for each in client.create_topics(topics).values()]
        created = outcomes.count(None)
        assert created < 6 and {each[0] for each in outcomes if each is not None} <= {"REQUEST_TIMED_OUT", "UNKNOWN"}
        assert outcomes[-1] is not None and outcomes[-1][0] == "REQUEST_TIMED_OUT"
        assert len([name for name in client.list_topics(timeout=LONG).topics if name[0] == "t"]) == created


def test_a_node_that_is_no_controller_says_that_it_asks_no_policy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = BrokerConfig.from_properties(
        {
            "node.id": "2",
            "process.roles": "broker",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "127.0.0.1:1",
            "log.dirs": str(tmp_path),
            "create.topic.policy.class.name": "python:nowhere:naming",
        }
    )
    NodeRules(config, None, RealEnv())
    (line,) = (record.getMessage() for record in caplog.records)
    assert line == "create.topic.policy.class.name: controllers ask policies, and this node is none"


def test_internal_topics_are_judged_too() -> None:
    seen: list[str] = []
    with running_broker(create_topic_policy=lambda topic: seen.append(topic.topic)) as broker:
        one = consumer(broker, "a")
        eventually(lambda: one.poll(0.05) or "__consumer_offsets" in seen, "the topic of groups is made")
        one.close()


OF_THREE = """
from kbroker.rules import PolicyViolation

def naming(topic):
    if "." not in topic.topic:
        raise PolicyViolation("topics are named TEAM.NAME")

def retention(changes):
    if changes.configs.get("retention.ms") == "-1":
        raise PolicyViolation("nothing is kept for ever")
"""


@pytest.mark.slow
def test_the_controller_of_three_nodes_asks_its_policies(tmp_path: Path) -> None:
    """Whichever node a client asks, and whichever is the controller."""
    file = tmp_path / "policies_of_three.py"
    file.write_text(OF_THREE)
    (tmp_path / "partitions").write_text("4")
    properties = {
        "create.topic.policy.class.name": f"python:{file}:naming",
        "alter.config.policy.class.name": f"python:{file}:retention",
        "config.providers": "dir",
        "config.providers.dir.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        "num.partitions": f"${{dir:{tmp_path}:partitions}}",
    }
    with running_cluster(3, properties) as cluster:
        for node in cluster.nodes:
            at = node.bootstrap_servers
            assert creation(at, "plain") == ("POLICY_VIOLATION", "topics are named TEAM.NAME")
            assert creation(at, f"a.{node.id}", -1) is None
            await_topics(cluster, f"a.{node.id}")
            assert len(admin_of(at).list_topics(f"a.{node.id}", LONG).topics[f"a.{node.id}"].partitions) == 4
            assert alteration(at, f"a.{node.id}", "-1") == ("POLICY_VIOLATION", "nothing is kept for ever")
            assert alteration(at, f"a.{node.id}", "5000") is None


# --- Config providers -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def provided(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningBroker, Path]]:
    """A broker with two values from a file."""
    path = tmp_path_factory.mktemp("secrets")
    (path / "values.properties").write_text(f"minutes = {MINUTES}\nword = geheim\n")
    properties = {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "config.providers.file.param.allowed.paths": str(path),
        "log.retention.minutes": f"${{file:{path}/values.properties:minutes}}",
        "listener.name.plaintext.ssl.key.password": f"${{file:{path}/values.properties:word}}",
    }
    with running_broker(properties) as broker:
        yield broker, path


def test_values_of_providers_are_used_and_not_described(provided: tuple[RunningBroker, Path]) -> None:
    broker, _ = provided
    assert broker.config.log_retention_minutes == MINUTES
    assert str(MINUTES) not in repr(broker.config) and "geheim" not in repr(broker.config)
    with Client(broker.bootstrap_servers) as client:
        create_topics(client, [ClientTopic("t", 1, 1)])
        described = describe_configs(client, ResourceType.BROKER, "1")
        of_topic = describe_configs(client, ResourceType.TOPIC, "t")
    entries = {entry.name: entry for entry in described}
    assert entries["log.retention.minutes"].sensitive and entries["log.retention.minutes"].value is None
    assert entries["config.providers"].value == "file"
    shown = [value for entry in (*described, *of_topic) for value in (entry.value, *(s.value for s in entry.synonyms))]
    assert not {str(MINUTES), "geheim", str(MINUTES * 60_000)}.intersection(shown)
    assert not [record for record in broker.logs if "geheim" in record.getMessage()]
    assert not [
        record for record in broker.logs if record.levelno >= logging.WARNING and "provider" in record.getMessage()
    ]


@pytest.mark.parametrize("node", ["1", ""])
def test_nothing_is_looked_up_over_the_wire(provided: tuple[RunningBroker, Path], node: str) -> None:
    broker, path = provided
    with Client(broker.bootstrap_servers) as client:
        for name in ("config.providers", "config.providers.x.class", "config.providers.file.param.allowed.paths"):
            alter_configs(client, ResourceType.BROKER, node, [ConfigChange(name, Operation.SET, "env")])
            told = f"{name} is set at run time, without effect: a node looks up variables in its own file alone"
            eventually(lambda told=told: any(told in record.getMessage() for record in broker.logs), told)  # type: ignore[misc]
            alter_configs(client, ResourceType.BROKER, node, [ConfigChange(name, Operation.DELETE, None)])
        with pytest.raises(ResponseError) as caught:
            text = f"${{file:{path}/values.properties:minutes}}"
            alter_configs(client, ResourceType.BROKER, node, [ConfigChange("log.cleaner.threads", Operation.SET, text)])
        assert str(MINUTES) not in str(caught.value)
