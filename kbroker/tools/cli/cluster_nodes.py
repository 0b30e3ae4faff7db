"""``kbroker cluster``: the nodes of a machine (``--cores``) are shown, restarted; a broker is drained, forgotten."""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kbroker.base.file_lock import try_lock
from kbroker.errors import FatalError
from kbroker.tools.cli.common import add_cluster_arguments, add_yes, cluster, complain, confirm_change, not_negative
from kbroker.tools.cli.core_supervisor import STATE_FILE
from kbroker.tools.cli.output import plain, print_json, print_table
from kbroker.tools.cli.parser import add_repeated
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.client import Client

_AT_ONCE: Final = 50
"""Partitions that are moved at the same time."""
_PAUSE: Final = 0.3
CORDONED: Final = "cordoned.log.dirs"


# --- The processes of a machine -------------------------------------------------------------------------------------


def processes_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``processes``."""
    _directory_argument(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def _directory_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory", nargs="?", type=Path, default=Path("kbroker-data"), metavar="DIR", help="first log directory"
    )


def read_state(directory: Path) -> dict[str, Any]:
    """The state file of a directory's supervisor; ``FatalError`` if none runs."""
    for _ in range(5):  # it may be replaced meanwhile
        with suppress(OSError), (directory / STATE_FILE).open() as file:
            state: dict[str, Any] = json.load(file)
            if not try_lock(file.fileno()):
                return state
        time.sleep(0.02)
    raise FatalError(f"no nodes of {directory} are run by kbroker start --cores")


def processes(arguments: argparse.Namespace) -> int:
    """Show the processes of a machine's nodes."""
    state = read_state(arguments.directory)
    if arguments.json:
        print_json(state)
        return 0
    print(f"supervisor: process {state['pid']}; SIGTERM stops all nodes in order")
    print_table(
        ["node", "pid", "state", "starts", "addresses"],
        [
            [
                plain(node["id"]),
                None if node["pid"] is None else plain(node["pid"]),
                "serving" if node["serves"] else "starting" if node["pid"] else "dead",
                node["starts"],
                node["addresses"],
            ]
            for node in state["nodes"]
        ],
        numbers=("node", "pid", "starts"),
    )
    return 0


def restart_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``restart``."""
    _directory_argument(parser)
    add_repeated(parser, "--node", metavar="ID", type=not_negative, help="only this")
    parser.add_argument(
        "--wait", type=float, default=600.0, metavar="SECONDS", help="for all replicas to be in sync (default 600)"
    )
    add_cluster_arguments(parser)


def restart(arguments: argparse.Namespace) -> int:
    """Restart a machine's nodes, the one with the controller last; each once all replicas are in sync."""
    ids = [node["id"] for node in read_state(arguments.directory)["nodes"]]
    if unknown := set(arguments.node) - set(ids):
        raise FatalError(f"node {min(unknown)} is none of {arguments.directory}: there are {', '.join(map(str, ids))}")
    _await_health(arguments)
    wanted = [number for number in (*ids[1:], ids[0]) if not arguments.node or number in arguments.node]
    for number in wanted:
        _restart_one(arguments, _state_of(arguments.directory, number))
        if not arguments.json:
            print(f"node {number} was restarted", flush=True)
    if arguments.json:
        print_json({"restarted": wanted})
    return 0


def _restart_one(arguments: argparse.Namespace, node: Mapping[str, Any]) -> None:
    """Have a node stop in order: its supervisor starts it again."""
    if node["pid"] is None:
        raise FatalError(f"node {node['id']} does not run: see the log of its supervisor")
    os.kill(node["pid"], signal.SIGTERM)

    def serves_again() -> bool:
        now = _state_of(arguments.directory, node["id"])
        return bool(now["serves"]) and now["starts"] > node["starts"]

    _await(serves_again, lambda: f"node {node['id']} does not serve", arguments.wait)
    _await_health(arguments)


def _state_of(directory: Path, number: int) -> dict[str, Any]:
    return next(node for node in read_state(directory)["nodes"] if node["id"] == number)


def _await_health(arguments: argparse.Namespace) -> None:
    from kbroker.tools.diagnosis.asking import ask_cluster
    from kbroker.tools.diagnosis.cluster import health_problems

    told: list[str] = []

    def is_healthy() -> bool:
        try:
            with cluster(arguments) as client:
                told[:] = health_problems(ask_cluster(client), complete=True)
        except FatalError as error:
            told[:] = [str(error)]
        return not told

    _await(is_healthy, lambda: f"the cluster is not complete: {' '.join(told)}", arguments.wait)


def _await(is_so: Callable[[], bool], what: Callable[[], str], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise FatalError(f"{what()}; given up after {seconds:g} s")
        time.sleep(_PAUSE)


# --- Draining a broker ----------------------------------------------------------------------------------------------


def drain_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``drain``."""
    parser.add_argument("broker", type=not_negative, metavar="BROKER", help="id of the broker that is to have nothing")
    parser.add_argument("--dry-run", action="store_true", help="only show where everything would go")
    add_yes(parser)
    add_cluster_arguments(parser)


DRAIN_DETAILS: Final = f"""\
Its replicas go to other brokers, those of its own rack first where that has no other replica of the
partition, {_AT_ONCE} partitions at a time. The broker gets no new ones ({CORDONED}=* is set for it;
kbroker config unset broker ID {CORDONED} takes that back). Brokers that have it set get none of the replicas.
If a move is refused, the broker gets new ones as before. Ended before its time, the command can be
given again."""


def plan_drain(
    replicas: Mapping[TopicPartition, Sequence[int]], racks: Mapping[int, str | None], broker: int
) -> dict[TopicPartition, list[int]]:
    """The new replicas of each partition that has one on ``broker``; ``racks`` has the brokers that may take them.

    A rack that has no replica of the partition comes first, then the broker's own, then who has least.
    """
    held = Counter(each for partition in replicas.values() for each in partition)
    plan: dict[TopicPartition, list[int]] = {}
    for partition, current in replicas.items():
        if broker not in current:
            continue
        used = {racks.get(each) for each in current if each != broker}
        free = [each for each in racks if each != broker and each not in current]
        if not free:
            raise FatalError(
                f"{partition} has {len(current)} replicas, and no other broker can have one of them:"
                f" {_advice(racks, partition, current, broker)}"
            )
        best = min(free, key=lambda each: (racks[each] in used, racks[each] != racks.get(broker), held[each], each))
        held[best] += 1
        plan[partition] = [best if each == broker else each for each in current]
    return plan


def _advice(racks: Mapping[int, str | None], partition: TopicPartition, current: Sequence[int], broker: int) -> str:
    if len(current) == 1:
        return f"start one, or let one take new partitions again: kbroker config unset broker ID {CORDONED}"
    rest = ",".join(map(str, sorted({*racks, *current} - {broker})))
    return f"have fewer, kbroker topic move {partition.topic} --brokers {rest} -r {len(current) - 1}"


def drain(arguments: argparse.Namespace) -> int:
    """Move everything away from a broker."""
    from kbroker.client.nodes import describe_cluster

    broker: int = arguments.broker
    with cluster(arguments) as client:
        own = next((each for each in describe_cluster(client).brokers if each.id == broker), None)
        if own is None:
            raise FatalError(f"there is no broker {broker}")
        plan, moves = _planned(client, broker, own.rack)
        if arguments.dry_run and not arguments.json:
            for name, move in moves.items():
                print(f"{name}: {' -> '.join(','.join(map(str, side)) for side in move.values())}")
        elif arguments.dry_run:
            print_json({"broker": broker, "drained": False, "moves": moves})
        elif not confirm_change(f"Move {len(plan)} partitions away from broker {broker}?", client, arguments):
            return 1
        else:
            with cordoned(client, broker):
                plan, moves = _planned(client, broker, own.rack)  # with topics that were made before it got no new ones
                _carry_out(client, plan, broker)
            _check_is_empty(client, broker)
            if arguments.json:
                print_json({"broker": broker, "drained": True, "moves": moves})
            else:
                print(f"broker {broker} has nothing any more: {len(plan)} partitions were moved")
    return 0


def _planned(
    client: Client, broker: int, rack: str | None
) -> tuple[dict[TopicPartition, list[int]], dict[str, dict[str, list[int]]]]:
    """The plan of `plan_drain` by what there is now, and each partition's replicas before and after it, by its name."""
    from kbroker.client.nodes import brokers_open_to_new
    from kbroker.client.reassignments import replicas_to_be

    replicas = replicas_to_be(client, _replicas(client))
    plan = plan_drain(replicas, brokers_open_to_new(client) | {broker: rack}, broker)
    return plan, {str(each): {"before": list(replicas[each]), "after": after} for each, after in plan.items()}


def _replicas(client: Client) -> dict[TopicPartition, tuple[int, ...]]:
    from kbroker.client.topics import list_topics

    return {
        TopicPartition(topic.name, each.partition): each.replicas
        for topic in list_topics(client)
        for each in topic.partitions
    }


def _check_is_empty(client: Client, broker: int) -> None:
    """``FatalError`` if a broker still has replicas: somebody has cancelled a move, or placed a new partition there."""
    deadline = client.deadline()
    while left := [each for each, replicas in _replicas(client).items() if broker in replicas]:
        if time.monotonic() >= deadline:  # before that a broker may be late to hear of a move's end
            raise FatalError(
                f"{len(left)} partitions are on broker {broker} still, {left[0]} among them: give the command again"
            )
        time.sleep(_PAUSE)


@contextmanager
def cordoned(client: Client, broker: int) -> Iterator[None]:
    """Have a broker get no new partitions from now on; as before, if what is done then is refused."""
    from kbroker.client import ResponseError
    from kbroker.client.configs import (
        ConfigChange,
        ConfigSource,
        Operation,
        ResourceType,
        alter_configs,
        describe_configs,
    )

    resource = (ResourceType.BROKER, str(broker))
    before = ConfigChange(CORDONED, Operation.DELETE)
    for entry in describe_configs(client, *resource, keys=[CORDONED]):
        if entry.source == ConfigSource.DYNAMIC_BROKER_CONFIG.name:
            before = ConfigChange(CORDONED, Operation.SET, entry.value)
    alter_configs(client, *resource, [ConfigChange(CORDONED, Operation.SET, "*")])
    try:
        yield
    except (ResponseError, FatalError) as error:
        alter_configs(client, *resource, [before])
        raise FatalError(f"{error}; broker {broker} is not drained, and {CORDONED} is as it was before") from error


def _carry_out(client: Client, plan: Mapping[TopicPartition, Sequence[int]], broker: int) -> None:
    """Move, and wait also for what an earlier command has begun to move away from the broker."""
    from kbroker.client.reassignments import alter_reassignments, list_reassignments
    from kbroker.tools.cli.progress import progress

    partitions = list(plan)
    with progress("moving partitions", total=len(partitions)) as told:
        for first in range(0, len(partitions), _AT_ONCE):
            piece = partitions[first : first + _AT_ONCE]
            for error in alter_reassignments(client, {each: plan[each] for each in piece}).values():
                if error is not None:
                    raise error
            topics: dict[str, list[int]] = {}
            for each in piece:
                topics.setdefault(each.topic, []).append(each.partition)
            while list_reassignments(client, topics):
                time.sleep(_PAUSE)
            told.add(len(piece))
        while any(broker in each.removing for each in list_reassignments(client).values()):
            time.sleep(_PAUSE)


def unregister_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``unregister``."""
    parser.add_argument("broker", type=not_negative, metavar="BROKER", help="id of a broker that does not come back")
    add_yes(parser)
    add_cluster_arguments(parser)


def unregister(arguments: argparse.Namespace) -> int:
    """Have the cluster forget a broker that does not run."""
    from kbroker.client.cluster import refuse
    from kbroker.client.nodes import describe_cluster
    from kbroker.client.topics import list_topics
    from kbroker.wire.messages.nodes import UnregisterBrokerRequest, UnregisterBrokerResponse

    broker: int = arguments.broker

    def check(response: UnregisterBrokerResponse) -> None:
        refuse(response.error_code, f"broker {broker}", response.error_message)

    with cluster(arguments) as client:
        found = next((each for each in describe_cluster(client).brokers if each.id == broker), None)
        if found is None:
            raise FatalError(f"there is no broker {broker}")
        if not found.fenced:
            raise FatalError(f"broker {broker} serves: stop it first")
        left = [
            topic.name for topic in list_topics(client) if any(broker in each.replicas for each in topic.partitions)
        ]
        if left:
            complain(f"replicas of {len(left)} topics are on broker {broker}, {left[0]}'s among them")
        if not confirm_change(f"Forget broker {broker}?", client, arguments):
            return 1
        client.ask_controller(UnregisterBrokerRequest(broker_id=broker), check)
    if arguments.json:
        print_json({"unregistered": broker})
    else:
        print(f"broker {broker} is not registered any more")
    return 0
