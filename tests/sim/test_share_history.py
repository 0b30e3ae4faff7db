"""The checkers of share groups in simulated clusters notice what must not be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kbroker.cores.share_coordinator.records import Snapshot, Update
from kbroker.cores.share_partitions.acknowledging import AcknowledgeType
from kbroker.cores.share_state import SharePartitionKey, StateBatch
from kbroker.sim.history import History
from kbroker.sim.share_groups import LoggedStates
from kbroker.sim.share_history import Hold, LateAcknowledgement, ShareHistory
from kbroker.sim.world import Violation
from kbroker.types import TopicPartition, Uuid

TP = TopicPartition("t", 0)
LEADER, NEXT_LEADER = object(), object()
ACCEPT, RELEASE, REJECT, RENEW = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
)


class Told:
    """A group of which two members were told something about one record."""

    def __init__(self) -> None:
        self.history = ShareHistory("g", "t", 1, History(), lock_seconds=4, limit=3)

    def give(
        self, member: str, count: int, *, at: float = 0.0, by: object | None = LEADER, value: bytes = b"v"
    ) -> Hold:
        hold = Hold(member, count, by, at + 4)
        self.history.given(TP, 0, value, hold, at + 0.1)
        return hold

    def say(
        self,
        hold: Hold,
        kind: AcknowledgeType,
        *,
        kept: bool = True,
        at: float = 1.0,
        late: str = "",
        by: object = LEADER,
    ) -> None:
        """``late``: the word comes when the record is "passed", or "there" still."""
        self.history.telling(TP, 0, hold, kind)
        if kept:
            told = LateAcknowledgement(by, at + 0.1, late == "passed") if late else None
            self.history.told(TP, 0, hold, kind, at, is_sure=not late, late=told)


def late(told: Told) -> None:
    """A word that comes after another member's, and is not refused."""
    first, second = told.give("a", 1), told.give("b", 2, at=4)
    told.say(second, ACCEPT, at=5)
    told.say(first, REJECT, at=6, late="passed")
    told.history.check_end(TP, 0, "ACKNOWLEDGED", 2)


@pytest.mark.parametrize(
    "right",
    [
        lambda told: [told.say(told.give("a", 1), RELEASE), told.say(told.give("b", 2, at=1), ACCEPT)],
        lambda told: [told.give("a", 1), told.give("b", 2, at=4.0)],  # the lock is over
        lambda told: [told.give("a", 1), told.give("b", 1, at=1, by=NEXT_LEADER)],  # a leader that does not know of it
        lambda told: [told.say(told.give("a", 1), ACCEPT, kept=False), told.give("b", 2, at=1)],
        lambda told: [told.say(told.give("a", 1), ACCEPT), told.give("b", 2, at=1, by=None)],  # no leader any more
        late,
        lambda told: [told.say(told.give("a", 1), ACCEPT, at=9, late="there")],  # the lock is over, and nobody cares
        lambda told: [told.say(told.give("a", 1), RELEASE, at=3.9, late="there"), told.give("b", 2, at=4.5)],
        lambda told: [  # the answer to the release comes after the next member's
            first := told.give("a", 1),
            told.give("b", 2, at=4.5),
            told.say(first, RELEASE, at=3.9, late="there"),
        ],
        lambda told: [  # the record is passed, and another may have been the one that has ended it
            told.say(told.give("a", 1), ACCEPT, kept=False),
            told.say(second := told.give("b", 2, at=4), ACCEPT, at=8, late="passed"),
            told.give("c", 3, at=9, by=NEXT_LEADER),
            second,
        ],
    ],
)
def test_what_may_be(right: Callable[[Told], Any]) -> None:
    right(Told())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda told: [told.give("a", 1), told.give("b", 2, at=3)], "which a holds until 4"),
        (lambda told: [told.say(told.give("a", 1), RENEW, at=2), told.give("b", 2, at=5)], "which a holds until 6"),
        (lambda told: [told.give("a", 2), told.give("b", 2, at=5)], "after 2 for a"),
        (lambda told: [told.give("a", 4)], "3 is the limit"),
        (
            lambda told: [told.say(told.give("a", 2), RELEASE), told.give("b", 2, at=1, by=NEXT_LEADER)],
            "after 2 was kept",
        ),
        (
            lambda told: [told.say(told.give("a", 1), ACCEPT), told.give("b", 2, by=NEXT_LEADER)],
            "after ACCEPT was kept",
        ),
        (
            lambda told: [told.say(told.give("a", 1), ACCEPT), told.say(told.give("b", 2, at=5, by=None), REJECT)],
            "REJECT of t-0 0 by b is kept, after ACCEPT was",
        ),
        (
            lambda told: [
                first := told.give("a", 1),
                told.give("b", 2, at=4),
                told.say(first, ACCEPT, at=5, late="passed"),
            ],
            "by a is not refused, while b holds it until 8",
        ),
        (  # the other has let go, but has had it
            lambda told: [
                first := told.give("a", 1),
                told.say(told.give("b", 2, at=4), RELEASE, kept=False),
                told.say(first, ACCEPT, at=5, late="there"),
            ],
            "by a is not refused, and b has had it since, with count 2",
        ),
        (
            lambda told: [
                first := told.give("a", 1),
                told.give("b", 2, at=4),
                told.say(first, RENEW, at=9, late="there"),
            ],
            "RENEW of t-0 0 by a is not refused, and b has had it since",
        ),
        (
            lambda told: [told.say(told.give("a", 1), RELEASE, at=9, late="there", by=NEXT_LEADER)],
            "by a leader that did not give it",
        ),
        (
            lambda told: [told.say(told.give("a", 1), ACCEPT, at=9, late="there"), told.give("b", 2, at=10)],
            "after ACCEPT was kept",
        ),
        (  # nobody else can have ended it
            lambda told: [
                told.say(told.give("a", 1), REJECT, at=9, late="passed"),
                told.give("b", 2, at=10, by=NEXT_LEADER),
            ],
            "after REJECT was kept",
        ),
        (
            lambda told: [
                told.say(told.give("a", 1), RELEASE, at=9, late="there"),
                told.give("b", 1, at=10, by=NEXT_LEADER),
            ],
            "after 1 was kept",
        ),
        (lambda told: [told.give("a", 1), told.give("b", 2, at=5, value=b"w")], "which was b'v'"),
        (
            lambda told: told.history.refused(TP, 0, told.give("a", 1), "INVALID_RECORD_STATE", had_it=True),
            "holds t-0 0 until",
        ),
        (lambda told: told.history.check_end(TP, 0, "ACKNOWLEDGED", 1), "is ACKNOWLEDGED after 1"),
        (lambda told: told.history.check_end(TP, 0, "ARCHIVED", 2), "is ARCHIVED after 2"),
        (lambda told: told.history.check_end(TP, 0, "AVAILABLE", 0), "is AVAILABLE"),
        (
            lambda told: [told.say(told.give("a", 3), ACCEPT), told.history.check_end(TP, 0, "AVAILABLE", 3)],
            "is AVAILABLE",
        ),
    ],
)
def test_what_must_not_be(wrong: Callable[[Told], Any], message: str) -> None:
    with pytest.raises(Violation, match=message):
        wrong(Told())


def snapshot(start: int, *batches: StateBatch, epoch: int = 1) -> Snapshot:
    return Snapshot(0, epoch, 0, start, 0, 0, 0, batches)


def states(*values: Snapshot | Update) -> LoggedStates:
    found = LoggedStates(SharePartitionKey("g", Uuid(bytes(16)), 0))
    for value in values:
        found.take(value)
    return found


def test_the_log_says_how_records_ended() -> None:
    found = states(
        snapshot(-1),
        Update(0, 0, 5, 0, (StateBatch(5, 6, 2, 1), StateBatch(7, 7, 0, 1))),
        Update(0, 0, 7, 0, (StateBatch(7, 7, 4, 3),)),
        Update(0, 0, -1, 0, (StateBatch(7, 7, 0, 2),)),  # a late one changes nothing
        snapshot(9),
    )
    assert (found.first, found.start, found.passed) == (5, 9, [8])
    assert [found.end(offset) for offset in (5, 7, 8)] == [(1, 2), (3, 4), (0, 0)]
    assert states(snapshot(9), snapshot(3, epoch=2)).start == 3, "the group began anew"
    with pytest.raises(Violation, match="goes back from 5 to 4"):
        states(snapshot(5), Update(0, 0, 4, 0))
