"""Requests about committed offsets that a broker should refuse, and some that it should not, in every version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compat_tests.groups.wire_cases import Make, cases_of
from compat_tests.groups.wire_classic import LONGEST
from compat_tests.groups.wire_world import Classic, Modern, World
from kbroker.types import Uuid
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kbroker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

UNKNOWN_ID = Uuid(b"\x07" * 16)


class Offsets:
    """Builds the requests of one world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def commit(
        self,
        group: str | Classic | Modern | None = None,
        since: int = 2,
        until: int = 99,
        topic: str | None = None,
        partitions: tuple[int, ...] = (0,),
        metadata: str | None = "m",
        offset: int = 5,
        leader_epoch: int = -1,
        topics: int = 1,
        **fields: Any,
    ) -> Make:
        """OffsetCommit; for a member of `group` where that is not a name. `topics` is how often the topic is named."""
        if isinstance(group, Classic):
            fields = {"generation_id_or_member_epoch": group.generation, "member_id": group.member_id, **fields}
        if isinstance(group, Modern):
            fields = {"generation_id_or_member_epoch": group.epoch, "member_id": group.member_id, **fields}

        def make(version: int) -> Any:
            if not since <= version <= until:
                return None
            asked = [
                OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=leader_epoch,
                    committed_metadata=metadata,
                )
                for index in partitions
            ]
            topic_id = self._world.topic_id if topic is None else UNKNOWN_ID
            name = self._world.topic if topic is None else topic
            one = OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=asked)
            group_id = self._world.fresh() if group is None else group if isinstance(group, str) else group.group
            return OffsetCommitRequest(group_id=group_id, topics=[one] * topics, **fields)

        return make

    def fetch(
        self,
        group: str | None = None,
        since: int = 1,
        topic: str | None = None,
        partitions: tuple[int, ...] = (0, 1),
        all_topics: bool = False,
        stable: bool = False,
        **member: Any,
    ) -> Make:
        """OffsetFetch of one group."""

        def make(version: int) -> Any:
            if version < max(since, 2 if all_topics else 1, 7 if stable else 1):
                return None
            asked, name = list(partitions), self._world.topic if topic is None else topic
            group_id = self._world.fresh() if group is None else group
            if version < 8:
                one = OffsetFetchRequestTopic(name=name, partition_indexes=asked)
                return OffsetFetchRequest(
                    group_id=group_id, topics=None if all_topics else [one], require_stable=stable
                )
            topic_id = self._world.topic_id if topic is None else UNKNOWN_ID
            two = OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=asked)
            wanted = OffsetFetchRequestGroup(group_id=group_id, topics=None if all_topics else [two], **member)
            return OffsetFetchRequest(groups=[wanted], require_stable=stable)

        return make

    def delete(self, group: str | None, topic: str | None = None, partitions: tuple[int, ...] = (1,)) -> Make:
        """OffsetDelete."""
        asked = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
        one = OffsetDeleteRequestTopic(name=self._world.topic if topic is None else topic, partitions=asked)
        return lambda _: OffsetDeleteRequest(group_id=self._world.fresh() if group is None else group, topics=[one])


@cases_of("OffsetCommit")
def commit_cases(world: World) -> Iterator[tuple[str, Make]]:
    commit, fetch, stable = Offsets(world).commit, Offsets(world).fetch, world.stable
    target = world.new_empty("target")
    yield "empty group id", commit("")
    yield "longest group id, unknown member", commit(LONGEST, generation_id_or_member_epoch=1, member_id="nobody")
    yield "unknown group, no generation", commit()
    yield "unknown group, member id, no generation", commit(member_id="nobody")
    yield "unknown group, generation", commit(generation_id_or_member_epoch=1, member_id="nobody")
    yield "unknown group, generation zero", commit(generation_id_or_member_epoch=0, member_id="nobody")
    yield "unknown group, negative generation", commit(generation_id_or_member_epoch=-2, member_id="nobody")
    yield "unknown group, instance", commit(since=7, group_instance_id="nobody")
    yield (
        "unknown group, generation and instance",
        commit(since=7, generation_id_or_member_epoch=1, member_id="nobody", group_instance_id="nobody"),
    )
    yield "no member into a stable group", commit(stable.group)
    yield "unknown member", commit(stable, member_id="nobody")
    yield "empty member id", commit(stable, member_id="")
    yield "older generation", commit(stable, generation_id_or_member_epoch=0)
    yield "newer generation", commit(stable, generation_id_or_member_epoch=9)
    yield "negative generation, known member", commit(stable, generation_id_or_member_epoch=-1)
    yield "fenced instance", commit(stable, since=7, member_id="nobody", group_instance_id="inst")
    yield "unknown instance", commit(stable, since=7, group_instance_id="nobody")
    yield "preparing", lambda version: commit(world.new_preparing())(version)
    yield "preparing, no member", lambda version: commit(world.new_preparing().group)(version)
    yield "completing", lambda version: commit(world.new_completing())(version)
    yield "group without members, generation", commit(target, generation_id_or_member_epoch=1, member_id="nobody")
    yield "good", commit(stable)
    yield "metadata of the largest size", commit(target, metadata="x" * 4096)
    yield "metadata too large", commit(target, metadata="x" * 4097)
    yield "metadata too large in bytes", commit(target, metadata="ä" * 4096)
    yield "metadata null", commit(target, metadata=None)
    yield "metadata empty", commit(target, metadata="")
    yield "unknown topic", commit(target, topic="no-such-topic")
    yield "unknown partitions", commit(target, partitions=(0, 7, -1))
    yield "unknown partition, metadata too large", commit(target, partitions=(0, 7), metadata="x" * 5000)
    yield "partition named twice", commit(target, partitions=(0, 0))
    yield "topic named twice", commit(target, topics=2)
    yield "no partitions", commit(target, partitions=())
    yield "bad topic name", commit(target, until=9, topic=" ")
    yield "empty topic name", commit(target, until=9, topic="")
    yield "no topics", commit(target, topics=0)
    yield "no topics, unknown member", commit(stable, topics=0, member_id="nobody")
    yield "empty group id, unknown topic", commit("", topic="no-such-topic")
    yield "with a retention time", commit(until=4, retention_time_ms=60_000)
    yield "negative retention time", commit(until=4, retention_time_ms=-9)

    def kept(**fields: Any) -> Make:
        def make(version: int) -> Any:
            group = world.new_empty()
            return [commit(group, **fields)(version), fetch(group)(8)]

        return make

    yield "negative offset is kept", kept(offset=-1)
    yield "very negative offset is kept", kept(offset=-5)
    yield "offset beyond the end is kept", kept(offset=2**62)
    yield "leader epoch is kept", kept(leader_epoch=3)
    yield "null metadata is kept", kept(metadata=None)


@cases_of("OffsetFetch")
def fetch_cases(world: World) -> Iterator[tuple[str, Make]]:
    fetch, kept, stable = Offsets(world).fetch, world.kept, world.stable
    yield "empty group id", fetch("")
    yield "empty group id, all topics", fetch("", all_topics=True)
    yield "unknown group", fetch()
    yield "unknown group, all topics", fetch(all_topics=True)
    yield "longest group id", fetch(LONGEST)
    yield "committed", fetch(kept)
    yield "committed, all topics", fetch(kept, all_topics=True)
    yield "committed, stable", fetch(kept, stable=True)
    yield "unknown topic", fetch(kept, topic="no-such-topic")
    yield "empty topic name", fetch(kept, topic="")
    yield "unknown partitions", fetch(kept, partitions=(0, 7, -1))
    yield "no partitions", fetch(kept, partitions=())
    yield "partition named twice", fetch(kept, partitions=(0, 0))
    yield "stable group, nothing committed", fetch(stable.group)
    yield "member of a classic group", fetch(stable.group, since=9, member_id=stable.member_id, member_epoch=1)
    yield "unknown member", fetch(stable.group, since=9, member_id="nobody", member_epoch=1)
    yield "bad member epoch", fetch(stable.group, since=9, member_id=stable.member_id, member_epoch=9)
    yield "unknown member, unknown group", fetch(since=9, member_id="nobody", member_epoch=1)
    yield "unknown member, offsets only", fetch(kept, since=9, member_id="nobody", member_epoch=1)
    yield "no groups", lambda version: OffsetFetchRequest(groups=[]) if version >= 8 else None

    def several(version: int) -> Any:
        if version < 8:
            return None
        asked = [OffsetFetchRequestTopics(name=world.topic, topic_id=world.topic_id, partition_indexes=[0])]
        groups = [OffsetFetchRequestGroup(group_id=name, topics=asked) for name in (kept, "", stable.group, kept)]
        return OffsetFetchRequest(groups=groups)

    yield "several groups", several


@cases_of("OffsetDelete")
def delete_cases(world: World) -> Iterator[tuple[str, Make]]:
    delete, fetch = Offsets(world).delete, Offsets(world).fetch
    yield "empty group id", delete("")
    yield "unknown group", delete(None)
    yield "unknown topic", delete(world.empty, "no-such-topic")
    yield "empty topic name", delete(world.empty, "")
    yield "unknown partitions", delete(world.empty, partitions=(1, 7, -1))
    yield "subscribed", delete(world.stable.group, partitions=(0,))
    yield "subscribed and unknown", delete(world.stable.group, "no-such-topic")
    yield "unknown group and topic", delete(None, "no-such-topic")
    yield "no topics", lambda _: OffsetDeleteRequest(group_id=world.empty)
    yield "no topics, unknown group", lambda _: OffsetDeleteRequest(group_id=world.fresh())
    yield "preparing", lambda version: delete(world.new_preparing().group)(version)
    yield "completing", lambda version: delete(world.new_completing().group)(version)

    def gone(version: int) -> Any:
        group = world.new_empty()
        return [delete(group, partitions=(0,))(version), delete(group, partitions=(0,))(version), fetch(group)(8)]

    yield "deleted", gone
