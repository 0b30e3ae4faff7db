"""What happens to a simulated cluster. Each scenario leaves it healed, and what was promised kept.

A family of scenarios is a module; :mod:`~kbroker.sim.cluster_scenarios.registry` has them all under their names.
"""

from __future__ import annotations

from kbroker.sim.cluster_scenarios import groups, machines, network, processes, replicas, transactions
from kbroker.sim.cluster_scenarios.registry import CLUSTER_SCENARIOS, ClusterScenario, run_cluster_scenario

__all__ = [
    "CLUSTER_SCENARIOS",
    "ClusterScenario",
    "groups",
    "machines",
    "network",
    "processes",
    "replicas",
    "run_cluster_scenario",
    "transactions",
]
