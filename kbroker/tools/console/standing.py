"""The reasons why a group does not advance, in words, and for how long its committed offsets have stood. Pure."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kbroker.client.groups import REBALANCING
from kbroker.client.lost_records import Loss
from kbroker.client.troubles import ERROR, WARNING
from kbroker.tools.console.holding import Holder
from kbroker.types import TopicPartition

STANDS_MS: Final = 10_000
"""A group is said to stand after so long: stock consumers commit every 5 s."""

MAX_FINDINGS: Final = 12

MOST_REMEMBERED: Final = 20_000
"""Groups at partitions, the ones that were looked at last."""


@dataclass(frozen=True, slots=True)
class Stand:
    """A partition with records that a group has not had.

    ``committed`` is None before the first commit. ``stable``: the last stable offset where it is not the end.
    ``member``: id, client id and host of the member that has the partition, None without one. ``since`` and ``moved``
    are those of ``Stood``. ``holder``: the transaction that holds up readers at ``stable``.
    """

    partition: TopicPartition
    committed: int | None
    start: int
    end: int
    since: int
    moved: bool = False
    stable: int | None = None
    member: tuple[str, str, str] | None = None
    holder: Holder | None = None

    @property
    def next_offset(self) -> int:
        """The offset of the next record for the group."""
        return self.start if self.committed is None else max(self.committed, self.start)

    @property
    def waiting(self) -> int:
        """Offsets between the group and the end."""
        return self.end - self.next_offset

    @property
    def is_held(self) -> bool:
        """Whether the group has read all that readers of committed records may have.

        A group that is beyond reads the others, too: no transaction holds it up.
        """
        return self.stable is not None and self.next_offset == self.stable


class Place(NamedTuple):
    """A place in the page that shows more, with the words of its link."""

    kind: str
    """``record``, ``broken`` (values that are not JSON, from an offset on), ``client`` (its requests), ``transaction``
    or ``held``."""

    text: str
    topic: str = ""
    partition: int = -1
    offset: int = -1
    transactional_id: str = ""
    client_id: str = ""


class Finding(NamedTuple):
    """A reason, what helps, and where to look."""

    severity: str
    text: str
    advice: str
    places: tuple[Place, ...] = ()

    @property
    def place(self) -> Place | None:
        """The first place to look at."""
        return self.places[0] if self.places else None


def findings(
    state: str, members: int, stands: Sequence[Stand], now_ms: int, losses: Sequence[Loss] = ()
) -> list[Finding]:
    """The reasons why a group with so many members does not have all records, the most certain first.

    ``losses``: the records that it will never have.
    """
    found = [_lost(each) for each in losses]
    if not stands:
        return found[:MAX_FINDINGS]
    if not members:
        return _nobody(stands, found)
    if state in REBALANCING:
        found.append(
            Finding(
                WARNING,
                f"The group is rebalancing ({state}): until it has finished, nobody reads partitions that change hands,"
                " nor any others if its assignor is an eager one.",
                "It waits for its members. One that is busy with its records and does not poll holds up the others, for"
                " up to its max.poll.interval.ms.",
            )
        )
    found += [_held(each, now_ms) for each in stands if each.is_held and _is_long(each, now_ms)]
    if state not in REBALANCING:  # or it is not known who has them
        found += _without_member([each for each in stands if each.member is None and not each.is_held])
    slow = {each.member for each in stands if each.moved and now_ms - each.since < STANDS_MS}
    by_member: dict[tuple[str, str, str], list[Stand]] = {}
    for each in stands:
        if each.member is not None and not each.is_held and now_ms - each.since >= STANDS_MS:
            by_member.setdefault(each.member, []).append(each)
    for member, those in by_member.items():
        if len(those) > 1 and member not in slow and any(each.committed is not None for each in those):
            found.append(_stands_everywhere(member, those, now_ms))
        else:
            found += [_stands(each, now_ms, goes_on=member in slow) for each in those]
    return found[:MAX_FINDINGS]


def _nobody(stands: Sequence[Stand], lost: Sequence[Finding]) -> list[Finding]:
    """The findings of a group without members: what waits, what is lost, and where it has never committed."""
    behind = [each for each in stands if each.committed is not None]
    never = [each for each in stands if each.committed is None]
    found = [*lost]
    if behind:
        goes_on = "" if found else " They go on where they have committed last."
        most = max(behind, key=lambda each: each.waiting)
        topic = most.partition.topic
        of_topic = [each for each in stands if each.partition.topic == topic]
        # A consumer that has ended at a record may have read it in any partition, also before its first commit there.
        first = min(each.next_offset for each in of_topic)
        partition = most.partition.partition if len(of_topic) == 1 else -1
        found.insert(
            0,
            Finding(
                ERROR,
                f"Nobody is in the group, and {_records(sum(each.waiting for each in behind))} for it.",
                "Its consumers are not running, have another group.id, or choose their partitions themselves and are no"
                f" members.{goes_on} If they have ended at a record that they cannot read, look for it.",
                (
                    Place("record", f"Look at the next record of {most.partition}", *most.partition, most.next_offset),
                    Place("broken", f"Find values in {topic} that are not JSON", topic, partition, first),
                ),
            ),
        )
    by_topic: dict[str, list[Stand]] = {}
    for each in never:
        by_topic.setdefault(each.partition.topic, []).append(each)
    for topic, those in by_topic.items():
        count = sum(each.waiting for each in those)
        there = "1 record is" if count == 1 else f"{count:,} records are"
        found.append(
            Finding(
                WARNING,
                f"{topic}: the group has committed nothing in {_partitions(those)}, where {there}.",
                "They count as no lag. A consumer begins there where its auto.offset.reset says: at the end by default,"
                " which leaves them out.",
                (Place("record", f"Look at {those[0].partition}", *those[0].partition, those[0].next_offset),),
            )
        )
    return found[:MAX_FINDINGS]


def _lost(loss: Loss) -> Finding:
    places: tuple[Place, ...] = ()
    if loss.partition is not None:
        places = (Place("record", f"Look at record {loss.offset:,}", *loss.partition, loss.offset),)
    return Finding(loss.severity, loss.text, loss.advice, places)


def _is_long(stand: Stand, now_ms: int) -> bool:
    """Whether a transaction has been open for long: short ones are nothing to tell of."""
    since = stand.since if stand.holder is None or stand.holder.since is None else stand.holder.since
    return now_ms - min(since, stand.since) >= STANDS_MS


def _held(stand: Stand, now_ms: int) -> Finding:
    topic, partition = stand.partition
    stable = stand.stable if stand.stable is not None else stand.end
    text = (
        f"{stand.partition}: an open transaction holds up readers of committed records at offset {stable:,};"
        f" {_records(stand.end - stable)} behind it."
    )
    holder = stand.holder
    if holder is None:
        place = Place("held", "See what holds it up", topic)
        return Finding(ERROR, text, "They become visible when the transaction commits or aborts.", (place,))
    if holder.transactional_id is None:
        return Finding(
            ERROR,
            text,
            f"No coordinator tells of a transaction of producer {holder.producer_id}: you may not see it, or it hangs,"
            " and ends only if somebody aborts it.",
            (Place("held", "See what holds it up", topic),),
        )
    age = "" if holder.since is None else f" has been open for {_duration(now_ms - holder.since)}, and"
    return Finding(
        ERROR,
        text,
        f"The transaction of {holder.transactional_id}{age} has to commit or abort: look at that producer.",
        (Place("transaction", "See the transaction", topic, partition, transactional_id=holder.transactional_id),),
    )


def _without_member(stands: Sequence[Stand]) -> list[Finding]:
    """The findings of partitions that no member has, one for each topic."""
    by_topic: dict[str, list[Stand]] = {}
    for stand in stands:
        by_topic.setdefault(stand.partition.topic, []).append(stand)
    return [
        Finding(
            ERROR,
            f"{topic}: no member reads {_partitions(those)}, where {_records(sum(each.waiting for each in those))}.",
            "The members have not subscribed to the topic, do not know of new partitions yet, or have chosen their"
            " partitions themselves.",
        )
        for topic, those in by_topic.items()
    ]


def _partitions(stands: Sequence[Stand]) -> str:
    numbers = [str(each.partition.partition) for each in stands]
    if len(numbers) == 1:
        return f"partition {numbers[0]}"
    if len(numbers) > 8:
        return f"{len(numbers)} partitions"
    return f"partitions {', '.join(numbers[:-1])} and {numbers[-1]}"


def _stands(stand: Stand, now_ms: int, *, goes_on: bool) -> Finding:
    topic, partition = stand.partition
    _, client, host = stand.member or ("", "", "")
    where = f"{client} at {host}" if host else client
    stood = _duration(now_ms - stand.since)
    places = (
        Place("record", f"Look at record {stand.next_offset:,}", topic, partition, stand.next_offset),
        Place("broken", "Find values that are not JSON", topic, partition, stand.next_offset),
        Place("client", f"See what {client} asks for", client_id=client),
    )
    if stand.committed is None:
        there = "1 record is" if stand.waiting == 1 else f"{stand.waiting:,} records are"
        return Finding(
            WARNING,
            f"{stand.partition}: {where} has it, and has committed nothing for at least {stood}. {there} there.",
            "With auto.offset.reset=latest, the default, it waits for new records. Otherwise it fails at the first one,"
            " is busy with it, or reads without committing.",
            places,
        )
    advice = (
        "A consumer that fails at a record comes back to it again and again: look at that record, at those after it,"
        " and at the consumer's own log. Or it is busy and does not poll, commits more seldom than that, or not at all."
    )
    if goes_on:
        advice = (
            "It goes on in other partitions: it may be slow, and come to this one later. If not, look at the record."
        )
    if stand.stable is not None and stand.next_offset > stand.stable:
        advice += (
            f" Or it reads committed records only, and an open transaction at offset {stand.stable:,} holds it up."
        )
    return Finding(
        WARNING if goes_on else ERROR,
        f"{stand.partition}: {where} has stood at offset {stand.committed:,} for at least {stood}."
        f" {_records(stand.waiting)}.",
        advice,
        places,
    )


def _stands_everywhere(member: tuple[str, str, str], stands: Sequence[Stand], now_ms: int) -> Finding:
    """The finding of a member that has moved nowhere for long, in several partitions."""
    _, client, host = member
    where = f"{client} at {host}" if host else client
    stood = _duration(now_ms - max(each.since for each in stands))
    first = min(stands, key=lambda each: each.partition)
    topic, partition = first.partition
    begin = min(each.next_offset for each in stands if each.partition.topic == topic)
    return Finding(
        ERROR,
        f"{where} is in the group, and has committed nothing in any of its {len(stands)} partitions with records for at"
        f" least {stood}. {_records(sum(each.waiting for each in stands))}.",
        "It sends heartbeats, or has ended so lately that its session is not over. It is busy and does not poll, it"
        " hangs, does not commit, or fails at a record and comes back to it: look at its own log, and at the records.",
        (
            Place("client", f"See what {client} asks for", client_id=client),
            Place("record", f"Look at record {first.next_offset:,}", topic, partition, first.next_offset),
            Place("broken", f"Find values in {topic} that are not JSON", topic, -1, begin),
        ),
    )


def _records(count: int) -> str:
    return f"{count:,} record waits" if count == 1 else f"{count:,} records wait"


def _duration(ms: int) -> str:
    """A length of time as the page says it: 45 s, 3 min, 2 h."""
    seconds = max(round(ms / 1000), 0)
    if seconds < 90:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


class Stood(NamedTuple):
    """A group at a partition. ``since``: when it was first seen there with records behind, in ms; the time of the look
    if it has them all. ``moved``: whether it was seen to advance to where it is, or to have all records."""

    since: int
    moved: bool


class OffsetHistory:
    """Remembers since when groups have stood, each at an offset with records behind it: Kafka does not tell.

    Several threads may look at the same time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, TopicPartition], tuple[int | None, bool, Stood]] = {}

    def look(self, group: str, partition: TopicPartition, committed: int | None, *, behind: bool, now_ms: int) -> Stood:
        """The state of a group with this look. Groups that nobody has asked about for longest are forgotten."""
        key = (group, partition)
        with self._lock:
            stood = _next_stood(self._seen.pop(key, None), committed, behind=behind, now_ms=now_ms)
            self._seen[key] = (committed, behind, stood)
            if len(self._seen) > MOST_REMEMBERED:
                del self._seen[next(iter(self._seen))]
        return stood


def _next_stood(
    known: tuple[int | None, bool, Stood] | None, committed: int | None, *, behind: bool, now_ms: int
) -> Stood:
    if not behind:
        return Stood(now_ms, True)
    if known is None:
        return Stood(now_ms, False)
    before, was_behind, stood = known
    return stood if before == committed and was_behind else Stood(now_ms, True)
