"""``kbroker txn``: transactional ids and their transactions, and how to end one that its producer does not."""

from __future__ import annotations

import argparse
import time

from kbroker.client import Client
from kbroker.client.errors import ResponseError
from kbroker.client.records_io.times import parse_duration
from kbroker.errors import ErrorCode
from kbroker.tools.cli.common import (
    add_cluster_arguments,
    add_yes,
    checked,
    cluster,
    confirm_change,
    not_negative,
    report_failures,
)
from kbroker.tools.cli.output import plain, print_json, print_table, timestamp
from kbroker.tools.cli.parser import Action, UsageError, add_repeated
from kbroker.types import TopicPartition

_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    add_repeated(parser, "--state", metavar="STATE", choices=_STATES, help=f"one of {', '.join(_STATES)}")
    parser.add_argument(
        "--longer-than",
        type=checked(parse_duration, "a duration like 90s or 15m"),
        metavar="DURATION",
        help="only transactions that began longer ago, like 15m",
    )
    add_cluster_arguments(parser)


def _list(arguments: argparse.Namespace) -> int:
    from kbroker.client.transactions import list_transactions

    with cluster(arguments) as client:
        listed = list_transactions(client, states=arguments.state, longer_than_ms=arguments.longer_than)
    found, problems = listed.found, list(listed.missing.values())
    if arguments.json:
        print_json(
            [
                {
                    "transactional_id": each.transactional_id,
                    "coordinator": each.coordinator,
                    "producer_id": each.producer_id,
                    "state": each.state,
                }
                for each in found
            ]
        )
        return report_failures(problems)
    print_table(
        ["transactional id", "coordinator", "producer id", "state"],
        [[each.transactional_id, plain(each.coordinator), plain(each.producer_id), each.state] for each in found],
        numbers=("coordinator", "producer id"),
        styles={index: "yellow" for index, each in enumerate(found) if each.state == "Ongoing"},
    )
    return report_failures(problems)


def _id_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("transactional_id", metavar="ID", help="a transactional id")
    add_cluster_arguments(parser)


def _describe(arguments: argparse.Namespace) -> int:
    from kbroker.client.transactions import describe_transaction

    with cluster(arguments) as client:
        found = describe_transaction(client, arguments.transactional_id)
    if arguments.json:
        print_json(
            {
                "transactional_id": found.transactional_id,
                "coordinator": found.coordinator,
                "state": found.state,
                "producer_id": found.producer_id,
                "producer_epoch": found.producer_epoch,
                "timeout_ms": found.timeout_ms,
                "start_timestamp": found.start_timestamp,
                "partitions": [list(partition) for partition in found.partitions],
            }
        )
        return 0
    rows: list[list[str | None]] = [
        ["state", found.state],
        ["coordinator", plain(found.coordinator)],
        ["producer id", plain(found.producer_id)],
        ["producer epoch", plain(found.producer_epoch)],
        ["timeout", f"{found.timeout_ms / 1000:g} s"],
    ]
    if found.start_timestamp is not None:
        rows.append(["began", timestamp(found.start_timestamp)])
    if found.state == "Ongoing" and found.start_timestamp is not None:
        rows.append(["open for", f"{max(0, time.time() - found.start_timestamp / 1000):.0f} s"])
    rows.append(["partitions", ", ".join(map(str, found.partitions)) or None])
    print_table(["transactional id", found.transactional_id], rows, wrap=(found.transactional_id,))
    return 0


def _partition_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="a topic")
    parser.add_argument("partition", type=not_negative, metavar="PARTITION", help="the number of a partition")
    add_cluster_arguments(parser)


def _producers(arguments: argparse.Namespace) -> int:
    from kbroker.client.transactions import describe_producers

    with cluster(arguments) as client:
        found = describe_producers(client, TopicPartition(arguments.topic, arguments.partition))
    if arguments.json:
        print_json(
            [
                {
                    "producer_id": each.producer_id,
                    "producer_epoch": each.producer_epoch,
                    "last_sequence": each.last_sequence,
                    "last_timestamp": each.last_timestamp,
                    "coordinator_epoch": each.coordinator_epoch if each.coordinator_epoch >= 0 else None,
                    "transaction_start_offset": each.start_offset,
                }
                for each in found
            ]
        )
        return 0
    print_table(
        ["producer id", "epoch", "last sequence", "last write", "open transaction from"],
        [
            [
                plain(each.producer_id),
                plain(each.producer_epoch),
                None if each.last_sequence < 0 else plain(each.last_sequence),
                None if each.last_timestamp < 0 else timestamp(each.last_timestamp),
                each.start_offset,
            ]
            for each in found
        ],
        numbers=("producer id", "epoch", "last sequence", "open transaction from"),
        styles={index: "yellow" for index, each in enumerate(found) if each.start_offset is not None},
    )
    return 0


def _hanging_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", metavar="TOPIC", help="only in this topic")
    parser.add_argument("--partition", type=not_negative, metavar="N", help="only in this partition of it")
    parser.add_argument(
        "--broker-id",
        type=not_negative,
        metavar="ID",
        help="only in partitions with a replica on this broker, which is asked instead of their leaders",
    )
    parser.add_argument(
        "--max-transaction-timeout",
        type=checked(parse_duration, "a duration like 90s or 15m"),
        default="15m",
        metavar="DURATION",
        help="only transactions whose last record is older than this (default 15m)",
    )
    add_cluster_arguments(parser)


def _find_hanging(arguments: argparse.Namespace) -> int:
    from kbroker.client.open_transactions import hanging_among, open_in
    from kbroker.client.transactions import producers_of

    if arguments.partition is not None and arguments.topic is None:
        raise UsageError("--partition goes with --topic")
    limit: int = arguments.max_transaction_timeout
    with cluster(arguments, task="looking for transactions that hang") as client:
        partitions, problems = _searched(client, arguments.topic, arguments.partition, arguments.broker_id)
        producers = producers_of(client, partitions, node_id=arguments.broker_id)
        problems += [each for each in producers.values() if isinstance(each, Exception)]
        now = time.time_ns() // 1_000_000
        old = [each for each in open_in(producers) if now - each.producer.last_timestamp > limit]
        found = hanging_among(client, old)
    if arguments.json:
        print_json(
            [
                {
                    "topic": each.partition.topic,
                    "partition": each.partition.partition,
                    "producer_id": each.producer.producer_id,
                    "producer_epoch": each.producer.producer_epoch,
                    "coordinator_epoch": each.producer.coordinator_epoch
                    if each.producer.coordinator_epoch >= 0
                    else None,
                    "transaction_start_offset": each.start_offset,
                    "last_timestamp": each.producer.last_timestamp,
                    "duration_ms": now - each.producer.last_timestamp,
                }
                for each in found
            ]
        )
        return report_failures(problems)
    print_table(
        ["topic", "partition", "producer id", "epoch", "coordinator epoch", "start offset", "last write", "minutes"],
        [
            [
                each.partition.topic,
                plain(each.partition.partition),
                plain(each.producer.producer_id),
                plain(each.producer.producer_epoch),
                None if each.producer.coordinator_epoch < 0 else plain(each.producer.coordinator_epoch),
                plain(each.start_offset),
                timestamp(each.producer.last_timestamp),
                plain((now - each.producer.last_timestamp) // 60_000),
            ]
            for each in found
        ],
        numbers=("partition", "producer id", "epoch", "coordinator epoch", "start offset", "minutes"),
        wrap=("topic",),
    )
    return report_failures(problems)


def _searched(
    client: Client, topic: str | None, number: int | None, broker: int | None
) -> tuple[list[TopicPartition], list[Exception]]:
    """The partitions to search by the options, and why others of them cannot be: they have no leader."""
    from kbroker.client.topics import describe_topics, list_topics

    if topic is None:
        topics = list_topics(client)
    else:
        found = describe_topics(client, [topic])[topic]
        if isinstance(found, ResponseError):
            raise found
        topics = [found]
        if number is not None and all(each.partition != number for each in found.partitions):
            partition = TopicPartition(topic, number)
            raise ResponseError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {partition}")
    partitions: list[TopicPartition] = []
    problems: list[Exception] = []
    for described in topics:
        for each in described.partitions:
            partition = TopicPartition(described.name, each.partition)
            if number not in (None, each.partition) or (broker is not None and broker not in each.replicas):
                continue
            if broker is None and each.leader is None:
                problems.append(ResponseError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition}"))
            else:
                partitions.append(partition)
    return partitions, problems


def _abort_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("transactional_id", nargs="?", metavar="ID", help="a transactional id")
    parser.add_argument("--topic", metavar="TOPIC", help="instead of an id: end the transaction in this topic alone")
    parser.add_argument("--partition", type=not_negative, metavar="N", help="in this partition")
    parser.add_argument("--start-offset", type=not_negative, metavar="OFFSET", help="which begins at this offset")
    add_yes(parser)
    add_cluster_arguments(parser)


def _abort(arguments: argparse.Namespace) -> int:
    from kbroker.client.transactions import abort_hanging, abort_transaction

    where = (arguments.topic, arguments.partition, arguments.start_offset)
    if (arguments.transactional_id is None) == all(each is None for each in where):
        raise UsageError("give a transactional id, or --topic, --partition and --start-offset")
    if arguments.transactional_id is not None:
        name = arguments.transactional_id
        with cluster(arguments) as client:
            if not confirm_change(f"Abort what {name} has open, and fence its producer?", client, arguments):
                return 1
            found = abort_transaction(client, name)
        if arguments.json:
            print_json({"transactional_id": name, "state": found.state})
        else:
            print(f"{name} is {found.state}; its producers have to begin anew")
        return 0
    if any(each is None for each in where):
        raise UsageError("--topic, --partition and --start-offset go together")
    partition = TopicPartition(arguments.topic, arguments.partition)
    question = f"Abort the transaction from offset {arguments.start_offset} on in {partition} alone?"
    with cluster(arguments) as client:
        if not confirm_change(question, client, arguments):
            return 1
        producer = abort_hanging(client, partition, arguments.start_offset)
    if arguments.json:
        print_json({"topic": partition.topic, "partition": partition.partition, "producer_id": producer.producer_id})
    else:
        print(f"aborted in {partition} what producer {producer.producer_id} had open there")
    return 0


ACTIONS = {
    "list": Action("list transactional ids with their coordinators and states", _list_arguments, _list),
    "describe": Action("show a transactional id and what its transaction has written to", _id_arguments, _describe),
    "producers": Action(
        "show the producers of a partition, and where their open transactions begin", _partition_arguments, _producers
    ),
    "find-hanging": Action(
        "find open transactions that no coordinator knows of",
        _hanging_arguments,
        _find_hanging,
        "They hold up consumers with read_committed until they are aborted by hand: kbroker txn abort --topic TOPIC\n"
        "--partition N --start-offset OFFSET. Those whose ids you may not see look alike.",
    ),
    "abort": Action(
        "abort a transaction that its producer does not end",
        _abort_arguments,
        _abort,
        "With an id, its producer is fenced, and all of its partitions get the abort. With a partition and an offset,\n"
        "only that partition does: for a transaction that its coordinator has forgotten (kbroker txn find-hanging).",
    ),
}
