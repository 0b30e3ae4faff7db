"""Simulated quorums: every scenario with many seeds, every invariant in every step.

``KBROKER_SIM_SEEDS=2000 pytest tests/sim`` runs more seeds (``make soak``); a failure names its replay.
"""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.raft_metadata.raft.core import RaftCore
from kbroker.raft_metadata.raft.election_state import ElectionState
from kbroker.raft_metadata.raft.leader_state import LeaderState
from kbroker.raft_metadata.raft.quorum_state import QuorumRole, QuorumState
from kbroker.raft_metadata.raft.replicated_log import ReplicatedLog
from kbroker.raft_metadata.raft.state import RaftState
from kbroker.raft_metadata.raft.voter_changes import VoterChanges
from kbroker.sim import __main__ as command
from kbroker.sim.quorum.datagrams import NetworkFaults, SimNetwork
from kbroker.sim.quorum.disk import SimDisk
from kbroker.sim.quorum.scenarios import SCENARIOS, run_scenario
from kbroker.sim.world import EventQueue, replay_line
from kbroker.types import OffsetAndEpoch
from kbroker.wire.records.control import VotersRecord
from tests.with_each import with_each

SEEDS = int(os.environ.get("KBROKER_SIM_SEEDS", "5"))
SHARES = {"committed-data-lost-by-majority": 5, "kraft-version-upgrade": 2}
"""Of these a part is enough in the ordinary run: one that no invariant can hold in, and the longest."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_invariants_hold(name: str) -> None:
    for seed in range(max(1, SEEDS // SHARES.get(name, 1))):
        try:
            run_scenario(name, seed)
        except AssertionError as error:
            pytest.fail(f"{error}\nagain with: {replay_line(name, seed)}")


@pytest.mark.everything
@with_each(SCENARIOS)
def test_the_same_seed_takes_the_same_course(name: str) -> None:
    first = run_scenario(name, 1000)
    assert run_scenario(name, 1000) == first
    assert run_scenario(name, 2000) != first


def test_a_traced_run_takes_the_same_course_each_time() -> None:
    one, other = io.StringIO(), io.StringIO()
    assert run_scenario("leader-fails", 3, one) == run_scenario("leader-fails", 3, other)
    assert one.getvalue() == other.getvalue() and " Vote(" in one.getvalue()


# Do the simulations notice? Each of these is a mistake that an implementation of Raft can make.


def _counts_unflushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader counts itself with what it has not flushed."""
    real = LeaderState.on_fetch

    def on_fetch(self: LeaderState, key: Any, offset: int, leader_end_offset: int, now_ms: int) -> bool:
        self.on_local_flush(leader_end_offset)
        return real(self, key, offset, leader_end_offset, now_ms)

    monkeypatch.setattr(LeaderState, "on_fetch", on_fetch)


def _commits_older_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader commits what a majority has, though nothing of its own epoch is among it (Raft, figure 8)."""
    real = LeaderState.__init__

    def init(self: LeaderState, local: Any, epoch: int, start: int, *args: Any, **more: Any) -> None:
        real(self, local, epoch, start, *args, **more)
        self.epoch_start_offset = -1

    monkeypatch.setattr(LeaderState, "__init__", init)


def _forgets_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node does not remember, after a crash, whom it voted for."""
    real = SimDisk.begin_election

    def begin_election(self: SimDisk, state: ElectionState) -> None:
        real(self, ElectionState(state.epoch, state.leader_id, None))

    monkeypatch.setattr(SimDisk, "begin_election", begin_election)


def _forgets_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The election state is never on disk when it is told."""
    monkeypatch.setattr(SimDisk, "end_election", lambda self: None)


def _votes_for_short_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A voter does not look at the candidate's log."""
    real = QuorumState.can_grant_vote

    def can_grant_vote(self: QuorumState, candidate: Any, **how: Any) -> bool:
        return real(self, candidate, **{**how, "is_log_up_to_date": True})

    monkeypatch.setattr(QuorumState, "can_grant_vote", can_grant_vote)


def _votes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A voter gives its vote to everybody."""
    real = QuorumState.can_grant_vote

    def can_grant_vote(self: QuorumState, candidate: Any, **how: Any) -> bool:
        if self.role is QuorumRole.UNATTACHED and not how["pre_vote"] and how["is_log_up_to_date"]:
            self.voted = None
        return real(self, candidate, **how)

    monkeypatch.setattr(QuorumState, "can_grant_vote", can_grant_vote)


def _does_not_truncate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader does not see that a follower's log is another."""
    monkeypatch.setattr("kbroker.raft_metadata.raft.replicated_log.ReplicatedLog.end_offset_for", _never_diverges)


def _never_diverges(self: Any, epoch: int) -> Any:
    from kbroker.types import OffsetAndEpoch

    return OffsetAndEpoch(self.end_offset, epoch)


def _fetches_before_flushing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower asks for what follows before it has flushed what it got."""
    monkeypatch.setattr(SimDisk, "crash", lambda self: self.store.crash(keep=0.0))
    monkeypatch.setattr("kbroker.raft_metadata.raft.replicated_log.ReplicatedLog.begin_flush", lambda self: None)


def _votes_although_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A voter whose log was damaged votes with what is left of it."""
    monkeypatch.setattr(ReplicatedLog, "is_whole", True)


def _votes_at_the_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A voter whose log was damaged votes again as soon as a leader has answered, whatever it still lacks."""

    def vote_again(self: RaftState, now_ms: int) -> None:
        if not self.may_vote and self.first_high_watermark >= 0:
            self.may_vote = self.ready.regained = True
            self.quorum.on_voters_changed(self.is_able_voter, now_ms)

    monkeypatch.setattr(RaftState, "vote_again_if_whole", vote_again)


def _votes_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A voter that starts again has forgotten that its log was damaged."""
    real = SimDisk.crash

    def crash(self: SimDisk) -> None:
        real(self)
        self.promises.regain(OffsetAndEpoch(0, 0))

    monkeypatch.setattr(SimDisk, "crash", crash)


MISTAKES: list[tuple[Callable[[pytest.MonkeyPatch], None], str, int]] = [
    (_counts_unflushed, "leader-fails", 2),
    (_commits_older_epochs, "chaos", 0),
    (_forgets_votes, "chaos", 0),
    (_forgets_epochs, "chaos", 0),
    (_votes_for_short_logs, "chaos", 1),
    (_votes_twice, "leader-fails", 0),
    (_does_not_truncate, "leader-partitioned", 0),
    (_fetches_before_flushing, "leader-fails", 0),
    (_votes_although_damaged, "voter-damaged", 7),
    (_votes_at_the_first_answer, "voter-damaged", 320),
    (_votes_after_a_restart, "voter-damaged", 7),
]
"""Each with a scenario, and a seed that is known to show it: others are tried when that does not any more."""


@pytest.mark.parametrize(("mistake", "name", "known"), MISTAKES)
def test_a_mistake_is_noticed(
    mistake: Callable[[pytest.MonkeyPatch], None], name: str, known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    for seed in (known, *range(600)):
        try:
            run_scenario(name, seed)
        except (AssertionError, ValueError):
            return
    pytest.fail("no seed shows it")


@pytest.mark.parametrize("seed", [1003, 1018, 2024, 2033])
def test_a_damaged_voter_votes_though_it_never_catches_up(seed: int) -> None:
    """The leader of these is never idle, and commits more quickly than the voter fetches."""
    run_scenario("voter-damaged", seed)


def test_a_level_without_its_voters_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The records of an upgrade of kraft.version belong together."""
    upgrade = VoterChanges._upgrade

    def without_voters(self: VoterChanges, request: Any) -> Any:
        result = upgrade(self, request)
        self._state.ready.append = [
            record for record in self._state.ready.append if not isinstance(record, VotersRecord)
        ]
        return result

    monkeypatch.setattr(VoterChanges, "_upgrade", without_voters)
    with pytest.raises(AssertionError):
        run_scenario("kraft-version-upgrade", 1)


# The world of a simulation


def test_events_happen_in_order_and_time_stands_while_they_do() -> None:
    clock, seen = EventQueue[int](0), []
    clock.call_at(5, lambda: seen.append(("late", clock.time)))
    clock.call_at(3, lambda: clock.call_at(clock.time, lambda: seen.append(("made", clock.time))))
    clock.call_at(3, lambda: seen.append(("second", clock.time)))
    while clock.run_next(4):
        pass
    assert seen == [("second", 3), ("made", 3)] and clock.time == 4
    assert clock.run_next(10) and seen[-1] == ("late", 5)


def test_a_cut_link_loses_even_what_is_on_its_way() -> None:
    clock, seen = EventQueue[int](0), []
    network = SimNetwork(clock, random.Random(1), NetworkFaults(min_latency_ms=5, max_latency_ms=5))
    network.carry(1, 2, lambda: seen.append("before"))
    network.cut([1], [2, 3])
    network.carry(1, 3, lambda: seen.append("cut"))
    network.carry(2, 1, lambda: seen.append("other way"))
    clock.run_next(100)
    clock.run_next(100)
    network.heal()
    network.carry(1, 2, lambda: seen.append("healed"))
    clock.run_next(200)
    assert seen == ["other way", "healed"]


def test_the_command_replays_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--scenario", "first-election", "--seed", "4", "--twice"]) == 0
    assert "first-election: 1 seeds from 4" in capsys.readouterr().out


def test_the_command_names_the_replay_of_a_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RaftCore, "is_leader", property(lambda self: 1 / 0))
    assert command.main(["--scenario", "leader-fails", "--seed", "7"]) == 1
    assert "python -m kbroker.sim --scenario leader-fails --seed 7" in capsys.readouterr().out
