"""``kbroker client``: the clients that push their metrics (KIP-714), from the files that nodes write."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kbroker.errors import FatalError
from kbroker.tools.cli.output import plain, print_json, print_table, timestamp
from kbroker.tools.cli.parser import Action


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE", type=Path, help="what metric.reporters=file:FILE has made a node write"
    )
    parser.add_argument("--metrics", action="store_true", help="also the latest value of each metric")
    parser.add_argument("--match", metavar="REGEX", help="only metrics whose name contains a match")
    parser.add_argument("--json", action="store_true", help="a list in JSON")


def list_clients(arguments: argparse.Namespace) -> int:
    """Print each client that has pushed, the latest first, and its latest values if asked for."""
    try:
        wanted = re.compile(arguments.match or "")
    except re.error as error:
        raise FatalError(f"--match {arguments.match}: {error}") from None
    clients = sorted(latest_pushes(arguments.files).values(), key=lambda client: -client["received_at_ms"])
    for client in clients:
        client["points"] = [point for point in client["points"].values() if wanted.search(point["name"])]
    if arguments.json:
        print_json(clients)
        return 0
    show_metrics = arguments.metrics or arguments.match is not None
    columns = ["CLIENT-ID", "INSTANCE", "SOFTWARE", "HOST", "PRINCIPAL", "NODE", "LAST PUSH", "METRICS"]
    rows = [
        (
            client["client_id"],
            client["client_instance_id"],
            f"{client['software_name']} {client['software_version']}",
            f"{client['host']}:{client['port']}",
            client["principal"],
            plain(client["node_id"]),
            timestamp(client["received_at_ms"]) + (" (its last)" if client["terminating"] else ""),
            len(client["points"]),
        )
        for client in clients
    ]
    print_table(columns, rows, numbers=["METRICS"])
    if show_metrics:
        print()
        values = [
            (client["client_id"], point["name"], _labels(point["labels"]), f"{point['value']:.6g}")
            for client in clients
            for point in client["points"]
        ]
        print_table(["CLIENT-ID", "METRIC", "LABELS", "VALUE"], values, numbers=["VALUE"], wrap=["LABELS"])
    return 0


def _labels(labels: Mapping[str, object]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())


def latest_pushes(files: list[Path]) -> dict[str, dict[str, Any]]:
    """The latest push of each client by its instance id; ``points`` has the latest of each metric of all its pushes."""
    clients: dict[str, dict[str, Any]] = {}
    for path in files:
        for push in _pushes(path):
            known = clients.get(push["client_instance_id"])
            points = {(point["name"], _labels(point["labels"])): point for point in push["points"]}
            if known is None:
                clients[push["client_instance_id"]] = push | {"points": points}
            elif push["received_at_ms"] >= known["received_at_ms"]:
                known.update(push | {"points": known["points"] | points})
            else:
                known["points"] = points | known["points"]
    return clients


def _pushes(path: Path) -> Iterator[dict[str, Any]]:
    """The pushes in a file, and in the one before it. A line that is still being written ends it."""
    before = path.with_name(f"{path.name}.1")
    for file in (before, path) if before.exists() else (path,):
        try:
            with file.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    if line.endswith(b"\n"):
                        yield _push(file, number, line)
        except OSError as error:
            raise FatalError(f"{file}: {error.strerror}") from None


def _push(file: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        push = json.loads(line)
    except ValueError:
        push = None
    if not isinstance(push, dict) or not {"client_instance_id", "received_at_ms", "points"} <= push.keys():
        raise FatalError(f"{file}, line {number}: this is not a push of a client's metrics")
    return push


ACTIONS = {
    "list": Action("list the clients that push metrics, with what they pushed last", _list_arguments, list_clients)
}
