"""Topics: the list, the tree, one with its partitions and configs; created, changed and deleted with ``--writes``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from kbroker.client import Client, ClientError, ResponseError
from kbroker.client.config_units import in_kafkas_units
from kbroker.client.configs import ResourceType, describe_many
from kbroker.client.errors import known
from kbroker.client.groups import committed_offsets, list_groups
from kbroker.client.patience import patience
from kbroker.client.reassignments import Reassignment, list_reassignments
from kbroker.client.records_io.json_types import Json
from kbroker.client.topics import (
    MAX_TIMESTAMP,
    ListedOffset,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_topics,
    is_valid_name,
    list_offsets,
    list_ranges,
)
from kbroker.client.topics import recreate_topic as make_anew
from kbroker.errors import ErrorCode
from kbroker.tools.console.api.overview import partition_state
from kbroker.tools.console.call import Call, RequestRefused
from kbroker.tools.console.sizes import Sizes, ask_sizes
from kbroker.tools.console.topic_list import SORTS, branches, choose
from kbroker.types import TopicPartition, uuid_to_str

MAX_PAGE: Final = 500
_MAX_GROUPS: Final = 200
_ALL: Final = -1
"""For DeleteRecords: up to the high watermark."""

_COUNT_SECONDS: Final = 3.0
_MAX_TIMES: Final = 2000
"""Partitions of a page that are asked for the time of their latest record."""

_ASK_AGAIN_SECONDS: Final = 0.02
_HEARD_SECONDS: Final = 5.0
"""A topic that was just created is waited for so long: the broker that is asked may be the last to hear of it."""


async def list_page(call: Call) -> Json:
    """A part of the list of topics: ``offset`` and ``limit`` into what the filter leaves, in order."""
    topics = await call.view.catalogue.get(fresh=call.flag("fresh"))
    wanted = partial(
        choose,
        topics.all,
        text=call.text("filter", ""),
        internal=call.flag("internal"),
        troubled=call.flag("troubled"),
        sort=call.choice("sort", SORTS, "name"),
        descending=call.flag("descending"),
        sizes=topics.sizes,
        growth=topics.growth,
    )
    chosen = await call.compute(wanted)
    offset = call.number("offset", 0)
    part = chosen[offset : offset + call.number("limit", 100, lowest=1, highest=MAX_PAGE)]
    counts: Mapping[str, _Counts] = {}
    if call.flag("counts"):
        counts = await call.ask(lambda client: _counts(client, part))
    rows: list[Json] = [
        {
            "name": topic.name,
            "internal": topic.internal,
            "partitions": len(topic.partitions),
            "replicas": topic.replication_factor,
            "state": partition_state(topic),
            "size": None if topics.sizes is None else topics.sizes.get(topic.name, 0),
            **(counts.get(topic.name) or _Counts())._asdict(),
            "bytes_rate": topics.growth.get(topic.name),
            "records_rate": topics.records.get(topic.name),
        }
        for topic in part
    ]
    return {
        "total": len(chosen),
        "all": len(topics.all),
        "offset": offset,
        "rows": rows,
        "at": topics.at_ms,
        "now": time.time_ns() // 1_000_000,
        "no_sizes": topics.no_sizes,
    }


class _Counts(NamedTuple):
    """More of a topic in a list; None where it is not known.

    ``records``: offsets between its partitions' starts and ends. ``last_write``: the latest timestamp of its records,
    -1 if it has none.
    """

    records: int | None = None
    last_write: int | None = None
    cleanup_policy: str | None = None


def _counts(client: Client, topics: Sequence[TopicDescription]) -> dict[str, _Counts]:
    """Topic -> what is asked of each that is shown. A partition without a leader leaves it unknown."""
    wanted = [
        TopicPartition(topic.name, entry.partition)
        for topic in topics
        for entry in topic.partitions
        if entry.leader is not None
    ]
    limits: Mapping[TopicPartition, tuple[int, int] | ResponseError] = {}
    latest: Mapping[TopicPartition, ListedOffset | ResponseError] = {}
    configs: Mapping[str, Mapping[str, str]] = {}
    # A leader that is down keeps nobody from what the others tell, nor does what a user may not see.
    with patience(client, _COUNT_SECONDS), suppress(ClientError):
        names = [topic.name for topic in topics]
        configs = describe_many(client, ResourceType.TOPIC, names, keys=["cleanup.policy"])
    with patience(client, _COUNT_SECONDS), suppress(ClientError):
        limits = list_ranges(client, wanted)
        latest = list_offsets(client, dict.fromkeys(wanted[:_MAX_TIMES], MAX_TIMESTAMP))
    found: dict[str, _Counts] = {}
    for topic in topics:
        partitions = [TopicPartition(topic.name, entry.partition) for entry in topic.partitions]
        ranges = [limits.get(each) for each in partitions]
        known = [each[1] - each[0] for each in ranges if isinstance(each, tuple)]
        times = [each.timestamp for one in partitions if isinstance(each := latest.get(one), ListedOffset)]
        found[topic.name] = _Counts(
            sum(known) if len(known) == len(partitions) else None,
            max(times) if times else None,
            configs.get(topic.name, {}).get("cleanup.policy"),
        )
    return found


async def list_branches(call: Call) -> Json:
    """The level of the tree of names below ``prefix``."""
    topics = await call.view.catalogue.get(fresh=call.flag("fresh"))
    wanted = partial(choose, topics.all, text=call.text("filter", ""), internal=call.flag("internal"))
    prefix = call.text("prefix", "")
    found = await call.compute(lambda: branches(wanted(), prefix, sizes=topics.sizes))
    rows: list[Json] = [
        {
            "prefix": each.prefix,
            "topic": each.topic,
            "topics": each.topics,
            "partitions": each.partitions,
            "size": each.size,
        }
        for each in found[:MAX_PAGE]
    ]
    return {"rows": rows, "total": len(found), "at": topics.at_ms}


async def describe_topic(call: Call) -> Json:
    """Describe a topic: its partitions with offsets, replicas and sizes; with ``traffic`` also the course of that."""
    name, catalogue = call.text("name"), call.view.catalogue
    if call.flag("traffic"):
        await catalogue.get()
    traffic: list[Json] = [list(point) for point in catalogue.traffic.of(name)]
    return {**await call.ask(lambda client: _describe(client, name)), "traffic": traffic}


def _describe(client: Client, name: str) -> dict[str, Json]:
    topic = find_topic(client, name)
    led = [TopicPartition(name, entry.partition) for entry in topic.partitions if entry.leader is not None]
    ranges = list_ranges(client, led)
    sizes = ask_sizes(client, [TopicPartition(name, entry.partition) for entry in topic.partitions])
    moving = _moving_partitions(client, topic)
    return {
        "name": topic.name,
        "id": uuid_to_str(topic.topic_id) if any(topic.topic_id) else None,
        "internal": topic.internal,
        "replicas": topic.replication_factor,
        "state": partition_state(topic),
        "no_sizes": sizes.problem,
        "partitions": [_partition(name, entry, ranges, sizes, moving) for entry in topic.partitions],
    }


def find_topic(client: Client, name: str) -> TopicDescription:
    """The topic of a name; ``ResponseError`` or ``RequestRefused`` if there is none."""
    if not is_valid_name(name):
        raise RequestRefused(400, f"{name[:250]!r} cannot be the name of a topic")
    found = known(describe_topics(client, [name])).get(name)
    if found is None:
        raise RequestRefused(404, f"there is no topic {name}")
    return found


def _partition(
    name: str,
    entry: PartitionDescription,
    ranges: Mapping[TopicPartition, tuple[int, int] | ResponseError],
    sizes: Sizes,
    moving: Mapping[int, Reassignment],
) -> Json:
    partition = TopicPartition(name, entry.partition)
    limits = ranges.get(partition)
    start, end = limits if isinstance(limits, tuple) else (None, None)
    return {
        "partition": entry.partition,
        "leader": entry.leader,
        "replicas": list(entry.replicas),
        "isr": list(entry.isr),
        "offline": list(entry.offline),
        "start": start,
        "end": end,
        "size": sizes.of_leader(partition, entry.leader),
        "damage": [each._asdict() for each in sizes.damaged if each.partition == partition],
        "moving": _show_move(moving.get(entry.partition), partition, sizes),
    }


async def describe_topic_groups(call: Call) -> Json:
    """The groups with committed offsets of a topic, and their lag there; with ``partition`` each one's offset in it."""
    name, partition = call.text("name"), call.number("partition", -1, lowest=-1)
    return await call.ask(lambda client: _groups_of(client, name, TopicPartition(name, partition)))


def _groups_of(client: Client, name: str, asked: TopicPartition) -> Json:
    topic = find_topic(client, name)
    ranges = list_ranges(
        client, [TopicPartition(name, entry.partition) for entry in topic.partitions if entry.leader is not None]
    )
    groups = [group for group in list_groups(client) if group.type not in ("Share", "Streams")]
    rows: list[Json] = []
    for group in groups[:_MAX_GROUPS]:
        try:
            committed = committed_offsets(client, group.group_id)
        except ResponseError:
            continue  # it has gone meanwhile, or is not this user's
        lag, partitions = 0, 0
        for partition, offset in committed.items():
            limits = ranges.get(partition)
            if partition.topic == name:
                partitions += 1
                lag += max(limits[1] - offset.offset, 0) if isinstance(limits, tuple) else 0
        if partitions:
            at = committed[asked].offset if asked in committed else None
            row: dict[str, Json] = {"partitions": partitions, "lag": lag, "offset": at}
            rows.append({"group": group.group_id, "state": group.state, **row})
    return {"rows": rows, "asked": min(len(groups), _MAX_GROUPS), "groups": len(groups)}


# --- Changes --------------------------------------------------------------------------------------------------------


async def create_topic(call: Call) -> Json:
    """Create a topic; with ``validate`` only judge."""
    name = call.text("name")
    if not is_valid_name(name):
        raise RequestRefused(400, "a topic's name is 1 to 249 letters, digits, dots, dashes and underscores")
    partitions = call.number("partitions", -1, lowest=-1, highest=100_000)
    replicas = call.number("replicas", -1, lowest=-1, highest=1000)
    configs = {config: in_kafkas_units(config, value) for config, value in call.texts("configs").items()}
    topic = NewTopic(name, partitions, replicas, configs)
    details: Json = {"partitions": partitions, "replicas": replicas, "configs": dict(configs)}

    await call.write("create-topic", name, details, lambda client: known(create_topics(client, [topic])))
    await call.ask(lambda client: await_heard(client, name))
    call.view.catalogue.forget()
    return {"done": f"topic {name} is created"}


def await_heard(client: Client, name: str, partitions: int = 0, seconds: float = _HEARD_SECONDS) -> None:
    """Return once the broker that pages are asked of knows a topic, with so many partitions, or after so many seconds.

    It was just created or changed, and another broker may have been told.
    """
    until = time.monotonic() + seconds
    try:
        with patience(client, seconds):
            while time.monotonic() < until:
                found = describe_topics(client, [name]).get(name)
                if isinstance(found, ResponseError):
                    is_late = found.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    is_late = found is not None and len(found.partitions) < partitions
                if not is_late:
                    return
                time.sleep(_ASK_AGAIN_SECONDS)
    except ClientError:
        pass  # it is done all the same


async def delete_topic(call: Call) -> Json:
    """Delete a topic; its name has to be given twice, so that none is deleted by a slip."""
    name = call.text("name")
    if call.text("confirm", "") != name:
        raise RequestRefused(400, "type the topic's name to delete it")

    def delete(client: Client) -> None:
        error = delete_topics(client, [name]).get(name)
        if error is not None:
            raise error

    await call.write("delete-topic", name, None, delete)
    call.view.catalogue.forget()
    return {"done": f"topic {name} is deleted"}


async def empty_topic(call: Call) -> Json:
    """Delete all records that a topic has now; its name has to be given twice."""
    name = call.text("name")
    if call.text("confirm", "") != name:
        raise RequestRefused(400, "type the topic's name to empty it")

    def empty(client: Client) -> None:
        partitions = [TopicPartition(name, entry.partition) for entry in find_topic(client, name).partitions]
        known(delete_records(client, dict.fromkeys(partitions, _ALL)))

    await call.write("empty-topic", name, None, empty)
    call.view.catalogue.forget()
    return {"done": f"topic {name} is empty"}


async def recreate_topic(call: Call) -> Json:
    """Delete a topic and create it anew, with its partitions, replicas and configs; its name has to be given twice."""
    name = call.text("name")
    if call.text("confirm", "") != name:
        raise RequestRefused(400, "type the topic's name to recreate it")

    def recreate(client: Client) -> None:
        find_topic(client, name)
        make_anew(client, name)

    await call.write("recreate-topic", name, None, recreate)
    await call.ask(lambda client: await_heard(client, name))
    call.view.catalogue.forget()
    return {"done": f"topic {name} is created anew"}


async def add_partitions(call: Call) -> Json:
    """Give a topic more partitions, ``total`` in all."""
    name, total = call.text("name"), call.number("total", lowest=1, highest=100_000)
    await call.write("add-partitions", name, {"total": total}, lambda client: create_partitions(client, name, total))
    await call.ask(lambda client: await_heard(client, name, total))
    call.view.catalogue.forget()
    return {"done": f"topic {name} has {total} partitions"}


def _moving_partitions(client: Client, topic: TopicDescription) -> dict[int, Reassignment]:
    """Partition -> the move that is under way; empty where that may not be seen."""
    try:
        found = list_reassignments(client, {topic.name: [entry.partition for entry in topic.partitions]})
    except ClientError:
        return {}
    return {partition.partition: each for partition, each in found.items()}


def _show_move(move: Reassignment | None, partition: TopicPartition, sizes: Sizes) -> Json:
    """A move that is under way, with the bytes that each new replica has; None without one."""
    if move is None:
        return None
    on_brokers = {} if sizes.of is None else sizes.of.get(partition, {})
    return {
        "adding": [{"broker": broker, "size": on_brokers.get(broker)} for broker in move.adding],
        "removing": list(move.removing),
    }
