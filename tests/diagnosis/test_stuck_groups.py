"""A group that does not advance: why, in sentences, and for how long it has not."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from kbroker.client.open_transactions import OpenTransaction
from kbroker.client.transactions import ProducerState, TransactionDescription
from kbroker.tools.diagnosis.facts import Holder
from kbroker.tools.diagnosis.findings import Finding, Link, Severity
from kbroker.tools.diagnosis.lost_records import lost_records
from kbroker.tools.diagnosis.stuck_groups import (
    MAX_FINDINGS,
    STUCK_MS,
    GroupState,
    LaggingPartition,
    Member,
    OffsetHistory,
    Progress,
    Stall,
    progress,
)
from kbroker.tools.diagnosis.stuck_groups import findings as findings_of_group
from kbroker.types import TopicPartition

NOW = 1_700_000_000_000
LONG = NOW - 42_000
MEMBER = Member("m-1", "billing-1", "10.0.0.7")


def lagging(
    partition: int = 0,
    committed: int | None = 17,
    end: int = 20,
    *,
    since: int = LONG,
    moved: bool = False,
    member: Member | None = MEMBER,
    stable: int | None = None,
    holder: Holder | None = None,
) -> LaggingPartition:
    stall = Stall(since, moved)
    return LaggingPartition(TopicPartition("orders", partition), committed, 0, end, stall, stable, member, holder)


def findings(
    state: str, members: int, those: Sequence[LaggingPartition], losses: Sequence[Finding] = ()
) -> list[Finding]:
    return findings_of_group(GroupState("billing", state, members), those, NOW, losses)


def holder(name: str | None = None, since: int | None = None) -> Holder:
    """A transaction of producer 7 from offset 17 on; its coordinator tells of it if it has a name."""
    opened = OpenTransaction(TopicPartition("orders", 0), 17, ProducerState(7, 0, 0, LONG, 0, 17))
    if name is None:
        return Holder(opened)
    return Holder(opened, TransactionDescription(name, 1, "Ongoing", 7, 0, 60_000, since, (opened.partition,)))


def test_a_group_that_has_everything_or_advances_has_no_reason() -> None:
    assert findings("Stable", 1, []) == []
    assert findings("Stable", 1, [lagging(since=NOW - STUCK_MS + 1)]) == []


def test_a_member_that_is_stuck_is_told_with_the_record() -> None:
    [found] = findings("Stable", 1, [lagging()])
    assert found.severity == Severity.ERROR
    assert found.text == ("orders-0: billing-1 at 10.0.0.7 is stuck at offset 17, for at least 42 s. 3 records wait.")
    assert found.links
    assert (found.links[0].kind, found.links[0].text) == ("record", "Look at record 17")
    assert (found.links[0].topic, found.links[0].partition, found.links[0].offset) == ("orders", 0, 17)


def test_a_member_that_has_never_committed() -> None:
    """With ``auto.offset.reset=latest`` nothing waits for it: what is there is told, and is no error."""
    [found] = findings("Stable", 1, [lagging(committed=None)])
    assert "has committed nothing for at least 42 s. 20 records are there." in found.text
    assert found.severity == Severity.WARNING and "auto.offset.reset=latest" in found.advice
    assert found.links and found.links[0].offset == 0


def test_a_member_that_advances_elsewhere_may_be_slow() -> None:
    elsewhere = lagging(1, since=NOW - 1000, moved=True)
    [found] = findings("Stable", 1, [lagging(), elsewhere])
    assert found.severity == Severity.WARNING and "it may be slow" in found.advice
    # Clients of librdkafka on one host all have the same client id by default.
    others = lagging(1, since=NOW - 1000, moved=True, member=Member("m-2", *MEMBER[1:]))
    assert findings("Stable", 2, [lagging(), others])[0].severity == Severity.ERROR


def test_nobody_is_there() -> None:
    [found] = findings("Empty", 0, [lagging(member=None), lagging(1, member=None)])
    assert found.text == "Nobody is in the group, and 6 records wait for it."

    assert found.links[0] == Link("record", "Look at the next record of orders-0", "orders", 0, 17)
    assert found.links[1] == Link("broken", "Find values in orders that are not JSON", "orders", -1, 17)


def test_where_a_group_without_members_has_never_committed_is_told() -> None:
    """A consumer that ended at once may have had the record there."""
    found, never = findings("Empty", 0, [lagging(member=None), lagging(2, committed=None, member=None)])
    assert found.text == "Nobody is in the group, and 3 records wait for it."
    assert (found.links[1].partition, found.links[1].offset) == (-1, 0)
    assert never.text == "orders: the group has committed nothing in partition 2, where 20 records are."
    assert never.severity == Severity.WARNING and "auto.offset.reset" in never.advice


@pytest.mark.parametrize("members", [0, 1])
def test_records_that_are_gone_are_told(members: int) -> None:
    behind = replace(lagging(committed=4, member=MEMBER if members else None), start=12)
    lost = lost_records({behind.partition: 4}, {behind.partition: (12, 20)})
    found = findings("Stable" if members else "Empty", members, [behind], lost)
    [gone] = [each for each in found if "gone" in each.text]
    assert gone.text == (
        "orders-0: offsets 4 to 11 are gone, and the group has not committed them: the log begins at offset 12."
    )
    assert gone.links[0] == Link("record", "Look at record 12", "orders", 0, 12)
    assert not any("continue where they have committed last" in each.advice for each in found)
    # All of them: nothing waits.
    [gone] = findings("Stable", members, [], lost_records({behind.partition: 4}, {behind.partition: (20, 20)}))
    assert gone.text.startswith("orders-0: nothing is left to read") and not gone.links


def test_a_member_that_moves_nowhere_is_told_once() -> None:
    """A member that is stuck in all its partitions has one finding, not one for each."""
    [found] = findings("Stable", 1, [lagging(), lagging(1), lagging(2, since=NOW)])
    assert found.text == (
        "billing-1 at 10.0.0.7 is stuck: it is in the group, and has committed nothing in any of its 2 partitions with"
        " records for at least 42 s. 6 records wait."
    )
    assert "does not poll" in found.advice
    assert [link.kind for link in found.links] == ["client", "record", "broken"]
    asked = found.links[0]
    assert asked.client_id == "billing-1"
    # Members of one client id are told apart.
    assert len(findings("Stable", 2, [lagging(), lagging(1, member=Member("m-2", *MEMBER[1:]))])) == 2


def test_partitions_without_a_member() -> None:
    those = [lagging(number, member=None, since=NOW) for number in (1, 2, 4)]
    [found] = findings("Stable", 2, those)
    assert found.text == "orders: no member reads partitions 1, 2 and 4, where 9 records wait."


def test_a_rebalance_that_does_not_end() -> None:
    first, *_ = findings("PreparingRebalance", 2, [lagging()])
    assert first.severity == Severity.WARNING and "rebalancing (PreparingRebalance)" in first.text


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"])
def test_partitions_that_change_hands_are_not_called_unread(state: str) -> None:
    """A coordinator tells of no assignment meanwhile: the members may well have subscribed."""
    [found] = findings(state, 2, [lagging(member=None), lagging(1, member=None)])
    assert f"rebalancing ({state})" in found.text


def test_an_open_transaction_blocks_readers() -> None:
    owner = holder("mover", NOW - 180_000)
    [found] = findings("Stable", 1, [lagging(stable=17, holder=owner)])
    assert found.text == (
        "orders-0: an open transaction blocks readers of committed records at offset 17; 3 records wait behind it."
    )
    assert found.advice.startswith("The transaction of mover has been open for 3 min, and has to")
    assert found.links
    assert (found.links[0].kind, found.links[0].transactional_id) == ("transaction", "mover")


def test_a_transaction_that_nobody_knows_or_that_may_not_be_seen() -> None:
    hanging, unseen = findings("Stable", 1, [lagging(stable=17, holder=holder()), lagging(1, stable=17)])
    assert "you may not see it, or it hangs" in hanging.advice and "producer 7" in hanging.advice
    assert hanging.links and hanging.links[0].kind == "blocked"
    assert "commits or aborts" in unseen.advice


def test_a_short_transaction_or_one_behind_the_group_is_no_reason() -> None:
    young = holder("mover", NOW - 1000)
    assert findings("Stable", 1, [lagging(stable=17, holder=young, since=NOW)]) == []
    # The group has not read what it could.
    [found] = findings("Stable", 1, [lagging(stable=19)])
    assert found.links and found.links[0].kind == "record" and "transaction" not in found.advice


def test_a_group_beyond_an_open_transaction_is_stuck_for_another_reason() -> None:
    """It reads uncommitted records, as consumers do by default; or its offset was set there."""
    [found] = findings("Stable", 1, [lagging(stable=12)])
    assert "is stuck at offset 17" in found.text
    assert found.links and found.links[0].kind == "record"
    assert found.advice.endswith("Or it reads committed records only, and an open transaction at offset 12 blocks it.")


def progress_of(
    those: Sequence[LaggingPartition], members: int = 1, losses: Sequence[Finding] = (), state: str = "Stable"
) -> Progress:
    group = GroupState("billing", state, members)
    return progress(group, those, findings_of_group(group, those, NOW, losses), NOW)


def test_a_group_in_a_word() -> None:
    advancing = lagging(1, since=NOW - 1000, moved=True)
    assert progress_of([]) == Progress("caught-up")
    assert progress_of([advancing]) == Progress("lagging")
    assert progress_of([lagging(since=NOW)]) == Progress("unknown")
    assert progress_of([lagging()]) == Progress("stuck", LONG)
    assert progress_of([lagging(), advancing]) == Progress("stuck-in-part", LONG)
    assert progress_of([lagging(committed=None)]) == Progress("never-committed", LONG)
    assert progress_of([lagging(member=None)], 0, state="Empty") == Progress("no-member")
    assert progress_of([], 0, state="Empty") == Progress("caught-up")
    needing = {"stuck", "stuck-in-part", "never-committed"}
    kinds = {*needing, "caught-up", "lagging", "unknown", "no-member"}
    assert {kind for kind in kinds if Progress(kind).needs_attention} == needing


def test_a_group_behind_a_transaction_is_stuck_for_as_long_as_that_is_open() -> None:
    """Also one that was looked at for the first time, and has committed nothing."""
    opened = NOW - 180_000
    held = lagging(committed=None, stable=0, since=NOW, holder=holder("mover", opened))
    assert progress_of([held]) == Progress("stuck", opened)
    young = lagging(committed=None, stable=0, since=NOW, holder=holder("mover", NOW - 1000))
    assert progress_of([young]) == Progress("unknown")


def test_a_group_whose_records_are_gone_is_stuck_though_nothing_waits() -> None:
    beyond = TopicPartition("orders", 0)
    assert progress_of([], losses=lost_records({beyond: 30}, {beyond: (0, 20)})) == Progress("stuck")


def test_findings_are_bounded() -> None:
    those = [lagging(number, member=Member(f"m-{number}", *MEMBER[1:])) for number in range(50)]
    assert len(findings("Stable", 50, those)) == MAX_FINDINGS


def test_the_history_of_a_group() -> None:
    history = OffsetHistory()
    orders = TopicPartition("orders", 0)

    def look(committed: int | None, now_ms: int, *, behind: bool = True) -> tuple[int, bool]:
        return history.look("g", orders, committed, behind=behind, now_ms=now_ms)

    # At the first look nobody knows whether it goes on.
    assert [look(17, 1000), look(17, 5000)] == [(1000, False), (1000, False)]
    assert [look(18, 6000), look(18, 6500)] == [(6000, True), (6000, True)]
    # It has had all for an hour: a record that comes then has not waited for so long.
    assert look(18, 7000, behind=False) == (7000, True)
    assert [look(18, 3_600_000), look(18, 3_700_000)] == [(3_600_000, True), (3_600_000, True)]
    assert history.look("other", orders, 18, behind=True, now_ms=4_000_000) == (4_000_000, False)
    assert [look(None, 1), look(None, 2)] == [(1, True), (1, True)]


def test_several_threads_look_at_a_history() -> None:
    """A look does not forget, for a moment, what it has found: another would take the group for a new one."""
    history = OffsetHistory()
    orders = TopicPartition("orders", 0)
    history.look("g", orders, 17, behind=True, now_ms=1000)
    seen: set[int] = set()

    def look() -> None:
        for now_ms in range(2000, 12_000):
            seen.add(history.look("g", orders, 17, behind=True, now_ms=now_ms).since)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert seen == {1000}
