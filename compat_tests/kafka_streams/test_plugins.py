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
from compat_tests.groups.wire_world import Connection
from compat_tests.kafka_streams.app import StreamsApp
from compat_tests.kafka_streams.test_kafka_streams import OPTIONS, coordinator
from kbroker.client import Client
from kbroker.client.configs import ConfigChange, Operation, ResourceType, alter_configs
from kbroker.client.errors import ResponseError
from kbroker.wire.messages.streams_group_describe import DescribedGroup, StreamsGroupDescribeRequest

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(
        any(shutil.which(program) is None for program in ("java", "javac", "mvn")), reason="needs a JDK and Maven"
    ),
]

GROUP = "pinned"

PLUGINS = """
from kbroker.rules import DescriptionFiles, StreamsGroup, Tasks

def to_main(group: StreamsGroup) -> dict[str, Tasks]:
    stateful = [task for task in group.tasks if group.subtopologies[task.subtopology].is_stateful]
    first = min(group.members, key=lambda member: group.members[member].client_tags.get("role") != "main")
    return {member: Tasks(group.tasks) if member == first else Tasks((), stateful) for member in group.members}

descriptions = DescriptionFiles(DIRECTORY)
"""


@pytest.fixture
def nodes(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KbrokerNodes]:
    if request.config.getoption("--bootstrap") or request.config.getoption("--broker") == "apache":
        pytest.skip("rules in Python are kbroker's own")
    file = tmp_path / "plugins.py"
    file.write_text(PLUGINS.replace("DIRECTORY", repr(str(tmp_path / "descriptions"))))
    made = KbrokerNodes(
        3,
        *OPTIONS,
        f"group.streams.assignors=sticky,python:{file}:to_main",
        f"group.streams.topology.description.plugin.class=python:{file}:descriptions",
    )
    yield made
    made.stop()


def described(bootstrap: str) -> DescribedGroup:
    """The group as its coordinator describes it."""
    node = coordinator(bootstrap, GROUP)
    at = bootstrap.split(",")[node - 1]
    connection = Connection(at)
    try:
        request = StreamsGroupDescribeRequest(group_ids=[GROUP], include_topology_description=True)
        (found,) = connection.ask(request, 1).groups
    finally:
        connection.close()
    entry: DescribedGroup = found
    return entry


def awaited_description(bootstrap: str) -> DescribedGroup:
    end = time.monotonic() + 60
    while (found := described(bootstrap)).topology_description_status != 3:
        assert time.monotonic() < end, found
        time.sleep(0.1)
    return found


def test_tasks_are_where_the_assignor_wants_them_and_the_topology_is_described(
    nodes: KbrokerNodes, tmp_path: Path
) -> None:
    bootstrap = nodes.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("lines", 3), NewTopic("counts", 1)]).values():
        future.result()
    with Client(bootstrap) as client:
        with pytest.raises(ResponseError, match="is not a registered task assignor"):
            choose(client, "other")
        choose(client, "to_main")
    main = StreamsApp(bootstrap, GROUP, tmp_path / "state", "one", "group.protocol=streams", "client.tag.role=main")
    other = StreamsApp(bootstrap, GROUP, tmp_path / "state", "two", "group.protocol=streams", "client.tag.role=other")
    try:
        main.await_answer("tasks", lambda tasks: tasks.partition("|")[0].count("_") == 6)
        other.await_answer("tasks", lambda tasks: tasks == "|1_0,1_1,1_2")
        found = awaited_description(bootstrap)
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
        rest = ",".join(each.bootstrap_servers for each in nodes.cluster.nodes if each is not node)
        end = time.monotonic() + 60
        while coordinator(rest, GROUP) in (-1, node.id):
            assert time.monotonic() < end
            time.sleep(0.1)
        assert awaited_description(bootstrap).topology_description == found.topology_description
        other.await_answer("tasks", lambda tasks: tasks == "|1_0,1_1,1_2")
    finally:
        main.kill()
        other.kill()


def choose(client: Client, assignor: str) -> None:
    """Have the group's tasks assigned by an assignor."""
    change = ConfigChange("streams.assignor.name", Operation.SET, assignor)
    alter_configs(client, ResourceType.GROUP, GROUP, [change])
