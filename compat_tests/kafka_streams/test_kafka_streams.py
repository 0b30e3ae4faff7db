"""A Kafka Streams application on three nodes, in both group protocols: it counts exactly once, whoever is killed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from compat_tests.apache_kafka import SERVER_VERSION
from compat_tests.brokers import Broker, KbrokerNodes, broker_under_test
from compat_tests.case import await_everywhere, await_gone, await_group_configs, eventually
from compat_tests.groups.wire_world import Connection
from compat_tests.java_tools.driver import ToolDriver
from compat_tests.kafka_streams.app import StreamsApp
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(
        any(shutil.which(program) is None for program in ("java", "javac", "mvn")), reason="needs a JDK and Maven"
    ),
]

DEAD_AFTER_MS = 6000
"""Silence after which members are missed where one is killed. Others may be silent for longer, on a slow machine."""

OPTIONS = (
    "group.streams.min.session.timeout.ms=1000",
    "group.streams.session.timeout.ms=45000",
    "group.streams.min.heartbeat.interval.ms=300",
    "group.streams.heartbeat.interval.ms=1000",
    "group.streams.initial.rebalance.delay.ms=1000",
    "group.initial.rebalance.delay.ms=0",
)


@pytest.fixture(scope="module", params=[3], ids=["3-nodes"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    yield from broker_under_test(request, *OPTIONS)


@pytest.fixture(scope="module")
def tools(broker: Broker) -> Iterator[ToolDriver]:
    """The tools of the newest release."""
    driver = ToolDriver(broker.bootstrap, SERVER_VERSION)
    yield driver
    driver.close()


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    """The nodes, with the topics of the application and no others."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    old = [name for name in admin.list_topics(timeout=120).topics if not name.startswith("__")]
    for future in admin.delete_topics(old).values() if old else ():
        future.result()
    for name in old:
        await_gone(broker.bootstrap, name)  # or a node that still has it would take what is written next
    for future in admin.create_topics([NewTopic("lines", 3), NewTopic("counts", 1)]).values():
        future.result()
    for name in ("lines", "counts"):
        await_everywhere(broker.bootstrap, name)  # an application without its topics ends
    return broker.bootstrap


def write(bootstrap: str, *lines: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, line in enumerate(lines):
        producer.produce("lines", line, key=str(number))
    assert producer.flush(180) == 0


def counts(bootstrap: str, **wanted: int) -> dict[str, int]:
    """The last committed count of each word, once they are as wanted; each step of a count is there once."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["counts"])
    found: dict[str, int] = {}
    end = time.monotonic() + 180
    try:
        while found != wanted and time.monotonic() < end:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                word, count = (message.key() or b"").decode(), int(message.value() or b"0")
                assert count == found.get(word, 0) + 1, f"{word} is counted {count} after {found.get(word, 0)}"
                found[word] = count
    finally:
        consumer.close()
    return found


def configure(bootstrap: str, group: str, name: str, value: str) -> None:
    """Set a config of a group, and wait until each node knows it."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result()
    await_group_configs(bootstrap, group, {name: value})


@pytest.fixture
def apps(bootstrap: str, tmp_path: Path) -> Iterator[dict[str, StreamsApp]]:
    running: dict[str, StreamsApp] = {}
    yield running
    for app in running.values():
        app.kill()


@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_an_application_counts_words(
    broker: Broker, bootstrap: str, tools: ToolDriver, apps: dict[str, StreamsApp], tmp_path: Path, protocol: str
) -> None:
    """Two processes share the tasks; one is killed, then the coordinator; what was open is taken over."""
    group = f"counts-{protocol}"
    if protocol == "streams":
        configure(bootstrap, group, "streams.session.timeout.ms", f"{DEAD_AFTER_MS}")
    settings = (
        f"group.protocol={protocol}",
        "processing.guarantee=exactly_once_v2",
        f"consumer.session.timeout.ms={DEAD_AFTER_MS}" if protocol == "classic" else "poll.ms=100",
    )
    for name in ("one", "two"):
        apps[name] = StreamsApp(bootstrap, group, tmp_path / "state", name, *settings, f"application.server={name}:1")
    write(bootstrap, *["a b c", "a b", "a"] * 10)
    for app in apps.values():
        app.await_answer("tasks", lambda tasks: tasks.partition("|")[0].count("_") == 3)
    apps["one"].await_answer("hosts", lambda hosts: hosts.count("words-repartition") == 3)
    assert counts(bootstrap, a=30, b=20, c=10) == {"a": 30, "b": 20, "c": 10}
    if protocol == "streams":
        described = ("kafka-streams-groups", "--bootstrap-server", bootstrap, "--describe", "--group", group)
        eventually(lambda: tools.run(*described, "--members").out.count("StreamThread") == 2, "two members")
    apps.pop("two").kill()
    write(bootstrap, *["a d"] * 10)
    one = apps["one"]
    one.await_answer("tasks", lambda tasks: tasks.partition("|")[0].count("_") == 6)
    assert counts(bootstrap, a=40, b=20, c=10, d=10)["d"] == 10
    if isinstance(broker, KbrokerNodes):
        node = broker.cluster.node(coordinator(bootstrap, group))
        node.kill()
        try:
            write(bootstrap, *["e"] * 10)
            assert counts(bootstrap, a=40, b=20, c=10, d=10, e=10).get("e") == 10, one.ask("tasks")
        finally:
            node.start()
            broker.cluster.await_in_sync()
    one.close()


def coordinator(bootstrap: str, group: str) -> int:
    """The node that coordinates the group."""
    connection = Connection(bootstrap.partition(",")[0])
    found = connection.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
    connection.close()
    return int(found.coordinators[0].node_id)


def test_the_tool_for_streams_groups(
    bootstrap: str, tools: ToolDriver, apps: dict[str, StreamsApp], tmp_path: Path
) -> None:
    """All of its actions: members, state, offsets; offsets that are reset, from a file too; what is deleted.

    Standby tasks come by the group's config.
    """
    group = "administered"
    apps["one"] = one = StreamsApp(
        bootstrap, group, tmp_path / "state", "one", "group.protocol=streams", "num.stream.threads=2"
    )
    apps["two"] = two = StreamsApp(bootstrap, group, tmp_path / "state", "two", "group.protocol=streams")
    for app, tasks in ((one, 4), (two, 2)):
        app.await_answer("tasks", lambda shown, tasks=tasks: shown.partition("|")[0].count("_") == tasks)  # type: ignore[misc]

    def run(*arguments: str) -> list[list[str]]:
        shown = tools.run("kafka-streams-groups", "--bootstrap-server", bootstrap, *arguments)
        assert not shown.exit, shown
        return [line.split() for line in shown.out.splitlines()]

    def described(*how: str) -> list[list[str]]:
        return [line for line in run("--describe", "--group", group, *how) if line[:1] == [group]]

    assert [group] in run("--list")
    eventually(lambda: [group, "Stable"] in run("--list", "--state", "stable"), "a stable group")
    for more in ((), ("--verbose",)):
        (state,) = described("--state", *more)
        assert {"Stable", "sticky"} <= {*state} and state[-1] == "3", state
        assert len(described("--members", *more)) == 3
    refused = tools.run(
        "kafka-streams-groups", "--bootstrap-server", bootstrap, "--describe", "--group", group, "--topology"
    )
    assert refused.exit and "No topology description is stored" in refused.out + refused.err
    configure(bootstrap, group, "streams.num.standby.replicas", "1")
    for app in apps.values():
        app.await_answer("tasks", lambda shown: "_" in shown.partition("|")[2])
    write(bootstrap, "x y")
    assert counts(bootstrap, x=1, y=1) == {"x": 1, "y": 1}
    for more in ((), ("--verbose",)):
        assert {tuple(line[1:3]) for line in described("--offsets", *more)} >= {("lines", "0")}
    two.close()
    one.close()
    eventually(lambda: [group, "Empty"] in run("--list", "--state", "empty"), "nobody in the group")
    reset = ("--reset-offsets", "--group", group)
    shown = run(*reset, "--to-earliest", "--all-input-topics", "--dry-run")
    (partition,) = {line[2] for line in shown if line[:2] == [group, "lines"]}  # the one with a committed offset
    begun = [group, "lines", partition, "0"]
    assert begun in shown
    exported = run(*reset, "--to-current", "--input-topic", f"lines:{partition}", "--dry-run", "--export")
    assert [f"lines,{partition},1"] in exported, exported
    file = tmp_path / "offsets.csv"
    file.write_text(f"lines,{partition},0\n")
    assert begun in run(*reset, "--from-file", str(file), "--execute")
    assert [group, "lines", partition, "1"] in run(
        *reset, "--to-latest", "--input-topic", f"lines:{partition}", "--execute"
    )
    assert begun in run(*reset, "--to-earliest", "--all-input-topics", "--execute")
    deleted = run("--delete-offsets", "--group", group, "--input-topic", "lines")
    assert ["lines", partition, "Successful"] in deleted, deleted
    assert any("successful" in word for line in run("--delete", "--group", group) for word in line)
    assert [group] not in run("--list")
