"""A cluster at each level of ``metadata.version``, in each shape: it starts, serves, loses nothing."""

from __future__ import annotations

import os
from typing import Any

import pytest

from kbroker.raft_metadata.metadata_version import METADATA_VERSION_NAMES
from kbroker.sim.cluster_scenarios.registry import ClusterScenario, run_course
from kbroker.sim.cluster_scenarios.upgrades import at_one_level

SEEDS = int(os.environ.get("KBROKER_SIM_CLUSTER_SEEDS", "1"))

SHAPES = ((1, 0), (1, 1), (3, 0), (3, 1), (3, 3))
"""Brokers, and controllers apart from them: alone, in two roles, in threes."""

TURNING_POINTS = (7, 14, 16, 17)
"""The oldest level, the last ones without controllers and directories in the log, and the first one with them."""


def shapes(level: int) -> list[tuple[int, int]]:
    """Three at turning points, all where there are more seeds; of the others one or two: each shape is seen at many."""
    count = min(len(SHAPES), SEEDS + 2) if level in TURNING_POINTS else min(2, SEEDS)
    return [SHAPES[(level + step) % len(SHAPES)] for step in range(count)]


def _mark(level: int) -> Any:
    """Marks what `cluster-upgrade` passes on its way."""
    return level if level in TURNING_POINTS else pytest.param(level, marks=pytest.mark.everything)


@pytest.mark.parametrize("level", map(_mark, METADATA_VERSION_NAMES))
def test_a_cluster_serves_at_each_level(level: int) -> None:
    for brokers, controllers in shapes(level):
        properties = {"min.insync.replicas": "1"} if brokers == 1 else {}
        found = ClusterScenario(at_one_level, brokers, controllers, properties, metadata_version=level)
        run_course(f"{brokers} brokers, {controllers} controllers at {level}", found, seed=level)
