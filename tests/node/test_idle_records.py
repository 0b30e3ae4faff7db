"""No-op records of an idle controller (KIP-835), and snapshots of the metadata by time (KIP-876)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing
from node_harness import run
from quorum_harness import Quorum, quorum, three_nodes

from kbroker.node.broker import Broker
from kbroker.raft_metadata.raft.batches import decode_batches
from kbroker.wire.records.metadata import NoOpRecord


def ends(cluster: Quorum) -> dict[int, int]:
    """The offset of each node's metadata."""
    return {node_id: node.metadata.image.offset for node_id, node in cluster.nodes.items()}


def records_from(node: Broker, offset: int) -> list[object]:
    """The records of a node's metadata log from an offset on."""
    data = node.metadata.quorum.log.read_bytes(offset, 1 << 20)
    return [
        record
        for batch in decode_batches(data)
        for at, record in enumerate(batch.records, batch.base_offset)
        if at >= offset and not batch.is_control
    ]


def test_nodes_hear_of_an_idle_controller(tmp_path: Path) -> None:
    async def main() -> None:
        async with three_nodes(tmp_path, metadata_max_idle_interval_ms="50") as cluster:
            await cluster.topics_everywhere([])
            for _ in range(2):
                before = ends(cluster)
                await cluster.until(lambda before=before: all(end >= before[n] + 4 for n, end in ends(cluster).items()))  # type: ignore[misc]
                leader = await cluster.await_leader()
                written = records_from(cluster.nodes[leader], max(before.values()) + 1)
                assert sum(isinstance(record, NoOpRecord) for record in written) >= 3, written
                # The next leader goes on with it.
                await cluster.kill(leader)
                await cluster.await_leader()
                await cluster.start(leader)
                await cluster.await_leader()

    run(main)


@pytest.mark.parametrize(
    "properties", [{"metadata_max_idle_interval_ms": "0"}, {"metadata_max_idle_interval_ms": "60000"}], ids=str
)
def test_none_are_written_unless_one_is_due(tmp_path: Path, properties: dict[str, str]) -> None:
    async def main() -> None:
        async with three_nodes(tmp_path, **properties) as cluster:
            leader = cluster.nodes[await cluster.await_leader()]
            await cluster.node(1).create_topic("a")
            await cluster.topics_everywhere(["a"])
            await trio.sleep(0.2)
            assert not any(isinstance(record, NoOpRecord) for record in records_from(leader, 0))

    run(main)


def test_a_controller_that_nobody_follows_sleeps(tmp_path: Path) -> None:
    """Until there is another node: here a broker."""

    async def main() -> None:
        async with quorum(
            tmp_path, 2, initial=1, roles_of={2: "broker"}, metadata_max_idle_interval_ms="20"
        ) as cluster:
            await cluster.start(1)
            await cluster.await_leader()
            await trio.testing.wait_all_tasks_blocked(0.05)
            end = ends(cluster)[1]
            await trio.sleep(0.2)
            assert ends(cluster)[1] == end
            await cluster.start(2)
            for node_id in (1, 2):
                await cluster.until(lambda node_id=node_id: ends(cluster)[node_id] > end + 20)  # type: ignore[misc]

    run(main)


def test_a_snapshot_is_written_after_a_time(tmp_path: Path) -> None:
    """Of a controller that is alone once, as nothing is new afterwards; of several again and again."""

    async def alone() -> None:
        async with quorum(tmp_path / "one", 1, metadata_log_max_snapshot_interval_ms="100") as cluster:
            await cluster.start(1)
            log = cluster.nodes[1].metadata.quorum.log
            await cluster.until(lambda: log.start_offset > 0)
            await trio.sleep(0.25)
            first = log.latest_snapshot_id
            await trio.sleep(0.25)
            assert log.latest_snapshot_id == first
            await cluster.node(1).create_topic("a")
            await cluster.until(lambda: log.latest_snapshot_id != first)

    async def together() -> None:
        async with three_nodes(
            tmp_path / "three", metadata_log_max_snapshot_interval_ms="300", metadata_max_idle_interval_ms="50"
        ) as cluster:
            for node in cluster.nodes.values():
                log = node.metadata.quorum.log
                await cluster.until(lambda log=log: log.start_offset > 0)  # type: ignore[misc]
                first = log.latest_snapshot_id
                await cluster.until(lambda log=log, first=first: log.latest_snapshot_id != first)  # type: ignore[misc]
            await cluster.node(1).create_topic("a")
            await cluster.topics_everywhere(["a"])

    async def never() -> None:
        async with quorum(tmp_path / "never", 1, metadata_log_max_snapshot_interval_ms="0") as cluster:
            await cluster.start(1)
            await trio.sleep(0.2)
            assert cluster.nodes[1].metadata.quorum.log.start_offset == 0

    for case in (alone, together, never):
        run(case)
