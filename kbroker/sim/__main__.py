"""``python -m kbroker.sim``: run simulations of the metadata quorum, or one of them again."""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from kbroker.sim.scenarios import SCENARIOS, replay_line, run_scenario


def main(arguments: list[str] | None = None) -> int:
    """The command. Its exit status is 1 if a run has failed."""
    parser = argparse.ArgumentParser(prog="python -m kbroker.sim", description=__doc__)
    parser.add_argument("--scenario", choices=[*SCENARIOS, "all"], default="all", help="what happens (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on (default: 1)")
    parser.add_argument("--trace", action="store_true", help="show every step and message")
    parser.add_argument("--twice", action="store_true", help="run each seed twice and compare the traces")
    options = parser.parse_args(arguments)
    names = list(SCENARIOS) if options.scenario == "all" else [options.scenario]
    failed = 0
    for name in names:
        begun = time.perf_counter()
        digest = ""
        for seed in range(options.seed, options.seed + options.seeds):
            try:
                digest = run_scenario(name, seed, sys.stdout if options.trace else None)
                if options.twice and run_scenario(name, seed) != digest:
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
