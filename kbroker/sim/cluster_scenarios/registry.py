"""Scenarios of clusters under their names, and what runs one from a seed."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TextIO

from kbroker.raft_metadata.metadata_version import LATEST_METADATA_VERSION
from kbroker.sim.clock import run_deterministically, sim_clock
from kbroker.sim.cluster import SimCluster, simulated_cluster
from kbroker.sim.tcp import LinkFaults
from kbroker.sim.world import Trace

Course = Callable[[SimCluster], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ClusterScenario:
    """A course of events, and the cluster that it needs."""

    course: Course
    nodes: int = 3
    controllers: int = 0
    """Nodes besides that only vote; without any, every node does both."""
    properties: Mapping[str, str] = field(default_factory=dict)
    quiet: bool = False
    """Whether the network is always a good one."""
    metadata_version: int = LATEST_METADATA_VERSION
    """The level that the nodes are formatted at."""
    cores: int = 1
    """Nodes of each machine, which share its disk."""


CLUSTER_SCENARIOS: dict[str, ClusterScenario] = {}


def scenario(
    *,
    nodes: int = 3,
    controllers: int = 0,
    quiet: bool = False,
    metadata_version: int = LATEST_METADATA_VERSION,
    cores: int = 1,
    base: Mapping[str, str] | None = None,
    **properties: str,
) -> Callable[[Course], Course]:
    """Enter a course of events under its name; properties, besides ``base``, with underscores for dots."""

    def enter(course: Course) -> Course:
        name = "cluster-" + course.__name__.replace("_", "-")
        named = dict(base or {}) | {key.replace("_", "."): value for key, value in properties.items()}
        CLUSTER_SCENARIOS[name] = ClusterScenario(course, nodes, controllers, named, quiet, metadata_version, cores)
        return course

    return enter


def run_cluster_scenario(name: str, seed: int, out: TextIO | None = None) -> str:
    """Run one; the hash of its trace. :class:`Violation` if something does not hold."""
    return run_course(name, CLUSTER_SCENARIOS[name], seed, out)


def run_course(name: str, found: ClusterScenario, seed: int, out: TextIO | None = None) -> str:
    """Run a scenario that has no name (see :func:`run_cluster_scenario`)."""
    rng = random.Random(f"{name} {seed}")
    properties = {**_random_properties(rng), **found.properties}
    faults = LinkFaults() if found.quiet else LinkFaults.random(rng)

    async def main() -> str:
        trace = Trace(sim_clock(), out)
        trace.note(f"{name} {seed} {properties} {faults}")
        async with simulated_cluster(
            rng.getrandbits(64),
            trace,
            count=found.nodes,
            controllers=found.controllers,
            properties=properties,
            metadata_version=found.metadata_version,
            faults=faults,
            cores=found.cores,
        ) as cluster:
            await found.course(cluster)
        return trace.digest

    return run_deterministically(rng.getrandbits(64), main)


def _random_properties(rng: random.Random) -> dict[str, str]:
    """Kafka's defaults, or shorter times."""
    if rng.random() < 0.3:
        return {}
    return {
        "broker.session.timeout.ms": rng.choice(("2000", "3000", "9000")),
        "broker.heartbeat.interval.ms": rng.choice(("200", "500")),
        "replica.lag.time.max.ms": rng.choice(("2000", "5000", "10000")),
        "replica.fetch.wait.max.ms": rng.choice(("200", "500", "500")),
    }
