"""Partitions moved to other brokers: a preview, the move itself with ``--writes``, what is under way, cancelled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from kbroker.client import Client
from kbroker.client.nodes import describe_cluster
from kbroker.client.reassignments import alter_reassignments, list_reassignments
from kbroker.client.records_io.json_types import Json
from kbroker.tools.console.api.topics import find_topic
from kbroker.tools.console.call import Call, RequestRefused
from kbroker.tools.console.sizes import ask_sizes
from kbroker.types import TopicPartition

_MOST: Final = 100_000
"""Numbers that a text may name."""


class CannotPlan(ValueError):
    """There is no such plan; the text says why."""


def parse_numbers(text: str, what: str) -> list[int]:
    """``0,2,5-7`` as numbers in order, each once. ``CannotPlan`` for another form."""
    found: set[int] = set()
    for part in text.replace(" ", "").split(","):
        first, dash, last = part.partition("-")
        if not (first.isascii() and first.isdigit() and len(first) < 10) or (
            dash and not (last.isascii() and last.isdigit() and len(last) < 10)
        ):
            raise CannotPlan(f"{what} are numbers such as 0,2,5-7")
        begin, end = int(first), int(last) if dash else int(first)
        if end < begin or end - begin > _MOST:
            raise CannotPlan(f"{what}: {part[:30]} is no range")
        found.update(range(begin, end + 1))
        if len(found) > _MOST:
            raise CannotPlan(f"{what}: these are more than {_MOST:,}")
    return sorted(found)


def plan_moves(
    replicas: Mapping[int, Sequence[int]], racks: Mapping[int, str | None], factor: int
) -> dict[int, tuple[int, ...]]:
    """Partition -> its replicas on the brokers of ``racks``, the preferred leader first.

    Each partition gets ``factor`` replicas, each broker about as many, other racks first, and as many first places. A
    replica stays where it is unless its broker is not among them or has more than its share.
    """
    if factor < 1:
        raise CannotPlan("a partition has at least one replica")
    if factor > len(racks):
        raise CannotPlan(f"{factor} replicas need as many brokers, and {len(racks)} are chosen")
    share = -(-len(replicas) * factor // len(racks))
    held: Counter[int] = Counter(dict.fromkeys(racks, 0))
    kept: dict[int, list[int]] = {}
    for partition, current in sorted(replicas.items()):
        stay: list[int] = []
        for broker in current:
            if broker in racks and held[broker] < share and len(stay) < factor:
                stay.append(broker)
                held[broker] += 1
        kept[partition] = stay
    for chosen in kept.values():
        while len(chosen) < factor:
            used = {racks[broker] for broker in chosen if racks[broker] is not None}
            free = (broker for broker in racks if broker not in chosen)
            best = min(free, key=lambda broker: (held[broker] >= share, racks[broker] in used, held[broker], broker))
            chosen.append(best)
            held[best] += 1
    leaders = -(-len(replicas) // len(racks))
    first: Counter[int] = Counter(dict.fromkeys(racks, 0))
    for partition, chosen in kept.items():
        old = replicas[partition][0] if replicas[partition] else None
        if chosen[0] != old or first[chosen[0]] >= leaders:
            best = min(chosen, key=lambda broker: (first[broker], broker))
            chosen.remove(best)
            chosen.insert(0, best)
        first[chosen[0]] += 1
    return {partition: tuple(chosen) for partition, chosen in kept.items()}


MAX_MOVED: Final = 1000
"""Partitions that one plan is about."""


async def preview_moves(call: Call) -> Json:
    """A plan: which replicas the partitions of a topic would have on some brokers, and how much is copied for it."""
    name = call.text("name")
    try:
        partitions = parse_numbers(call.text("partitions"), "partitions") if call.has("partitions") else None
        brokers = parse_numbers(call.text("brokers"), "brokers")
    except CannotPlan as error:
        raise RequestRefused(400, str(error)) from None
    factor = call.number("replicas", lowest=1, highest=100)
    return await call.ask(lambda client: _preview(client, name, partitions, brokers, factor))


def _preview(client: Client, name: str, partitions: list[int] | None, brokers: list[int], factor: int) -> Json:
    topic = find_topic(client, name)
    replicas = {entry.partition: entry.replicas for entry in topic.partitions}
    if partitions is not None:
        missing = [each for each in partitions if each not in replicas]
        if missing:
            raise RequestRefused(400, f"topic {name} has no partition {missing[0]}")
        replicas = {partition: replicas[partition] for partition in partitions}
    if len(replicas) > MAX_MOVED:
        raise RequestRefused(400, f"at most {MAX_MOVED:,} partitions are moved at once: say which")
    known = {broker.id: broker for broker in describe_cluster(client).brokers}
    for broker in brokers:
        if broker not in known:
            raise RequestRefused(400, f"there is no broker {broker}")
        if known[broker].fenced:
            raise RequestRefused(400, f"broker {broker} is fenced: it cannot copy anything")
    try:
        plan = plan_moves(replicas, {broker: known[broker].rack for broker in brokers}, factor)
    except CannotPlan as error:
        raise RequestRefused(400, str(error)) from None
    sizes = ask_sizes(client, [TopicPartition(name, partition) for partition in plan])
    leaders = {entry.partition: entry.leader for entry in topic.partitions}
    rows: list[Json] = []
    total: int | None = 0
    for partition, after in plan.items():
        before = replicas[partition]
        new = [broker for broker in after if broker not in before]
        size = sizes.of_leader(TopicPartition(name, partition), leaders[partition])
        copied = None if size is None else size * len(new)
        total = None if total is None or copied is None else total + copied
        rows.append(
            {"partition": partition, "before": list(before), "after": list(after), "new": list(new), "bytes": copied}
        )
    changed = [row for row, (partition, after) in zip(rows, plan.items(), strict=True) if replicas[partition] != after]
    return {"rows": changed, "unchanged": len(rows) - len(changed), "bytes": total}


async def move_partitions(call: Call) -> Json:
    """Begin the moves of a plan: ``after`` maps partitions to replicas, and ``before`` to those it was made for."""
    name = call.text("name")
    try:
        before = {int(key): tuple(map(int, text.split(","))) for key, text in call.texts("before").items()}
        after = {int(key): tuple(map(int, text.split(","))) for key, text in call.texts("after").items()}
    except ValueError:
        raise RequestRefused(400, "before and after map partitions to brokers, as 1,2,3") from None
    if not after or before.keys() != after.keys():
        raise RequestRefused(400, "before and after have to be about the same partitions")

    def move(client: Client) -> None:
        current = {entry.partition: tuple(entry.replicas) for entry in find_topic(client, name).partitions}
        if any(current.get(partition) != replicas for partition, replicas in before.items()):
            raise RequestRefused(409, "the partitions have other replicas by now: look at a new preview")
        _alter(client, name, after)

    details: Json = {str(partition): list(replicas) for partition, replicas in after.items()}
    await call.write("move-partitions", name, details, move)
    return {"done": f"{len(after)} partitions of topic {name} are moving"}


async def cancel_moves(call: Call) -> Json:
    """Cancel the moves of a topic that are under way: the replicas are as they were."""
    name = call.text("name")

    def cancel(client: Client) -> int:
        topic = find_topic(client, name)
        moving = list_reassignments(client, {name: [entry.partition for entry in topic.partitions]})
        if moving:
            _alter(client, name, {partition.partition: None for partition in moving})
        return len(moving)

    count = await call.write("cancel-moves", name, None, cancel)
    return {"done": f"{count} moves of topic {name} are cancelled"}


def _alter(client: Client, name: str, wanted: Mapping[int, tuple[int, ...] | None]) -> None:
    """Ask for all; the first refusal is raised, and says how many others have begun."""
    results = alter_reassignments(
        client, {TopicPartition(name, partition): replicas for partition, replicas in wanted.items()}
    )
    errors = [error for error in results.values() if error is not None]
    if errors:
        begun = len(results) - len(errors)
        if not begun:
            raise errors[0]
        raise RequestRefused(409, f"{begun} of {len(results)} are done, the others not: {errors[0]}")
