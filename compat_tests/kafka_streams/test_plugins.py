"""A Kafka Streams application on three nodes with an assignor of one's own and a keeper of descriptions, in Python."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compat_tests.brokers import KbrokerNodes
from compat_tests.case import await_everywhere, await_group_configs
from compat_tests.groups.wire_world import Connection
from compat_tests.kafka_streams.app import StreamsApp
from compat_tests.kafka_streams.conftest import OPTIONS
from compat_tests.kafka_streams.test_kafka_streams import coordinator
from kbroker.client import Client
from kbroker.client.configs import ConfigChange, Operation, ResourceType, alter_configs
from kbroker.client.errors import ResponseError
from kbroker.wire.messages.streams_groups import DescribedGroup, StreamsGroupDescribeRequest
from tests.patience import LONG, eventually

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(
        any(shutil.which(program) is None for program in ("java", "javac", "mvn")), reason="needs a JDK and Maven"
    ),
]

GROUP = "pinned"

PLUGINS = """
from pathlib import Path

from kbroker.rules import DescriptionFiles, StreamsGroup, Tasks

def to_main(group: StreamsGroup) -> dict[str, Tasks]:
    if Path(FAILS).exists():
        raise RuntimeError("told to fail")
    stateful = [task for task in group.tasks if group.subtopologies[task.subtopology].is_stateful]
    first = min(group.members, key=lambda member: group.members[member].client_tags.get("role") != "main")
    return {member: Tasks(group.tasks) if member == first else Tasks((), stateful) for member in group.members}

to_main.timeout_seconds = 5.0  # a slow machine may give it no turn for a while

descriptions = DescriptionFiles(DIRECTORY)
"""


@pytest.fixture
def nodes(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KbrokerNodes]:
    if request.config.getoption("--bootstrap") or request.config.getoption("--broker") == "apache":
        pytest.skip("rules in Python are kbroker's own")
    file = tmp_path / "plugins.py"
    text = PLUGINS.replace("DIRECTORY", repr(str(tmp_path / "descriptions")))
    file.write_text(text.replace("FAILS", repr(str(tmp_path / "fails"))))
    made = KbrokerNodes(
        3,
        *OPTIONS,
        f"group.streams.assignors=sticky,python:{file}:to_main",
        f"group.streams.topology.description.plugin.class=python:{file}:descriptions",
    )
    yield made
    made.stop()


def described(nodes: KbrokerNodes, asked: str) -> DescribedGroup | None:
    """The group as its coordinator describes it; None if that cannot be asked. ``asked`` knows the coordinator."""
    found = coordinator(asked, GROUP)
    if found < 0:
        return None
    connection = Connection(nodes.cluster.node(found).bootstrap_servers)
    try:
        request = StreamsGroupDescribeRequest(group_ids=[GROUP], include_topology_description=True)
        (entry,) = connection.ask(request, 1).groups
    finally:
        connection.close()
    assert isinstance(entry, DescribedGroup)
    return entry


def awaited_description(nodes: KbrokerNodes, asked: str, dead: int = 0) -> DescribedGroup:
    """The group with its description, by another coordinator than a node that is ``dead``."""
    end = time.monotonic() + LONG
    while True:
        found = described(nodes, asked) if coordinator(asked, GROUP) != dead else None
        if found is not None and found.topology_description_status == 3:
            return found
        assert time.monotonic() < end, found
        time.sleep(0.1)


def test_tasks_are_where_the_assignor_wants_them_and_the_topology_is_described(
    nodes: KbrokerNodes, tmp_path: Path
) -> None:
    bootstrap = nodes.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("lines", 3), NewTopic("counts", 1)]).values():
        future.result()
    for name in ("lines", "counts"):
        await_everywhere(bootstrap, name)  # an application without its topics ends
    with Client(bootstrap) as client:
        with pytest.raises(ResponseError, match="is not a registered task assignor"):
            choose(client, "other")
        choose(client, "to_main")
    await_group_configs(bootstrap, GROUP, {"streams.assignor.name": "to_main"})
    main = StreamsApp(bootstrap, GROUP, tmp_path / "state", "one", "group.protocol=streams", "client.tag.role=main")
    other = StreamsApp(bootstrap, GROUP, tmp_path / "state", "two", "group.protocol=streams", "client.tag.role=other")
    try:
        main.await_answer("tasks", lambda tasks: tasks.partition("|")[0].count("_") == 6)
        other.await_answer("tasks", lambda tasks: tasks == "|1_0,1_1,1_2")
        found = awaited_description(nodes, bootstrap)
        assert found.assignor_name == "to_main" and found.topology_description is not None
        topics = {
            topic
            for subtopology in found.topology_description.subtopologies
            for node in subtopology.nodes
            for topic in (*node.source_topics, node.sink_topic)
        }
        assert {"lines", "counts"} <= topics
        assert len(list((tmp_path / "descriptions").iterdir())) == 1

        node = nodes.cluster.node(coordinator(bootstrap, GROUP))
        node.kill()
        alive = next(each for each in nodes.cluster.nodes if each is not node).bootstrap_servers
        again = awaited_description(nodes, alive, dead=node.id)
        assert again.topology_description == found.topology_description
        other.await_answer("tasks", lambda tasks: tasks == "|1_0,1_1,1_2")

        (tmp_path / "fails").touch()
        other.close()
        line = "to_main fails, and the group keeps the assignment that it has: RuntimeError: told to fail"
        eventually(lambda: any(line in each.log for each in nodes.cluster.nodes), line)
        for _ in range(3):  # whatever its next heartbeats are answered with
            assert main.ask("tasks") == "0_0,0_1,0_2,1_0,1_1,1_2|"
            time.sleep(1)
        assert main.ask("state") == "RUNNING"
    finally:
        main.kill()
        other.kill()


def choose(client: Client, assignor: str) -> None:
    """Have the group's tasks assigned by an assignor."""
    change = ConfigChange("streams.assignor.name", Operation.SET, assignor)
    alter_configs(client, ResourceType.GROUP, GROUP, [change])
