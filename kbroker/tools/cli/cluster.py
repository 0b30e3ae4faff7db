"""``kbroker cluster``: the brokers, the features, the quorum of controllers, the APIs, the log directories.

What changes brokers is in `cluster_nodes`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbroker.tools.cli import cluster_nodes as nodes
from kbroker.tools.cli.common import add_cluster_arguments, cluster, not_negative, report_failures
from kbroker.tools.cli.output import plain, print_json, print_table, size, timestamp
from kbroker.tools.cli.parser import Action, add_repeated
from kbroker.types import uuid_to_str

if TYPE_CHECKING:
    from kbroker.wire.messages.log_dirs import DescribeLogDirsResponse


def _describe(arguments: argparse.Namespace) -> int:
    from kbroker.client import ClientError
    from kbroker.client.nodes import describe_cluster, describe_quorum

    with cluster(arguments, task="asking the cluster") as client:
        found = describe_cluster(client)
        try:
            quorum = describe_quorum(client)
            leader = quorum.topics[0].partitions[0].leader_id
        except ClientError:  # not served, or not for us: then the cluster is described without it
            leader = None
    document: dict[str, Any] = {
        "cluster_id": found.cluster_id,
        "controller_id": found.controller_id if found.controller_id >= 0 else None,
        "quorum_leader_id": leader,
        "brokers": [
            {"id": broker.id, "host": broker.host, "port": broker.port, "rack": broker.rack, "fenced": broker.fenced}
            for broker in found.brokers
        ],
    }
    if arguments.json:
        print_json(document)
        return 0
    print(f"cluster {found.cluster_id}" + (f", quorum led by node {leader}" if leader is not None else ""))
    fenced = any(broker.fenced for broker in found.brokers)
    print_table(
        ["broker", "host", "port", "rack", *(["fenced"] if fenced else [])],
        [
            [plain(broker.id), broker.host, plain(broker.port), broker.rack, *([broker.fenced] if fenced else [])]
            for broker in found.brokers
        ],
        numbers=("broker", "port"),
        styles={index: "yellow" for index, broker in enumerate(found.brokers) if broker.fenced},
    )
    return 0


def _features(arguments: argparse.Namespace) -> int:
    from kbroker.client.nodes import describe_features

    with cluster(arguments) as client:
        epoch, features = describe_features(client)
    if arguments.json:
        print_json(
            {
                "epoch": epoch,
                "features": [
                    {
                        "name": feature.name,
                        "min_version": feature.lowest,
                        "max_version": feature.highest,
                        "finalized": feature.finalized,
                    }
                    for feature in features
                ],
            }
        )
    else:
        print_table(
            ["feature", "finalized", "lowest", "highest"],
            [
                [feature.name, plain(feature.finalized), plain(feature.lowest), plain(feature.highest)]
                for feature in features
            ],
            numbers=("finalized", "lowest", "highest"),
        )
    return 0


def _quorum(arguments: argparse.Namespace) -> int:
    from kbroker.client.nodes import describe_quorum

    with cluster(arguments, task="asking the cluster") as client:
        response = describe_quorum(client)
    partition = response.topics[0].partitions[0]
    end = max((state.log_end_offset for state in partition.current_voters), default=0)
    endpoints = {
        node.node_id: [f"{listener.name}://{listener.host}:{listener.port}" for listener in node.listeners]
        for node in response.nodes
    }
    nodes: list[dict[str, Any]] = [
        {
            "id": state.replica_id,
            "role": "leader" if state.replica_id == partition.leader_id else role,
            "directory_id": uuid_to_str(state.replica_directory_id) if any(state.replica_directory_id) else None,
            "log_end_offset": state.log_end_offset,
            "lag": max(end - state.log_end_offset, 0) if state.log_end_offset >= 0 else None,
            "last_fetch_timestamp": state.last_fetch_timestamp if state.last_fetch_timestamp >= 0 else None,
            "last_caught_up_timestamp": state.last_caught_up_timestamp if state.last_caught_up_timestamp >= 0 else None,
            "endpoints": endpoints.get(state.replica_id, []),
        }
        for role, states in (("voter", partition.current_voters), ("observer", partition.observers))
        for state in states
    ]
    if arguments.json:
        print_json(
            {
                "leader_id": partition.leader_id,
                "leader_epoch": partition.leader_epoch,
                "high_watermark": partition.high_watermark,
                "nodes": nodes,
            }
        )
        return 0
    print(f"leader {partition.leader_id}, epoch {partition.leader_epoch}, high watermark {partition.high_watermark:,}")
    print_table(
        ["node", "role", "end offset", "lag", "last caught up", "directory", "endpoints"],
        [
            [
                plain(node["id"]),
                node["role"],
                node["log_end_offset"],
                node["lag"],
                None if node["last_caught_up_timestamp"] is None else timestamp(node["last_caught_up_timestamp"]),
                node["directory_id"],
                node["endpoints"],
            ]
            for node in nodes
        ],
        numbers=("node", "end offset", "lag"),
        wrap=("endpoints",),
    )
    return 0


def _broker_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", type=not_negative, metavar="ID", help="the broker to ask (default: any)")
    add_cluster_arguments(parser)


def _api_versions(arguments: argparse.Namespace) -> int:
    from kbroker.client.nodes import api_versions
    from kbroker.wire.registry import API_KEYS

    with cluster(arguments) as client:
        told = api_versions(client, arguments.broker)
    rows: list[dict[str, Any]] = []
    for entry in sorted(told.api_keys, key=lambda entry: int(entry.api_key)):
        known = API_KEYS.get(entry.api_key)
        lowest, highest = known.stable_versions if known is not None else (0, -1)
        used = min(highest, entry.max_version)
        rows.append(
            {
                "key": entry.api_key,
                "name": known.name if known is not None else None,
                "min_version": entry.min_version,
                "max_version": entry.max_version,
                "usable": used if used >= max(lowest, entry.min_version) else None,
            }
        )
    if arguments.json:
        print_json(rows)
    else:
        print_table(
            ["key", "api", "versions", "usable"],
            [
                [
                    str(row["key"]),
                    row["name"],
                    str(row["min_version"])
                    if row["min_version"] == row["max_version"]
                    else f"{row['min_version']}-{row['max_version']}",
                    None if row["usable"] is None else str(row["usable"]),
                ]
                for row in rows
            ],
            numbers=("key", "versions", "usable"),
        )
    return 0


def _log_dirs_arguments(parser: argparse.ArgumentParser) -> None:
    add_repeated(parser, "--broker", metavar="ID", type=not_negative, help="only this broker")
    parser.add_argument("--topic", metavar="TOPIC", help="only this topic, partition by partition")
    add_cluster_arguments(parser)


def _log_dirs(arguments: argparse.Namespace) -> int:
    from kbroker.client.nodes import describe_log_dirs

    problems: list[object] = []
    with cluster(arguments, task="asking for log directories") as client:
        responses = describe_log_dirs(client, arguments.broker)
    rows = [
        row
        for node_id, response in sorted(responses.items())
        for row in _log_dir_rows(node_id, response, arguments.topic, problems)
    ]
    if arguments.json:
        print_json(rows)
    elif arguments.topic is not None:
        _print_partitions(rows)
    else:
        _print_log_dirs(rows)
    return report_failures(problems)


def _log_dir_rows(
    node_id: int, response: DescribeLogDirsResponse, chosen: str | None, problems: list[object]
) -> Iterator[dict[str, Any]]:
    """The directories of a broker, with the partitions of the chosen topic or of all; one that fails is a problem."""
    from kbroker.client import ResponseError

    for directory in response.results:
        if directory.error_code:
            problems.append(ResponseError(directory.error_code, f"broker {node_id}, {directory.log_dir}"))
            continue
        partitions: list[dict[str, Any]] = [
            {
                "topic": topic.name,
                "partition": entry.partition_index,
                "size": entry.partition_size,
                "offset_lag": entry.offset_lag,
                "future": entry.is_future_key,
            }
            for topic in sorted(directory.topics, key=lambda topic: topic.name)
            for entry in sorted(topic.partitions, key=lambda entry: entry.partition_index)
            if chosen in (None, topic.name)
        ]
        yield {
            "broker": node_id,
            "log_dir": directory.log_dir,
            "total_bytes": directory.total_bytes if directory.total_bytes >= 0 else None,
            "usable_bytes": directory.usable_bytes if directory.usable_bytes >= 0 else None,
            "size": sum(entry["size"] for entry in partitions),
            "partitions": partitions,
        }


def _print_partitions(rows: Sequence[Mapping[str, Any]]) -> None:
    print_table(
        ["broker", "directory", "topic", "partition", "size", "lag"],
        [
            [
                plain(row["broker"]),
                row["log_dir"],
                entry["topic"],
                plain(entry["partition"]),
                size(entry["size"]),
                entry["offset_lag"],
            ]
            for row in rows
            for entry in row["partitions"]
        ],
        numbers=("broker", "partition", "size", "lag"),
    )


def _print_log_dirs(rows: Sequence[Mapping[str, Any]]) -> None:
    print_table(
        ["broker", "directory", "partitions", "size", "free", "volume"],
        [
            [
                plain(row["broker"]),
                row["log_dir"],
                len(row["partitions"]),
                size(row["size"]),
                size(row["usable_bytes"]),
                size(row["total_bytes"]),
            ]
            for row in rows
        ],
        numbers=("broker", "partitions", "size", "free", "volume"),
    )


def _health_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", type=not_negative, metavar="ID", help="this broker has to be in the cluster, too")
    parser.add_argument(
        "--complete", action="store_true", help="every broker has to be unfenced, and every replica in sync, too"
    )
    add_cluster_arguments(parser)
    parser.set_defaults(timeout=5.0)


def _health(arguments: argparse.Namespace) -> int:
    from kbroker.client.topics import leaderless, under_replicated
    from kbroker.tools.diagnosis.asking import ask_cluster
    from kbroker.tools.diagnosis.cluster import health_problems

    with cluster(arguments, task="asking the cluster") as client:
        view = ask_cluster(client)
    found = health_problems(view, broker=arguments.broker, complete=arguments.complete)
    partitions = sum(len(topic.partitions) for topic in view.topics)
    if arguments.json:
        print_json(
            {
                "healthy": not found,
                "problems": found,
                "cluster_id": view.cluster_id,
                "controller_id": view.controller,
                "brokers": len(view.brokers),
                "topics": len(view.topics),
                "partitions": partitions,
                "partitions_without_leader": sum(map(leaderless, view.topics)),
                "partitions_with_short_isr": sum(map(under_replicated, view.topics)),
            }
        )
    elif not found:
        controller = "" if view.controller is None else f"node {view.controller} is the active controller, "
        print(f"healthy: {controller}{len(view.brokers)} brokers, {partitions} partitions")
        if lacking := health_problems(view, complete=True):
            print(f"but not complete: {' '.join(lacking)}")
    return report_failures([] if arguments.json and not found else found)


ACTIONS = {
    "describe": Action("show the cluster's id and its brokers", add_cluster_arguments, _describe),
    "features": Action("show the levels of features: finalized, and supported", add_cluster_arguments, _features),
    "quorum": Action("show the quorum of controllers, with the lag of each node", add_cluster_arguments, _quorum),
    "api-versions": Action(
        "show the APIs that a broker serves, and in which versions", _broker_arguments, _api_versions
    ),
    "health": Action(
        "tell whether a node serves, by the exit code: for health checks of containers", _health_arguments, _health
    ),
    "processes": Action(
        "show the nodes that kbroker start --cores runs on this machine", nodes.processes_arguments, nodes.processes
    ),
    "restart": Action(
        "restart the nodes of kbroker start --cores one by one, while all replicas are in sync",
        nodes.restart_arguments,
        nodes.restart,
    ),
    "drain": Action("move all partitions away from a broker", nodes.drain_arguments, nodes.drain, nodes.DRAIN_DETAILS),
    "unregister": Action("forget a broker that does not come back", nodes.unregister_arguments, nodes.unregister),
    "log-dirs": Action("show log directories, their sizes and the free space", _log_dirs_arguments, _log_dirs),
}
