"""Where no replica is known to have everything, the one that has most leads, once those that can have said so."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FrameType

import pytest

from kbroker.raft_metadata.controller.broker_changes import records_to_elect_most_complete
from kbroker.raft_metadata.controller.brokers import unfence_broker
from kbroker.raft_metadata.controller.directories import ReplicaDirectory, assign_replicas
from kbroker.raft_metadata.controller.partition_changes import partition_change
from kbroker.raft_metadata.controller.requested_elections import elect_leaders, elect_missing_leaders
from kbroker.raft_metadata.controller.surviving_logs import LogEnd, most_complete
from kbroker.raft_metadata.controller.view import ControllerResult
from kbroker.raft_metadata.image import DIR_LOST, NO_LEADER, RECOVERING
from kbroker.types import TopicPartition
from kbroker.wire.records.metadata import PartitionChangeRecord
from tests.raft_metadata.controller_harness import Harness

TIMEOUT = 10_000


@pytest.mark.parametrize(
    ("ends", "leader"),
    [
        ({1: LogEnd(4, 0, 700), 2: LogEnd(4, 0, 780), 3: LogEnd(4, 0, 720)}, 2),
        # An epoch that others have not heard of is worth more than a long tail of an earlier one.
        ({1: LogEnd(4, 0, 900), 2: LogEnd(5, 600, 610)}, 2),
        # Whole, and as far: the damaged one comes last, also one whose file is empty.
        ({1: LogEnd(4, 0, 780, missing=30), 2: LogEnd(4, 0, 780)}, 2),
        ({1: LogEnd(5, 700, 780, missing=780), 2: LogEnd(4, 0, 779)}, 2),
        # One that was down for long lacks more than a batch that was damaged.
        ({1: LogEnd(5, 400, 9_000, missing=30), 2: LogEnd(4, 0, 400)}, 1),
        # What an earlier epoch wrote behind the place where a later one began is not shared with it.
        ({1: LogEnd(5, 400, 500, missing=30), 2: LogEnd(4, 0, 500)}, 1),
        ({1: LogEnd(4, 0, 780), 2: LogEnd(4, 0, 780)}, 1),
        ({3: LogEnd(-1, 0, 0)}, 3),
    ],
)
def test_the_replica_with_which_the_fewest_offsets_are_lost_leads(ends: Mapping[int, LogEnd], leader: int) -> None:
    assert most_complete(ends, (1, 2, 3)) == leader


class Asking(Harness):
    """Three brokers with one partition. They are killed together; the last that is registered again led last."""

    def __init__(self, **configs: str) -> None:
        super().__init__(recovery_timeout_ms=TIMEOUT)
        self.now_ms = 1_000_000
        self.controller.log_ends.begin(self.now_ms)
        for broker in (1, 2, 3):
            self.broker(broker)
        self.assign("t", 1, 2, 3, **configs)
        self.key = self.controller.image.topics.by_name["t"].id, 0
        for broker in (1, 2, 3):
            self.broker(broker, unfence=False)
        assert (self.partition().leader, self.partition().isr, self.partition().elr) == (NO_LEADER, (), ())
        assert self.partition().last_known_elr == (3,)

    def says(self, broker: int, end: LogEnd | None, *, recovers: bool = False) -> None:
        """A heartbeat of a broker, which unfences it. ``end`` is None from one that does not know the question."""
        ends = None if end is None else {self.key: end}
        news = self.controller.log_ends.heard(broker, self.epochs[broker], ends, self.now_ms, recovers=recovers)
        if self.controller.image.brokers[broker].fenced and not recovers:
            self.unfence(broker)
        elif news:
            self.elect()

    def elect(self) -> None:
        self.apply(ControllerResult(None, records_to_elect_most_complete(self.view)))

    def passes(self, ms: int) -> None:
        self.now_ms += ms
        self.controller.log_ends.passed(self.now_ms)
        self.elect()

    @property
    def leader(self) -> int:
        return self.partition().leader


def test_all_are_asked_before_one_leads() -> None:
    h = Asking()
    h.says(3, LogEnd(4, 0, 700))
    h.says(1, LogEnd(4, 0, 780))
    assert h.leader == NO_LEADER
    h.says(2, LogEnd(4, 0, 700))
    assert (h.leader, h.partition().isr, h.partition().leader_recovery_state) == (1, (1,), RECOVERING)
    assert h.partition().last_known_elr == ()
    assert h.controller.log_ends.next_deadline() == math.inf


def test_an_only_replica_leads_as_soon_as_it_is_back() -> None:
    """There is nothing to choose, and a node may have ten thousand of them."""
    h = Asking()
    h.unfence(1)
    h.assign("only", 1)
    h.broker(1, unfence=False)
    assert h.partition("only").leader == NO_LEADER
    assert [key for key, _ in h.controller.log_ends.asked()] == [h.key]
    h.unfence(1)
    assert (h.partition("only").leader, h.partition("only").isr, h.leader) == (1, (1,), NO_LEADER)


def decisions(records: Callable[[], Iterable[object]]) -> tuple[int, int]:
    """The partitions that change by these records, and those that are decided on for that."""
    decided = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal decided
        decided += event == "call" and frame.f_code is partition_change.__code__

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        return sum(isinstance(each, PartitionChangeRecord) for each in records()), decided
    finally:
        sys.setprofile(before)


def test_a_broker_that_comes_back_decides_on_nothing_that_waits_for_another_one() -> None:
    """A node may have tens of thousands of such partitions, and each of its heartbeats speaks of all."""
    h = Asking()
    h.unfence(1, 2)
    h.assign("in-sync-on-2", 1, 2)
    h.fence(1, 2)
    assert (h.partition("in-sync-on-2").leader, h.partition("in-sync-on-2").elr) == (NO_LEADER, (2,))
    assert decisions(lambda: unfence_broker(h.view, 1, h.epochs[1]).records) == (0, 0)
    for broker in (1, 3):
        h.says(broker, LogEnd(4, 0, 780))
        assert decisions(lambda: records_to_elect_most_complete(h.view)) == (0, 0)
    assert decisions(lambda: unfence_broker(h.view, 2, h.epochs[2]).records) == (1, 1)
    h.unfence(2)
    h.controller.log_ends.heard(2, h.epochs[2], {h.key: LogEnd(4, 0, 790)}, h.now_ms, recovers=False)
    assert decisions(lambda: records_to_elect_most_complete(h.view)) == (1, 1)


def test_while_the_last_leader_is_away_nothing_is_decided() -> None:
    """It may be for ever."""
    h = Asking()
    h.says(1, LogEnd(4, 0, 780))
    h.says(2, LogEnd(4, 0, 780))
    h.passes(TIMEOUT)
    assert decisions(lambda: records_to_elect_most_complete(h.view)) == (0, 0)
    assert decisions(lambda: elect_missing_leaders(h.view).records) == (0, 0)
    assert decisions(lambda: unfence_broker(h.view, 3, h.epochs[3]).records) == (1, 1)


def test_a_silent_broker_is_waited_for_only_so_long() -> None:
    h = Asking()
    h.says(3, LogEnd(4, 0, 780, missing=780))
    h.says(1, LogEnd(4, 0, 780))
    h.passes(TIMEOUT - 1)
    assert h.leader == NO_LEADER
    assert h.controller.log_ends.next_deadline() == h.now_ms + 1
    h.passes(1)
    assert h.leader == 1


def test_damaged_replicas_alone_wait_longer_for_a_whole_one() -> None:
    h = Asking()
    h.says(3, LogEnd(4, 0, 780, missing=30))
    h.passes(29 * TIMEOUT)
    assert h.leader == NO_LEADER and h.controller.log_ends.missed() == {1: 1, 2: 1}
    h.says(1, LogEnd(4, 0, 780))
    assert h.leader == 1


def test_a_replica_that_has_lost_everything_waits_for_another_one_for_as_long_as_it_takes() -> None:
    h = Asking()
    h.says(3, LogEnd(-1, 0, 780, missing=780))
    h.says(2, LogEnd(-1, 0, 1, missing=1))
    h.passes(1000 * TIMEOUT)
    assert h.leader == NO_LEADER and h.controller.log_ends.missed() == {1: 1}
    h.says(1, LogEnd(4, 0, 700))
    assert h.leader == 1


def test_damaged_replicas_lead_when_no_other_comes() -> None:
    h = Asking()
    h.says(3, LogEnd(4, 0, 780, missing=30))
    h.passes(30 * TIMEOUT - 1)
    assert h.leader == NO_LEADER and h.controller.log_ends.next_deadline() == h.now_ms + 1
    h.passes(1)
    assert h.leader == 3


def test_a_broker_that_verifies_its_logs_is_waited_for_as_long_as_it_lives() -> None:
    h = Asking()
    h.says(3, LogEnd(4, 0, 700))
    h.says(1, LogEnd(4, 0, 700))
    for _ in range(10):
        h.passes(TIMEOUT // 2)
        h.says(2, None, recovers=True)
        assert h.leader == NO_LEADER
    h.says(2, LogEnd(4, 0, 780))
    assert h.leader == 2


def test_only_those_that_led_last_or_have_as_much_may_lead() -> None:
    """The last leader alone acknowledged something, perhaps: without it nobody leads, as in Apache Kafka."""
    h = Asking()
    h.says(1, LogEnd(4, 0, 780))
    h.says(2, LogEnd(4, 0, 781))
    h.passes(TIMEOUT)
    assert h.leader == NO_LEADER
    h.says(3, LogEnd(4, 0, 780))
    assert h.leader == 2


def test_the_answers_of_an_earlier_life_do_not_count() -> None:
    h = Asking()
    h.says(1, LogEnd(4, 0, 780))
    h.says(3, LogEnd(4, 0, 700))
    h.fence(1)
    h.broker(1, unfence=False)
    h.says(2, LogEnd(4, 0, 700))
    assert h.leader == NO_LEADER
    h.says(1, LogEnd(4, 0, 780))
    assert h.leader == 1


def test_with_a_broker_that_does_not_know_the_question_the_last_leader_leads() -> None:
    h = Asking()
    h.says(1, LogEnd(4, 0, 780))
    h.says(2, LogEnd(4, 0, 780))
    h.says(3, None)
    assert h.leader == 3


def test_one_that_does_not_know_the_question_and_did_not_lead_is_not_waited_for() -> None:
    h = Asking()
    h.says(3, LogEnd(4, 0, 700))
    h.says(2, LogEnd(4, 0, 780))
    assert h.leader == NO_LEADER
    h.says(1, None)
    assert h.leader == 2


def test_where_unclean_elections_are_allowed_replicas_are_asked_as_well() -> None:
    h = Asking(unclean_leader_election_enable="true")
    h.says(1, LogEnd(4, 0, 700))
    h.says(2, LogEnd(4, 0, 780))
    assert h.leader == NO_LEADER
    h.passes(TIMEOUT)
    assert h.leader == 2


def test_who_asks_for_an_unclean_election_does_not_wait() -> None:
    h = Asking()
    h.says(1, LogEnd(4, 0, 700))
    h.says(2, LogEnd(4, 0, 780))
    assert h.apply(elect_leaders(h.view, [TopicPartition("t", 0)], unclean=True)) == {TopicPartition("t", 0): None}
    assert h.leader == 2


def test_a_new_controller_asks_anew() -> None:
    h = Asking()
    h.says(1, LogEnd(4, 0, 780))
    h.says(3, LogEnd(4, 0, 700))
    h.controller.reset(h.controller.image)
    h.now_ms += TIMEOUT
    h.controller.log_ends.begin(h.now_ms)
    h.says(2, LogEnd(4, 0, 700))
    assert h.leader == NO_LEADER
    h.says(1, LogEnd(4, 0, 780))
    h.says(3, LogEnd(4, 0, 700))
    assert h.leader == 1


def asking_of_two() -> Asking:
    """After a power cut of everything, with two partitions that have replicas on all of three brokers."""
    h = Asking()
    h.unfence(1, 2, 3)
    h.assign("u", 1, 2, 3)
    for broker in (1, 2, 3):
        h.broker(broker, unfence=False)
    h.unfence(1, 2, 3)
    return h


def test_what_a_broker_says_in_several_heartbeats_counts_together() -> None:
    """It may have more such partitions than a request may name."""
    h = asking_of_two()
    log_ends = h.controller.log_ends
    keys = [key for key, _ in log_ends.asked()]
    assert (len(keys), h.leader, h.partition("u").leader) == (2, NO_LEADER, NO_LEADER)
    for broker in (1, 2, 3):
        for key in keys:
            news = log_ends.heard(broker, h.epochs[broker], {key: LogEnd(4, 0, 780)}, h.now_ms, recovers=False)
            assert news == [key]
            h.apply(ControllerResult(None, records_to_elect_most_complete(h.view, news)))
    assert (h.leader, h.partition("u").leader) == (3, 3)
    assert log_ends.heard(1, h.epochs[1], dict.fromkeys(keys, LogEnd(4, 0, 780)), h.now_ms, recovers=False) == []


def test_a_broker_that_tells_one_part_after_the_other_is_waited_for() -> None:
    """With hundreds of thousands of partitions that may take longer than the wait for a silent one."""
    h = asking_of_two()
    log_ends = h.controller.log_ends
    keys = [key for key, _ in log_ends.asked()]
    for broker in (1, 2):
        log_ends.heard(broker, h.epochs[broker], dict.fromkeys(keys, LogEnd(4, 0, 780)), h.now_ms, recovers=False)
    for key in keys:
        h.passes(TIMEOUT - 1)
        assert key in dict(log_ends.asked())
        log_ends.heard(3, h.epochs[3], {key: LogEnd(4, 0, 700)}, h.now_ms, recovers=False)
        h.elect()
    assert (h.leader, h.partition("u").leader) == (1, 1)


def test_a_broker_that_says_the_same_again_is_waited_for_no_longer() -> None:
    h = Asking()
    h.unfence(1, 2, 3)
    h.assign("u", 1, 2, 3)
    for broker in (1, 2, 3):
        h.broker(broker, unfence=False)
    h.unfence(1, 3)
    for _ in range(2):
        h.says(3, LogEnd(4, 0, 780))
        h.passes(TIMEOUT // 2)
    assert h.partition("u").leader == 3


def test_what_was_said_before_damage_was_found_decides_nothing() -> None:
    """The last leader is elected as one of equals, and finds its log damaged before it has sent another heartbeat."""
    asking = Asking()
    for broker in (1, 2, 3):
        asking.says(broker, LogEnd(4, 0, 780))
    assert asking.leader == 3
    [home] = asking.controller.image.brokers[3].log_dirs
    for directory in (DIR_LOST, home):
        is_damaged = directory == DIR_LOST
        wanted = [ReplicaDirectory(*asking.key, directory, is_damaged)]
        asking.apply(assign_replicas(asking.view, 3, asking.epochs[3], wanted))
        assert asking.leader == NO_LEADER
    asking.says(3, LogEnd(4, 0, 780, missing=90))
    asking.says(1, LogEnd(4, 0, 780))
    assert asking.leader == NO_LEADER
    asking.says(2, LogEnd(4, 0, 780))
    assert asking.leader in (1, 2)


def test_the_last_leader_is_asked_though_its_directory_comes_back_after_all_others_have_answered() -> None:
    asking = Asking()
    for broker in (1, 2, 3):
        asking.says(broker, LogEnd(4, 0, 780))
    [home] = asking.controller.image.brokers[3].log_dirs
    asking.apply(assign_replicas(asking.view, 3, asking.epochs[3], [ReplicaDirectory(*asking.key, DIR_LOST, True)]))
    asking.says(1, LogEnd(4, 0, 780))
    asking.says(2, LogEnd(4, 0, 780))
    asking.apply(assign_replicas(asking.view, 3, asking.epochs[3], [ReplicaDirectory(*asking.key, home)]))
    assert asking.leader == NO_LEADER
    asking.says(3, LogEnd(4, 0, 780, missing=90))
    assert asking.leader in (1, 2)
