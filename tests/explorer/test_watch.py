"""``kbroker watch`` beside the nodes that it watches: one that says too much, one that does not answer."""

from __future__ import annotations

from typing import Any

from kbroker.client.explorer import ExplorerClient
from kbroker.observe.explorer.exchange import Closed, Exchange, Skipped
from kbroker.observe.explorer.lines import Item
from kbroker.tools.cli import watch
from kbroker.tools.cli.cluster_plan import free_ports
from kbroker.wire.messages.classic_groups import HeartbeatRequest, HeartbeatResponse
from tests.explorer.exchanges import CONNECTION, exchange


class Node:
    address = "node"

    def items(self) -> list[Item]:
        many = [exchange(HeartbeatRequest(group_id="g"), HeartbeatResponse()) for _ in range(100)]
        return [CONNECTION, *many, Closed(7, 1)]


class Display:
    is_done = False

    def __init__(self) -> None:
        self.items: list[Item] = []

    def begin(self) -> None:
        pass

    def show(self, item: Item, node: object) -> None:
        self.items.append(item)


def test_in_a_pause_nodes_are_read_and_what_is_too_much_is_counted() -> None:
    display: Any = Display()
    node: Any = Node()
    live = watch._Live([node], display, 20_000)
    live._read(node)  # which does not wait for what is shown
    live._show_next()
    while live._open:
        live._show_next()
    shown = [item for item in display.items if isinstance(item, Exchange)]
    assert 5 < len(shown) < 20 and display.items[0] == CONNECTION and Closed(7, 1) in display.items
    assert display.items[-1] == Skipped({12: 100 - len(shown)}, watch.TOO_MANY) and live._bytes == 0


def test_names_that_a_node_does_not_tell_are_none() -> None:
    (port,) = free_ports(1)
    assert ExplorerClient("127.0.0.1", port).known_names(["an-id"]) == {}
