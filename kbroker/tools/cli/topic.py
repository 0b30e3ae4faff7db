"""``kbroker topic``: create, alter and delete topics. What looks at them and their offsets is in modules of its own."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kbroker.errors import ErrorCode
from kbroker.tools.cli.common import (
    add_cluster_arguments,
    add_yes,
    assignment,
    cluster,
    complain,
    config_value,
    confirm_change,
    nearest_config,
    positive,
    report_failures,
)
from kbroker.tools.cli.output import print_json
from kbroker.tools.cli.parser import Action, UsageError, add_repeated
from kbroker.tools.cli.progress import progress
from kbroker.tools.cli.topic_listing import describe_action, describe_arguments, list_action, list_arguments
from kbroker.tools.cli.topic_moves import (
    ELECT_DETAILS,
    MOVE_DETAILS,
    elect_action,
    elect_arguments,
    move_action,
    move_arguments,
)
from kbroker.tools.cli.topic_offsets import offsets_action, offsets_arguments, truncate_action, truncate_arguments
from kbroker.types import TopicPartition, uuid_to_str

if TYPE_CHECKING:
    from kbroker.client import Client


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="+", metavar="TOPIC", help="names of the new topics")
    parser.add_argument("-p", "--partitions", type=positive, default=-1, metavar="N", help="(default: the broker's)")
    parser.add_argument("-r", "--replicas", type=positive, default=-1, metavar="N", help="(default: the broker's)")
    add_repeated(parser, "-c", "--config", metavar="NAME=VALUE", type=config_value)
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
    from kbroker.client import ResponseError
    from kbroker.client.topics import NewTopic, create_topics

    if arguments.assignment and (arguments.partitions > 0 or arguments.replicas > 0):
        raise UsageError("--assignment goes without --partitions and --replicas")
    names = list(dict.fromkeys(arguments.topics))
    wanted = [
        NewTopic(name, arguments.partitions, arguments.replicas, dict(arguments.config), arguments.assignment)
        for name in names
    ]
    with cluster(arguments, task="creating topics") as client:
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
                problems.append(f"{result}{nearest_config(result)}")
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
    add_repeated(parser, "-c", "--config", metavar="NAME=VALUE", type=config_value)
    add_repeated(parser, "-u", "--unset", metavar="NAME", help="back to the default")
    parser.add_argument("--dry-run", action="store_true", help="only ask whether it could be done")
    add_cluster_arguments(parser)


def _alter(arguments: argparse.Namespace) -> int:
    from kbroker.client.configs import ConfigChange, Operation, ResourceType, alter_configs
    from kbroker.client.topics import create_partitions

    changes = [ConfigChange(name, Operation.SET, value) for name, value in arguments.config]
    changes += [ConfigChange(name, Operation.DELETE) for name in arguments.unset]
    if not changes and arguments.partitions is None:
        raise UsageError("there is nothing to change: give --partitions, --config or --unset")
    if arguments.assignment and arguments.partitions is None:
        raise UsageError("--assignment goes with --partitions")
    with cluster(arguments, task="changing the topic") as client:
        client.partitions_of(arguments.topic)
        # Of two requests the first is not to be carried out if the second is refused.
        for validate_only in (True,) if arguments.dry_run else (True, False):
            if changes:
                alter_configs(client, ResourceType.TOPIC, arguments.topic, changes, validate_only=validate_only)
            if arguments.partitions is not None:
                create_partitions(
                    client,
                    arguments.topic,
                    arguments.partitions,
                    assignment=arguments.assignment,
                    validate_only=validate_only,
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


def _records(client: Client, names: Sequence[str]) -> str:
    """Returns the number of records that topics have, in words."""
    from kbroker.client import ResponseError
    from kbroker.client.topics import describe_topics, list_ranges

    found = [topic for topic in describe_topics(client, names).values() if not isinstance(topic, ResponseError)]
    partitions = [TopicPartition(topic.name, each.partition) for topic in found for each in topic.partitions]
    ranges = list_ranges(client, partitions).values()
    count = sum(end - start for start, end in (each for each in ranges if not isinstance(each, ResponseError)))
    unknown = sum(isinstance(each, ResponseError) for each in ranges)
    return f"{count:,} records" + (f", and those of {unknown} partitions that cannot be read now" if unknown else "")


def _delete(arguments: argparse.Namespace) -> int:
    from kbroker.client.topics import delete_topics

    names = list(dict.fromkeys(arguments.topics))
    what = f"topic {names[0]}" if len(names) == 1 else f"{len(names)} topics ({', '.join(names)})"
    with cluster(arguments) as client:
        if not arguments.yes and not confirm_change(
            f"Delete {what} with {_records(client, names)}?", client, arguments
        ):
            complain("nothing deleted")
            return 1
        with progress("deleting topics"):
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


ACTIONS = {
    "list": Action(
        "list topics with their partitions, records and sizes",
        list_arguments,
        list_action,
        "Messages are the offsets between start and end: more than there are records in a topic that is compacted or\n"
        "written in transactions. The size is that of one copy, on the leaders' disks.",
    ),
    "describe": Action(
        "show partitions, leaders, replicas in sync, offsets, sizes and changed configs",
        describe_arguments,
        describe_action,
    ),
    "create": Action("create topics", _create_arguments, _create),
    "alter": Action("give a topic more partitions, change its configs", _alter_arguments, _alter),
    "delete": Action("delete topics", _delete_arguments, _delete),
    "offsets": Action("show start and end offsets, or the offsets at a time", offsets_arguments, offsets_action),
    "truncate": Action("delete the records before an offset or a time", truncate_arguments, truncate_action),
    "move": Action(
        "move replicas to other brokers, or have more or fewer of them", move_arguments, move_action, MOVE_DETAILS
    ),
    "elect": Action(
        "elect the preferred leaders, or any replica where none leads", elect_arguments, elect_action, ELECT_DETAILS
    ),
}
