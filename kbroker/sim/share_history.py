"""The answers to members of a share group in a simulated cluster, checked against each other as they arrive (KIP-932).

A lock belongs to the share partition in one leader's memory, the *source* of a delivery: locks, and deliveries that
were never kept, end with it, as with Apache Kafka. What was kept holds for every leader.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from kbroker.cores.share_partitions.acknowledging import AcknowledgeType
from kbroker.sim.history import History
from kbroker.sim.world import Violation
from kbroker.types import TopicPartition

_ENDS: Final = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)


@dataclass(slots=True)
class Hold:
    """One delivery of a record to a member."""

    member: str
    count: int
    """The delivery count that came with it."""
    source: object | None
    """The share partition in memory of the leader that gave it; None if that is not the real one."""
    until: float
    """The lock lasts at least so long."""
    is_over: bool = False
    """Whether the member has let go, or may have: its word or its session is on the way."""
    heard_at: float = 0.0
    """When the member heard of it."""


@dataclass(frozen=True, slots=True)
class LateAcknowledgement:
    """A word whose answer came when the member may not have had the record any more."""

    by: object
    """The share partition in memory that answered it."""
    now: float
    is_passed: bool
    """Whether the start offset has passed the record by now: a word about that is not refused, and tells nothing."""


@dataclass(slots=True)
class Fate:
    """The knowledge that members have of one record."""

    value: bytes | None = None
    ended: AcknowledgeType | None = None
    """The word, ACCEPT or REJECT, that a member was told is kept."""
    tried: set[AcknowledgeType] = field(default_factory=set)
    """The words that members have sent, whatever became of them."""
    kept_count: int = 0
    """The highest delivery count that is known to be kept: its record was released, and the leader said so."""
    holder: Hold | None = None
    """The last delivery."""
    most: int = 0
    """The highest delivery count that was seen."""
    endings: int = 0
    """The number of words, ACCEPT and REJECT, that members have sent, whatever became of them."""


class ShareHistory:
    """The common knowledge of all members of one share group."""

    def __init__(
        self, group: str, topic: str, partitions: int, records: History, *, lock_seconds: float, limit: int
    ) -> None:
        """``limit`` is ``share.delivery.count.limit``."""
        self.group = group
        self.topic = topic
        self.partitions = partitions
        self.lock_seconds = lock_seconds
        self.limit = limit
        self.outcomes: Counter[str] = Counter()
        """Deliveries and words that were kept, by name; words that were refused, by error."""
        self.draining = False
        """Whether members accept whatever they get."""
        self.stopped = False
        self.open_fetches = 0
        """ShareFetch requests without an answer, lost ones too: each may have delivered any record once."""
        self._records = records
        self._fates: dict[TopicPartition, dict[int, Fate]] = {}

    def fate(self, tp: TopicPartition, offset: int) -> Fate:
        """The knowledge of a record."""
        return self._fates.setdefault(tp, {}).setdefault(offset, Fate())

    def given(self, tp: TopicPartition, offset: int, value: bytes, hold: Hold, now: float) -> None:
        """Note a delivery. `Violation` if the record was another's, was ended, or its count went back."""
        fate = self.fate(tp, offset)
        what = f"{self.group}: {tp} {offset} is given to {hold.member} with count {hold.count}"
        self.outcomes["GIVEN"] += 1
        known = self._records.of(tp).values.get(offset, fate.value)
        if known is not None and known != value:
            raise Violation(f"{what} and value {value!r}, which was {known!r}")
        fate.value = value
        if not 1 <= hold.count <= self.limit:
            raise Violation(f"{what}, where {self.limit} is the limit")
        fate.most = max(fate.most, hold.count)
        hold.heard_at = now
        if now >= hold.until:
            hold.source = None  # it took so long to hear of it that the lock may be over, and the record another's
        before = fate.holder
        if hold.source is not None:
            if fate.ended is not None:
                raise Violation(f"{what}, after {fate.ended.name} was kept")
            if hold.count <= fate.kept_count:
                raise Violation(f"{what}, after {fate.kept_count} was kept")
            if before is not None and before.source is hold.source:
                if not before.is_over and now < before.until:
                    raise Violation(f"{what}, which {before.member} holds until {before.until:.3f}")
                if hold.count <= before.count:
                    raise Violation(f"{what}, after {before.count} for {before.member}")
            fate.holder = hold

    def telling(self, tp: TopicPartition, offset: int, hold: Hold, kind: AcknowledgeType) -> None:
        """Note a word that a member is about to send. It may arrive whatever the member hears."""
        if kind is not AcknowledgeType.RENEW:
            hold.is_over = True
        fate = self.fate(tp, offset)
        fate.tried.add(kind)
        fate.endings += kind in _ENDS

    def told(
        self,
        tp: TopicPartition,
        offset: int,
        hold: Hold,
        kind: AcknowledgeType,
        sent: float,
        *,
        is_sure: bool,
        late: LateAcknowledgement | None = None,
    ) -> None:
        """Note a word that is not refused. `Violation` if two end the record, or the member cannot have had it.

        The word is kept if the member certainly had the record all the while. If not, and it is known who has answered,
        it is ``late``: Kafka's leader takes it if the member has the record still, though its lock may be over, and
        passes it over if the start offset has passed the record.
        """
        fate = self.fate(tp, offset)
        self.outcomes[kind.name if is_sure else f"LATE_{kind.name}"] += 1
        if not is_sure and (late is None or not self._is_taken(tp, offset, hold, kind, sent, late)):
            return
        if kind is AcknowledgeType.RENEW:
            hold.until = max(hold.until, sent + self.lock_seconds)
        elif kind is AcknowledgeType.RELEASE:
            fate.kept_count = max(fate.kept_count, hold.count)
        elif fate.ended is not None:
            raise Violation(
                f"{self.group}: {kind.name} of {tp} {offset} by {hold.member} is kept, after {fate.ended.name} was"
            )
        else:
            fate.ended = kind

    def _is_taken(
        self, tp: TopicPartition, offset: int, hold: Hold, kind: AcknowledgeType, sent: float, late: LateAcknowledgement
    ) -> bool:
        """Whether a late word is certainly kept. `Violation` if it cannot be, and was not passed over."""
        fate = self.fate(tp, offset)
        what = f"{self.group}: {kind.name} of {tp} {offset} by {hold.member} is not refused"
        other, is_end = fate.holder, kind in _ENDS
        if other is None or other is hold or other.source is not late.by or other.count <= hold.count:
            other = None
        elif is_end and not other.is_over and late.now < other.until:
            raise Violation(f"{what}, while {other.member} holds it until {other.until:.3f}")
        if late.is_passed:
            others = fate.endings - is_end
            return is_end and hold.source is late.by and not others and fate.most + self.open_fetches < self.limit
        if hold.source is not None and hold.source is not late.by:
            raise Violation(f"{what} by a leader that did not give it")
        # What it ends, nobody gets after it; and what another one has had before it was sent, it cannot have had.
        if other is not None and (is_end or other.heard_at <= sent):
            raise Violation(f"{what}, and {other.member} has had it since, with count {other.count}")
        return True

    def refused(self, tp: TopicPartition, offset: int, hold: Hold, name: str, *, had_it: bool) -> None:
        """Note a word that is refused. `Violation` if the member certainly held the record all the while."""
        self.outcomes[name] += 1
        if had_it:
            raise Violation(f"{self.group}: {hold.member} holds {tp} {offset} until {hold.until:.3f} and hears {name}")

    def check_end(self, tp: TopicPartition, offset: int, state: str, count: int) -> None:
        """Check a record's last state, as the log has it, against what members were told. `Violation`.

        ``state`` is the name of a `DeliveryState`.
        """
        fate = self.fate(tp, offset)
        what = f"{self.group}: {tp} {offset} is {state} after {count} deliveries"
        # Of two words by one member, the first of which nobody heard to be kept, either may hold.
        if state == "ACKNOWLEDGED":
            right = AcknowledgeType.ACCEPT in fate.tried
        elif state == "ARCHIVED":
            right = AcknowledgeType.REJECT in fate.tried or count >= self.limit
        else:  # a lock that ends at the limit archives its record at once, kept or not
            right = fate.ended is None and fate.most >= self.limit
        if not right:
            raise Violation(f"{what}; kept was {fate.ended}, tried {sorted(each.name for each in fate.tried)}")

    def describe(self) -> str:
        """The amounts of all, in a line."""
        return f"{self.group}: {dict(sorted(self.outcomes.items()))}"
