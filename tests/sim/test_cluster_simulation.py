"""Simulated clusters: whole nodes on simulated machines, every scenario with some seeds, and mistakes to be noticed.

``KBROKER_SIM_CLUSTER_SEEDS=200 pytest tests/sim`` runs more seeds (``make soak``); a failure names its replay.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from kbroker.cores.groups import group_coordinator
from kbroker.cores.groups.classic_group import ClassicGroup
from kbroker.cores.replication.partition_state import PartitionState
from kbroker.cores.share_partitions.acknowledging import AcknowledgeType
from kbroker.cores.share_partitions.partition import SharePartition
from kbroker.cores.share_partitions.record_transitions import TRANSITIONS, LeaderEvent
from kbroker.cores.share_partitions.runs import Run
from kbroker.cores.share_state import DeliveryState, StateBatch
from kbroker.errors import ErrorCode
from kbroker.handlers.registration import BOTH, registrations
from kbroker.log.dirs.start_up import FoundLogs
from kbroker.log.durable_log import DurableLog
from kbroker.log.fake_disk import FakeDisk
from kbroker.log.log_dir import LogDir
from kbroker.log.producer_state import ProducerStateManager
from kbroker.log.scrubbing import SegmentCheck
from kbroker.node.broker import Broker
from kbroker.node.controller.controller_channel import ControllerChannels
from kbroker.node.controller.image_publisher import ImagePublisher
from kbroker.node.coordinators.transaction_driver import TransactionDriver
from kbroker.node.registrations import Registrations
from kbroker.node.replicas.follower_writer import FollowerWriter
from kbroker.node.serving.work_queue import WorkQueue
from kbroker.node.share.dead_letter_producers import DeadLetterProducer, Target
from kbroker.node.share.dead_letters import DeadLetterQueue
from kbroker.node.share.led_partition import LedSharePartition
from kbroker.raft_metadata.controller import brokers
from kbroker.raft_metadata.controller.surviving_logs import LogEnd
from kbroker.sim import __main__ as command
from kbroker.sim.cluster import SimCluster
from kbroker.sim.cluster_scenarios import CLUSTER_SCENARIOS, ClusterScenario, run_cluster_scenario
from kbroker.sim.cluster_scenarios.transactions import late_requests_with
from kbroker.sim.group_clients import Instance
from kbroker.sim.history import History, make_value
from kbroker.sim.world import Violation
from kbroker.types import TopicPartition
from kbroker.wire.messages import describe_quorum
from kbroker.wire.messages.describe_quorum import DescribeQuorumResponse

SEEDS = int(os.environ.get("KBROKER_SIM_CLUSTER_SEEDS", "1"))


LONG = {
    f"cluster-{name}"
    for name in (
        "steady",
        "prompt",
        "clocks-jump",
        "consumer-groups",
        "classic-groups",
        "mixed-groups",
        "leader-paused",
        "transactions",
        "exactly-once",
        "late-requests",
        "many-partitions",
        "chaos",
        "reassignments",
        "hand-overs",
        "hand-overs-of-damage",
        "moves-between-disks",
        "foolish-client",
        "upgrade",
        "upgrade-of-separate-roles",
        "share-groups",
        "share-coordinators",
        "share-slow-disk",
        "share-dead-letters",
    )
}
"""Of these half as many seeds are enough in the ordinary run."""
SEEN_IN_OTHERS = {
    f"cluster-{name}"
    for name in (
        "steady",
        "upgrade-of-separate-roles",
        "checkpoints-lost",  # in processes: tests/node/test_lost_checkpoints.py
        "transactions",  # many-partitions, exactly-once
        "late-requests",  # exactly-once; with version 1 below
        "hand-overs-of-damage",  # hand-overs, bad-disks
        "share-slow-disk",  # share-groups, share-coordinators, slow-disk
        "consumer-groups",  # mixed-groups
        "classic-groups",  # mixed-groups
    )
}


def _rarely(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.everything)


@pytest.mark.parametrize("name", [_rarely(name) if name in SEEN_IN_OTHERS else name for name in CLUSTER_SCENARIOS])
def test_what_is_promised_is_kept(name: str) -> None:
    for seed in range(max(1, SEEDS // 2) if name in LONG else SEEDS):
        try:
            run_cluster_scenario(name, seed)
        except Violation as violation:
            pytest.fail(f"{violation}\nagain with: python -m kbroker.sim --scenario {name} --seed {seed}")


@pytest.mark.parametrize(
    ("name", "seed"),
    [("cluster-leader-killed", 7), _rarely("cluster-bad-disks", 0), _rarely("cluster-transactions", 1000)],
)
def test_the_same_seed_takes_the_same_course_whatever_the_order_of_hashes(name: str, seed: int) -> None:
    code = f"from kbroker.sim.cluster_scenarios import *; print(run_cluster_scenario({name!r}, {seed}))"
    digests = set()
    for hash_seed in ("1", "2"):
        environment = dict(os.environ, PYTHONHASHSEED=hash_seed)
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        digests.add(done.stdout)
    assert len(digests) == 1


def test_who_looks_on_changes_nothing() -> None:
    out = io.StringIO()
    shown = run_cluster_scenario("cluster-min-isr", 5, out)
    assert shown == run_cluster_scenario("cluster-min-isr", 5)
    assert "is killed" in out.getvalue() and "kbroker.node.broker: node 1 serves" in out.getvalue()


# Do the simulations notice? Each of these is a mistake that a replicated log can make.


def _commits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader takes for committed what it has written itself."""

    def advance(self: PartitionState, log_end_offset: int) -> bool:
        moved = log_end_offset > self.high_watermark
        self.high_watermark = max(self.high_watermark, log_end_offset)
        return moved

    monkeypatch.setattr(PartitionState, "maybe_advance_high_watermark", advance)


def _never_truncates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower keeps what its leader never had."""
    monkeypatch.setattr(FollowerWriter, "truncate", lambda self, partition, offset: None)


def _forgets_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is sent again is appended again."""
    monkeypatch.setattr(ProducerStateManager, "check", lambda self, *args, **more: None)


def _remembers_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a producer's batches only the last is known again."""
    monkeypatch.setattr("kbroker.log.producer_entry.NUM_BATCHES_TO_RETAIN", 1)


def _ignores_min_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of in-sync replicas is enough."""
    monkeypatch.setattr(PartitionState, "has_min_isr", lambda self, value: True)


def _trusts_lost_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that stopped uncleanly stays among those that may lead."""
    monkeypatch.setattr(brokers, "records_after_unclean_shutdown", lambda view, broker_id: [])


def _hides_no_aborted_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers of committed records are not told which transactions were aborted."""
    monkeypatch.setattr("kbroker.log.partition_log.PartitionLog.aborted_transactions", lambda *args: [])


def _acts_on_old_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that starts serves clients before it knows what its registration has changed."""

    async def at_once(self: ImagePublisher, condition: Callable[[Any], bool]) -> None:
        return None

    async def later(self: Registrations, nursery: trio.Nursery) -> None:
        nursery.start_soon(self._lifecycle.run)

    monkeypatch.setattr(ImagePublisher, "wait_for", at_once)
    monkeypatch.setattr(Registrations, "unfence", later)


def _knows_static_members_by_other_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that takes over takes static members for others than they are."""
    restored = group_coordinator._restored

    def renamed(*args: Any) -> ClassicGroup:
        group = restored(*args)
        for instance_id, member_id in group.static_members.items():
            member = group.members.pop(member_id)
            member.member_id = group.static_members[instance_id] = f"{member_id}-more"
            group.members[member.member_id] = member
        return group

    monkeypatch.setattr(group_coordinator, "_restored", renamed)


def _lets_produces_overtake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Produce whose partitions are known to the transaction does not wait for those before it on its connection."""
    add = WorkQueue.add

    def apart(self: WorkQueue, connection: Any, *args: Any, **options: Any) -> bool:
        class Alone:
            peer = f"{connection.peer} {len(self.waiting)}"
            closed = False
            scope = connection.scope

        return add(self, cast(Any, Alone), *args, **options)

    monkeypatch.setattr(WorkQueue, "add", apart)


def _asks_by_one_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats take any of the connections that clients' requests are passed on by."""
    begin = ControllerChannels.__init__

    def as_one(self: ControllerChannels, *args: Any) -> None:
        begin(self, *args)
        self._pools = dict.fromkeys(self._pools, next(iter(self._pools.values())))

    monkeypatch.setattr(ControllerChannels, "__init__", as_one)


def _says_what_the_version_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer holds a field that only a later version has."""
    entry = registrations(BOTH)[55]
    handle = entry.handle

    async def with_nodes(request: Any, ctx: Any) -> DescribeQuorumResponse:
        response: DescribeQuorumResponse = await handle(request, ctx)
        response.nodes = [describe_quorum.Node(node_id=1)]
        return response

    monkeypatch.setattr(entry, "handle", with_nodes)


def _believes(monkeypatch: pytest.MonkeyPatch, states: Iterable[DeliveryState]) -> None:
    """A member's word is taken for records in these states as if the records were acquired."""
    for state, word in product(states, AcknowledgeType):
        monkeypatch.setitem(TRANSITIONS, (state, word), TRANSITIONS[DeliveryState.ACQUIRED, word])


def _believes_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member's word for records is taken whoever has them."""
    _believes(monkeypatch, DeliveryState)
    monkeypatch.setattr(SharePartition, "_held_by", lambda self, member_id, first, last: self._runs.cut(first, last))


def _believes_whoever_had_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member's word is taken for what came back from it, too, as long as nobody has it."""
    _believes(monkeypatch, [DeliveryState.AVAILABLE])
    held_by = SharePartition._held_by

    def or_nobody(self: SharePartition, member_id: str, first: int, last: int) -> list[Run]:
        runs = self._runs.cut(first, last)
        return runs if runs and all(run.is_available for run in runs) else held_by(self, member_id, first, last)

    monkeypatch.setattr(SharePartition, "_held_by", or_nobody)


def _hands_out_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records go to the next member while another has them."""
    acquire = LeaderEvent.ACQUIRE
    transition = TRANSITIONS[DeliveryState.AVAILABLE, acquire]
    monkeypatch.setitem(TRANSITIONS, (DeliveryState.ACQUIRED, acquire), transition)

    def is_available(self: Run) -> bool:
        return self.state in (DeliveryState.AVAILABLE, DeliveryState.ACQUIRED) and self.next_state is None

    monkeypatch.setattr(Run, "is_available", property(is_available))


def _passes_what_is_not_done_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start offset moves over records that came back."""

    def is_done(self: Run) -> bool:
        return self.state is not DeliveryState.ACQUIRED and self.next_state is None

    monkeypatch.setattr(Run, "is_done", property(is_done))


def _keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members are told that their word is kept, which the next leader has not heard of."""

    async def nothing(self: LedSharePartition, states: Any) -> ErrorCode:
        return ErrorCode.NONE

    monkeypatch.setattr(LedSharePartition, "_write", nothing)


def _forgets_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The delivery counts of records are not kept."""
    batch = Run.batch
    monkeypatch.setattr(Run, "batch", lambda self: batch(self)._replace(delivery_count=0))


def _gives_up_without_a_letter_in_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record counts as archived from the moment that its letter is to be written."""
    batch = Run.batch

    def archived(self: Run) -> StateBatch:
        found = batch(self)
        is_archiving = found.delivery_state == DeliveryState.ARCHIVING
        return found._replace(delivery_state=DeliveryState.ARCHIVED) if is_archiving else found

    monkeypatch.setattr(Run, "batch", archived)


def _loses_answers(monkeypatch: pytest.MonkeyPatch) -> dict[bytes, None]:
    """The answer to the first attempt to write a batch of dead letters is lost. This is no mistake, but bad luck.

    The value gets the batches.
    """
    write, written = DeadLetterQueue._write, dict[bytes, None]()

    async def without_answer(self: DeadLetterQueue, name: str, source: Any, batch: bytes, producer: Any) -> str | None:
        problem = await write(self, name, source, batch, producer)
        if problem is not None or batch in written:
            return problem
        written[batch] = None
        return "the answer was lost"

    monkeypatch.setattr(DeadLetterQueue, "_write", without_answer)
    return written


def _signs_each_attempt_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of dead letters that is sent again has another producer id."""
    _loses_answers(monkeypatch)
    sign = DeadLetterProducer.sign

    async def anew(self: DeadLetterProducer, batch: bytes, target: Target) -> bytes:
        self.forget()
        return await sign(self, batch, target)

    monkeypatch.setattr(DeadLetterProducer, "sign", anew)


def _says_nothing_when_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller writes no records when nothing happens."""
    monkeypatch.setattr("kbroker.node.controller.idle_records.IdleRecords.run", lambda self: trio.sleep_forever())


def _opens_logs_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node's controller begins when its logs are open."""
    start_metadata = Broker._start_metadata

    async def later(self: Broker, nursery: trio.Nursery) -> None:
        await self._logs.done.wait()
        await start_metadata(self, nursery)

    monkeypatch.setattr(Broker, "_start_metadata", later)


def _waits_without_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is to wait for the end of a change does not look whether that has come already."""
    run_later = TransactionDriver._run_later

    async def blindly(self: TransactionDriver, key: str, operation: Any, outcome: Any, patience_ms: int) -> None:
        await self._until_free(key, trio.current_time() + patience_ms / 1000)
        await run_later(self, key, operation, outcome, patience_ms)

    monkeypatch.setattr(TransactionDriver, "_run_later", blindly)


def _takes_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory is everybody's."""
    lock = FakeDisk.lock

    def anybody(self: FakeDisk, path: str) -> Any:
        self.locks.clear()
        return lock(self, path)

    monkeypatch.setattr(FakeDisk, "lock", anybody)


def _takes_a_name_for_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory is a log of this node when it has the name of one."""
    monkeypatch.setattr("kbroker.log.dirs.start_up.is_log_dir", lambda names: False)
    monkeypatch.setattr("kbroker.log.dirs.start_up.SEGMENT_SUFFIXES", ("",))
    monkeypatch.setattr(
        FoundLogs, "_put_away", lambda self, log, log_dir: self._marked.set_aside(log, log_dir, "-stray")
    )


def _misses_no_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that is gone is written on."""
    monkeypatch.setattr(LogDir, "check_present", lambda self: None)


def _locks_before_it_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of someone else gets a lock file."""
    read_owner = LogDir._read_owner

    def when_locked(self: LogDir, *owner: Any) -> Any:
        return None if self.lock is None else read_owner(self, *owner)

    monkeypatch.setattr(LogDir, "_read_owner", when_locked)


def _takes_all_for_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scrubber finds nothing."""

    def find_nothing(self: SegmentCheck) -> int:
        self.position = self._size
        return 1

    monkeypatch.setattr(SegmentCheck, "step", find_nothing)


def _says_nothing_of_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged replica stays where it is in the ISR."""
    monkeypatch.setattr(DurableLog, "damage", ())


def _forgets_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged log is taken for whole once it is out of the ISR, and what it lacks is not fetched."""
    monkeypatch.setattr(FollowerWriter, "drop_damaged", lambda self, partition: partition.log.healed())


def _elects_the_least_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no replica is known to have everything, the one that lacks most leads."""

    def worst(ends: Mapping[int, LogEnd], order: Iterable[int]) -> int:
        known = (broker_id for broker_id in order if broker_id in ends)
        return min(known, key=lambda broker_id: (-ends[broker_id].missing, *ends[broker_id]))

    monkeypatch.setattr("kbroker.raft_metadata.controller.partition_changes.most_complete", worst)


MISTAKES: list[tuple[Callable[[pytest.MonkeyPatch], None], str, int]] = [
    (_commits_alone, "cluster-leader-partitioned", 0),
    (_never_truncates, "cluster-leader-partitioned", 0),
    (_forgets_sequences, "cluster-leader-killed", 1),
    (_remembers_one_batch, "cluster-five-in-flight", 0),
    (_ignores_min_isr, "cluster-min-isr", 0),
    (_hides_no_aborted_transactions, "cluster-transactions", 0),
    (_lets_produces_overtake, "cluster-many-partitions", 0),
    (_acts_on_old_metadata, "cluster-leader-back-at-once", 7),
    (_trusts_lost_logs, "cluster-leader-loses-power", 1),
    (_opens_logs_first, "cluster-slow-recovery", 0),
    (_knows_static_members_by_other_ids, "cluster-classic-groups", 3),
    (_asks_by_one_channel, "cluster-foolish-client", 8),
    (_says_what_the_version_cannot, "cluster-foolish-client", 0),
    (_believes_anybody, "cluster-share-groups", 3),
    (_believes_whoever_had_it, "cluster-share-groups", 43),
    (_hands_out_what_is_held, "cluster-share-groups", 0),
    (_passes_what_is_not_done_with, "cluster-share-groups", 0),
    (_keeps_nothing, "cluster-share-coordinators", 0),
    (_forgets_counts, "cluster-share-coordinators", 1),
    (_gives_up_without_a_letter_in_hand, "cluster-share-dead-letters", 24),
    (_signs_each_attempt_anew, "cluster-share-dead-letters", 0),
    (_says_nothing_when_idle, "cluster-idle-controller", 0),
    (_waits_without_a_look, "cluster-prompt", 0),
    (_takes_all_for_whole, "cluster-bad-disks", 0),
    (_says_nothing_of_damage, "cluster-bad-disks", 0),
    (_forgets_damage, "cluster-bad-disks", 0),
    (_elects_the_least_complete, "cluster-bad-disks", 1),
    (_takes_no_lock, "cluster-other-programs", 29),
    (_takes_a_name_for_proof, "cluster-other-programs", 0),
    (_misses_no_directory, "cluster-directories-gone", 0),
    (_locks_before_it_looks, "cluster-directories-gone", 0),
]
"""Each with a scenario, and a seed that is known to show it: others are tried when that does not any more."""


@pytest.mark.everything
@pytest.mark.parametrize(("mistake", "name", "known"), MISTAKES)
def test_a_mistake_is_noticed(
    mistake: Callable[[pytest.MonkeyPatch], None], name: str, known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    for seed in (known, *range(40)):
        try:
            run_cluster_scenario(name, seed)
        except Violation:
            return
    pytest.fail("no seed shows it")


def test_answers_that_are_lost_double_no_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = _loses_answers(monkeypatch)
    run_cluster_scenario("cluster-share-dead-letters", 0)
    assert lost


def test_late_requests_show_the_anomalies_of_transaction_version_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same seeds do not show them with version 2 (KAFKA-17754)."""

    async def with_version_1(cluster: SimCluster) -> None:
        await late_requests_with(cluster, (1, 1, 1))

    monkeypatch.setitem(CLUSTER_SCENARIOS, "version-1", ClusterScenario(with_version_1))
    for seed in range(20):
        try:
            run_cluster_scenario("version-1", seed)
        except Violation as violation:
            if "was shown, of a transaction that is" in str(violation):
                return
    pytest.fail("no seed shows what was not committed")


def test_the_command_replays_and_names_the_replay(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command.main(["--scenario", "cluster-one-replica", "--seed", "4"]) == 0
    assert "cluster-one-replica: 1 seeds from 4" in capsys.readouterr().out
    _ignores_min_isr(monkeypatch)
    assert command.main(["--scenario", "cluster-min-isr", "--seed", "0"]) == 1
    assert "python -m kbroker.sim --scenario cluster-min-isr --seed 0" in capsys.readouterr().out


# The checker of what clients were told


TP = TopicPartition("t", 0)


def _history() -> History:
    history = History()
    for number in range(3):
        history.read(TP, number, make_value(1, number), 1)
    return history


@pytest.mark.parametrize(
    "wrong",
    [
        lambda history: history.read(TP, 1, make_value(1, 7), 1),  # the value at an offset changes
        lambda history: history.read(TP, 1, make_value(1, 1), 2),  # its epoch changes
        lambda history: history.read(TP, 3, make_value(1, 1), 1),  # a value comes twice
        lambda history: history.read(TP, 3, make_value(1, 3), 0),  # epochs go back in the log
        lambda history: history.read(TP, 4, make_value(1, 0), 1),  # a producer's order is not kept
        lambda history: history.acknowledged(TP, [make_value(1, 9)], 2, 1, retried=False),  # another is there
    ],
)
def test_the_history_notices(wrong: Callable[[History], Any]) -> None:
    with pytest.raises(Violation):
        wrong(_history())


def test_two_leaders_of_one_epoch_are_noticed() -> None:
    history = _history()
    history.acknowledged(TP, [make_value(1, 0)], 0, node=1, retried=False)
    history.acknowledged(TP, [make_value(1, 1)], 1, node=2, retried=True)  # the second try may be another's answer
    with pytest.raises(Violation, match="both acknowledge"):
        history.acknowledged(TP, [make_value(1, 2)], 2, node=2, retried=False)


def test_what_is_acknowledged_and_not_read_is_unseen() -> None:
    history = _history()
    history.acknowledged(TP, [make_value(1, 0), make_value(1, 1)], 0, 1, retried=False)
    assert not history.unseen()
    history.acknowledged(TP, [make_value(1, 5)], 7, 1, retried=False)
    assert history.unseen() == [(TP, make_value(1, 5), 7)]


def _sent_again(history: History) -> History:
    """1 and 2 were stored in epoch 0 and not acknowledged; their producer sends them again in epoch 1."""
    for number in range(3):
        history.read(TP, number, make_value(1, number), 1, 0)
    history.acknowledged(TP, [make_value(1, 0)], 0, 1, retried=False)
    history.sent_again(TP, [make_value(1, 1), make_value(1, 2)], 1)
    return history


def test_what_a_producer_sends_again_in_a_new_epoch_may_be_there_twice() -> None:
    history = _sent_again(History())
    history.acknowledged(TP, [make_value(1, 1), make_value(1, 2)], 3, 1, retried=False)
    assert len(history.unseen()) == 2, "those that were acknowledged have to be read"
    for number in (1, 2, 3):
        history.read(TP, 2 + number, make_value(1, number), 1, 1)
    assert history.twice == 2 and not history.unseen()


def test_a_reader_may_come_to_the_first_of_two_late() -> None:
    history = History()
    history.sent_again(TP, [make_value(1, 0)], 1)
    history.acknowledged(TP, [make_value(1, 0)], 1, 1, retried=False)
    history.read(TP, 0, make_value(1, 0), 1, 0)
    assert history.unseen()
    history.read(TP, 1, make_value(1, 0), 1, 1)
    assert not history.unseen() and history.twice == 1
    with pytest.raises(Violation, match="is at 1 and at 2"):
        history.read(TP, 2, make_value(1, 0), 1, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda history: history.read(TP, 3, make_value(1, 1), 1, 0),  # in the first epoch again
        lambda history: history.read(TP, 3, make_value(1, 1), 1, 2),  # in an epoch that was not given
        lambda history: history.read(TP, 3, make_value(1, 0), 1, 1),  # not sent again: it was acknowledged
        lambda history: history.sent_again(TP, [make_value(1, 0)], 1),
        lambda history: [history.read(TP, offset, make_value(1, 1), 1, 1) for offset in (3, 4)],  # three times
        lambda history: [history.read(TP, offset, make_value(1, number), 1, 1) for offset, number in ((3, 2), (4, 1))],
        lambda history: [  # the first is acknowledged
            history.read(TP, 3, make_value(1, 1), 1, 1),
            history.acknowledged(TP, [make_value(1, 1)], 1, 1, retried=True),
        ],
        lambda history: [
            history.acknowledged(TP, [make_value(1, 1)], 1, 1, retried=True),
            history.read(TP, 3, make_value(1, 1), 1, 1),
        ],
    ],
)
def test_no_other_value_may_be_there_twice(wrong: Callable[[History], Any]) -> None:
    history = _sent_again(History())
    with pytest.raises(Violation):
        wrong(history)


# The checker of static members that are fenced


def test_a_member_is_fenced_once_for_each_join_that_may_arrive_late() -> None:
    instance = Instance({"0"}, underway=1)
    instance.fenced("it", joining=True, stored=False, real=True)
    with pytest.raises(Violation, match="nobody can have taken its place"):
        instance.fenced("it", joining=True, stored=False, real=True)


@pytest.mark.parametrize(
    ("claims", "joining", "stored", "real", "right"),
    [
        ({"0", "1"}, False, False, True, True),  # its id went with the coordinator that gave it
        ({"0", "1"}, False, True, False, True),  # a coordinator that has not heard of the next
        ({"0", "1"}, False, True, True, False),
        ({"0", "1"}, True, False, True, False),  # it takes the place, whoever had it
        ({"0"}, False, False, False, False),
    ],
)
def test_who_is_fenced_was_replaced(claims: set[str], joining: bool, stored: bool, real: bool, right: bool) -> None:
    try:
        Instance(claims).fenced("it", joining=joining, stored=stored, real=real)
    except Violation:
        assert not right
    else:
        assert right


def test_the_page_lists_every_scenario() -> None:
    text = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text("utf-8")
    for name, scenario in CLUSTER_SCENARIOS.items():
        assert f"| `{name}` | {' '.join((scenario.course.__doc__ or '').split())} |" in text
