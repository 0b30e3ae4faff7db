"""The line between a test and a node of its cluster: calls both ways, errors, ends."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kbroker.errors import ApiError, ErrorCode
from kbroker.testing.link import Link, LinkClosed, described, encoded


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
