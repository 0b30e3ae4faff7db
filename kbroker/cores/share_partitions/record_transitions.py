"""The state machine of a record in a share group: who may have the record next, and why (KIP-932, KIP-1191).

`TRANSITIONS` is the whole machine; `SharePartition` asks the table for every change of a state. Offsets that nobody has
been given yet are in no state at all, and count as AVAILABLE.

States (Kafka's ``RecordState``, to which a lock and its holder belong):

    AVAILABLE     may be handed out: new, released, or its lock has ended
    ACQUIRED      one member holds the record, and its lock is running
    ACKNOWLEDGED  done with: a member has accepted the record
    ARCHIVING     given up, and on its way to the dead-letter queue
    ARCHIVED      done with: given up, or no record that a member may see

Rule 1. A record has one holder. Only AVAILABLE records are handed out, and only the holder's word counts; another
    member's word is INVALID_RECORD_STATE, and then the whole request changes nothing.
    (KIP-932, in-flight records; ``SharePartition.acquire``, ``acknowledge``.)

Rule 2. To be ACQUIRED is to be locked. Each way into the state starts the lock of share.record.lock.duration.ms, RENEW
    among them (KIP-1222); each way out ends the lock. Only the way from AVAILABLE is a delivery and is counted. A
    record that was acquired and never sent (NOT_SENT) has its delivery taken back.

Rule 3. When a lock ends (LOCK_TIMEOUT), the record is AVAILABLE for any member again, or given up by rule 4. That holds
    at once, and a write that fails takes nothing back. What the late holder then says is refused by rule 1.
    (``releaseAcquisitionLockOnTimeout``. The clock is `node/share/partition_manager.py`, which calls `expire_locks`.)

Rule 4. A record is delivered at most share.delivery.count.limit times. RELEASE and LOCK_TIMEOUT give up a record
    that has been delivered as often as that. (KIP-932; ``InFlightState.tryUpdateState``.)

Rule 5. A record that is given up is ARCHIVING first if the group has a dead-letter queue, and ARCHIVED otherwise. It is
    sent to the queue only once ARCHIVING is written, so that the next leader goes on with it; then it is ARCHIVED, in
    the queue or not. A GAP has no letter: there is no record.
    (KIP-1191; ``recordStateWithDlq``, ``initiateDLQAndArchive``, ``maybeResumeDlqArchiving``.)

Rule 6. A member's word holds when the persister has it (`Holds.ONCE_WRITTEN`). Until then the record is ACQUIRED with a
    next state: nobody gets it, and its lock ends nothing. If the write fails, the record is ACQUIRED as before, and a
    lock that ended meanwhile ends now, by rule 3.
    (``InFlightState.startStateTransition``, ``completeStateTransition``.)

Rule 7. The start offset moves over records that are done with, and over what the log has lost (on_log_start), whatever
    state those are in. There is no other way out of ACKNOWLEDGED and ARCHIVED.
    (``maybeUpdateCachedStateAndOffsets``, ``updateCacheAndOffsets``.)

Rule 8. ACQUIRED is never written: locks end with their leader. What is not written when a leader dies is as it was
    before, with a lower delivery count at worst. A leader with an older epoch cannot write: it is fenced, and serves
    nobody any more. (KIP-932, share-partition leader; `node/share/led_partition.py` loads, writes and ends.)

What always holds, and where it is proved. `Members` is the machine in `tests/share_partitions/test_partition.py`, which
does anything in any order; `history` is `sim/share_history.py`, which judges what members saw in simulated clusters:

    a record has at most one holder                                   Members.fetch; history
    what was accepted and answered is never handed out again          Members.fetch, Members.change_leader; history
    members see the delivery count grow only, and not over the limit  Members.fetch; history
    what is ARCHIVING is written so before its letter is sent, once   Members.send_letters
    every AVAILABLE record is reached by the next fetches             Members.nothing_is_lost
    the count of records that are done with is true (KIP-1226)        Members.counts_agree
    what is done with stays so, and no other way is in the table      tests/share_partitions/test_record_transitions.py
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from kbroker.cores.share_partitions.acknowledging import AcknowledgeType
from kbroker.cores.share_partitions.dead_letters import DeadLetterReason
from kbroker.cores.share_partitions.settings import SharePartitionSettings
from kbroker.cores.share_state import DeliveryState


class LeaderEvent(Enum):
    """An event that no member has asked for. (The end of a session is a RELEASE of what its member holds.)"""

    ACQUIRE = "A member's fetch gets the record."
    LOCK_TIMEOUT = "The holder's lock has ended."
    NOT_SENT = "The record was acquired, and the answer to the fetch could not be sent."
    UNREADABLE = "The record belongs to an aborted transaction, or is a marker: members must not see it."
    COMPACTED = "The log does not have the record any more, and has later ones."
    LETTER_DONE = "The dead-letter queue has the record, or will never have it."


Event = AcknowledgeType | LeaderEvent


class Holds(Enum):
    """When a transition holds, and whether the persister gets to know it."""

    ONCE_WRITTEN = "when it is written; a write that fails takes it back"
    AT_ONCE = "at once, and it is written afterwards; a write that fails takes nothing back"
    UNWRITTEN = "at once, for this leader alone"


class Transition(NamedTuple):
    """A row of the table: the state after the event, and what is done."""

    to: DeliveryState
    holds: Holds
    deliveries: int = 0
    """The change of the delivery count."""
    gives_up: DeadLetterReason | None = None
    """The reason for a dead letter; if ``to`` is AVAILABLE, the record is given up at the delivery limit only."""

    def state(self, delivery_count: int, settings: Callable[[], SharePartitionSettings]) -> DeliveryState:
        """Returns the state of a record after the event, by rules 4 and 5."""
        returns = self.to is DeliveryState.AVAILABLE
        if self.gives_up is None or (returns and delivery_count < settings().delivery_count_limit):
            return self.to
        return DeliveryState.ARCHIVING if settings().has_dead_letter_queue else DeliveryState.ARCHIVED


_S, _T, _WORD, _EVENT = DeliveryState, Transition, AcknowledgeType, LeaderEvent
_REJECTED, _WORN_OUT = DeadLetterReason.REJECTED, DeadLetterReason.DELIVERED_TOO_OFTEN

TRANSITIONS: dict[tuple[DeliveryState, Event], Transition] = {
    (_S.AVAILABLE, _EVENT.ACQUIRE): _T(_S.ACQUIRED, Holds.UNWRITTEN, deliveries=1),
    (_S.AVAILABLE, _EVENT.COMPACTED): _T(_S.ARCHIVED, Holds.UNWRITTEN),
    (_S.ACQUIRED, _WORD.ACCEPT): _T(_S.ACKNOWLEDGED, Holds.ONCE_WRITTEN),
    (_S.ACQUIRED, _WORD.RELEASE): _T(_S.AVAILABLE, Holds.ONCE_WRITTEN, gives_up=_WORN_OUT),
    (_S.ACQUIRED, _WORD.REJECT): _T(_S.ARCHIVED, Holds.ONCE_WRITTEN, gives_up=_REJECTED),
    (_S.ACQUIRED, _WORD.GAP): _T(_S.ARCHIVED, Holds.ONCE_WRITTEN),
    (_S.ACQUIRED, _WORD.RENEW): _T(_S.ACQUIRED, Holds.UNWRITTEN),
    (_S.ACQUIRED, _EVENT.LOCK_TIMEOUT): _T(_S.AVAILABLE, Holds.AT_ONCE, gives_up=_WORN_OUT),
    (_S.ACQUIRED, _EVENT.NOT_SENT): _T(_S.AVAILABLE, Holds.UNWRITTEN, deliveries=-1),
    (_S.ACQUIRED, _EVENT.UNREADABLE): _T(_S.ARCHIVED, Holds.AT_ONCE),
    (_S.ARCHIVING, _EVENT.LETTER_DONE): _T(_S.ARCHIVED, Holds.AT_ONCE),
}
"""The state and the event, and what follows; an event without a row for the state is a bug in kbroker."""
