"""Three nodes, and files of the metadata log that are damaged on one of them while nobody runs: the voter gets back
what it lacks, and votes then. What all have lost, a person decides about."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from kbroker.client.topics import NewTopic, create_topics
from kbroker.testing import ClusterNode, RunningCluster, running_cluster
from kbroker.wire.batch_header import walk_headers
from tests.cli_command import kbroker
from tests.every_node import await_topics
from tests.node.test_damaged_replicas import WAYS
from tests.patience import LONG, eventually

pytestmark = pytest.mark.slow

WHOLE_AGAIN = "the metadata log is whole again"


def directory_of(node: ClusterNode) -> Path:
    return node.data_dir / "__cluster_metadata-0"


def log_of(node: ClusterNode) -> Path:
    return directory_of(node) / "00000000000000000000.log"


def says(node: ClusterNode, text: str, times: int = 1) -> bool:
    return node.log.count(text) >= times


def make(cluster: RunningCluster, name: str) -> None:
    with cluster.client() as client:
        made = create_topics(client, [NewTopic(name, 1, len(cluster.nodes))])
        assert not any(isinstance(result, Exception) for result in made.values()), made


def start_all(cluster: RunningCluster) -> None:
    for node in cluster.nodes:
        node.start(wait=False)


@pytest.mark.everything
@pytest.mark.parametrize(
    ("stop", "ways"),
    [(RunningCluster.kill, ["zeroed", "cut", "emptied"]), (RunningCluster.stop, ["flipped", "removed"])],
    ids=["killed", "stopped"],
)
def test_a_damaged_voter_gets_back_what_it_lacks(
    stop: Callable[[RunningCluster], None], ways: list[str], tmp_path: Path
) -> None:
    with running_cluster(3, data_dir=tmp_path) as cluster:
        names: list[str] = []
        for number, name in enumerate(ways):
            make(cluster, name)
            names.append(name)
            await_topics(cluster, *names)
            victim = cluster.nodes[number % 3]
            stop(cluster)
            WAYS[name](log_of(victim))
            start_all(cluster)
            await_topics(cluster, *names)
            eventually(partial(says, victim, WHOLE_AGAIN, number // 3 + 1), f"{name}: the voter has all again", LONG)
            assert "neither votes nor stands" in victim.log
            assert not any("Traceback" in node.log for node in cluster.nodes)


def snapshots_of(node: ClusterNode) -> list[Path]:
    return [path for path in sorted(directory_of(node).glob("*.checkpoint")) if path.name[:20].strip("0")]


@pytest.mark.everything
def test_damaged_snapshots_are_passed_over_or_fetched_again(tmp_path: Path) -> None:
    properties = {"metadata.log.max.snapshot.interval.ms": 500}
    with running_cluster(3, properties, data_dir=tmp_path) as cluster:
        names = ["first", "second"]
        victim = cluster.nodes[1]
        for name in names:
            make(cluster, name)
        await_topics(cluster, *names)
        eventually(lambda: len(snapshots_of(victim)) == 2, "two snapshots", LONG)
        cluster.kill()
        WAYS["flipped"](snapshots_of(victim)[-1])
        (directory_of(victim) / "quorum-state").write_bytes(b"")
        start_all(cluster)
        await_topics(cluster, *names)
        assert says(victim, "is damaged") and not says(victim, "neither votes nor stands")
        eventually(lambda: not log_of(victim).exists(), "the log's beginning is forgotten", LONG)
        cluster.kill()
        for path in snapshots_of(victim):
            WAYS["cut"](path)
        start_all(cluster)
        await_topics(cluster, *names)
        eventually(partial(says, victim, WHOLE_AGAIN), "the voter has all again", LONG)
        assert says(victim, "and fetched anew")
        assert list(victim.data_dir.glob("__cluster_metadata-0.*-stray"))
        assert not any("Traceback" in node.log for node in cluster.nodes)


@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.everything)])
def test_nothing_is_lost_that_the_newest_snapshot_has(count: int, tmp_path: Path) -> None:
    properties = {"metadata.log.max.record.bytes.between.snapshots": 1500}
    with running_cluster(count, properties, data_dir=tmp_path) as cluster:
        names: list[str] = []
        victim = cluster.nodes[0]
        while not snapshots_of(victim):
            names.append(f"topic-{len(names)}")
            make(cluster, names[-1])
            await_topics(cluster, *names)
        cluster.kill()
        end, data = int(snapshots_of(victim)[0].name[:20]), bytearray(log_of(victim).read_bytes())
        *_, position = (position for position, header in walk_headers(data) if header.last_offset < end)
        data[position + 70] ^= 1
        log_of(victim).write_bytes(data)
        for _ in range(2):
            start_all(cluster)
            await_topics(cluster, *names)
            assert says(victim, "nothing of that is lost") and not says(victim, "neither votes nor stands")
            cluster.kill()
        shown = recover(victim)
        assert shown.returncode == 0 and shown.stdout.startswith("Nothing is lost."), shown.stderr
        assert not any("Traceback" in node.log for node in cluster.nodes)


def test_what_all_have_lost_a_person_decides_about(tmp_path: Path) -> None:
    with running_cluster(3, data_dir=tmp_path) as cluster:
        make(cluster, "first")
        await_topics(cluster, "first")
        sizes = {node.id: log_of(node).stat().st_size for node in cluster.nodes}
        make(cluster, "second")
        await_topics(cluster, "first", "second")
        cluster.kill()
        for node in cluster.nodes:
            data = log_of(node).read_bytes()
            log_of(node).write_bytes(data[: sizes[node.id]])
        start_all(cluster)
        for node in cluster.nodes:
            eventually(partial(says, node, "kbroker recover-metadata"), f"{node} says what to do", LONG)
        assert not any("leads the metadata quorum" in node.log.split("neither votes")[-1] for node in cluster.nodes)
        cluster.kill()
        for node in cluster.nodes[:2]:
            shown = recover(node)
            assert shown.returncode == 1 and "Lost: " in shown.stdout, shown.stderr
            accepted = recover(node, "--accept-loss")
            assert accepted.returncode == 0, accepted.stderr
        start_all(cluster)
        await_topics(cluster, "first")
        await_topics(cluster, "second", gone=True)
        make(cluster, "third")
        await_topics(cluster, "first", "third")


def recover(node: ClusterNode, *options: str) -> subprocess.CompletedProcess[str]:
    """`kbroker recover-metadata` for a node, by properties that say where its files are."""
    properties: Mapping[str, object] = {
        "process.roles": "broker,controller",
        "node.id": node.id,
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:1,127.0.0.1:2",
        "log.dirs": node.data_dir,
    }
    file = node.data_dir.parent / f"{node.id}.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return kbroker("recover-metadata", "-c", str(file), *options)
