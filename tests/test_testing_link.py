"""The line between a test and a node of its cluster: calls both ways, errors, ends."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kbroker.errors import ApiError, ErrorCode
from kbroker.testing import ClusterNode, RunningCluster, cluster_faults
from kbroker.testing.clock import MovedClock
from kbroker.testing.link import Link, LinkClosed, described, encoded
from kbroker.testing.node import Remote
from kbroker.tools.cli.cluster_plan import plan_cluster


@pytest.fixture
def ends() -> Iterator[tuple[Link, socket.socket, list[tuple[str, Mapping[str, Any]]]]]:
    """A link, the node's end of its socket, and what the node asked."""
    asked: list[tuple[str, Mapping[str, Any]]] = []

    def answer(what: str, arguments: Mapping[str, Any]) -> int:
        asked.append((what, arguments))
        return len(asked)

    ours, theirs = socket.socketpair()
    link = Link(ours, answer)
    yield link, theirs, asked
    link.close()
    theirs.close()


def test_a_call_and_calls_of_the_node_in_between(ends: Any) -> None:
    link, theirs, asked = ends
    told: list[Any] = []

    def node() -> None:
        lines = theirs.makefile("rb")
        call = json.loads(lines.readline())
        theirs.sendall(encoded({"call": 7, "what": "fires", "with": {"number": 1}}))
        told.append(json.loads(lines.readline()))
        theirs.sendall(encoded({"reply": call["call"], "value": call["with"]["a"] + 1}))
        call = json.loads(lines.readline())
        theirs.sendall(
            encoded({"reply": call["call"], "error": described(ApiError(ErrorCode.NOT_CONTROLLER, "not me"))})
        )
        call = json.loads(lines.readline())
        theirs.sendall(encoded({"reply": call["call"], "error": described(ValueError("wrong"))}))

    thread = threading.Thread(target=node)
    thread.start()
    assert link.call("add", a=1) == 2
    assert asked == [("fires", {"number": 1})] and told == [{"reply": 7, "value": 1}]
    with pytest.raises(ApiError, match="not me") as caught:
        link.call("act")
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    with pytest.raises(ValueError, match="wrong"):
        link.call("add")
    thread.join()


def test_a_node_that_dies_while_it_is_asked(ends: Any) -> None:
    link, theirs, _ = ends

    def node() -> None:
        theirs.recv(1000)
        theirs.close()

    thread = threading.Thread(target=node)
    thread.start()
    with pytest.raises(LinkClosed):
        link.call("add")
    thread.join()
    with pytest.raises(LinkClosed):
        link.call("add")


def test_a_node_that_says_nothing(ends: Any) -> None:
    link, _, _ = ends
    with pytest.raises(TimeoutError, match="did not answer add within"):
        link.call("add", 0.01)


def test_a_node_may_end_while_another_thread_looks_at_it(tmp_path: Path) -> None:
    """A test kills it while a fault's action, in a thread, looks for the controller."""
    [plan] = plan_cluster(1, tmp_path)
    node: Any = ClusterNode(plan, lambda _: pytest.fail("nobody asks for faults"))

    class Ending:
        pid = 7

        def poll(self) -> None:
            node._process = None

    node._process = Ending()
    assert node.pid == 7 and not node.is_running


def test_a_node_may_end_while_another_thread_is_about_to_ask_it(ends: Any) -> None:
    link, _, _ = ends
    link.close()

    links: list[Link] = [link]

    class Ending:
        @property
        def _link(self) -> Link | None:
            return links.pop() if links else None

    node: Any = Ending()
    with pytest.raises(LinkClosed):
        cluster_faults._act(node, "expire", "t", None, {}, 0.0)


def test_a_clock_that_is_moved_often_at_once_is_where_it_was_moved_last() -> None:
    """The clock of a node that has been paused meanwhile is moved so."""

    async def moved() -> float:
        ours, theirs = trio.testing.memory_stream_pair()
        nobody: Any = None
        clock, told = MovedClock(), b""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Remote(nobody, theirs, clock).serve, trio.TASK_STATUS_IGNORED)
            for number in range(5):
                call = {"call": number, "what": "clock", "with": {"state": (float(number), None)}}
                await ours.send_all(encoded(call))
            while told.count(b"\n") < 5:
                told += await ours.receive_some()
            await ours.aclose()
        return clock.ahead

    assert [trio.run(moved) for _ in range(8)] == [4.0] * 8


def test_the_node_with_the_newest_metadata_is_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = RunningCluster(3, data_dir=tmp_path)
    known = dict(zip(cluster.nodes, (5, -1, 7), strict=True))
    monkeypatch.setattr(ClusterNode, "_is_up", True)
    monkeypatch.setattr(ClusterNode, "_metadata_offset", lambda node: known[node])
    with cluster.client() as client:
        ports = [port for _, port in client.bootstrap]
    assert ports == [int(cluster.nodes[index].bootstrap_servers.rpartition(":")[2]) for index in (2, 0, 1)]


@pytest.mark.parametrize("what", ["await_unfenced", "await_in_sync"])
def test_all_nodes_know_what_was_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    cluster: Any = RunningCluster(3, data_dir=tmp_path)
    known = dict.fromkeys(cluster.nodes, 5)

    def hear(node: ClusterNode) -> int:
        known[node] = min(9, known[node] + node.id)
        return known[node]

    def ask(*_: object) -> None:
        known[cluster.nodes[2]] = 9

    monkeypatch.setattr(ClusterNode, "_link_is_up", True)
    monkeypatch.setattr(ClusterNode, "_metadata_offset", hear)
    monkeypatch.setattr(cluster, "_ask", ask)
    getattr(cluster, what)()
    assert [*known.values()] == [9, 9, 9]


def test_a_node_that_is_slow_to_tell_may_know_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster: Any = RunningCluster(3, data_dir=tmp_path)
    known = dict.fromkeys(cluster.nodes, 5)
    untold = {cluster.nodes[0]: 2, cluster.nodes[2]: 1}
    known[cluster.nodes[2]] = 9

    def tell(node: ClusterNode) -> int:
        untold[node] = untold.get(node, 0) - 1
        if untold[node] >= 0:
            return -1
        told = known[node]
        known[node] = min(9, told + 1)
        return told

    monkeypatch.setattr(ClusterNode, "_link_is_up", True)
    monkeypatch.setattr(ClusterNode, "_metadata_offset", tell)
    cluster._await_news(10)
    assert [*known.values()] == [9, 9, 9]


def test_a_node_that_does_not_tell_what_it_knows_is_not_waited_for(
    ends: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [plan] = plan_cluster(1, tmp_path)
    node: Any = ClusterNode(plan, lambda _: pytest.fail("nobody asks for faults"))
    monkeypatch.setattr(ClusterNode, "_link_is_up", True)
    assert node._metadata_offset(0.01) == -1
    node._link, _, _ = ends
    assert node._metadata_offset(0.01) == -1
    node._link.close()
    assert node._metadata_offset(0.01) == -1
