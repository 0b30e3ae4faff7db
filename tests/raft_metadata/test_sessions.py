"""Sessions of brokers, and their log directories, as the active controller sees them."""

from __future__ import annotations

import math

from kbroker.raft_metadata.controller.sessions import BrokerSessions


def test_a_session_ends_without_heartbeats() -> None:
    sessions = BrokerSessions(1000)
    assert sessions.next_deadline() == math.inf
    sessions.start([3, 1, 2], 0)
    sessions.touch(1, 600)
    sessions.end(2)
    assert sessions.expired(999) == [] and sessions.next_deadline() == 1000
    assert sessions.is_live(3, 999) and not sessions.is_live(3, 1000) and not sessions.is_live(2, 0)
    assert sessions.expired(1000) == [3]
    sessions.end(3)
    assert sessions.expired(5000) == [1] and sessions.next_deadline() == 1600


def test_a_new_controller_gives_everybody_a_whole_session() -> None:
    sessions = BrokerSessions(1000)
    sessions.start([1], 0)
    sessions.start([2], 10_000)
    assert not sessions.is_live(1, 10_000) and sessions.next_deadline() == 11_000
