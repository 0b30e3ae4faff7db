"""A Kafka Streams application on three nodes, in both group protocols: it counts exactly once, whoever is killed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from compat_tests.brokers import Broker, KbrokerNodes
from compat_tests.groups.wire_world import Connection
from compat_tests.java_tools.driver import ToolDriver
from compat_tests.kafka_streams.app import StreamsApp
from compat_tests.kafka_streams.group_configs import DEAD_AFTER_MS, configure
from compat_tests.kafka_streams.words import Steps, counted, write
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.patience import eventually

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(
        any(shutil.which(program) is None for program in ("java", "javac", "mvn")), reason="needs a JDK and Maven"
    ),
]


def counts(bootstrap: str, **wanted: int) -> dict[str, int]:
    """The last committed count of each word, once they are as wanted; each step of a count is there once."""
    steps = Steps(bootstrap)
    try:
        steps.go_on(lambda: counted(steps.read) == wanted)
        return counted(steps.read)
    finally:
        steps.close()


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
