"""The console says why a group does not advance, in words, and for how long it has not."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace

import pytest

from kbroker.client.lost_records import losses
from kbroker.client.troubles import ERROR, WARNING
from kbroker.tools.console.holding import Holder
from kbroker.tools.console.standing import MAX_FINDINGS, STANDS_MS, OffsetHistory, Place, Stand, findings
from kbroker.types import TopicPartition

NOW = 1_700_000_000_000
LONG = NOW - 42_000
MEMBER = ("m-1", "billing-1", "10.0.0.7")


def stand(partition: int = 0, committed: int | None = 17, end: int = 20, **more: object) -> Stand:
    given = {"since": LONG, "member": MEMBER, **more}
    return Stand(TopicPartition("orders", partition), committed, 0, end, **given)  # type: ignore[arg-type]


def test_a_group_that_has_everything_or_advances_has_no_reason() -> None:
    assert findings("Stable", 1, [], NOW) == []
    assert findings("Stable", 1, [stand(since=NOW - STANDS_MS + 1)], NOW) == []


def test_a_member_that_stands_is_told_with_the_record() -> None:
    [found] = findings("Stable", 1, [stand()], NOW)
    assert found.severity == ERROR
    assert found.text == ("orders-0: billing-1 at 10.0.0.7 has stood at offset 17 for at least 42 s. 3 records wait.")
    assert found.place is not None
    assert (found.place.kind, found.place.text) == ("record", "Look at record 17")
    assert (found.place.topic, found.place.partition, found.place.offset) == ("orders", 0, 17)


def test_a_member_that_has_never_committed() -> None:
    """With ``auto.offset.reset=latest`` nothing waits for it: what is there is told, and is no error."""
    [found] = findings("Stable", 1, [stand(committed=None)], NOW)
    assert "has committed nothing for at least 42 s. 20 records are there." in found.text
    assert found.severity == WARNING and "auto.offset.reset=latest" in found.advice
    assert found.place is not None and found.place.offset == 0


def test_a_member_that_goes_on_elsewhere_may_be_slow() -> None:
    elsewhere = stand(1, since=NOW - 1000, moved=True)
    [found] = findings("Stable", 1, [stand(), elsewhere], NOW)
    assert found.severity == WARNING and "it may be slow" in found.advice
    # Clients of librdkafka on one host all have the same client id by default.
    others = stand(1, since=NOW - 1000, moved=True, member=("m-2", *MEMBER[1:]))
    assert findings("Stable", 2, [stand(), others], NOW)[0].severity == ERROR


def test_nobody_is_there() -> None:
    [found] = findings("Empty", 0, [stand(member=None), stand(1, member=None)], NOW)
    assert found.text == "Nobody is in the group, and 6 records wait for it."

    assert found.place == Place("record", "Look at the next record of orders-0", "orders", 0, 17)
    assert found.places[1] == Place("broken", "Find values in orders that are not JSON", "orders", -1, 17)


def test_where_a_group_without_members_has_never_committed_is_told() -> None:
    """A consumer that ended at once may have had the record there."""
    found, never = findings("Empty", 0, [stand(member=None), stand(2, committed=None, member=None)], NOW)
    assert found.text == "Nobody is in the group, and 3 records wait for it."
    assert (found.places[1].partition, found.places[1].offset) == (-1, 0)
    assert never.text == "orders: the group has committed nothing in partition 2, where 20 records are."
    assert never.severity == WARNING and "auto.offset.reset" in never.advice


@pytest.mark.parametrize("members", [0, 1])
def test_records_that_are_gone_are_told(members: int) -> None:
    behind = replace(stand(committed=4, member=MEMBER if members else None), start=12)
    lost = losses({behind.partition: 4}, {behind.partition: (12, 20)})
    found = findings("Stable" if members else "Empty", members, [behind], NOW, lost)
    [gone] = [each for each in found if "gone" in each.text]
    assert gone.text == (
        "orders-0: offsets 4 to 11 are gone, and the group has not committed them: the log begins at offset 12."
    )
    assert gone.place == Place("record", "Look at record 12", "orders", 0, 12)
    assert not any("go on where they have committed last" in each.advice for each in found)
    # All of them: nothing waits.
    [gone] = findings("Stable", members, [], NOW, losses({behind.partition: 4}, {behind.partition: (20, 20)}))
    assert gone.text.startswith("orders-0: nothing is left to read") and gone.place is None


def test_a_member_that_moves_nowhere_is_told_once() -> None:
    """A member that stands in all its partitions has one finding, not one for each."""
    [found] = findings("Stable", 1, [stand(), stand(1), stand(2, since=NOW)], NOW)
    assert found.text == (
        "billing-1 at 10.0.0.7 is in the group, and has committed nothing in any of its 2 partitions with records for"
        " at least 42 s. 6 records wait."
    )
    assert "does not poll" in found.advice
    assert [place.kind for place in found.places] == ["client", "record", "broken"]
    asked = found.places[0]
    assert asked.client_id == "billing-1"
    # Members of one client id are told apart.
    assert len(findings("Stable", 2, [stand(), stand(1, member=("m-2", *MEMBER[1:]))], NOW)) == 2


def test_partitions_without_a_member() -> None:
    stands = [stand(number, member=None, since=NOW) for number in (1, 2, 4)]
    [found] = findings("Stable", 2, stands, NOW)
    assert found.text == "orders: no member reads partitions 1, 2 and 4, where 9 records wait."


def test_a_rebalance_that_does_not_end() -> None:
    first, *_ = findings("PreparingRebalance", 2, [stand()], NOW)
    assert first.severity == WARNING and "rebalancing (PreparingRebalance)" in first.text


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"])
def test_partitions_that_change_hands_are_not_called_unread(state: str) -> None:
    """A coordinator tells of no assignment meanwhile: the members may well have subscribed."""
    [found] = findings(state, 2, [stand(member=None), stand(1, member=None)], NOW)
    assert f"rebalancing ({state})" in found.text


def test_an_open_transaction_holds_up_readers() -> None:
    holder = Holder(7, 0, 17, LONG, "mover", NOW - 180_000)
    [found] = findings("Stable", 1, [stand(stable=17, holder=holder)], NOW)
    assert found.text == (
        "orders-0: an open transaction holds up readers of committed records at offset 17; 3 records wait behind it."
    )
    assert found.advice.startswith("The transaction of mover has been open for 3 min, and has to")
    assert found.place is not None
    assert (found.place.kind, found.place.transactional_id) == ("transaction", "mover")


def test_a_transaction_that_nobody_knows_or_that_may_not_be_seen() -> None:
    hanging, unseen = findings("Stable", 1, [stand(stable=17, holder=Holder(7, 0, 17, LONG)), stand(1, stable=17)], NOW)
    assert "you may not see it, or it hangs" in hanging.advice and "producer 7" in hanging.advice
    assert hanging.place is not None and hanging.place.kind == "held"
    assert "commits or aborts" in unseen.advice


def test_a_short_transaction_or_one_behind_the_group_is_no_reason() -> None:
    young = Holder(7, 0, 17, NOW, "mover", NOW - 1000)
    assert findings("Stable", 1, [stand(stable=17, holder=young, since=NOW)], NOW) == []
    # The group has not read what it could.
    [found] = findings("Stable", 1, [stand(stable=19)], NOW)
    assert found.place is not None and found.place.kind == "record" and "transaction" not in found.advice


def test_a_group_beyond_an_open_transaction_stands_for_another_reason() -> None:
    """It reads uncommitted records, as consumers do by default; or its offset was set there."""
    [found] = findings("Stable", 1, [stand(stable=12)], NOW)
    assert "has stood at offset 17" in found.text
    assert found.place is not None and found.place.kind == "record"
    assert found.advice.endswith(
        "Or it reads committed records only, and an open transaction at offset 12 holds it up."
    )


def test_findings_are_bounded() -> None:
    stands = [stand(number, member=(f"m-{number}", *MEMBER[1:])) for number in range(50)]
    assert len(findings("Stable", 50, stands, NOW)) == MAX_FINDINGS


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
