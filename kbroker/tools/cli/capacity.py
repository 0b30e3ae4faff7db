"""``kbroker capacity``: from a load to nodes, machines, disks and network, by measured constants. Asks no cluster."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from kbroker.tools.cli.common import checked, not_negative, positive
from kbroker.tools.cli.output import print_json, print_table, size
from kbroker.tools.cli.parser import UsageError

if TYPE_CHECKING:
    from kbroker.tools.cli.capacity_plan import Load, Plan

DETAILS = """\
Half of each core, link and disk is left free, and 30% of the disks: docs/capacity.md has the rules, and how far what
was measured is from what was reckoned. A codec costs the nodes nothing, as batches stay as they are: what counts is
the share of the bytes that it leaves."""


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise ValueError
    return value


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``capacity``."""
    add = parser.add_argument
    add("--messages", type=positive, metavar="N", help="messages a second, of all topics together")
    add("--size", type=positive, metavar="BYTES", help="bytes of a message, before compression")
    share = checked(_share, "a number above 0 and up to 1")
    add("--ratio", type=share, default=1.0, metavar="X", help="share of the bytes that compression leaves (default 1)")
    add("--batch", type=positive, default=16_384, metavar="BYTES", help="bytes of a Produce request (default 16384)")
    add("--retention", default="7d", metavar="TIME", help="how long records stay, as 12h (default 7d)")
    add("--readers", type=not_negative, default=1, metavar="N", help="how often all is read (default 1)")
    add("--replicas", type=positive, default=3, metavar="N", help="replicas of a partition (default 3)")
    add("--partitions", type=positive, default=12, metavar="N", help="partitions of all topics (default 12)")
    add("--connections", type=positive, default=100, metavar="N", help="connections to each node (default 100)")
    add("--tls", action="store_true", help="TLS, of clients and between nodes")
    add("--cores", type=positive, default=4, metavar="N", help="cores of a machine (default 4)")
    add("--network", type=positive, default=10, metavar="GBIT", help="Gbit/s of a machine, each way (default 10)")
    add("--disk", type=positive, default=500, metavar="MB", help="MB/s that a machine's disks write (default 500)")
    add("--constants", action="store_true", help="show the constants, each with the benchmark that gives it")
    add("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Show the plan of a load, or the constants."""
    if arguments.constants:
        return _show_constants(arguments.json)
    load = _load(arguments)
    from kbroker.tools.cli.capacity_plan import plan_capacity

    plan = plan_capacity(load)
    if arguments.json:
        print_json({"load": asdict(load), "plan": asdict(plan)})
    else:
        _show(load, plan)
    return 0


def _load(arguments: argparse.Namespace) -> Load:
    from kbroker.client.records_io.times import parse_duration
    from kbroker.tools.cli.capacity_plan import Load

    if arguments.messages is None or arguments.size is None:
        raise UsageError("say how much comes: --messages a second, and the --size of one in bytes")
    try:
        retention = parse_duration(arguments.retention) / 1000
    except ValueError as error:
        raise UsageError(f"--retention: {error}") from None
    same = ("messages", "size", "ratio", "batch", "readers", "replicas", "partitions", "connections", "tls", "cores")
    return Load(
        **{name: getattr(arguments, name) for name in same},
        retention_s=retention,
        network=arguments.network * 1e9 / 8,
        disk=arguments.disk * 1e6,
    )


def _show(load: Load, plan: Plan) -> None:
    share = plan.busy_cores / plan.nodes
    why = {
        "replicas": f"replicas: each of {load.replicas} on another machine, where the load needs {plan.by_load:.2f}",
        "processors": "processors",
        "network": "network",
        "disk rate": "the rate at which disks write",
        "start": "replicas that a node opens when it starts",
    }
    grown = f"{plan.growth:.2f} times the machines"
    assumed = {
        "batch": f"Produce requests of {load.batch:,.0f} bytes; if they are half as large, it takes {grown}",
        "ratio": f"compression to {load.ratio:g}; if it leaves twice as much, it takes {grown}",
        "readers": f"readers, {load.readers}; if they are twice as many, it takes {grown}",
        "partitions": f"partitions, {load.partitions:,}; if they are twice as many, it takes {grown}",
        "retention": "how long records stay; nothing else takes another machine if it is twice as bad",
    }
    rows = {
        "machines": f"{plan.machines} with {load.cores} cores, {plan.nodes // plan.machines} of them a node:"
        f" {plan.nodes} nodes",
        "bottleneck": why[plan.bottleneck],
        "processors": f"{plan.busy_cores:.2f} cores busy, {share:.0%} of each node's",
        "network": f"{plan.network_in / 1e6:,.1f} MB/s into a machine, {plan.network_out / 1e6:,.1f} MB/s out",
        "disks": f"{size(round(plan.disk_bytes))} a machine, {plan.disk_rate / 1e6:,.1f} MB/s written",
        "memory": f"{size(round(plan.memory))} a machine, and {size(round(plan.page_cache))} of page cache",
        "restart": f"{plan.restart_seconds:.1f} s until a node serves again",
        "copying": f"{_time(plan.copy_seconds)} until a machine with empty disks has its replicas",
        "matters most": assumed[plan.matters_most],
    }
    for name, value in rows.items():
        print(f"{name:<14}{value}")
    for note in plan.notes:
        print(f"{'note':<14}{note}")


def _time(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


def _show_constants(as_json: bool) -> int:
    from kbroker.base.costs import COSTS

    if as_json:
        print_json([each._asdict() for each in COSTS])
    else:
        rows = [[each.what, f"{each.value:.3g} {each.unit}", each.source] for each in COSTS]
        print_table(["what", "costs", "the benchmark that says so"], rows)
    return 0
