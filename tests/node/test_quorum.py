"""Three nodes and their metadata quorum, over TCP."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from node_harness import run
from quorum_harness import quorum


@pytest.mark.parametrize("dynamic", [False, True])
def test_three_nodes_elect_and_share_their_metadata(tmp_path: Path, dynamic: bool) -> None:
    async def main() -> None:
        async with quorum(tmp_path, dynamic=dynamic) as cluster:
            began = trio.current_time()
            await cluster.start(1, 2, 3)
            leader = await cluster.await_leader()
            print(f"three nodes serve after {trio.current_time() - began:.2f} s")
            # Created by way of any node.
            for node_id in (1, 2, 3):
                await cluster.node(node_id).create_topic(f"by-{node_id}")
            await cluster.topics_everywhere(["by-1", "by-2", "by-3"])
            images = [node.driver.image for node in cluster.nodes.values()]
            assert all(sorted(image.brokers) == [1, 2, 3] for image in images)
            assert all(not broker.fenced for image in images for broker in image.brokers.values())
            assert all(image.controller_id == leader for image in images)

    run(main)


@pytest.mark.parametrize("orderly", [True, False])
def test_the_metadata_survives_its_leader(tmp_path: Path, orderly: bool) -> None:
    async def main() -> None:
        async with quorum(tmp_path) as cluster:
            await cluster.start(1, 2, 3)
            old = await cluster.await_leader()
            await cluster.node(old).create_topic("before")
            await cluster.topics_everywhere(["before"])
            began = trio.current_time()
            await (cluster.stop(old) if orderly else cluster.kill(old))
            new = await cluster.await_leader()
            print(f"a new controller after {trio.current_time() - began:.2f} s")
            assert new != old
            await cluster.node(new).create_topic("after")
            await cluster.topics_everywhere(["before", "after"])
            await cluster.until(lambda: cluster.nodes[new].driver.image.brokers[old].fenced)
            await cluster.start(old)
            await cluster.topics_everywhere(["before", "after"])
            await cluster.until(lambda: not cluster.nodes[new].driver.image.brokers[old].fenced)

    run(main)
