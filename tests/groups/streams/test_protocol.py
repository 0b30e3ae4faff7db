"""Streams groups by StreamsGroupHeartbeat: epochs, tasks that move, what is stored, and what others may do."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.config import GroupConfig
from kbroker.config.streams_group import StreamsGroupConfig
from kbroker.cores.groups.client import ClientContext
from kbroker.cores.groups.streams.configured_topology import StreamsStatus
from kbroker.cores.groups.streams.group import MemberState, StreamsGroup, StreamsGroupState
from kbroker.cores.groups.streams_protocol import StreamsHeartbeatResult
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import Uuid
from kbroker.wire.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.offset_fetch import OffsetFetchRequestGroup
from kbroker.wire.messages.streams_groups import (
    Endpoint,
    HeartbeatSubtopology,
    HeartbeatTopology,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TaskOffset,
    TopicInfo,
)
from tests.groups.consumer_harness import ConsumerShard
from tests.groups.harness import GROUP, Member

Told = dict[str, list[int]]


def topology(*, epoch: int = 0, source: str = "in") -> HeartbeatTopology:
    """A topology of one subtopology with a store."""
    return HeartbeatTopology(
        epoch=epoch,
        subtopologies=[
            HeartbeatSubtopology(
                subtopology_id="0", source_topics=[source], state_changelog_topics=[TopicInfo(name="log")]
            )
        ],
    )


def shard(*, delay_ms: int = 0, **config: Any) -> ConsumerShard:
    """A shard whose topics are ready: four tasks."""
    made = ConsumerShard(topics={"in": 4, "log": 4})
    made.group_config_value = GroupConfig(
        45_000, 5_000, 1_000, StreamsGroupConfig(initial_rebalance_delay_ms=delay_ms, **config)
    )
    return made


def group(of: ConsumerShard) -> StreamsGroup:
    return of.core.groups.streams[GROUP]


class App:
    """A member: one thread of a Kafka Streams application, which does what it is told."""

    def __init__(
        self,
        of: ConsumerShard,
        member_id: str,
        *,
        process_id: str = "",
        instance_id: str | None = None,
        endpoint: tuple[str, int] | None = None,
        declared: HeartbeatTopology | None = None,
    ) -> None:
        self.shard = of
        self.member_id = member_id
        self.process_id = process_id or f"process of {member_id}"
        self.instance_id = instance_id
        self.endpoint = None if endpoint is None else Endpoint(host=endpoint[0], port=endpoint[1])
        self.topology = declared or topology()
        self.epoch = 0
        self.active: Told = {}
        self.standby: Told = {}
        self.endpoint_epoch = 0

    def send(self, *, version: int = 1, **fields: Any) -> StreamsGroupHeartbeatResponse:
        """Send a request with these fields besides the usual ones. `ApiError`."""
        values: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
            "endpoint_information_epoch": self.endpoint_epoch,
            "active_tasks": _ids(self.active),
            "standby_tasks": _ids(self.standby),
            "warmup_tasks": [],
        }
        if self.epoch == 0:
            values |= {
                "topology": self.topology,
                "rebalance_timeout_ms": 60_000,
                "process_id": self.process_id,
                "user_endpoint": self.endpoint,
                "client_tags": [],
            }
        request = StreamsGroupHeartbeatRequest(**(values | fields))
        client = ClientContext("client", "/host", version)
        result: StreamsHeartbeatResult = self.shard.run(
            self.shard.core.streams_group_heartbeat(request, client, self.shard.now_ms)
        )
        return result.response

    def heartbeat(self, *, keeps: bool = False, **fields: Any) -> StreamsGroupHeartbeatResponse:
        """Send, and take the tasks of the answer; with ``keeps`` it goes on with those that it should give up."""
        response = self.send(**fields)
        self.epoch = response.member_epoch
        self.endpoint_epoch = response.endpoint_information_epoch
        if response.active_tasks is not None and not keeps:
            self.active = _told(response.active_tasks)
            self.standby = _told(response.standby_tasks or [])
        return response

    def leave(self) -> None:
        self.epoch = -1
        self.send(active_tasks=None, standby_tasks=None, warmup_tasks=None)


def _ids(tasks: Told) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=partitions) for name, partitions in tasks.items()]


def _told(tasks: list[TaskIds]) -> Told:
    return {each.subtopology_id: each.partitions for each in tasks}


def statuses(response: StreamsGroupHeartbeatResponse) -> list[int]:
    return [status.status_code for status in response.status or []]


def error(app: App, **fields: Any) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        app.send(**fields)
    return caught.value.code


# -- joining and tasks -----------------------------------------------------------------------------


def test_the_first_member_gets_all_tasks() -> None:
    of = shard()
    app = App(of, "a")
    response = app.heartbeat()
    assert app.active == {"0": [0, 1, 2, 3]}
    assert (response.member_epoch, response.heartbeat_interval_ms, statuses(response)) == (2, 5_000, [])
    assert group(of).state is StreamsGroupState.STABLE
    assert app.heartbeat().active_tasks is None


def test_tasks_move_only_when_given_up() -> None:
    of = shard(assignment_interval_ms=0)
    a, b = App(of, "a"), App(of, "b")
    a.heartbeat()
    response = b.heartbeat()
    assert b.active == {}
    assert response.heartbeat_interval_ms == 1_000  # there is something to come
    a.heartbeat(keeps=True)
    assert group(of).members["a"].state is MemberState.UNREVOKED_TASKS
    b.heartbeat()
    assert b.active == {}
    a.active = {"0": sorted(task.partition for task in group(of).members["a"].assigned.active)}
    a.heartbeat()
    b.heartbeat()
    assert sorted(a.active["0"] + b.active["0"]) == [0, 1, 2, 3]
    assert len(b.active["0"]) == 2
    assert group(of).state is StreamsGroupState.STABLE


def test_a_member_that_does_not_give_up_in_time_is_fenced() -> None:
    of = shard(assignment_interval_ms=0)
    a, b = App(of, "a"), App(of, "b")
    a.heartbeat()
    b.heartbeat()
    a.heartbeat(keeps=True)
    for _ in range(13):
        of.advance(5_000)
        b.heartbeat()
        if "a" in group(of).members:
            a.send()
    assert list(group(of).members) == ["b"]
    assert b.active == {"0": [0, 1, 2, 3]}


def test_a_silent_member_is_fenced() -> None:
    of = shard()
    App(of, "a").heartbeat()
    of.advance(44_999)
    assert group(of).members
    of.advance(1)
    assert not group(of).members
    assert group(of).state is StreamsGroupState.EMPTY


def test_a_member_that_leaves_gives_its_tasks_to_others() -> None:
    of = shard(assignment_interval_ms=0)
    a, b = App(of, "a"), App(of, "b")
    a.heartbeat()
    b.heartbeat()
    a.leave()
    b.heartbeat()
    assert b.active == {"0": [0, 1, 2, 3]}


def test_standby_tasks_are_beside_active_ones() -> None:
    of = shard(assignment_interval_ms=0, num_standby_replicas=1)
    a, b = App(of, "a"), App(of, "b")
    for _ in range(4):
        a.heartbeat()
        b.heartbeat()
    assert a.standby == b.active
    assert b.standby == a.active
    a.leave()
    b.heartbeat()
    assert (b.active, b.standby) == ({"0": [0, 1, 2, 3]}, {})


def test_threads_of_one_process_do_not_follow_each_other() -> None:
    of = shard(assignment_interval_ms=0, num_standby_replicas=1)
    a, b = App(of, "a", process_id="p"), App(of, "b", process_id="p")
    for _ in range(4):
        a.heartbeat()
        b.heartbeat()
    assert (a.standby, b.standby) == ({}, {})
    assert len(a.active["0"]) == len(b.active["0"]) == 2


def test_a_change_of_the_standby_config_is_a_new_assignment() -> None:
    of = shard(assignment_interval_ms=0)
    a, b = App(of, "a"), App(of, "b")
    for _ in range(3):
        a.heartbeat()
        b.heartbeat()
    assert (a.standby, b.standby) == ({}, {})
    of.group_config_value = shard(assignment_interval_ms=0, num_standby_replicas=1).group_config_value
    for _ in range(3):
        a.heartbeat()
        b.heartbeat()
    assert a.standby == b.active


# -- times -----------------------------------------------------------------------------------------


def test_a_new_group_waits_for_more_members() -> None:
    of = shard(delay_ms=3_000)
    a, b = App(of, "a"), App(of, "b")
    response = a.heartbeat()
    assert (response.member_epoch, statuses(response)) == (1, [StreamsStatus.ASSIGNMENT_DELAYED])
    assert response.heartbeat_interval_ms == 1_000
    b.heartbeat()
    assert (a.active, b.active) == ({}, {})
    of.advance(3_000)
    assert statuses(a.heartbeat()) == []
    b.heartbeat()
    assert len(a.active["0"]) == len(b.active["0"]) == 2


def test_assignments_have_time_between_them() -> None:
    of = shard(assignment_interval_ms=1_000)
    a, b = App(of, "a"), App(of, "b")
    a.heartbeat()
    assert statuses(b.heartbeat()) == [StreamsStatus.ASSIGNMENT_DELAYED]
    of.advance(1_000)
    assert statuses(b.heartbeat()) == []


def test_the_target_of_a_coordinator_whose_clock_was_ahead_keeps_nobody_waiting() -> None:
    of = shard()
    of.now_ms += 3_600_000
    first = App(of, "a")
    first.heartbeat()
    of.now_ms -= 3_600_000
    of = first.shard = of.reloaded()
    second = App(of, "b")
    for _ in range(3):
        for app in (second, first):
            app.heartbeat()
    assert sorted(map(len, (first.active["0"], second.active["0"]))) == [2, 2]


# -- topics ----------------------------------------------------------------------------------------


def test_internal_topics_are_created_before_there_are_tasks() -> None:
    of = shard()
    of.set_topics(log=0)
    app = App(of, "a")
    assert statuses(app.heartbeat()) == [StreamsStatus.MISSING_INTERNAL_TOPICS]
    assert group(of).state is StreamsGroupState.NOT_READY
    of.set_topics(log=4)
    of.advance(1_000)
    assert statuses(app.heartbeat()) == []
    assert app.active == {"0": [0, 1, 2, 3]}


def test_a_missing_source_topic_does_not_hurry_the_client_into_giving_up() -> None:
    of = shard()
    of.set_topics(**{"in": 0})
    response = App(of, "a").heartbeat()
    assert statuses(response) == [StreamsStatus.MISSING_SOURCE_TOPICS]
    assert response.heartbeat_interval_ms == 5_000


def test_a_source_topic_that_grows_and_its_changelog() -> None:
    of = shard(assignment_interval_ms=0)
    app = App(of, "a")
    app.heartbeat()
    of.set_topics(**{"in": 5})
    assert statuses(app.heartbeat()) == [StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS]
    of.set_topics(log=5)
    of.advance(1_000)
    app.heartbeat()
    app.heartbeat()
    assert app.active == {"0": [0, 1, 2, 3, 4]}


def test_another_topology_is_refused_and_an_older_one_told() -> None:
    of = shard()
    App(of, "a", declared=topology(epoch=1)).heartbeat()
    assert error(App(of, "b", declared=topology(epoch=1, source="log"))) is ErrorCode.INVALID_REQUEST
    assert StreamsStatus.STALE_TOPOLOGY in statuses(App(of, "c", declared=topology(epoch=0)).heartbeat())


# -- members ---------------------------------------------------------------------------------------


def test_epochs_are_checked() -> None:
    of = shard()
    app = App(of, "a")
    app.heartbeat()
    assert error(app, member_epoch=9) is ErrorCode.FENCED_MEMBER_EPOCH
    assert error(app, member_epoch=1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert error(app, member_id="b") is ErrorCode.UNKNOWN_MEMBER_ID
    assert error(app, group_id="other") is ErrorCode.GROUP_ID_NOT_FOUND
    assert error(app, active_tasks=_ids({"1": [0]})) is ErrorCode.INVALID_REQUEST
    assert error(app, active_tasks=_ids({"0": [4]})) is ErrorCode.INVALID_REQUEST
    twice = [TaskOffset(subtopology_id="0", partition=0, offset=1)] * 2
    assert error(app, task_offsets=twice) is ErrorCode.INVALID_REQUEST


def test_an_answer_that_was_lost_is_given_again() -> None:
    of = shard(assignment_interval_ms=0)
    app = App(of, "a")
    app.heartbeat()
    App(of, "b").heartbeat()
    app.heartbeat(keeps=True)
    kept = sorted(task.partition for task in group(of).members["a"].assigned.active)
    app.active = {"0": kept}
    app.send()  # moves to the next epoch
    assert group(of).members["a"].member_epoch == app.epoch + 1
    assert app.send().member_epoch == app.epoch + 1


def test_a_static_member_comes_back_to_its_tasks() -> None:
    of = shard()
    first = App(of, "a", process_id="p", instance_id="i")
    first.heartbeat()
    assert error(App(of, "b", process_id="p", instance_id="i")) is ErrorCode.UNRELEASED_INSTANCE_ID
    epoch = group(of).group_epoch
    first.epoch = -2
    first.send()
    second = App(of, "b", process_id="p", instance_id="i")
    second.heartbeat()
    assert second.active == {"0": [0, 1, 2, 3]}
    assert (list(group(of).members), group(of).group_epoch) == (["b"], epoch)
    assert error(first, member_epoch=2) is ErrorCode.FENCED_INSTANCE_ID


def test_a_full_group() -> None:
    of = shard()
    of.settings = type(of.settings)(streams_max_size=1)
    App(of, "a").heartbeat()
    assert error(App(of, "b")) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_one_member_can_shut_all_down() -> None:
    of = shard()
    a, b = App(of, "a"), App(of, "b")
    a.heartbeat()
    b.heartbeat()
    assert StreamsStatus.SHUTDOWN_APPLICATION in statuses(a.heartbeat(shutdown_application=True))
    assert StreamsStatus.SHUTDOWN_APPLICATION in statuses(b.heartbeat())
    a.leave()
    b.leave()
    assert StreamsStatus.SHUTDOWN_APPLICATION not in statuses(App(of, "c").heartbeat())


def test_endpoints_are_told_when_they_change() -> None:
    of = shard(assignment_interval_ms=0)
    a1 = App(of, "a1", process_id="p", endpoint=("h", 1))
    a2 = App(of, "a2", process_id="p", endpoint=("h", 1))
    for _ in range(4):
        a1.heartbeat()
        last = a2.heartbeat()
    response = a1.send(endpoint_information_epoch=-1)
    assert response.partitions_by_user_endpoint is not None
    (entry,) = response.partitions_by_user_endpoint
    assert (entry.user_endpoint.host, entry.user_endpoint.port) == ("h", 1)
    assert [(each.topic, each.partitions) for each in entry.active_partitions] == [("in", [0, 1, 2, 3])]
    assert last.partitions_by_user_endpoint is None


def test_missing_client_tags_are_told_to_version_1() -> None:
    of = shard(rack_aware_assignment_tags=("zone",))
    assert statuses(App(of, "a").heartbeat(version=0)) == []
    app = App(of, "b")
    assert StreamsStatus.MISSING_CLIENT_TAGS in statuses(app.heartbeat())
    tagged = app.heartbeat(client_tags=[KeyValue(key="zone", value="z")])
    assert StreamsStatus.MISSING_CLIENT_TAGS not in statuses(tagged)


# -- what is stored, and other requests ------------------------------------------------------------


def test_a_group_is_the_same_after_a_load() -> None:
    of = shard(assignment_interval_ms=0, num_standby_replicas=1)
    a, b = App(of, "a", endpoint=("h", 1)), App(of, "b", instance_id="i")
    for _ in range(3):
        a.heartbeat()
        b.heartbeat()
    fresh = of.reloaded()
    before, after = group(of), group(fresh)
    for name in (
        "group_epoch",
        "metadata_hash",
        "validated_topology_epoch",
        "last_assignment_configs",
        "assignment_epoch",
        "assignment_timestamp_ms",
        "members",
        "static_members",
        "target",
        "topology",
        "state",
    ):
        assert getattr(after, name) == getattr(before, name), name
    a.shard = fresh
    assert a.heartbeat().active_tasks is None
    assert after.group_epoch == before.group_epoch


def test_a_group_that_is_deleted_leaves_nothing() -> None:
    of = shard()
    app = App(of, "a")
    app.heartbeat()
    with pytest.raises(ApiError) as caught:
        of.core.admin.delete_group(GROUP)
    assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
    app.leave()
    of.run(of.core.admin.delete_group(GROUP))
    assert GROUP not in of.core.groups
    assert GROUP not in of.reloaded().core.groups


def test_groups_of_other_protocols_are_not_taken() -> None:
    of = shard()
    App(of, "a").heartbeat()
    client = ClientContext("client", "/host", 1)
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id="m", rebalance_timeout_ms=1, subscribed_topic_names=["in"], topic_partitions=[]
    )
    with pytest.raises(ApiError) as caught:
        of.core.consumer_group_heartbeat(request, client, of.now_ms)
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    member = Member(of)
    member.join()
    assert member.joined is not None
    assert member.joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_empty_group_gives_way_to_a_classic_one_and_back() -> None:
    of = shard()
    app = App(of, "a")
    app.heartbeat()
    app.leave()
    member = Member(of, api_version=3)
    member.join()
    assert GROUP in of.core.groups.classic
    assert GROUP not in of.core.groups.streams
    assert error(App(of, "b")) is ErrorCode.GROUP_ID_NOT_FOUND


def test_members_that_start_anew_get_the_tasks_that_are_on_their_disks() -> None:
    """A restarted member has an id that nobody knows: its first heartbeat says what it has (KAFKA-20719)."""
    of = shard(delay_ms=3_000)
    disks = {"x": [2, 1], "y": [0, 3]}
    apps = [App(of, member_id) for member_id in disks]
    for app in apps:
        offsets = [TaskOffset(subtopology_id="0", partition=index, offset=100) for index in disks[app.member_id]]
        app.heartbeat(task_offsets=offsets, task_end_offsets=offsets)
    of.advance(3_000)
    for app in apps * 2:
        app.heartbeat()
    assert {app.member_id: sorted(app.active["0"]) for app in apps} == {"x": [1, 2], "y": [0, 3]}


def test_listed_and_described() -> None:
    of = shard()
    App(of, "a", endpoint=("h", 1)).heartbeat(task_offsets=[], task_end_offsets=[])
    (listed,) = of.core.admin.list_groups({"stable"}, {"streams"})
    assert (listed.group_id, listed.protocol_type, listed.group_type) == (GROUP, "streams", "streams")
    assert list(of.core.admin.list_groups((), {"classic"})) == []
    described = of.core.admin.describe_streams_group(GROUP, "sticky")
    assert (described.group_state, described.group_epoch, described.assignor_name) == ("Stable", 2, "sticky")
    (member,) = described.members
    assert [each.partitions for each in member.assignment.active_tasks] == [[0, 1, 2, 3]]
    assert member.assignment == member.target_assignment
    with pytest.raises(ApiError):
        of.core.admin.describe_consumer_group(GROUP)
    assert of.core.admin.describe_group(GROUP, 6).error_message == f"Group {GROUP} is not a classic group."


def commit(of: ConsumerShard, epoch: int, partition: int, *, version: int = 10, member_id: str = "a") -> ErrorCode:
    """Commit as a member; the error."""
    topic = of.topics.by_name("in")
    assert topic is not None
    partitions = [OffsetCommitRequestPartition(partition_index=partition, committed_offset=1)]
    request = OffsetCommitRequest(
        group_id=GROUP,
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        topics=[OffsetCommitRequestTopic(name="in", topic_id=topic.id, partitions=partitions)],
    )
    try:
        of.run(of.core.commit_offsets(request, version, of.now_ms))
    except ApiError as failure:
        return failure.code
    return ErrorCode.NONE


def test_commits_are_fenced_by_epoch_and_task() -> None:
    of = shard(assignment_interval_ms=0)
    a, b = App(of, "a"), App(of, "b")
    a.heartbeat()
    assert commit(of, 2, 0) is ErrorCode.NONE
    assert commit(of, 3, 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(of, 2, 0, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert commit(of, 2, 0, member_id="x") is ErrorCode.UNKNOWN_MEMBER_ID
    for _ in range(3):
        b.heartbeat()
        a.heartbeat()
    assert a.epoch > 2
    moved = b.active["0"][0]
    assert commit(of, 2, a.active["0"][0]) is ErrorCode.NONE  # a task that it has had since then (KIP-1251)
    assert commit(of, 2, moved) is ErrorCode.STALE_MEMBER_EPOCH


def test_offsets_are_fetched_by_members_of_the_epoch() -> None:
    of = shard()
    App(of, "a").heartbeat()
    commit(of, 2, 0)
    ids = {"in": Uuid(of.topics.by_name("in").id)}  # type: ignore[union-attr]
    found = of.core.fetch_offsets(OffsetFetchRequestGroup(group_id=GROUP, topics=None, member_epoch=-1), ids)
    assert [each.committed_offset for topic in found.topics for each in topic.partitions] == [1]
    with pytest.raises(ApiError) as caught:
        of.core.fetch_offsets(OffsetFetchRequestGroup(group_id=GROUP, topics=None, member_id="a", member_epoch=1), ids)
    assert caught.value.code is ErrorCode.STALE_MEMBER_EPOCH


def test_offsets_expire_when_the_group_is_empty() -> None:
    of = shard()
    app = App(of, "a")
    app.heartbeat()
    commit(of, 2, 0)
    week_ms = of.settings.offsets_retention_ms
    of.group_config_value = shard(session_timeout_ms=3 * week_ms).group_config_value
    app.heartbeat()
    of.advance(week_ms + 600_000)
    assert of.core._offsets.committed.count(GROUP) == 1
    app.leave()
    of.advance(600_000)
    assert GROUP not in of.core.groups
