"""The table of a record's states: what it allows, and what it never does."""

from __future__ import annotations

from itertools import product

import pytest

from kbroker.cores.share_partitions.acknowledging import AcknowledgeType
from kbroker.cores.share_partitions.record_transitions import TRANSITIONS, Holds, LeaderEvent
from kbroker.cores.share_partitions.settings import SharePartitionSettings
from kbroker.cores.share_state import DeliveryState

S = DeliveryState
SETTINGS = SharePartitionSettings(delivery_count_limit=3)
WITH_QUEUE = SETTINGS._replace(has_dead_letter_queue=True)


def after(state: S, event: AcknowledgeType | LeaderEvent, delivery_count: int, settings: SharePartitionSettings) -> S:
    return TRANSITIONS[state, event].state(delivery_count, lambda: settings)


def test_what_is_done_with_stays_so() -> None:
    assert {state for state, _ in TRANSITIONS} == {S.AVAILABLE, S.ACQUIRED, S.ARCHIVING}


def test_a_member_has_a_word_for_what_is_acquired_alone_and_every_word_counts() -> None:
    words = {(state, event) for state, event in TRANSITIONS if isinstance(event, AcknowledgeType)}
    assert words == {(S.ACQUIRED, word) for word in AcknowledgeType}
    assert {event for _, event in TRANSITIONS} == {*AcknowledgeType, *LeaderEvent}


def test_only_what_is_available_is_delivered() -> None:
    assert [state for (state, _), row in TRANSITIONS.items() if row.deliveries > 0] == [S.AVAILABLE]


@pytest.mark.parametrize("event", [AcknowledgeType.RELEASE, LeaderEvent.LOCK_TIMEOUT])
def test_a_record_comes_back_until_it_was_delivered_as_often_as_the_limit_says(
    event: AcknowledgeType | LeaderEvent,
) -> None:
    assert [after(S.ACQUIRED, event, count, SETTINGS) for count in (1, 2, 3, 4)] == [
        *(S.AVAILABLE, S.AVAILABLE),
        *(S.ARCHIVED, S.ARCHIVED),
    ]
    assert after(S.ACQUIRED, event, 3, WITH_QUEUE) is S.ARCHIVING


def test_archiving_is_for_groups_with_a_dead_letter_queue_and_for_records_alone() -> None:
    assert after(S.ACQUIRED, AcknowledgeType.REJECT, 1, SETTINGS) is S.ARCHIVED
    assert after(S.ACQUIRED, AcknowledgeType.REJECT, 1, WITH_QUEUE) is S.ARCHIVING
    for settings, (state, event) in product((SETTINGS, WITH_QUEUE), TRANSITIONS):
        if event in (AcknowledgeType.GAP, LeaderEvent.UNREADABLE, LeaderEvent.COMPACTED, LeaderEvent.LETTER_DONE):
            assert after(state, event, 3, settings) is S.ARCHIVED


def test_a_members_word_that_ends_its_hold_is_written_first() -> None:
    for word in set(AcknowledgeType) - {AcknowledgeType.RENEW}:
        assert TRANSITIONS[S.ACQUIRED, word].holds is Holds.ONCE_WRITTEN
    assert TRANSITIONS[S.ACQUIRED, LeaderEvent.LOCK_TIMEOUT].holds is Holds.AT_ONCE
