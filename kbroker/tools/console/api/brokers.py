"""One broker: what it leads, its configs with where each value comes from, and its log directories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kbroker.client import Client, ClientError
from kbroker.client.configs import ResourceType, describe_configs
from kbroker.client.nodes import describe_log_dirs
from kbroker.client.records_io.json_types import Json
from kbroker.client.topics import TopicDescription
from kbroker.tools.console.api.configs import config_view
from kbroker.tools.console.call import Call
from kbroker.wire.messages.log_dirs import Scrub

MAX_TOPICS: Final = 200
"""Topics of a broker that are told, the ones that it leads most of first."""


async def describe_broker(call: Call) -> Json:
    """A broker's replicas, log directories and configs; in place of the last two, why they cannot be seen."""
    broker = call.number("id", highest=2**31 - 1)
    topics = await call.view.catalogue.get(fresh=False)
    told = await call.ask(lambda client: _describe(client, broker))
    return {**told, **await call.compute(lambda: replicas_of(broker, topics.all))}


def replicas_of(broker: int, topics: Sequence[TopicDescription]) -> dict[str, Json]:
    """The topics with replicas on a broker: the partitions that it leads, and those where it is not in sync."""
    rows: list[tuple[str, list[int], list[int], int]] = []
    for topic in topics:
        here = [entry for entry in topic.partitions if broker in entry.replicas]
        if here:
            leads = [entry.partition for entry in here if entry.leader == broker]
            behind = [entry.partition for entry in here if broker not in entry.isr]
            rows.append((topic.name, leads, behind, len(here)))
    rows.sort(key=lambda row: (-len(row[1]), row[0]))
    told: list[Json] = [
        {"topic": name, "leads": list(leads), "out_of_sync": list(behind), "replicas": count}
        for name, leads, behind, count in rows[:MAX_TOPICS]
    ]
    return {
        "topics": told,
        "topics_count": len(rows),
        "leads": sum(len(leads) for _, leads, _, _ in rows),
        "replicas": sum(count for *_, count in rows),
    }


def _scrub(told: Scrub) -> dict[str, Json]:
    """Returns how far the scrubber is; ``ended_ms`` is 0 if it has never come to the end."""
    is_under_way = told.began_ms > told.ended_ms
    share = told.done_bytes / max(1, told.total_bytes) if is_under_way else 1.0
    return {"share": min(1.0, share), "ended_ms": told.ended_ms, "damaged": told.found}


def _describe(client: Client, broker: int) -> dict[str, Json]:
    configs: list[Json] = []
    directories: list[Json] = []
    configs_problem = directories_problem = ""
    try:
        found = describe_configs(client, ResourceType.BROKER, str(broker), documentation=True)
        configs = [config_view(entry, ResourceType.BROKER) for entry in found]
    except ClientError as error:
        configs_problem = str(error)
    try:
        for each in describe_log_dirs(client, [broker])[broker].results:
            sizes = [entry.partition_size for topic in each.topics for entry in topic.partitions]
            directories.append(
                {
                    "path": each.log_dir,
                    "error": each.error_code,
                    "partitions": len(sizes),
                    "size": sum(sizes),
                    "free": each.usable_bytes if each.usable_bytes >= 0 else None,
                    "volume": each.total_bytes if each.total_bytes >= 0 else None,
                    "scrub": None if each.scrub is None else _scrub(each.scrub),
                }
            )
    except ClientError as error:
        directories_problem = str(error)
    return {
        "id": broker,
        "configs": configs,
        "configs_problem": configs_problem,
        "directories": directories,
        "directories_problem": directories_problem,
    }
