"""Clusters at older levels of ``metadata.version``, and ones that rise from level to level while clients work."""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.features import METADATA_VERSION
from kbroker.raft_metadata.metadata_version import METADATA_VERSION_NAMES, MINIMUM_METADATA_VERSION
from kbroker.sim.cluster import SimCluster
from kbroker.sim.cluster_scenarios.registry import scenario
from kbroker.sim.cluster_scenarios.steps import await_progress, begin, begin_transactions, end_and_start_one
from kbroker.sim.sim_node import SimNode
from kbroker.sim.world import Violation
from kbroker.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

LEVELS = sorted(METADATA_VERSION_NAMES)

LATER_FEATURES = {"group.version": 1, "transaction.version": 2, "eligible.leader.replicas.version": 1}
"""Levels that a fresh cluster of the latest release has, and one that has risen to it gets last."""


async def set_features(cluster: SimCluster, levels: dict[str, int]) -> None:
    """Raise features, as often as it takes, and wait until every node that serves knows them."""
    client = cluster.client()
    updates = [FeatureUpdateKey(feature=name, max_version_level=level) for name, level in levels.items()]
    while True:
        response = await client.ask(client.any_node(), UpdateFeaturesRequest(feature_updates=updates, timeout_ms=5000))
        if response is not None and response.error_code == ErrorCode.NONE:
            break
        if response is not None and response.error_code == ErrorCode.INVALID_UPDATE_VERSION:
            raise Violation(f"{levels} is refused: {response.error_message}")
        await cluster.run_for(0.2)
    client.close()

    def is_known(node: SimNode) -> bool:
        assert node.broker is not None
        known = node.broker.metadata.image.features.levels
        return all(known.get(name) == level for name, level in levels.items())

    await cluster.until(
        lambda: all(is_known(node) for node in cluster.serving), 60, f"not all nodes come to know {levels}"
    )


async def at_one_level(cluster: SimCluster) -> None:
    """A cluster that stays at the level it was formatted at: a node is killed, one is stopped, all goes on."""
    replicas = min(3, len(cluster.ids))
    partitions = await begin(cluster, replication_factor=replicas, min_isr=max(1, replicas - 1))
    for killed in (1, 0):
        await end_and_start_one(cluster, killed=killed, down=3)
    await cluster.finish(partitions)


async def _rise(cluster: SimCluster) -> None:
    partitions = await begin_transactions(cluster, versions=(1, 1))
    for level in LEVELS[1:]:
        what = cluster.rng.choice(("nothing", "nothing", "kill", "stop"))
        node = cluster.rng.choice(cluster.serving)
        if what == "kill":
            node.kill()
        elif what == "stop":
            await node.stop()
        await set_features(cluster, {METADATA_VERSION: level})
        if what != "nothing":
            await cluster.run_for(cluster.rng.uniform(0, 2))
            node.start()
            await cluster.await_serving([node])
        await await_progress(cluster, 5)
    await cluster.await_full_isr(partitions)
    await set_features(cluster, LATER_FEATURES)
    await await_progress(cluster)
    await cluster.finish(partitions)


@scenario(metadata_version=MINIMUM_METADATA_VERSION)
async def upgrade(cluster: SimCluster) -> None:
    """A cluster rises from the oldest level to the latest, one by one, while nodes die and stop: nothing is lost."""
    await _rise(cluster)


@scenario(controllers=3, metadata_version=MINIMUM_METADATA_VERSION)
async def upgrade_of_separate_roles(cluster: SimCluster) -> None:
    """The same with controllers and brokers apart."""
    await _rise(cluster)
