"""``kbroker topic list`` and ``kbroker topic describe``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbroker.errors import ErrorCode
from kbroker.tools.cli.common import add_cluster_arguments, cluster, complain, nearest_topic, report_failures
from kbroker.tools.cli.output import plain, print_documents, print_json, print_table, printable, size
from kbroker.types import TopicPartition, uuid_to_str

if TYPE_CHECKING:
    from kbroker.client import Client, ResponseError
    from kbroker.client.configs import ConfigEntry
    from kbroker.client.topics import TopicDescription

    Ranges = Mapping[TopicPartition, tuple[int, int] | ResponseError]
    Sizes = Mapping[TopicPartition, Mapping[int, int]]


def list_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``list``."""
    parser.add_argument("--internal", action="store_true", help="internal topics too")
    parser.add_argument("--names", action="store_true", help="names only, one a line: one request, for scripts")
    add_cluster_arguments(parser)


def list_action(arguments: argparse.Namespace) -> int:
    """A row a topic."""
    from kbroker.client.topics import list_ranges, list_topics

    with cluster(arguments, task="" if arguments.names else "asking for offsets and sizes") as client:
        topics = [topic for topic in list_topics(client) if arguments.internal or not topic.internal]
        if arguments.names:
            print_json([topic.name for topic in topics]) if arguments.json else _print_names(topics)
            return 0
        ranges = list_ranges(client, _partitions(topics))
        sizes = _sizes(client)
    summaries = [_summary(topic, ranges, sizes) for topic in topics]
    if arguments.json:
        print_json(summaries)
    else:
        print_table(
            ["topic", "partitions", "replicas", "records", "size", *(["internal"] if arguments.internal else [])],
            [
                [
                    summary["name"],
                    plain(summary["partitions"]),
                    plain(summary["replication_factor"]),
                    summary["messages"],
                    size(summary["size"]),
                    *([summary["internal"]] if arguments.internal else []),
                ]
                for summary in summaries
            ],
            numbers=("partitions", "replicas", "records", "size"),
        )
    return 0


def _print_names(topics: Iterable[TopicDescription]) -> None:
    for topic in topics:
        print(topic.name)


def _partitions(topics: Iterable[TopicDescription]) -> list[TopicPartition]:
    """The partitions with a leader: others cannot be asked, and a wait for them would keep the rest from being seen."""
    return [
        TopicPartition(topic.name, entry.partition)
        for topic in topics
        for entry in topic.partitions
        if entry.leader is not None
    ]


def _sizes(client: Client) -> Sizes | None:
    """Sizes where they may be seen: to look into log directories is a right of its own. Otherwise a note says so."""
    from kbroker.client import ApiNotServed, ResponseError
    from kbroker.client.topics import partition_sizes

    try:
        return partition_sizes(client)
    except (ApiNotServed, ResponseError) as error:
        if isinstance(error, ResponseError) and error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            complain("sizes are not shown: they need the right to DESCRIBE the cluster")
        return None


def _summary(topic: TopicDescription, ranges: Ranges, sizes: Sizes | None) -> dict[str, Any]:
    """A topic in a row. Its size is that of one copy: of each partition the leader's."""
    messages: int | None = 0
    total: int | None = 0
    for entry in topic.partitions:
        partition = TopicPartition(topic.name, entry.partition)
        found = ranges.get(partition)
        messages = messages + found[1] - found[0] if isinstance(found, tuple) and messages is not None else None
        of_leader = _leader_size(partition, entry.leader, sizes)
        total = None if total is None or of_leader is None else total + of_leader
    return {
        "name": topic.name,
        "partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "messages": messages,
        "size": total,
        "internal": topic.internal,
    }


def _leader_size(partition: TopicPartition, leader: int | None, sizes: Sizes | None) -> int | None:
    """Bytes on the leader's disk; 0 for a partition without a directory, None if that is not to be known."""
    if sizes is None or leader is None:
        return None
    return sizes.get(partition, {}).get(leader, 0)


# --- describe -------------------------------------------------------------------------------------------------------


def describe_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``describe``."""
    parser.add_argument("topics", nargs="+", metavar="TOPIC", help="topics to describe")
    add_cluster_arguments(parser)


def describe_action(arguments: argparse.Namespace) -> int:
    """All that is to be known of topics, their partitions a row each."""
    from kbroker.client import ResponseError
    from kbroker.client.configs import ResourceType, describe_configs
    from kbroker.client.topics import describe_topics, list_ranges

    problems: list[object] = []
    documents: list[dict[str, Any]] = []
    with cluster(arguments, task="asking for topics") as client:
        found = describe_topics(client, arguments.topics)
        topics = [topic for topic in found.values() if not isinstance(topic, ResponseError)]
        missing = [topic for topic in found.values() if isinstance(topic, ResponseError)]
        problems += [f"{error}{nearest_topic(client, error)}" for error in missing]
        ranges = list_ranges(client, _partitions(topics))
        sizes = _sizes(client) if topics else None
        for topic in topics:
            configs: list[ConfigEntry] | None = None
            try:
                configs = describe_configs(client, ResourceType.TOPIC, topic.name)
            except ResponseError as error:
                problems.append(error)
            documents.append(_document(topic, ranges, sizes, configs))
    problems += [error for error in ranges.values() if isinstance(error, ResponseError)]
    problems += [
        f"partition {topic.name}-{entry.partition} has no leader"
        for topic in topics
        for entry in topic.partitions
        if entry.leader is None
    ]
    print_documents(documents, None if arguments.json else _print_description)
    return report_failures(problems)


def _document(
    topic: TopicDescription, ranges: Ranges, sizes: Sizes | None, configs: Sequence[ConfigEntry] | None
) -> dict[str, Any]:
    from kbroker.client.configs import ConfigSource

    partitions: list[dict[str, Any]] = []
    for entry in topic.partitions:
        partition = TopicPartition(topic.name, entry.partition)
        found = ranges.get(partition)
        start, end = found if isinstance(found, tuple) else (None, None)
        partitions.append(
            {
                "partition": entry.partition,
                "leader": entry.leader,
                "leader_epoch": entry.leader_epoch,
                "replicas": list(entry.replicas),
                "isr": list(entry.isr),
                "offline": list(entry.offline),
                "elr": None if entry.elr is None else list(entry.elr),
                "last_known_elr": None if entry.last_known_elr is None else list(entry.last_known_elr),
                "start_offset": start,
                "end_offset": end,
                "messages": None if start is None or end is None else end - start,
                "size": _leader_size(partition, entry.leader, sizes),
            }
        )
    return {
        **_summary(topic, ranges, sizes),
        "topic_id": uuid_to_str(topic.topic_id),
        "configs": None
        if configs is None
        else {
            config.name: config.value for config in configs if config.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.name
        },
        "partition_details": partitions,
    }


def _print_description(document: Mapping[str, Any]) -> None:
    print(f"{document['name']}  id {document['topic_id']}" + ("  internal" if document["internal"] else ""))
    messages = "?" if document["messages"] is None else f"{document['messages']:,}"
    print(
        f"{document['partitions']} partitions, {document['replication_factor']} replicas, {messages} records,"
        f" {size(document['size'])}"
    )
    for name, value in (document["configs"] or {}).items():
        print(printable(f"  {name}={value}"))
    partitions = document["partition_details"]
    with_elr = any(entry["elr"] or entry["last_known_elr"] for entry in partitions)
    print_table(
        [
            "partition",
            "leader",
            "replicas",
            "in sync",
            *(["elr"] if with_elr else []),
            "start",
            "end",
            "records",
            "size",
        ],
        [
            [
                plain(entry["partition"]),
                plain(entry["leader"]) if entry["leader"] is not None else "none",
                entry["replicas"],
                entry["isr"],
                *([entry["elr"]] if with_elr else []),
                entry["start_offset"],
                entry["end_offset"],
                entry["messages"],
                size(entry["size"]),
            ]
            for entry in partitions
        ],
        numbers=("partition", "leader", "start", "end", "records", "size"),
        styles={
            index: "bold red" if entry["leader"] is None else "yellow"
            for index, entry in enumerate(partitions)
            if entry["leader"] is None or len(entry["isr"]) < len(entry["replicas"])
        },
    )
