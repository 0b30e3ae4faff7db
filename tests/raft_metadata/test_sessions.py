"""Sessions of brokers, and their log directories, as the active controller sees them."""

from __future__ import annotations

import math

from kbroker.raft_metadata.controller.sessions import BrokerSessions, BrokerState, Heartbeat
from kbroker.raft_metadata.image import BrokerImage
from kbroker.types import Uuid
from kbroker.value_types import replace


def broker(broker_id: int, *, epoch: int = 5, fenced: bool = False) -> BrokerImage:
    return BrokerImage(broker_id, epoch, Uuid(bytes(16)), {}, fenced=fenced)


def test_a_session_ends_without_heartbeats() -> None:
    sessions = BrokerSessions(1000)
    assert sessions.next_deadline() == math.inf
    sessions.start([3, 1, 2], 0)
    sessions.touch(1, 600)
    sessions.end(2)
    assert sessions.expired(999) == [] and sessions.next_deadline() == 1000
    assert sessions.is_live(broker(3), 999) and not sessions.is_live(broker(3), 1000)
    assert not sessions.is_live(broker(2), 0)
    assert sessions.expired(1000) == [3]
    sessions.end(3)
    assert sessions.expired(5000) == [1] and sessions.next_deadline() == 1600


def test_a_new_controller_gives_everybody_a_whole_session() -> None:
    sessions = BrokerSessions(1000)
    sessions.start([1], 0)
    sessions.start([2], 10_000)
    assert not sessions.is_live(broker(1), 10_000) and sessions.next_deadline() == 11_000


def test_a_fenced_broker_that_is_heard_of_lives_and_nobody_misses_it() -> None:
    sessions = BrokerSessions(1000)
    fenced = broker(1, fenced=True)
    assert not sessions.is_live(fenced, 0)
    sessions.touch_fenced(1, 5, 100)
    assert sessions.next_deadline() == math.inf and sessions.expired(5000) == []
    assert sessions.is_live(fenced, 1099) and not sessions.is_live(fenced, 1100)
    assert not sessions.is_live(broker(1, epoch=6, fenced=True), 100), "another life of it"
    sessions.forgive(50)
    assert sessions.is_live(fenced, 1149) and not sessions.is_live(fenced, 1150)
    sessions.touch(1, 200)
    assert not sessions.is_live(fenced, 200), "its session counts from now on, which ends with its process"
    sessions.touch_fenced(1, 5, 300)
    sessions.start([], 300)
    assert not sessions.is_live(fenced, 300)


def test_a_shutdown_that_a_kill_has_ended_is_nothing_to_the_next_life() -> None:
    sessions = BrokerSessions(1000)
    other, mine = broker(2), broker(1, epoch=9)
    stopping = replace(mine, in_controlled_shutdown=True)
    sessions.begin_shutdown(1, 10)
    sessions.read_to(2, 15)

    def next_state(image: BrokerImage, *, leads: bool) -> BrokerState:
        beat = Heartbeat(1, 9, 20, want_shut_down=True)
        return sessions.next_state(image, beat, lambda: leads, lambda: False, [image, other])

    assert next_state(mine, leads=True) is BrokerState.CONTROLLED_SHUTDOWN
    sessions.begin_shutdown(1, 20)
    assert next_state(stopping, leads=False) is BrokerState.CONTROLLED_SHUTDOWN, "the other does not know who leads now"
    sessions.read_to(2, 20)
    assert next_state(stopping, leads=False) is BrokerState.SHUTDOWN_NOW
