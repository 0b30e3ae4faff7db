"""The clients that are connected to watched nodes, as rows for a page."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from kbroker.client.errors import ClientError
from kbroker.client.explorer import ExplorerClient
from kbroker.observe.explorer.exchange import CLIENT, ClientInfo
from kbroker.observe.explorer.feed import Feed
from kbroker.observe.explorer.sequences import Step

MOST_ROWS: Final = 500
_AT_ONCE: Final = 8
"""Nodes that are asked at the same time."""


def connected_clients(
    nodes: Sequence[ExplorerClient], feed: Feed, words: str = "", *, with_nodes: bool = False, most: int = MOST_ROWS
) -> dict[str, Any]:
    """Connections that have all of ``words``, of these nodes, at most ``most``; with their sequences in the feed.

    ``total`` are those that fit, ``all`` those that are open; ``silent``: the nodes that do not tell, and why.
    Unless ``with_nodes``, those of brokers and controllers are left out, and whoever is on a controllers' listener:
    ``left_out`` that fit.
    """
    silent: dict[str, str] = {}

    def ask(node: ExplorerClient) -> list[ClientInfo]:
        try:
            return node.connections()
        except ClientError as error:
            silent[node.address] = str(error)
            return []

    with ThreadPoolExecutor(min(_AT_ONCE, max(len(nodes), 1))) as threads:
        found = [each for told in threads.map(ask, nodes) for each in told]
    steps = feed.open_steps()
    wanted = words.lower().split()
    fitting = [each for each in found if _fits(each, wanted)]
    shown = fitting if with_nodes else [each for each in fitting if each.kind == CLIENT]
    shown.sort(key=lambda each: (each.connection.is_controller, each.connection.node, each.connection.number))
    rows = [_row(each, steps.get((each.connection.node, each.connection.number))) for each in shown[:most]]
    left_out = len(fitting) - len(shown)
    return {"rows": rows, "total": len(shown), "all": len(found), "left_out": left_out, "silent": silent}


def _fits(client: ClientInfo, words: Sequence[str]) -> bool:
    connection = client.connection
    texts = (client.client_id, connection.software, connection.principal, connection.peer, connection.listener)
    text = " ".join(texts).lower()
    return all(word in text for word in words)


def _row(client: ClientInfo, step: Step | None) -> dict[str, Any]:
    connection = client.connection
    return {
        "node": connection.node,
        "run": client.run,
        "connection": connection.number,
        "client_id": client.client_id,
        "software": connection.software,
        "principal": connection.principal,
        "peer": connection.peer,
        "listener": connection.listener,
        "is_controller": connection.is_controller,
        "kind": client.kind,
        "sasl": client.sasl,
        "tls": client.tls,
        "since_ms": client.since_ms,
        "requests": client.requests,
        "bytes_received": client.bytes_received,
        "sequence": None if step is None else {"number": step.number, "kind": step.kind, "subject": step.subject},
    }
