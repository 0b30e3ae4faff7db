"""The console's end of the socket by which it switches faults: late answers, and the end of the other side."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from kbroker.client import ClientError
from kbroker.tools.console.fault_channel import FaultChannel


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FaultChannel, socket.socket]]:
    """A channel with little patience, and the end of ``kbroker faults``.

    What it waits for at the socket is over after that time, but none goes by between two of its steps.
    """
    monkeypatch.setattr("kbroker.tools.console.fault_channel.time", SimpleNamespace(monotonic=lambda: 0.0))
    ours, theirs = socket.socketpair()
    with theirs:
        yield FaultChannel(ours.detach(), 0.05), theirs


def answer(end: socket.socket, told: str, *, questions: int = 1) -> None:
    """Read some questions, and answer the last one."""
    with end.makefile("rb") as lines:
        asked = [json.loads(lines.readline()) for _ in range(questions)]
    end.sendall(json.dumps({"told": told, "number": asked[-1]["number"]}).encode() + b"\n")


def test_an_answer_that_comes_too_late_is_passed_over(ends: tuple[FaultChannel, socket.socket]) -> None:
    channel, theirs = ends
    with pytest.raises(ClientError, match=r"has not answered within 0\.05 s; it may do later what it was told"):
        channel.ask({"run": "stop 1"})
    answer(theirs, "of the first")
    with pytest.raises(ClientError, match="has not answered"):
        channel.ask({"run": "list"})
    answer(theirs, "of the second")
    channel.seconds = 300
    asking = threading.Thread(target=answer, args=(theirs, "of the third"))
    asking.start()
    assert channel.ask({"state": True}) == {"told": "of the third"}
    asking.join()


def test_what_found_no_room_is_sent_before_the_next_question(ends: tuple[FaultChannel, socket.socket]) -> None:
    channel, theirs = ends
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    with pytest.raises(ClientError, match="has not answered"):
        channel.ask({"run": "x" * (4 << 20)})
    channel.seconds = 300
    asking = threading.Thread(target=answer, args=(theirs, "whole"), kwargs={"questions": 2})
    asking.start()
    assert channel.ask({"state": True}) == {"told": "whole"}
    asking.join()


def test_the_end_of_the_other_side_is_told(ends: tuple[FaultChannel, socket.socket]) -> None:
    channel, theirs = ends
    theirs.shutdown(socket.SHUT_WR)
    for _ in range(2):
        with pytest.raises(ClientError, match="kbroker faults has ended"):
            channel.ask({"state": True})
