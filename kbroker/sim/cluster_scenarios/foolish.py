"""Clients that ask what makes no sense, while others are judged."""

from __future__ import annotations

import random
from typing import Final

from kbroker.sim.cluster import SimCluster
from kbroker.sim.cluster_scenarios.registry import scenario
from kbroker.sim.cluster_scenarios.steps import await_progress, begin
from kbroker.sim.foolish_client import FoolishClient, all_addresses
from kbroker.sim.world import Violation

MISSED_WITHIN: Final = 2.0
"""Seconds after which a broker that was killed is fenced where its controller lives: no session has to run out."""

ELECTED_WITHIN: Final = 5.0
"""Seconds in which the two controllers that are left elect one, when the active one is killed."""


@scenario(controllers=3, quiet=True, broker_session_timeout_ms="9000", broker_heartbeat_interval_ms="4000")
async def foolish_client(cluster: SimCluster) -> None:
    """A client asks for what is old, malformed, huge or never whole: who is killed is missed no later for it."""
    partitions = await begin(cluster)
    rng = random.Random(cluster.rng.getrandbits(64))
    fool = FoolishClient(cluster.client(), all_addresses(cluster.ids, cluster.controller_ids), rng)
    cluster.nursery.start_soon(fool.run)
    for _ in range(4):
        await cluster.await_full_isr(partitions)
        before = fool.answers
        # Longer than a controller looks after a broker whose connection has ended.
        await cluster.run_for(cluster.rng.uniform(3, 6))
        if fool.answers == before:
            raise Violation("the foolish client is answered nothing")
        await cluster.await_controller()
        node = cluster.rng.choice(cluster.brokers)
        node.kill()
        await cluster.until(
            lambda node_id=node.id: cluster.image().brokers[node_id].fenced,  # type: ignore[misc]
            MISSED_WITHIN,
            f"{node.name} is not missed",
        )
        await await_progress(cluster, within=5)
        node.start()
        await cluster.await_serving([node], within=20)
        active = await cluster.await_controller()
        active.kill()
        await cluster.until(lambda: cluster.controller() is not None, ELECTED_WITHIN, "no controller is elected")
        active.start()
        await cluster.await_serving([active], within=20)
    await cluster.finish(partitions)
