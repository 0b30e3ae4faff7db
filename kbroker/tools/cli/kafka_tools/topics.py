"""``kafka-topics``: create, list, describe, alter and delete topics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode, FatalError
from kbroker.tools.cli.kafka_tools.options import OF_ALL, Kind, Options, UsageError
from kbroker.types import TopicPartition, uuid_to_str

if TYPE_CHECKING:
    from kbroker.client import Client, ResponseError
    from kbroker.client.configs import ConfigEntry
    from kbroker.client.reassignments import Reassignment
    from kbroker.client.topics import PartitionDescription, TopicDescription

REPORTS: Final = (
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
)
OPTIONS: Final = {
    **OF_ALL,
    **dict.fromkeys(("create", "list", "describe", "alter", "delete"), Kind.FLAG),
    **dict.fromkeys(("if-not-exists", "if-exists", "exclude-internal", *REPORTS), Kind.FLAG),
    **dict.fromkeys(("topic", "partitions", "replication-factor"), Kind.VALUE),
    "config": Kind.REPEATED,
}

_PATTERN: Final = re.compile(r"[a-zA-Z0-9._\-*|,]*")
"""Regular expressions of topics that mean the same in Java and here."""


def run(options: Options) -> int:
    """Do what the options say; errors of the cluster are told on standard output, as by Kafka's tool."""
    action = options.only_one_of(*_ACTIONS)
    options.only_with("create", "if-not-exists", "replication-factor", "config")
    options.only_with("describe", *REPORTS)
    if "partitions" in options and action not in ("create", "alter"):
        raise UsageError("--partitions goes with --create and --alter")
    if "if-exists" in options and action in ("create", "list"):
        raise UsageError("--if-exists goes with --alter, --delete and --describe")
    if "exclude-internal" in options and action not in ("list", "describe"):
        raise UsageError("--exclude-internal goes with --list and --describe")
    if action not in ("list", "describe"):
        options.required("topic")
    try:
        with options.cluster() as client:
            _ACTIONS[action](client, options)
    except UsageError:
        raise
    except FatalError as error:
        print(f"Error while executing topic command : {error}")
        return 1
    return 0


def _create(client: Client, options: Options) -> None:
    from kbroker.client import ResponseError
    from kbroker.client.topics import NewTopic, create_topics

    name = options.required("topic")
    partitions = options.number("partitions", least=1)
    replicas = options.number("replication-factor", least=1)
    configs = dict(_config(text) for text in options.values("config"))
    wanted = NewTopic(name, partitions or -1, replicas or -1, configs)
    result = create_topics(client, [wanted])[name]
    if not isinstance(result, ResponseError):
        print(f"Created topic {name}.")
    elif result.code != ErrorCode.TOPIC_ALREADY_EXISTS or "if-not-exists" not in options:
        raise FatalError(_told(result))


def _config(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip() or "=" in value:
        raise UsageError(f"--config {text}: expected name=value")
    return name.strip(), value.strip()


def _list(client: Client, options: Options) -> None:
    print("\n".join(topic.name for topic in _selected(client, options)))


def _alter(client: Client, options: Options) -> None:
    from kbroker.client import ResponseError
    from kbroker.client.topics import create_partitions

    total = options.number("partitions", least=1)
    if total is None:
        raise UsageError("--partitions is missing")
    refused: list[ResponseError] = []
    for topic in _existing(client, options):
        try:
            create_partitions(client, topic.name, total)
        except ResponseError as error:
            refused.append(error)  # the others are altered all the same
    if refused:
        raise FatalError(_told(refused[0]))


def _delete(client: Client, options: Options) -> None:
    from kbroker.client.topics import delete_topics

    names = [topic.name for topic in _existing(client, options)]
    for error in delete_topics(client, names).values() if names else ():
        if error is not None:
            raise FatalError(_told(error))


def _told(error: ResponseError) -> str:
    """The broker's own text where it gave one."""
    return error.message or str(error)


def _selected(client: Client, options: Options) -> list[TopicDescription]:
    """The topics that ``--topic`` matches, a name or a pattern, by name; all without it."""
    from kbroker.client.topics import list_topics

    # Kafka's IncludeList: commas are alternatives, quotes and spaces do not count.
    pattern = re.sub(r"[\s\"']", "", options.value("topic") or "").replace(",", "|")
    if not _PATTERN.fullmatch(pattern):
        raise UsageError(f"--topic {pattern}: patterns with other signs than . * | are not served in kbroker's image")
    try:
        regex = re.compile(pattern if "topic" in options else ".*")
    except re.error as error:
        raise UsageError(f"--topic {pattern}: {error}") from None
    return [
        topic
        for topic in list_topics(client)
        if regex.fullmatch(topic.name) and not (topic.internal and "exclude-internal" in options)
    ]


def _existing(client: Client, options: Options) -> list[TopicDescription]:
    """The topics of :func:`_selected`; FatalError if ``--topic`` matches none, unless ``--if-exists`` is given."""
    found = _selected(client, options)
    if options.value("topic") and not found and "if-exists" not in options:
        raise FatalError(f"Topic '{options.value('topic')}' does not exist as expected")
    return found


# --- describe -------------------------------------------------------------------------------------------------------


def _describe(client: Client, options: Options) -> None:
    from kbroker.client import ResponseError
    from kbroker.client.configs import ResourceType, describe_configs
    from kbroker.client.topics import describe_topics

    names = [topic.name for topic in _existing(client, options)]
    topics = describe_topics(client, names) if names else {}
    moving = _reassignments(client) if names else {}
    reports = [report for report in REPORTS if report in options]
    for name in in_hash_order(list(topics), len(topics)):
        topic = topics[name]
        if isinstance(topic, ResponseError):
            raise FatalError(_told(topic))
        configs = {config.name: config for config in describe_configs(client, ResourceType.TOPIC, name)}
        if not reports:
            _print_topic(topic, configs, moving)
        for entry in topic.partitions:
            move = moving.get(TopicPartition(name, entry.partition))
            if not reports or any(_is_reported(report, entry, move, configs, client.brokers) for report in reports):
                _print_partition(name, entry, move)


def _reassignments(client: Client) -> Mapping[TopicPartition, Reassignment]:
    """The partitions that move; none where that may not be seen."""
    from kbroker.client import ApiNotServed, ResponseError
    from kbroker.client.reassignments import list_reassignments

    try:
        return list_reassignments(client)
    except (ApiNotServed, ResponseError) as error:
        if isinstance(error, ResponseError) and error.code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
        return {}


def _print_topic(
    topic: TopicDescription, configs: Mapping[str, ConfigEntry], moving: Mapping[TopicPartition, Reassignment]
) -> None:

    changed = [configs[name] for name in in_hash_order(list(configs)) if not configs[name].is_default]
    first = topic.partitions[0]
    fields = [f"Topic: {topic.name}"]
    if any(topic.topic_id):
        fields.append(f"TopicId: {uuid_to_str(topic.topic_id)}")
    fields += [
        f"PartitionCount: {len(topic.partitions)}",
        f"ReplicationFactor: {_replication_factor(first, moving.get(TopicPartition(topic.name, first.partition)))}",
        f"Configs: {','.join(f'{config.name}={config.value}' for config in changed)}",
    ]
    print("\t".join(fields))


def _replication_factor(entry: PartitionDescription, move: Reassignment | None) -> int:
    """The number of replicas, without those that are being added."""
    if move is None or not set(entry.replicas) & {*move.adding, *move.removing}:
        return len(entry.replicas)
    return len(move.replicas) - len(move.adding)


def _is_reported(
    report: str,
    entry: PartitionDescription,
    move: Reassignment | None,
    configs: Mapping[str, ConfigEntry],
    brokers: Mapping[int, object],
) -> bool:
    least = int(configs["min.insync.replicas"].value or 1)
    return {
        "under-replicated-partitions": len(entry.isr) < _replication_factor(entry, move),
        "unavailable-partitions": entry.leader is None or entry.leader not in brokers,
        "under-min-isr-partitions": entry.leader is None or len(entry.isr) < least,
        "at-min-isr-partitions": len(entry.isr) == least,
    }[report]


def _print_partition(topic: str, entry: PartitionDescription, move: Reassignment | None) -> None:
    fields = [
        f"Topic: {topic}",
        f"Partition: {entry.partition}",
        f"Leader: {'none' if entry.leader is None else entry.leader}",
        f"Replicas: {_ids(entry.replicas)}",
        f"Isr: {_ids(entry.isr)}",
    ]
    if move is not None:
        fields += [f"Adding Replicas: {_ids(move.adding)}", f"Removing Replicas: {_ids(move.removing)}"]
    fields += [
        f"Elr: {'N/A' if entry.elr is None else _ids(entry.elr)}",
        f"LastKnownElr: {'N/A' if entry.last_known_elr is None else _ids(entry.last_known_elr)}",
    ]
    print("", *fields, sep="\t")


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(str(broker) for broker in brokers)


_ACTIONS: Final = {"list": _list, "describe": _describe, "create": _create, "alter": _alter, "delete": _delete}


def in_hash_order(names: Sequence[str], capacity: int = 16) -> list[str]:
    """Returns strings in the order of a Java ``HashMap`` made for ``capacity`` of them: Kafka's tools print it so."""
    size = 1
    while size < capacity or len(names) > size * 3 // 4:
        size *= 2
    return sorted(names, key=lambda name: _spread(name) & (size - 1))


def _spread(text: str) -> int:
    code = 0
    for letter in text:
        code = (31 * code + ord(letter)) & 0xFFFF_FFFF
    return code ^ code >> 16
