"""A broker's way through fencing and controlled shutdown, heartbeat by heartbeat."""

from __future__ import annotations

from dataclasses import replace

from kbroker.raft_metadata.controller.broker_changes import leads_any
from kbroker.raft_metadata.controller.brokers import begin_controlled_shutdown
from kbroker.raft_metadata.controller.sessions import BrokerSessions, BrokerState, Heartbeat
from kbroker.raft_metadata.image import NO_LEADER, BrokerImage
from kbroker.types import ZERO_UUID
from tests.raft_metadata.controller_harness import Harness


def broker(broker_id: int, *, fenced: bool = False, stops: bool = False) -> BrokerImage:
    return BrokerImage(broker_id, 50, ZERO_UUID, {}, fenced=fenced, in_controlled_shutdown=stops)


def next_state(
    sessions: BrokerSessions,
    of: BrokerImage,
    beat: Heartbeat,
    *others: BrokerImage,
    leads: bool = False,
    loses_directory: bool = False,
) -> BrokerState:
    return sessions.next_state(of, beat, lambda: leads, lambda: loses_directory, [of, *others])


def beat(offset: int = 99, **wants: bool) -> Heartbeat:
    return Heartbeat(1, 50, offset, **wants)  # type: ignore[arg-type]


def test_a_fenced_broker_is_unfenced_once_it_has_read_its_registration() -> None:
    sessions = BrokerSessions(1000)
    fenced = broker(1, fenced=True)
    assert next_state(sessions, fenced, beat(49)) is BrokerState.FENCED
    assert next_state(sessions, fenced, beat(50)) is BrokerState.UNFENCED
    assert next_state(sessions, fenced, beat(50), loses_directory=True) is BrokerState.FENCED
    assert next_state(sessions, fenced, beat(50, want_fence=True)) is BrokerState.FENCED
    assert next_state(sessions, fenced, beat(50, want_shut_down=True)) is BrokerState.SHUTDOWN_NOW


def test_who_leads_nothing_may_go_at_once() -> None:
    sessions = BrokerSessions(1000)
    assert next_state(sessions, broker(1), beat()) is BrokerState.UNFENCED
    assert next_state(sessions, broker(1), beat(), loses_directory=True) is BrokerState.UNFENCED
    assert next_state(sessions, broker(1), beat(want_fence=True)) is BrokerState.FENCED
    assert next_state(sessions, broker(1), beat(want_shut_down=True)) is BrokerState.SHUTDOWN_NOW
    both = beat(want_shut_down=True, want_fence=True)
    assert next_state(sessions, broker(1), both, leads=True) is BrokerState.SHUTDOWN_NOW


def test_who_leads_goes_when_all_that_live_have_read_who_leads_instead() -> None:
    sessions = BrokerSessions(1000)
    wish = beat(want_shut_down=True)
    assert next_state(sessions, broker(1), wish, leads=True) is BrokerState.CONTROLLED_SHUTDOWN
    sessions.begin_shutdown(1, 120)
    sessions.begin_shutdown(1, 140)  # the first time counts
    stops = broker(1, stops=True)
    others = (broker(2), broker(3), broker(4, fenced=True), broker(5, stops=True))
    assert next_state(sessions, stops, wish, *others, leads=True) is BrokerState.CONTROLLED_SHUTDOWN
    assert next_state(sessions, stops, wish, *others) is BrokerState.CONTROLLED_SHUTDOWN
    sessions.read_to(2, 120)
    sessions.read_to(3, 119)
    assert next_state(sessions, stops, wish, *others) is BrokerState.CONTROLLED_SHUTDOWN
    sessions.read_to(3, 120)
    assert next_state(sessions, stops, wish, *others) is BrokerState.SHUTDOWN_NOW
    assert next_state(sessions, stops, beat(), *others) is BrokerState.SHUTDOWN_NOW


def test_a_new_controller_does_not_know_since_when_a_broker_stops() -> None:
    sessions = BrokerSessions(1000)
    sessions.begin_shutdown(1, 10)
    sessions.start([1, 2], 0)
    sessions.read_to(2, 500)
    stops = broker(1, stops=True)
    assert next_state(sessions, stops, beat(want_shut_down=True), broker(2)) is BrokerState.CONTROLLED_SHUTDOWN
    sessions.begin_shutdown(1, 400)
    assert next_state(sessions, stops, beat(want_shut_down=True), broker(2)) is BrokerState.SHUTDOWN_NOW


def test_a_controller_that_stood_still_forgives() -> None:
    sessions = BrokerSessions(1000)
    sessions.start([1, 2], 0)
    sessions.forgive(5000)
    assert sessions.expired(5999) == [] and sessions.expired(6000) == [1, 2]


def test_leaderships_move_to_active_replicas_only() -> None:
    h = Harness()
    for broker_id in (1, 2, 3):
        h.broker(broker_id)
    h.assign("t", 1, 2, 3, min_insync_replicas="1")
    h.assign("alone", 1)
    h.apply(begin_controlled_shutdown(h.view, 2, h.epochs[2]))
    assert h.partition().isr == (1, 3)
    h.apply(begin_controlled_shutdown(h.view, 1, h.epochs[1]))
    assert h.controller.image.brokers[1].in_controlled_shutdown and not h.controller.image.brokers[1].fenced
    assert (h.partition().leader, h.partition().isr) == (3, (3,))
    assert (h.partition("alone").leader, h.partition("alone").elr) == (NO_LEADER, (1,))
    assert not leads_any(h.view, 1)
    h.fence(1)
    assert h.controller.image.brokers[1] == replace(
        h.controller.image.brokers[1], fenced=True, in_controlled_shutdown=True
    )
    h.broker(1, previous_epoch=h.epochs[1])
    assert h.partition("alone").leader == 1


def test_who_is_about_to_stop_does_not_lead_again_when_it_is_unfenced() -> None:
    h = Harness()
    h.broker(1)
    h.broker(2)
    h.assign("t", 1)
    h.apply(begin_controlled_shutdown(h.view, 1, h.epochs[1]))
    h.fence(1)
    h.unfence(1)
    assert (h.partition().leader, h.partition().elr) == (NO_LEADER, (1,))
    h.broker(1, previous_epoch=h.epochs[1])
    assert h.partition().leader == 1
