"""running_cluster: nodes that are killed, paused, stopped and started again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kbroker.client.nodes import describe_cluster
from kbroker.errors import ErrorCode, FatalError
from kbroker.testing import RunningCluster, running_cluster
from tests.every_node import await_nodes, await_topics
from tests.first_requests import EarlyClients, offset_fetch_v2
from tests.patience import LONG, eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningCluster]:
    with running_cluster(3, {"num.partitions": 2, "offsets.topic.replication.factor": 1}) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: RunningCluster) -> RunningCluster:
    shared.heal()
    return shared


def test_all_nodes_serve_one_cluster(cluster: RunningCluster) -> None:
    assert [node.id for node in cluster.nodes] == [1, 2, 3]
    assert cluster.bootstrap_servers == ",".join(node.bootstrap_servers for node in cluster.nodes)
    await_nodes(cluster, [1, 2, 3])
    assert cluster.controller in cluster.nodes
    assert len({node.pid for node in cluster.nodes}) == 3
    for node in cluster.nodes:
        assert "serves" in node.log and (node.data_dir / "meta.properties").exists()
    with pytest.raises(KeyError):
        cluster.node(4)


def test_a_killed_controller_is_followed_by_another_and_comes_back(cluster: RunningCluster) -> None:
    first = cluster.controller
    first.kill()
    assert not first.is_running and first.pid is None and "not running" in repr(first)
    second = cluster.controller
    assert second is not first
    first.start()
    assert first.is_running
    await_nodes(cluster, [1, 2, 3])


def test_a_stopped_node_says_goodbye() -> None:
    with running_cluster(3, {"broker.session.timeout.ms": 600_000}) as cluster:  # longer than a machine stands still
        node = cluster.nodes[0]
        before = {each.id: len(each.log) for each in cluster.nodes}
        assert node.stop() == 0
        assert "has stopped" in node.log
        await_nodes(cluster, [2, 3])
        # By its own wish: no controller has missed it, at the end of its session or of its connection.
        missed = re.compile(rf"broker {node.id} .* and is fenced")
        assert not any(missed.search(each.log[before[each.id] :]) for each in cluster.nodes)
        node.start()
        await_nodes(cluster, [1, 2, 3])
        node.start()  # it runs already
        node.restart()


def test_a_node_that_ends_by_itself_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with running_cluster(1) as cluster:
        [node] = cluster.nodes
        node.restart()
        node.kill()
        node.start()
        assert "ended by itself" not in caplog.text and node.pid is not None
        os.kill(node.pid, signal.SIGKILL)  # as the system does, where memory is short
        eventually(lambda: not node.is_running)
        cluster.heal()
        assert "node 1 ended by itself, with exit code -9" in caplog.text


def test_a_paused_node_is_fenced_and_admitted_again(cluster: RunningCluster) -> None:
    controller = cluster.controller
    node = next(node for node in cluster.nodes if node is not controller)
    node.pause()
    try:
        assert node.is_running and "paused" in repr(node)
        await_nodes(cluster, [each.id for each in cluster.nodes if each is not node])
    finally:
        node.resume()
    await_nodes(cluster, [1, 2, 3])


def test_all_killed_at_once_come_back_with_what_they_knew(cluster: RunningCluster) -> None:
    with cluster.client() as client:
        before = describe_cluster(client).cluster_id
    cluster.kill()
    assert not any(node.is_running for node in cluster.nodes)
    with pytest.raises(FatalError, match="no node runs"), cluster.client():
        pass
    cluster.start()
    with cluster.client() as client:
        assert describe_cluster(client).cluster_id == before


def test_a_node_knows_what_it_coordinates_before_it_serves_clients(cluster: RunningCluster) -> None:
    """Those that know it from its last life are there at once. librdkafka does not ask again for committed offsets when
    it is told NOT_COORDINATOR by the node that others call the coordinator."""
    with cluster.client() as client:
        node = cluster.nodes[0]
        group = next(name for i in range(1000) if client.coordinator(name := f"group-{i}") == node.id)
        await_topics(cluster, "__consumer_offsets")  # the node, too, whoever has told of it
        node.kill()
        with EarlyClients(node.bootstrap_servers, offset_fetch_v2(group.encode()), error_at=8).asking() as codes:
            node.start()
        assert set(codes) <= {ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def test_data_outlives_the_cluster_in_a_directory_of_ones_own(tmp_path: Path) -> None:
    with running_cluster(1, data_dir=tmp_path) as cluster, cluster.client() as client:
        first = describe_cluster(client).cluster_id
    with running_cluster(1, data_dir=tmp_path) as cluster, cluster.client() as client:
        assert describe_cluster(client).cluster_id == first


def test_what_keeps_a_node_from_starting_is_raised_and_nothing_is_left() -> None:
    before = {child.pid for child in psutil.Process().children()}
    with pytest.raises(FatalError, match=r"num\.partitions"):
        RunningCluster(2, {"num.partitions": "many"})
    cluster = RunningCluster(2)
    (cluster.nodes[0].data_dir / "meta.properties").write_text("broken")
    with pytest.raises(FatalError, match="node 1 ended with exit code 1"), cluster:
        pass
    assert {child.pid for child in psutil.Process().children()} <= before
    assert not cluster.data_dir.exists()


@pytest.mark.everything
def test_the_plugins_fixture(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pytest\n"
        "@pytest.fixture(scope='session')\n"
        "def kafka_cluster_properties():\n"
        "    return {'num.partitions': 5}\n"
    )
    (tmp_path / "test_it.py").write_text(
        "def test_one(kafka_cluster):\n"
        "    kafka_cluster.faults.hold('Metadata')\n"
        "    kafka_cluster.nodes[0].faults.drop('Fetch')\n"
        "    kafka_cluster.nodes[1].kill()\n"
        "    kafka_cluster.nodes[2].pause()\n"
        "    kafka_cluster.stop_clock()\n"
        "def test_two(kafka_cluster):\n"
        "    assert kafka_cluster.faults.active == kafka_cluster.nodes[0].faults.active == []\n"
        "    assert all(node.is_running for node in kafka_cluster.nodes)\n"
        "    assert not kafka_cluster.clock.stands\n"
        "    assert 'num.partitions=5' in (kafka_cluster.data_dir / 'node-1.properties').read_text()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "kbroker.pytest_plugin", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
        timeout=2 * LONG,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_files_of_the_working_directory_are_no_modules_of_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kbroker").mkdir()
    for name in ("kbroker/__init__.py", "queue.py", "selectors.py"):
        (tmp_path / name).write_text("raise SystemExit('this is none of the node')")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
    monkeypatch.chdir(tmp_path)
    with running_cluster(1) as cluster:
        assert cluster.nodes[0].is_running
