"""Any run of brokers dying, stopping, coming back and of leaders' wishes keeps the promises of KIP-966."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.controller.alter_partition import InSyncReplica
from kbroker.raft_metadata.controller.brokers import begin_controlled_shutdown
from kbroker.raft_metadata.controller.reassignments import Reassignment, alter_partition_reassignments
from kbroker.raft_metadata.controller.requested_elections import balance_leaders, elect_leaders
from kbroker.raft_metadata.image import NO_LEADER, RECOVERED, PartitionImage
from kbroker.types import TopicPartition
from tests.raft_metadata.controller_harness import Harness
from tests.with_each import examples

BROKERS = (1, 2, 3, 4)
brokers = st.sampled_from(BROKERS)


class Leadership(RuleBasedStateMachine):
    """One partition on three of four brokers.

    ``complete`` are the replicas that hold all that can have been acknowledged: what the controller cannot see, and
    must not get wrong. A record is acknowledged only while the ISR is as large as ``min.insync.replicas``, so then
    the ISR as the controller knows it has it; a leader's log is what all others are compared with.
    """

    elr = True

    @initialize(min_isr=st.integers(1, 3), unclean=st.booleans())
    def begin(self, min_isr: int, unclean: bool) -> None:
        self.h = Harness(elr=self.elr)
        self.min_isr, self.unclean = min_isr, unclean
        for broker in BROKERS:
            self.h.broker(broker)
        self.h.assign(
            "t", 1, 2, 3, min_insync_replicas=str(min_isr), unclean_leader_election_enable=str(unclean).lower()
        )
        self.complete = {1, 2, 3}
        self.before = self.p
        self.acknowledge()

    @property
    def p(self) -> PartitionImage:
        return self.h.partition()

    def acknowledge(self) -> None:
        """The leader takes a record; if the ISR is large enough it is acknowledged, and exactly the ISR has it."""
        p = self.p
        if p.leader != NO_LEADER and len(p.isr) >= min(self.min_isr, len(p.replicas)):
            self.complete = set(p.isr)
        elif p.leader != NO_LEADER and p.leader_recovery_state != RECOVERED:
            self.complete = set(p.isr)  # an unclean election gave up what the others had

    @rule(broker=brokers)
    def fence(self, broker: int) -> None:
        self.h.fence(broker)
        self.acknowledge()

    @rule(broker=brokers)
    def unfence(self, broker: int) -> None:
        self.h.unfence(broker)
        self.acknowledge()

    @rule(broker=brokers)
    def stop(self, broker: int) -> None:
        if not self.h.controller.image.brokers[broker].fenced:
            self.h.apply(begin_controlled_shutdown(self.h.view, broker, self.h.epochs[broker]))
            self.acknowledge()

    @rule(broker=brokers, clean=st.booleans())
    def restart(self, broker: int, clean: bool) -> None:
        if not clean:
            self.complete.discard(broker)  # it may have lost what was not flushed
        self.h.broker(broker, unfence=False, previous_epoch=self.h.epochs[broker] if clean else -1)
        self.acknowledge()

    @precondition(lambda self: self.p.leader != NO_LEADER)
    @rule(isr=st.sets(brokers), recovered=st.booleans())
    def alter(self, isr: set[int], recovered: bool) -> None:
        leader = self.p.leader
        wish = [InSyncReplica(broker, self.h.epochs[broker]) for broker in sorted(isr | {leader})]
        recovery = RECOVERED if recovered else self.p.leader_recovery_state
        outcome = self.h.alter(self.h.isr_change(wish, recovery=recovery), leader)
        if isinstance(outcome, PartitionImage) or outcome is ErrorCode.NEW_LEADER_ELECTED:
            self.complete |= {replica.broker_id for replica in wish}  # a leader lets in who has all that it has
        self.acknowledge()

    @rule(replicas=st.lists(brokers, unique=True, min_size=1, max_size=4))
    def reassign(self, replicas: list[int]) -> None:
        self.h.apply(alter_partition_reassignments(self.h.view, [Reassignment("t", 0, replicas)]))
        self.acknowledge()

    @rule()
    def cancel(self) -> None:
        self.h.apply(alter_partition_reassignments(self.h.view, [Reassignment("t", 0, None)]))
        self.acknowledge()

    @rule(unclean=st.booleans())
    def elect(self, unclean: bool) -> None:
        if unclean and not self.unclean:
            return
        self.h.apply(elect_leaders(self.h.view, [TopicPartition("t", 0)], unclean=unclean))
        self.acknowledge()

    @rule(min_isr=st.integers(1, 3))
    def configure(self, min_isr: int) -> None:
        self.h.configure("t", "min.insync.replicas", str(min_isr))
        self.min_isr = min_isr
        self.acknowledge()

    @rule()
    def balance(self) -> None:
        self.h.apply(balance_leaders(self.h.view))
        self.acknowledge()

    @invariant()
    def promises(self) -> None:
        if not hasattr(self, "h"):
            return
        p, image = self.p, self.h.controller.image
        active = {broker.id for broker in image.brokers.values() if broker.active}
        assert len(set(p.isr)) == len(p.isr) and len(set(p.elr)) == len(p.elr)
        assert set(p.isr) | set(p.elr) <= set(p.replicas)
        assert not set(p.isr) & set(p.elr)
        assert p.leader == NO_LEADER or (p.leader in p.isr and p.leader in active)
        if self.elr:
            assert set(p.isr) <= active, "a fenced broker is not in the ISR"
        else:
            assert p.isr and not p.elr and not p.last_known_elr
            assert set(p.isr) <= active or len(p.isr) == 1
        if len(p.isr) >= min(self.min_isr, len(p.replicas)):
            assert not p.elr
        if self.elr:
            assert bool(p.last_known_elr) == (p.leader == NO_LEADER), "else nobody may lead again"
        assert len(p.directories) == len(p.replicas)
        assert set(p.adding_replicas) | set(p.removing_replicas) <= set(p.replicas)
        assert p.partition_epoch >= self.before.partition_epoch
        if p.leader != self.before.leader:
            assert p.leader_epoch > self.before.leader_epoch
        self.before = p

    @invariant()
    def who_may_lead_has_all_that_was_acknowledged(self) -> None:
        if hasattr(self, "h") and not self.unclean and self.p.leader_recovery_state == RECOVERED:
            assert set(self.p.isr) | set(self.p.elr) <= self.complete


class LeadershipWithoutElr(Leadership):
    elr = False

    @invariant()
    def who_may_lead_has_all_that_was_acknowledged(self) -> None:
        """Without eligible leader replicas the last in-sync replica may have lost its end: the gap KIP-966 closes."""


_SETTINGS = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestLeadership = Leadership.TestCase
TestLeadership.settings = _SETTINGS
TestLeadershipWithoutElr = LeadershipWithoutElr.TestCase
TestLeadershipWithoutElr.settings = _SETTINGS
