"""Partitions moved to other brokers: a preview, the move itself with ``--writes``, what is under way, cancelled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kbroker.client import Client
from kbroker.client.nodes import describe_cluster
from kbroker.client.reassignments import (
    CannotPlan,
    alter_reassignments,
    list_reassignments,
    parse_numbers,
    plan_moves,
    replicas_to_be,
)
from kbroker.client.records_io.json_types import Json
from kbroker.client.topics import TopicDescription
from kbroker.tools.console.api.topics import find_topic
from kbroker.tools.console.call import Call, RequestRefused
from kbroker.tools.console.sizes import ask_sizes
from kbroker.types import TopicPartition

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
    replicas = _replicas_to_be(client, topic)
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
    entries = {entry.partition: entry for entry in topic.partitions}
    rows: list[Json] = []
    total: int | None = 0
    for partition, after in plan.items():
        before = replicas[partition]
        # A replica that is about to leave has its records still: to stay, it copies nothing.
        new = [broker for broker in after if broker not in entries[partition].replicas]
        size = sizes.of_leader(TopicPartition(name, partition), entries[partition].leader)
        copied = None if size is None else size * len(new)
        total = None if total is None or copied is None else total + copied
        rows.append(
            {"partition": partition, "before": list(before), "after": list(after), "new": list(new), "bytes": copied}
        )
    changed = [row for row, (partition, after) in zip(rows, plan.items(), strict=True) if replicas[partition] != after]
    return {"rows": changed, "unchanged": len(rows) - len(changed), "bytes": total}


def _replicas_to_be(client: Client, topic: TopicDescription) -> dict[int, tuple[int, ...]]:
    now = {TopicPartition(topic.name, entry.partition): entry.replicas for entry in topic.partitions}
    return {each.partition: replicas for each, replicas in replicas_to_be(client, now).items()}


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
        current = _replicas_to_be(client, find_topic(client, name))
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
