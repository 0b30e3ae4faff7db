"""``kbroker topic``: list, describe, create, alter, delete topics; their offsets; deleting records."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbroker.cli.common import (
    add_cluster_arguments,
    add_yes,
    assignment,
    cluster,
    complain,
    confirm,
    name_value,
    not_negative,
    positive,
    report_failures,
)
from kbroker.cli.parser import Action, UsageError
from kbroker.errors import ErrorCode, FatalError
from kbroker.types import TopicPartition, uuid_to_str

if TYPE_CHECKING:
    from kbroker.client import Client, ResponseError
    from kbroker.client.configs import ConfigEntry
    from kbroker.client.topics import TopicDescription

    Ranges = Mapping[TopicPartition, tuple[int, int] | ResponseError]
    Sizes = Mapping[TopicPartition, Mapping[int, int]]


# --- list -----------------------------------------------------------------------------------------------------------


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--internal", action="store_true", help="internal topics too")
    parser.add_argument("--names", action="store_true", help="names only, one a line: one request, for scripts")
    add_cluster_arguments(parser)


def _list(arguments: argparse.Namespace) -> int:
    from kbroker.cli.output import plain, print_json, print_table, size
    from kbroker.client.topics import list_ranges, list_topics

    with cluster(arguments) as client:
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
            ["topic", "partitions", "replicas", "messages", "size", *(["internal"] if arguments.internal else [])],
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
            numbers=("partitions", "replicas", "messages", "size"),
        )
    return 0


def _print_names(topics: Iterable[TopicDescription]) -> None:
    for topic in topics:
        print(topic.name)


def _partitions(topics: Iterable[TopicDescription]) -> list[TopicPartition]:
    """Those that have a leader: nobody else can be asked, and to wait for one would keep the rest from being seen."""
    return [
        TopicPartition(topic.name, entry.partition)
        for topic in topics
        for entry in topic.partitions
        if entry.leader is not None
    ]


def _sizes(client: Client) -> Sizes | None:
    """Sizes where they may be seen: to look into log directories is a right of its own."""
    from kbroker.client import ApiNotServed, ResponseError
    from kbroker.client.topics import partition_sizes

    try:
        return partition_sizes(client)
    except (ApiNotServed, ResponseError):
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


def _describe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="+", metavar="TOPIC", help="topics to describe")
    add_cluster_arguments(parser)


def _describe(arguments: argparse.Namespace) -> int:
    from kbroker.cli.output import print_json
    from kbroker.client import ResponseError
    from kbroker.client.configs import ResourceType, describe_configs
    from kbroker.client.topics import describe_topics, list_ranges

    problems: list[object] = []
    documents: list[dict[str, Any]] = []
    with cluster(arguments) as client:
        found = describe_topics(client, arguments.topics)
        topics = [topic for topic in found.values() if not isinstance(topic, ResponseError)]
        problems += [topic for topic in found.values() if isinstance(topic, ResponseError)]
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
    if arguments.json:
        print_json(documents)
    else:
        for index, document in enumerate(documents):
            if index:
                print()
            _print_description(document)
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
    from kbroker.cli.output import plain, print_table, size

    print(f"{document['name']}  id {document['topic_id']}" + ("  internal" if document["internal"] else ""))
    messages = "?" if document["messages"] is None else f"{document['messages']:,}"
    print(
        f"{document['partitions']} partitions, {document['replication_factor']} replicas, {messages} messages,"
        f" {size(document['size'])}"
    )
    for name, value in (document["configs"] or {}).items():
        print(f"  {name}={value}")
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
            "messages",
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
        numbers=("partition", "leader", "start", "end", "messages", "size"),
        styles={
            index: "bold red" if entry["leader"] is None else "yellow"
            for index, entry in enumerate(partitions)
            if entry["leader"] is None or len(entry["isr"]) < len(entry["replicas"])
        },
    )


# --- create, alter, delete ------------------------------------------------------------------------------------------


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="+", metavar="TOPIC", help="names of the new topics")
    parser.add_argument("-p", "--partitions", type=positive, default=-1, metavar="N", help="(default: the broker's)")
    parser.add_argument("-r", "--replicas", type=positive, default=-1, metavar="N", help="(default: the broker's)")
    parser.add_argument(
        "-c", "--config", type=name_value, action="append", default=[], metavar="NAME=VALUE", help="may be repeated"
    )
    parser.add_argument(
        "--assignment",
        type=assignment,
        metavar="B:B,B:B",
        help="the brokers of each partition, instead of --partitions and --replicas",
    )
    parser.add_argument("--if-not-exists", action="store_true", help="a topic that exists is fine")
    parser.add_argument("--dry-run", action="store_true", help="only ask whether it could be created")
    add_cluster_arguments(parser)


def _create(arguments: argparse.Namespace) -> int:
    from kbroker.cli.output import print_json
    from kbroker.client import ResponseError
    from kbroker.client.topics import NewTopic, create_topics

    if arguments.assignment and (arguments.partitions > 0 or arguments.replicas > 0):
        raise UsageError("--assignment goes without --partitions and --replicas")
    names = list(dict.fromkeys(arguments.topics))
    wanted = [
        NewTopic(name, arguments.partitions, arguments.replicas, dict(arguments.config), arguments.assignment)
        for name in names
    ]
    with cluster(arguments) as client:
        results = create_topics(client, wanted, validate_only=arguments.dry_run)
    problems: list[object] = []
    documents: list[dict[str, Any]] = []
    for name in names:
        result = results[name]
        if isinstance(result, ResponseError):
            if arguments.if_not_exists and result.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                documents.append({"name": name, "created": False})
                if not arguments.json:
                    print(f"topic {name} exists already")
            else:
                problems.append(result)
            continue
        documents.append(
            {
                "name": name,
                "created": not arguments.dry_run,
                "topic_id": uuid_to_str(result.topic_id) if any(result.topic_id) else None,
                "partitions": result.num_partitions,
                "replication_factor": result.replication_factor,
            }
        )
        if not arguments.json:
            verb = "could be created" if arguments.dry_run else "created"
            counts = (
                f": {result.num_partitions} partitions, {result.replication_factor} replicas"
                if result.num_partitions > 0
                else ""
            )
            print(f"topic {name} {verb}{counts}")
    if arguments.json:
        print_json(documents)
    return report_failures(problems)


def _alter_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="the topic to change")
    parser.add_argument("-p", "--partitions", type=positive, metavar="N", help="more partitions: N in all")
    parser.add_argument(
        "--assignment", type=assignment, metavar="B:B,B:B", help="the brokers of each new partition, with --partitions"
    )
    parser.add_argument(
        "-c", "--config", type=name_value, action="append", default=[], metavar="NAME=VALUE", help="may be repeated"
    )
    parser.add_argument(
        "-u", "--unset", action="append", default=[], metavar="NAME", help="back to the default; may be repeated"
    )
    parser.add_argument("--dry-run", action="store_true", help="only ask whether it could be done")
    add_cluster_arguments(parser)


def _alter(arguments: argparse.Namespace) -> int:
    from kbroker.cli.output import print_json
    from kbroker.client.configs import ConfigChange, Operation, ResourceType, alter_configs
    from kbroker.client.topics import create_partitions

    changes = [ConfigChange(name, Operation.SET, value) for name, value in arguments.config]
    changes += [ConfigChange(name, Operation.DELETE) for name in arguments.unset]
    if not changes and arguments.partitions is None:
        raise UsageError("there is nothing to change: give --partitions, --config or --unset")
    if arguments.assignment and arguments.partitions is None:
        raise UsageError("--assignment goes with --partitions")
    with cluster(arguments) as client:
        client.partitions_of(arguments.topic)
        if changes:
            alter_configs(client, ResourceType.TOPIC, arguments.topic, changes, validate_only=arguments.dry_run)
        if arguments.partitions is not None:
            create_partitions(
                client,
                arguments.topic,
                arguments.partitions,
                assignment=arguments.assignment,
                validate_only=arguments.dry_run,
            )
    done = not arguments.dry_run
    if arguments.json:
        print_json(
            {
                "name": arguments.topic,
                "altered": done,
                "partitions": arguments.partitions,
                "configs": dict(arguments.config),
                "unset": arguments.unset,
            }
        )
        return 0
    verb = "is" if done else "could be"
    for name, value in arguments.config:
        print(f"topic {arguments.topic}: {name} {verb} {value}")
    for name in arguments.unset:
        print(f"topic {arguments.topic}: {name} {verb} the default")
    if arguments.partitions is not None:
        print(f"topic {arguments.topic}: {'has' if done else 'could have'} {arguments.partitions} partitions")
    return 0


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="+", metavar="TOPIC", help="topics to delete, with their data")
    parser.add_argument("--if-exists", action="store_true", help="a topic that does not exist is fine")
    add_yes(parser)
    add_cluster_arguments(parser)


def _delete(arguments: argparse.Namespace) -> int:
    from kbroker.cli.output import print_json
    from kbroker.client.topics import delete_topics

    names = list(dict.fromkeys(arguments.topics))
    what = f"topic {names[0]}" if len(names) == 1 else f"{len(names)} topics ({', '.join(names)})"
    if not confirm(f"Delete {what} and all data?", arguments.yes):
        complain("nothing deleted")
        return 1
    with cluster(arguments) as client:
        results = delete_topics(client, names)
    problems: list[object] = []
    documents: list[dict[str, Any]] = []
    for name in names:
        error = results.get(name)
        missing = error is not None and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if error is not None and not (missing and arguments.if_exists):
            problems.append(error)
            continue
        documents.append({"name": name, "deleted": error is None})
        if not arguments.json:
            print(f"topic {name} {'deleted' if error is None else 'does not exist'}")
    if arguments.json:
        print_json(documents)
    return report_failures(problems)


# --- offsets, truncate ----------------------------------------------------------------------------------------------


def _offsets_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "topics", nargs="+", metavar="TOPIC[:PARTITION,...]", help="topics, or some of their partitions"
    )
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="the first offset at or after a time (2026-01-31T12:00:00Z, -1h, @SECONDS), or max-timestamp;"
        " without it the start and the end",
    )
    add_cluster_arguments(parser)


def _offsets(arguments: argparse.Namespace) -> int:
    import time

    from kbroker.cli.output import plain, print_json, print_table, timestamp
    from kbroker.cli.times import parse_moment
    from kbroker.client import ResponseError
    from kbroker.client.topics import MAX_TIMESTAMP, list_offsets, list_ranges

    at: int | None = None
    if arguments.at is not None:
        try:
            at = (
                MAX_TIMESTAMP
                if arguments.at == "max-timestamp"
                else parse_moment(arguments.at, _now_ms(time.time_ns()))
            )
        except ValueError as error:
            raise UsageError(f"--at: {error}") from None
    rows: list[dict[str, Any]] = []
    problems: list[object] = []
    with cluster(arguments) as client:
        partitions = choose_partitions(client, arguments.topics)
        if at is None:
            for partition, found in list_ranges(client, partitions).items():
                if isinstance(found, ResponseError):
                    problems.append(found)
                    continue
                start, end = found
                rows.append(_where(partition) | {"start_offset": start, "end_offset": end, "messages": end - start})
        else:
            for partition, listed in list_offsets(client, dict.fromkeys(partitions, at)).items():
                if isinstance(listed, ResponseError):
                    problems.append(listed)
                    continue
                there = listed.offset >= 0
                rows.append(
                    _where(partition)
                    | {"offset": listed.offset if there else None, "timestamp": listed.timestamp if there else None}
                )
    rows.sort(key=lambda row: (row["topic"], row["partition"]))
    if arguments.json:
        print_json(rows)
    elif at is None:
        print_table(
            ["topic", "partition", "start", "end", "messages"],
            [
                [row["topic"], plain(row["partition"]), row["start_offset"], row["end_offset"], row["messages"]]
                for row in rows
            ],
            numbers=("partition", "start", "end", "messages"),
        )
    else:
        print_table(
            ["topic", "partition", "offset", "timestamp"],
            [
                [
                    row["topic"],
                    plain(row["partition"]),
                    row["offset"],
                    None if row["timestamp"] is None else timestamp(row["timestamp"]),
                ]
                for row in rows
            ],
            numbers=("partition", "offset"),
        )
    return report_failures(problems)


def _now_ms(now_ns: int) -> int:
    return now_ns // 1_000_000


def _where(partition: TopicPartition) -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition}


def choose_partitions(client: Client, texts: Sequence[str]) -> list[TopicPartition]:
    """``orders`` and ``orders:0,1`` as partitions that exist; ``FatalError`` or a client's error otherwise."""
    from kbroker.cli.reset import parse_topic_partitions

    chosen: set[TopicPartition] = set()
    for text in texts:
        try:
            topic, numbers = parse_topic_partitions(text)
        except ValueError:
            raise UsageError(f"{text!r} is not of the form TOPIC or TOPIC:0,1,2") from None
        there = client.partitions_of(topic)
        for number in there if numbers is None else numbers:
            if number not in there:
                raise FatalError(f"topic {topic} has no partition {number}, only 0 to {len(there) - 1}")
            chosen.add(TopicPartition(topic, number))
    return sorted(chosen)


def _truncate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "topics", nargs="+", metavar="TOPIC[:PARTITION,...]", help="topics, or some of their partitions"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--before-offset", type=not_negative, metavar="OFFSET", help="delete what is before this offset")
    where.add_argument("--before", metavar="TIME", help="delete what is before a time: 2026-01-31, -7d, @SECONDS")
    where.add_argument("--all", action="store_true", help="delete all records that there are now")
    add_yes(parser)
    add_cluster_arguments(parser)


def _truncate(arguments: argparse.Namespace) -> int:
    import time

    from kbroker.cli.output import plain, print_json, print_table
    from kbroker.cli.times import parse_moment
    from kbroker.client import ResponseError
    from kbroker.client.topics import delete_records, list_offsets, list_ranges

    at: int | None = None
    if arguments.before is not None:
        try:
            at = parse_moment(arguments.before, _now_ms(time.time_ns()))
        except ValueError as error:
            raise UsageError(f"--before: {error}") from None
    problems: list[object] = []
    with cluster(arguments) as client:
        ranges = list_ranges(client, choose_partitions(client, arguments.topics))
        problems += [found for found in ranges.values() if isinstance(found, ResponseError)]
        known = {partition: found for partition, found in ranges.items() if not isinstance(found, ResponseError)}
        times = list_offsets(client, dict.fromkeys(known, at)) if at is not None else {}
        wanted: dict[TopicPartition, int] = {}
        for partition, (start, end) in known.items():
            target = end if arguments.before_offset is None else min(arguments.before_offset, end)
            listed = times.get(partition)
            if isinstance(listed, ResponseError):
                problems.append(listed)
                continue
            if listed is not None and listed.offset >= 0:
                target = listed.offset
            if target > start:
                wanted[partition] = target
        count = sum(target - known[partition][0] for partition, target in wanted.items())
        if count and not confirm(f"Delete {count:,} records of {len(wanted)} partitions?", arguments.yes):
            complain("nothing deleted")
            return 1
        results = delete_records(client, wanted)
    rows: list[dict[str, Any]] = []
    for partition, (start, _) in sorted(known.items()):
        result = results.get(partition, start)
        if isinstance(result, ResponseError):
            problems.append(result)
        else:
            rows.append(_where(partition) | {"start_offset": result, "deleted": result - start})
    if arguments.json:
        print_json(rows)
    else:
        print_table(
            ["topic", "partition", "deleted", "start"],
            [[row["topic"], plain(row["partition"]), row["deleted"], row["start_offset"]] for row in rows],
            numbers=("partition", "deleted", "start"),
        )
    return report_failures(problems)


ACTIONS = {
    "list": Action(
        "list topics with their partitions, messages and sizes",
        _list_arguments,
        _list,
        "Messages are the offsets between start and end: more than there are records in a topic that is compacted or\n"
        "written in transactions. The size is that of one copy, on the leaders' disks.",
    ),
    "describe": Action(
        "show partitions, leaders, replicas in sync, offsets, sizes and changed configs", _describe_arguments, _describe
    ),
    "create": Action("create topics", _create_arguments, _create),
    "alter": Action("give a topic more partitions, change its configs", _alter_arguments, _alter),
    "delete": Action("delete topics", _delete_arguments, _delete),
    "offsets": Action("show start and end offsets, or the offsets at a time", _offsets_arguments, _offsets),
    "truncate": Action("delete the records before an offset or a time", _truncate_arguments, _truncate),
}
