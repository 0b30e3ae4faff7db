"""Descriptions of topologies that a plugin keeps: groups remember which it has, and ask members for them (KIP-1331)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kbroker.cores.coordinator.result import CoordinatorResult
from kbroker.cores.groups.streams.description_backoff import INITIAL_BACKOFF_MS, MAX_BACKOFF_MS, Backoff
from kbroker.cores.groups.streams_descriptions import UNCERTAIN, StreamsDescriptions
from kbroker.errors import ApiError, ErrorCode
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.groups.consumer_harness import ConsumerShard
from tests.groups.harness import GROUP, Member
from tests.groups.streams.test_protocol import App, group, shard


def kept(*, members: bool = True) -> ConsumerShard:
    """A shard of a broker with a plugin, and a group."""
    made = shard()
    made.settings = type(made.settings)(keeps_descriptions=True)
    app = App(made, "a")
    app.heartbeat()
    if not members:
        app.leave()
    return made


def of(made: ConsumerShard) -> StreamsDescriptions:
    return made.core.descriptions


def run(made: ConsumerShard, result: CoordinatorResult[Any]) -> Any:
    return made.run(result)


def test_a_push_is_marked_stored_and_remembered() -> None:
    made = kept()
    of(made).check_push(GROUP, "a", 0)
    assert run(made, of(made).mark(GROUP, for_push=True))
    assert of(made).stored_epoch(GROUP) == UNCERTAIN
    run(made, of(made).stored(GROUP, 0))
    fresh = made.reloaded()
    assert of(fresh).stored_epoch(GROUP) == 0
    run(fresh, of(fresh).failed(GROUP, 3))
    assert group(fresh).failed_description_topology_epoch == 3 and of(fresh).stored_epoch(GROUP) == 0
    run(fresh, of(fresh).failed(GROUP, 1))
    assert group(fresh).failed_description_topology_epoch == 3, "never back"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("other", "a", 0), ErrorCode.GROUP_ID_NOT_FOUND),
        ((GROUP, "b", 0), ErrorCode.UNKNOWN_MEMBER_ID),
        ((GROUP, "a", 1), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_push_of_a_stranger_or_for_another_epoch(arguments: tuple[str, str, int], code: ErrorCode) -> None:
    with pytest.raises(ApiError) as caught:
        of(kept()).check_push(*arguments)
    assert caught.value.code is code


def test_a_deletion_that_comes_between_leaves_it_uncertain() -> None:
    made = kept()
    run(made, of(made).mark(GROUP, for_push=True))
    run(made, of(made).after_delete(GROUP))
    assert of(made).stored_epoch(GROUP) == -1
    run(made, of(made).stored(GROUP, 0))
    assert of(made).stored_epoch(GROUP) == UNCERTAIN
    run(made, of(made).stored(GROUP, 0))
    run(made, of(made).after_delete(GROUP))
    assert of(made).stored_epoch(GROUP) == UNCERTAIN, "a push has come between"


def test_what_the_keeper_has_lost_is_uncertain() -> None:
    made = kept()
    run(made, of(made).mark(GROUP, for_push=True))
    run(made, of(made).stored(GROUP, 0))
    for group_id, epoch in (("other", 0), (GROUP, 1)):
        run(made, of(made).lost(group_id, epoch))
        assert of(made).stored_epoch(GROUP) == 0
    run(made, of(made).lost(GROUP, 0))
    assert of(made).stored_epoch(GROUP) == UNCERTAIN


def test_only_what_may_be_there_is_deleted_and_of_empty_groups_alone() -> None:
    made = kept()
    assert not run(made, of(made).mark(GROUP, for_push=False)), "it has a member"
    made = kept(members=False)
    assert not run(made, of(made).mark(GROUP, for_push=False)), "nothing is stored"
    assert not run(made, of(made).mark("other", for_push=True))
    run(made, of(made).mark(GROUP, for_push=True))
    assert run(made, of(made).mark(GROUP, for_push=False))


def test_a_group_stays_until_its_description_is_deleted() -> None:
    made = kept(members=False)
    run(made, of(made).mark(GROUP, for_push=True))
    made.advance(8 * 24 * 3_600_000)
    assert GROUP in made.core.groups.streams and of(made).to_clean() == [GROUP]
    run(made, of(made).after_delete(GROUP))
    assert of(made).to_clean() == []
    made.advance(600_000)
    assert GROUP not in made.core.groups


def test_a_group_with_offsets_is_not_cleaned() -> None:
    made = kept()
    partition = OffsetCommitRequestPartition(committed_offset=1, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="in", partitions=[partition])
    request = OffsetCommitRequest(
        group_id=GROUP, member_id="a", generation_id_or_member_epoch=group(made).group_epoch, topics=[topic]
    )
    run(made, made.core.commit_offsets(request, 9, made.now_ms))
    run(made, of(made).mark(GROUP, for_push=True))
    leaving = App(made, "a")
    leaving.leave()
    assert not group(made).members and of(made).to_clean() == []


def test_a_classic_member_waits_for_the_deletion() -> None:
    made = kept(members=False)
    run(made, of(made).mark(GROUP, for_push=True))
    assert of(made).is_waiting(GROUP)
    member = Member(made)
    member.join()
    assert member.joined is not None and member.joined.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    run(made, of(made).after_delete(GROUP))
    member.join()
    assert GROUP in made.core.groups.classic


def test_members_are_asked_less_and_less_often() -> None:
    backoff = Backoff(random.Random(1))
    now = 0
    delays = []
    for _ in range(12):
        assert backoff.begin("g", 0, now)
        assert not backoff.begin("g", 0, now) and backoff.is_silent("g", 0, now)
        began = now
        while backoff.is_silent("g", 0, now):
            now += 1_000
        delays.append(now - began)
    assert INITIAL_BACKOFF_MS * 0.8 <= delays[0] <= INITIAL_BACKOFF_MS * 1.2 + 1_000
    assert delays[:6] == sorted(delays[:6]) and max(delays) <= MAX_BACKOFF_MS + 1_000
    assert delays[-1] >= MAX_BACKOFF_MS * 0.8


def test_another_epoch_begins_anew_and_an_older_one_changes_nothing() -> None:
    backoff = Backoff(random.Random(1))
    assert backoff.begin("g", 1, 0)
    backoff.extend("g", 0, 0)
    assert backoff.is_silent("g", 1, 0)
    assert backoff.begin("g", 2, 0) and not backoff.is_silent("g", 1, 0)
    backoff.end("g", 1)
    assert backoff.is_silent("g", 2, 0)
    backoff.end("g", 2)
    assert backoff.begin("g", 2, 0)
    backoff.extend("g", 2, 0)
    backoff.end("g")
    assert not backoff.is_silent("g", 2, 0)
