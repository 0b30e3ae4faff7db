"""The rules of a stuck group: why it does not advance, and since when it has not. Pure.

A partition is lagging if records wait there that the group has not had (`kbroker.tools.diagnosis.log_gaps` knows the
ends of logs that hold none). It is stuck if the committed offset has not moved for ``STUCK_MS`` meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kbroker.client.groups import REBALANCING
from kbroker.tools.diagnosis.facts import Holder
from kbroker.tools.diagnosis.findings import Finding, Link, Severity
from kbroker.types import TopicPartition

STUCK_MS: Final = 10_000
"""A partition is called stuck after so long: stock consumers commit every 5 s."""

MAX_FINDINGS: Final = 12

MOST_REMEMBERED: Final = 20_000
"""The most pairs of group and partition that are remembered."""


class Stall(NamedTuple):
    """The time that a group has been at an offset of a partition.

    ``since``: when it was first seen there with records behind, in ms; the time of the look if it is caught up.
    ``moved``: whether it was seen to advance to where it is, or to have caught up.
    """

    since: int
    moved: bool = False

    def is_stuck(self, now_ms: int, stuck_ms: int = STUCK_MS) -> bool:
        """Returns whether a lagging partition is stuck."""
        return now_ms - self.since >= stuck_ms

    def is_advancing(self, now_ms: int, stuck_ms: int = STUCK_MS) -> bool:
        """Returns whether a lagging partition was seen to advance lately."""
        return self.moved and not self.is_stuck(now_ms, stuck_ms)


class Member(NamedTuple):
    """A member of a group, as far as sentences name it."""

    id: str
    client_id: str
    host: str

    @property
    def where(self) -> str:
        """The client id, and the host if it is known."""
        return f"{self.client_id} at {self.host}" if self.host else self.client_id


@dataclass(frozen=True, slots=True)
class LaggingPartition:
    """A partition with records that a group has not had.

    ``committed`` is None before the first commit. ``stable``: the last stable offset where it is not the end.
    ``member``: the one that has the partition. ``holder``: the transaction that blocks readers at ``stable``.
    """

    partition: TopicPartition
    committed: int | None
    start: int
    end: int
    stall: Stall
    stable: int | None = None
    member: Member | None = None
    holder: Holder | None = None
    group_id: str = ""

    @property
    def next_offset(self) -> int:
        """The offset of the next record for the group."""
        return self.start if self.committed is None else max(self.committed, self.start)

    @property
    def waiting(self) -> int:
        """Offsets between the group and the end."""
        return self.end - self.next_offset

    @property
    def is_blocked(self) -> bool:
        """Whether the group has read all that readers of committed records may have.

        A group that is beyond reads the others, too: no transaction blocks it.
        """
        return self.stable is not None and self.next_offset == self.stable


class GroupState(NamedTuple):
    """A group: its id, its state, and the number of its members."""

    group_id: str
    state: str
    members: int


class Progress(NamedTuple):
    """The state of a group in a word, for lists, and since when in ms where that is known.

    ``kind``: ``caught-up``; ``lagging`` (it advances), ``unknown`` (it was not looked at for long enough to tell),
    ``no-member`` (records wait, and nobody is there); ``never-committed``, ``stuck-in-part``, ``stuck``.
    """

    kind: str
    since: int | None = None

    @property
    def needs_attention(self) -> bool:
        """Whether somebody should look at the group: it has members, and records wait that they do not get."""
        return self.kind in _NEEDS_ATTENTION


_NEEDS_ATTENTION: Final = frozenset({"never-committed", "stuck-in-part", "stuck"})


def progress(
    group: GroupState,
    lagging: Sequence[LaggingPartition],
    reasons: Sequence[Finding],
    now_ms: int,
    *,
    stuck_ms: int = STUCK_MS,
) -> Progress:
    """Returns the state of a group, by the reasons why it does not have all records."""
    if not group.members:
        return Progress("no-member" if any(each.committed is not None for each in lagging) else "caught-up")
    since = min((each.stall.since for each in lagging if each.stall.is_stuck(now_ms, stuck_ms)), default=None)
    starts = [
        each.holder.owner.start_timestamp
        for each in lagging
        if each.is_blocked and each.holder is not None and each.holder.owner is not None
    ]
    since = min((each for each in (since, *starts) if each is not None), default=None)
    kinds = {reason.kind for reason in reasons}
    if any(reason.severity == Severity.ERROR for reason in reasons):
        return Progress("stuck", since)
    if "consumer-stuck" in kinds:
        return Progress("stuck-in-part", since)
    if "never-committed" in kinds:
        return Progress("never-committed", since)
    if not lagging:
        return Progress("caught-up")
    return Progress("lagging" if all(each.stall.is_advancing(now_ms, stuck_ms) for each in lagging) else "unknown")


def findings(
    group: GroupState,
    lagging: Sequence[LaggingPartition],
    now_ms: int,
    losses: Sequence[Finding] = (),
    *,
    stuck_ms: int = STUCK_MS,
) -> list[Finding]:
    """Returns the reasons why a group does not have all records, the most certain first.

    ``losses``: the records that it will never have. Texts name partitions, not the group: that is in ``about``.
    """
    rules = _Rules(f"group {group.group_id}", now_ms, stuck_ms)
    if not lagging:
        found = list(losses)
    elif not group.members:
        found = rules.nobody(lagging, losses)
    else:
        found = [*losses, *rules.members(group.state, lagging)]
    return found[:MAX_FINDINGS]


@dataclass(frozen=True, slots=True)
class _Rules:
    """The rules for lagging partitions of one group."""

    about: str
    now_ms: int
    stuck_ms: int

    def _finding(self, severity: Severity, kind: str, text: str, advice: str, *links: Link) -> Finding:
        evidence = "OffsetFetch and ListOffsets, compared with what they told before."
        return Finding(severity, self.about, text, evidence, advice, kind, links)

    def _is_stuck(self, each: LaggingPartition) -> bool:
        return each.stall.is_stuck(self.now_ms, self.stuck_ms)

    def nobody(self, lagging: Sequence[LaggingPartition], losses: Sequence[Finding]) -> list[Finding]:
        """Returns the findings of a group without members: what waits, what is lost, where it never committed."""
        found = list(losses)
        behind = [each for each in lagging if each.committed is not None]
        if behind:
            resume = "" if losses else " They continue where they have committed last."
            most = max(behind, key=lambda each: each.waiting)
            topic = most.partition.topic
            of_topic = [each for each in lagging if each.partition.topic == topic]
            # A consumer that has ended at a record may have read it in any partition, also before it committed there.
            first = min(each.next_offset for each in of_topic)
            partition = most.partition.partition if len(of_topic) == 1 else -1
            nobody = self._finding(
                Severity.ERROR,
                "no-member",
                f"Nobody is in the group, and {_records(behind)} for it.",
                "Its consumers are not running, have another group.id, or choose their partitions themselves and are no"
                f" members.{resume} If they have ended at a record that they cannot read, look for it.",
                Link("record", f"Look at the next record of {most.partition}", *most.partition, most.next_offset),
                Link("broken", f"Find values in {topic} that are not JSON", topic, partition, first),
            )
            found.insert(0, nobody)
        for topic, those in _by_topic(each for each in lagging if each.committed is None):
            count = sum(each.waiting for each in those)
            there = "1 record is" if count == 1 else f"{count:,} records are"
            never = self._finding(
                Severity.WARNING,
                "never-committed",
                f"{topic}: the group has committed nothing in {_partitions(those)}, where {there}.",
                "They count as no lag. A consumer begins there where its auto.offset.reset says: at the end by default,"
                " which leaves them out.",
                Link("record", f"Look at {those[0].partition}", *those[0].partition, those[0].next_offset),
            )
            found.append(never)
        return found

    def members(self, state: str, lagging: Sequence[LaggingPartition]) -> list[Finding]:
        """Returns the findings of a group with members: a rebalance, transactions, partitions and members."""
        found: list[Finding] = []
        if state in REBALANCING:
            rebalancing = self._finding(
                Severity.WARNING,
                "rebalancing",
                f"The group is rebalancing ({state}): until it has finished, nobody reads partitions that change hands,"
                " nor any others if its assignor is an eager one.",
                "It waits for its members. One that is busy with its records and does not poll holds up the others, for"
                " up to its max.poll.interval.ms.",
            )
            found.append(rebalancing)
        found += [self._blocked(each) for each in lagging if each.is_blocked and self._is_blocked_long(each)]
        unblocked = [each for each in lagging if not each.is_blocked]
        if state not in REBALANCING:  # or it is not known who has them
            found += self._unread([each for each in unblocked if each.member is None])
        slow = {each.member for each in lagging if each.stall.is_advancing(self.now_ms, self.stuck_ms)}
        by_member: dict[Member, list[LaggingPartition]] = {}
        for each in unblocked:
            if each.member is not None and self._is_stuck(each):
                by_member.setdefault(each.member, []).append(each)
        for member, those in by_member.items():
            if len(those) > 1 and member not in slow and any(each.committed is not None for each in those):
                found.append(self._stuck_everywhere(member, those))
            else:
                found += [self._stuck(each, member, is_slow=member in slow) for each in those]
        return found

    def _is_blocked_long(self, each: LaggingPartition) -> bool:
        """Short transactions are nothing to tell of."""
        owner = None if each.holder is None else each.holder.owner
        since = None if owner is None else owner.start_timestamp
        return self._is_stuck(each) or (since is not None and Stall(since).is_stuck(self.now_ms, self.stuck_ms))

    def _blocked(self, each: LaggingPartition) -> Finding:
        topic, partition = each.partition
        stable = each.stable if each.stable is not None else each.end
        link = Link("blocked", "See what blocks it", topic)
        if each.holder is None:
            advice = "They become visible when the transaction commits or aborts."
        elif each.holder.owner is None:
            advice = (
                f"No coordinator tells of a transaction of producer {each.holder.opened.producer.producer_id}: you may"
                " not see it, or it hangs, and ends only if somebody aborts it."
            )
        else:
            name, since = each.holder.owner.transactional_id, each.holder.owner.start_timestamp
            age = "" if since is None else f" has been open for {duration(self.now_ms - since)}, and"
            advice = f"The transaction of {name}{age} has to commit or abort: look at that producer."
            link = Link("transaction", "See the transaction", topic, partition, transactional_id=name)
        waiting = _waiting(each.end - stable)
        return self._finding(
            Severity.ERROR,
            "open-transaction",
            f"{each.partition}: an open transaction blocks readers of committed records at offset {stable:,};"
            f" {waiting} behind it.",
            advice,
            link,
        )

    def _unread(self, lagging: Sequence[LaggingPartition]) -> list[Finding]:
        return [
            self._finding(
                Severity.ERROR,
                "no-reader",
                f"{topic}: no member reads {_partitions(those)}, where {_records(those)}.",
                "The members have not subscribed to the topic, do not know of new partitions yet, or have chosen their"
                " partitions themselves.",
            )
            for topic, those in _by_topic(lagging)
        ]

    def _stuck(self, each: LaggingPartition, member: Member, *, is_slow: bool) -> Finding:
        topic, partition = each.partition
        stuck_for = duration(self.now_ms - each.stall.since)
        links = (
            Link("record", f"Look at record {each.next_offset:,}", topic, partition, each.next_offset),
            Link("broken", "Find values that are not JSON", topic, partition, each.next_offset),
            Link("client", f"See what {member.client_id} asks for", client_id=member.client_id),
        )
        if each.committed is None:
            there = "1 record is" if each.waiting == 1 else f"{each.waiting:,} records are"
            return self._finding(
                Severity.WARNING,
                "never-committed",
                f"{each.partition}: {member.where} has it, and has committed nothing for at least {stuck_for}."
                f" {there} there.",
                "With auto.offset.reset=latest, the default, it waits for new records. Otherwise it fails at the first"
                " one, is busy with it, or reads without committing.",
                *links,
            )
        advice = (
            "A consumer that fails at a record comes back to it again and again: look at that record, at those after"
            " it, and at the consumer's own log. Or it is busy and does not poll, commits more seldom than that, or not"
            " at all."
        )
        if is_slow:
            advice = (
                "It advances in other partitions: it may be slow, and come to this one later. If not, look at the"
                " record."
            )
        if each.stable is not None and each.next_offset > each.stable:
            advice += (
                f" Or it reads committed records only, and an open transaction at offset {each.stable:,} blocks it."
            )
        return self._finding(
            Severity.WARNING if is_slow else Severity.ERROR,
            "consumer-stuck",
            f"{each.partition}: {member.where} is stuck at offset {each.committed:,}, for at least {stuck_for}."
            f" {_records([each])}.",
            advice,
            *links,
        )

    def _stuck_everywhere(self, member: Member, lagging: Sequence[LaggingPartition]) -> Finding:
        """Returns the finding of a member that is stuck in several partitions and advances nowhere."""
        stuck_for = duration(self.now_ms - max(each.stall.since for each in lagging))
        first = min(lagging, key=lambda each: each.partition)
        topic, partition = first.partition
        begin = min(each.next_offset for each in lagging if each.partition.topic == topic)
        return self._finding(
            Severity.ERROR,
            "consumer-stuck",
            f"{member.where} is stuck: it is in the group, and has committed nothing in any of its {len(lagging)}"
            f" partitions with records for at least {stuck_for}. {_records(lagging)}.",
            "It sends heartbeats, or has ended so lately that its session is not over. It is busy and does not poll, it"
            " hangs, does not commit, or fails at a record and comes back to it: look at its own log, and at the"
            " records.",
            Link("client", f"See what {member.client_id} asks for", client_id=member.client_id),
            Link("record", f"Look at record {first.next_offset:,}", topic, partition, first.next_offset),
            Link("broken", f"Find values in {topic} that are not JSON", topic, -1, begin),
        )


def _by_topic(lagging: Iterable[LaggingPartition]) -> Iterable[tuple[str, list[LaggingPartition]]]:
    found: dict[str, list[LaggingPartition]] = {}
    for each in lagging:
        found.setdefault(each.partition.topic, []).append(each)
    return found.items()


def _partitions(lagging: Sequence[LaggingPartition]) -> str:
    numbers = [str(each.partition.partition) for each in lagging]
    if len(numbers) == 1:
        return f"partition {numbers[0]}"
    if len(numbers) > 8:
        return f"{len(numbers)} partitions"
    return f"partitions {', '.join(numbers[:-1])} and {numbers[-1]}"


def _records(lagging: Iterable[LaggingPartition]) -> str:
    return _waiting(sum(each.waiting for each in lagging))


def _waiting(count: int) -> str:
    return f"{count:,} record waits" if count == 1 else f"{count:,} records wait"


def duration(ms: int) -> str:
    """Returns a length of time in words: 45 s, 3 min, 2 h."""
    seconds = max(round(ms / 1000), 0)
    if seconds < 90:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


class OffsetHistory:
    """Remembers since when groups have been at an offset with records behind it: Kafka does not tell.

    Several threads may look at the same time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, TopicPartition], tuple[int | None, bool, Stall]] = {}

    def look(self, group: str, partition: TopicPartition, committed: int | None, *, behind: bool, now_ms: int) -> Stall:
        """Returns the state of a group with this look. Groups that nobody has asked about for longest are forgotten."""
        key = (group, partition)
        with self._lock:
            stall = _next_stall(self._seen.pop(key, None), committed, behind=behind, now_ms=now_ms)
            self._seen[key] = (committed, behind, stall)
            if len(self._seen) > MOST_REMEMBERED:
                del self._seen[next(iter(self._seen))]
        return stall


def _next_stall(
    known: tuple[int | None, bool, Stall] | None, committed: int | None, *, behind: bool, now_ms: int
) -> Stall:
    if not behind:
        return Stall(now_ms, moved=True)
    if known is None:
        return Stall(now_ms)
    before, was_behind, stall = known
    return stall if before == committed and was_behind else Stall(now_ms, moved=True)
