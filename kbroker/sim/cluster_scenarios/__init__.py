"""The scenarios of simulated clusters. Each leaves its cluster healed, and all promises kept.

A family of scenarios is a module; :mod:`~kbroker.sim.cluster_scenarios.registry` has them all under their names.
Begin there, then with `steps`.
"""

from __future__ import annotations

from kbroker.sim.cluster_scenarios import (
    directories,
    foolish,
    groups,
    machines,
    network,
    processes,
    replicas,
    share_groups,
    transactions,
    upgrades,
)
from kbroker.sim.cluster_scenarios.registry import CLUSTER_SCENARIOS, ClusterScenario, run_cluster_scenario

__all__ = [
    "CLUSTER_SCENARIOS",
    "ClusterScenario",
    "directories",
    "foolish",
    "groups",
    "machines",
    "network",
    "processes",
    "replicas",
    "run_cluster_scenario",
    "share_groups",
    "transactions",
    "upgrades",
]
