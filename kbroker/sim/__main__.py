"""``python -m kbroker.sim``: run simulations of the metadata quorum and of whole clusters, or one of them again."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from typing import TextIO

from kbroker.sim.cluster_scenarios import CLUSTER_SCENARIOS, run_cluster_scenario
from kbroker.sim.quorum.scenarios import SCENARIOS, run_scenario
from kbroker.sim.world import replay_line

GROUPS = {"all": [*SCENARIOS, *CLUSTER_SCENARIOS], "quorum": [*SCENARIOS], "cluster": [*CLUSTER_SCENARIOS]}


def run_any(name: str, seed: int, out: TextIO | None = None) -> str:
    """Run a scenario of either kind; the hash of its trace. ``AssertionError`` if something does not hold."""
    return (run_scenario if name in SCENARIOS else run_cluster_scenario)(name, seed, out)


def main(arguments: list[str] | None = None) -> int:
    """The command. Its exit status is 1 if a run has failed."""
    parser = argparse.ArgumentParser(prog="python -m kbroker.sim", description=__doc__)
    names = [*GROUPS, *SCENARIOS, *CLUSTER_SCENARIOS]
    parser.add_argument("--scenario", choices=names, default="all", help="what happens, or a group (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on (default: 1)")
    parser.add_argument("--trace", action="store_true", help="show every step and message")
    parser.add_argument("--twice", action="store_true", help="run each seed twice and compare the traces")
    options = parser.parse_args(arguments)
    names = GROUPS.get(options.scenario, [options.scenario])
    failed = 0
    for name in names:
        begun = time.perf_counter()
        digest = ""
        for seed in range(options.seed, options.seed + options.seeds):
            try:
                digest = run_any(name, seed, sys.stdout if options.trace else None)
                if options.twice and run_any(name, seed) != digest:
                    raise AssertionError("the same seed took another course")
            except Exception:
                failed += 1
                traceback.print_exc()
                print(f"FAILED, again with: {replay_line(name, seed)}", flush=True)
        took = time.perf_counter() - begun
        print(f"{name}: {options.seeds} seeds from {options.seed} in {took:.1f} s, last trace {digest}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
