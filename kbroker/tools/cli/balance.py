"""``kbroker balance``: which replicas lead, or move, so that no broker has much more load than the others."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import FatalError
from kbroker.tools.cli.common import (
    add_cluster_arguments,
    add_yes,
    cluster,
    complain,
    confirm_change,
    positive,
    report_failures,
    told_to_stop,
)
from kbroker.tools.cli.output import plain, print_json, print_table
from kbroker.tools.cli.parser import UsageError
from kbroker.tools.cli.progress import progress
from kbroker.tools.cli.topic_moves import wait_for_moves
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.client import Client
    from kbroker.client.balance import Move, Plan

DETAILS = """\
Measures what each partition costs its leader and its followers, in requests and bytes, and shows the moves that help
most: another replica in sync leads, or another node of the machine takes a replica over, which copies nothing, or
another broker copies one. Racks stay as they are, and partitions that are not in sync or move already are left alone.
Nothing changes without --execute. --watch goes on until it is interrupted: a round each --seconds, and what has moved
rests for ten rounds."""

REST_ROUNDS: Final = 10
"""Rounds of ``--watch`` in which a partition that has moved does not move again: its load has to show first."""

_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``balance``."""
    parser.add_argument("--seconds", type=positive, default=10, metavar="N", help="measure for so long (default 10)")
    parser.add_argument("--moves", type=positive, default=5, metavar="N", help="at most so many in a round (default 5)")
    parser.add_argument("--leaders", action="store_true", help="only other leaders: nothing is copied")
    parser.add_argument("--execute", action="store_true", help="do it, and wait for the end")
    parser.add_argument("--watch", action="store_true", help="do it again and again")
    parser.add_argument(
        "--throttle", type=positive, metavar="BYTES", help="bytes a second that each broker copies, or has copied"
    )
    add_yes(parser)
    add_cluster_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show what would balance the load, and do it; 1 if a move failed."""
    if arguments.throttle and not (arguments.execute or arguments.watch):
        raise UsageError("--throttle is for --execute or --watch")
    rested: dict[TopicPartition, int] = {}
    number, is_agreed = 0, False
    with cluster(arguments) as client:
        while True:
            number += 1
            plan = _measure(client, arguments, [each for each, until in rested.items() if until > number])
            if plan.moves or number == 1:
                _show(plan, arguments)
            if not plan.moves or not (arguments.execute or arguments.watch):
                if not arguments.watch:
                    return 0
                continue
            if not is_agreed and not confirm_change(_question(plan, arguments), client, arguments):
                complain("nothing moved")
                return 1
            is_agreed = True
            failures = _execute(client, plan.moves, arguments.throttle)
            rested |= dict.fromkeys((move.partition for move in plan.moves), number + REST_ROUNDS)
            if not arguments.watch:
                return report_failures(failures)
            report_failures(failures)


def _question(plan: Plan, arguments: argparse.Namespace) -> str:
    copied = sum(move.copied for move in plan.moves)
    what = f"Make {len(plan.moves)} moves, which copy {copied:,} bytes"
    return f"{what}, and go on so until this is interrupted?" if arguments.watch else f"{what}?"


def _measure(client: Client, arguments: argparse.Namespace, resting: Sequence[TopicPartition]) -> Plan:
    from kbroker.client.balance import NoLoads, broker_hosts, broker_racks, place, plan_balance, read_counts

    try:
        with progress(f"measuring for {arguments.seconds} s"):
            before, began = read_counts(client), time.monotonic()
            time.sleep(arguments.seconds)
            after, ended = read_counts(client), time.monotonic()
    except NoLoads as error:
        raise FatalError(str(error)) from None
    placed = place(client, before, after, ended - began)
    racks, closed = broker_racks(client)
    return plan_balance(
        placed,
        racks,
        most=arguments.moves,
        only_leaders=arguments.leaders,
        resting=resting,
        closed=closed,
        hosts=broker_hosts(client),
    )


def _show(plan: Plan, arguments: argparse.Namespace) -> None:
    moves: list[dict[str, Any]] = [
        {
            "topic": move.partition.topic,
            "partition": move.partition.partition,
            "leader": move.before.leader,
            "new_leader": move.replicas[0],
            "replicas": list(move.before.replicas),
            "new_replicas": list(move.replicas),
            "copied_bytes": move.copied,
            "core_share": round(move.before.load.lead, 4),
        }
        for move in plan.moves
    ]
    if arguments.json:
        brokers = [
            {"broker": broker, "before": round(load, 4), "after": round(plan.after[broker], 4)}
            for broker, load in sorted(plan.before.items())
        ]
        print_json({"brokers": brokers, "moves": moves, "notes": plan.notes})
        return
    print_table(
        ["broker", "load", "would be" if plan.moves else "", ""],
        [
            [plain(broker), f"{load:.1%} of a core", f"{plan.after[broker]:.1%}" if plan.moves else "", ""]
            for broker, load in sorted(plan.before.items())
        ],
    )
    if moves:
        print()
        print_table(
            ["topic", "partition", "load", "leader", "replicas", "copied"],
            [
                [
                    each["topic"],
                    plain(each["partition"]),
                    f"{each['core_share']:.1%}",
                    f"{each['leader']} to {each['new_leader']}" if each["leader"] != each["new_leader"] else "stays",
                    " to ".join(dict.fromkeys(",".join(map(str, each[name])) for name in ("replicas", "new_replicas"))),
                    f"{each['copied_bytes']:,} bytes",
                ]
                for each in moves
            ],
        )
    elif not plan.notes:
        print("no broker has much more load than the others: nothing to move")
    for note in plan.notes:
        print(note)


def _execute(client: Client, moves: Sequence[Move], throttle: int | None) -> list[object]:
    """Carry moves out and wait for their end: replicas first, leaders then. Returns what failed."""
    from kbroker.client.balance import still_free
    from kbroker.client.reassignments import alter_reassignments, elect_leaders

    free = still_free(client, moves)
    problems: list[object] = [f"{each.partition} is moved by somebody else" for each in moves if each not in free]
    with _throttled(client, free, throttle):
        results = alter_reassignments(client, {each.partition: each.replicas for each in free}) if free else {}
        begun = [partition for partition, error in results.items() if error is None]
        if begun:
            problems += wait_for_moves(
                client, {each.partition: each.replicas for each in free if each.partition in begun}
            )
    elected = elect_leaders(client, begun) if begun else {}
    return problems + [error for error in (*results.values(), *elected.values()) if error is not None]


@contextmanager
def _throttled(client: Client, moves: Sequence[Move], rate: int | None) -> Iterator[None]:
    """Have the brokers and topics of moves that may copy something throttled meanwhile (KIP-73)."""
    from kbroker.client.configs import ConfigChange, Operation, ResourceType, alter_configs, describe_configs
    from kbroker.client.errors import ClientError

    copying = [each for each in moves if {*each.replicas} - {*each.before.replicas}] if rate is not None else []
    brokers = {str(broker) for move in copying for broker in (*move.replicas, *move.before.replicas)}
    places = [(ResourceType.BROKER, name, _RATES, str(rate)) for name in sorted(brokers)]
    places += [
        (ResourceType.TOPIC, name, _REPLICAS, "*") for name in sorted({move.partition.topic for move in copying})
    ]
    for kind, name, keys, _ in places:
        if any(not entry.is_default for entry in describe_configs(client, kind, name, keys=keys)):
            raise FatalError(f"{kind.name.lower()} {name} is throttled already: do without --throttle, or wait")
    done: list[tuple[ResourceType, str, tuple[str, str]]] = []
    with told_to_stop():
        try:
            for kind, name, keys, value in places:
                done.append((kind, name, keys))
                alter_configs(client, kind, name, [ConfigChange(key, Operation.SET, value) for key in keys])
            yield
        finally:
            for kind, name, keys in done:
                try:
                    alter_configs(client, kind, name, [ConfigChange(key, Operation.DELETE) for key in keys])
                except ClientError as error:  # a broker that is down, and the others are not to stay throttled for it
                    complain(f"{kind.name.lower()} {name} stays throttled until {' and '.join(keys)} go: {error}")
