"""Group requests that a broker should refuse (and a few that it should not), in every version, as raw requests."""

from __future__ import annotations

import dataclasses
import re
import socket
import struct
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from kbroker.wire.compiler import decode, encode
from kbroker.wire.headers import decode_response_header, encode_request_header
from kbroker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kbroker.wire.messages.delete_groups import DeleteGroupsRequest
from kbroker.wire.messages.describe_groups import DescribeGroupsRequest
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.heartbeat import HeartbeatRequest
from kbroker.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kbroker.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kbroker.wire.messages.list_groups import ListGroupsRequest
from kbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
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
from kbroker.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kbroker.wire.records.consumer_protocol import ConsumerProtocolSubscription
from kbroker.wire.registry import API_KEYS

Make = Callable[[int], Any]
"""The request of a version, or None for a version where the case does not exist."""


class Connection:
    """One socket; a request at a time."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._address = (host, int(port))
        self._socket: socket.socket | None = None

    def ask(self, request: Any, version: int) -> Any:
        """The response, or None where the broker closes the connection instead."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, 20)
        key = type(request).api_key
        frame = encode_request_header(key, version, 7, "wire") + encode(request, version)
        try:
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
            (size,) = struct.unpack(">i", self._read(4))
            body = self._read(size)
        except ConnectionError:
            self.close()
            return None
        _, offset = decode_response_header(key, version, body)
        return decode(API_KEYS[key].response, version, body, offset)[0]

    def _read(self, size: int) -> bytes:
        assert self._socket is not None
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionError
            data += more
        return data

    def close(self) -> None:
        """Close the socket; the next request opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def plain(value: Any) -> Any:
    """A response as JSON can hold it, without throttle times."""
    if dataclasses.is_dataclass(value):
        named = {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
        named.pop("throttle_time_ms", None)
        return named
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, (bytes, memoryview, bytearray)):
        return bytes(value).hex()
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


class World:
    """A topic of two partitions, a stable group with the static member "inst", an empty group with offsets."""

    def __init__(self, bootstrap: str) -> None:
        self.connection = Connection(bootstrap)
        self.bootstrap = bootstrap
        mark = uuid.uuid4().hex[:8]
        self.topic, self.stable, self.empty = f"topic-{mark}", f"stable-{mark}", f"empty-{mark}"
        self.mark = mark
        self._fresh = 0
        new = CreatableTopic(name=self.topic, num_partitions=2, replication_factor=1)
        self._ask(CreateTopicsRequest(topics=[new], timeout_ms=10_000), 5)
        found = self._ask(MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)]), 12)
        self.topic_id = found.topics[0].topic_id
        # The first question makes the offsets topic; the coordinator may need a moment.
        for _ in range(2000):
            ready = self._ask(FindCoordinatorRequest(key=self.stable), 2)
            if ready.error_code:
                continue
            committed = self._ask(self.commit(self.empty)(8), 8)
            if not committed.topics[0].partitions[0].error_code:
                break
        joined = self._ask(self.join(self.stable, group_instance_id="inst")(5), 5)
        assert joined.error_code == 0, joined
        self.member_id = joined.member_id
        assignment = SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"\0\0\0\0\0\0\xff\xff\xff\xff")
        self._ask(self.sync(self.stable, assignments=[assignment])(5), 5)

    def _ask(self, request: Any, version: int) -> Any:
        return self.connection.ask(request, version)

    def fresh(self) -> str:
        """The id of a group that does not exist."""
        self._fresh += 1
        return f"fresh-{self.mark}-{self._fresh}"

    def join(self, group: str, since: int = 0, **fields: Any) -> Make:
        metadata = b"\0\0" + encode(ConsumerProtocolSubscription(topics=[self.topic]), 0)

        def make(version: int) -> Any:
            values = {
                "session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer",
                "protocols": [JoinGroupRequestProtocol(name="range", metadata=metadata)], **fields,
            }
            return JoinGroupRequest(group_id=group, **values) if version >= since else None

        return make

    def sync(self, group: str, since: int = 0, **fields: Any) -> Make:
        values = {"generation_id": 1, "member_id": getattr(self, "member_id", ""), "protocol_type": "consumer",
                  "protocol_name": "range", **fields}
        return lambda version: SyncGroupRequest(group_id=group, **values) if version >= since else None

    def heartbeat(self, group: str, since: int = 0, **fields: Any) -> Make:
        values = {"generation_id": 1, "member_id": self.member_id, **fields}
        return lambda version: HeartbeatRequest(group_id=group, **values) if version >= since else None

    def leave(self, group: str, member_id: str = "nobody", since: int = 0, instance: str | None = None) -> Make:
        def make(version: int) -> Any:
            if version < since:
                return None
            if version < 3:
                return LeaveGroupRequest(group_id=group, member_id=member_id)
            member = MemberIdentity(member_id=member_id, group_instance_id=instance)
            return LeaveGroupRequest(group_id=group, members=[member])

        return make

    def commit(
        self, group: str, since: int = 0, until: int = 99, topic: str | None = None, partitions: tuple[int, ...] = (0,),
        metadata: str | None = "m", offset: int = 5, topics: bool = True, **fields: Any,
    ) -> Make:
        def make(version: int) -> Any:
            if not since <= version <= until:
                return None
            asked = [
                OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata=metadata
                )
                for index in partitions
            ]
            topic_id = self.topic_id if topic is None else b"\x07" * 16
            one = OffsetCommitRequestTopic(name=topic or self.topic, topic_id=topic_id, partitions=asked)
            return OffsetCommitRequest(group_id=group, topics=[one] if topics else [], **fields)

        return make

    def fetch(
        self, group: str, since: int = 1, topic: str | None = None, partitions: tuple[int, ...] = (0, 1),
        all_topics: bool = False, stable: bool = False, **member: Any,
    ) -> Make:
        def make(version: int) -> Any:
            if version < max(since, 2 if all_topics else 1, 7 if stable else 1):
                return None
            asked = list(partitions)
            if version < 8:
                one = OffsetFetchRequestTopic(name=topic or self.topic, partition_indexes=asked)
                return OffsetFetchRequest(
                    group_id=group, topics=None if all_topics else [one], require_stable=stable
                )
            topic_id = self.topic_id if topic is None else b"\x07" * 16
            two = OffsetFetchRequestTopics(name=topic or self.topic, topic_id=topic_id, partition_indexes=asked)
            wanted = OffsetFetchRequestGroup(group_id=group, topics=None if all_topics else [two], **member)
            return OffsetFetchRequest(groups=[wanted], require_stable=stable)

        return make

    def delete_offsets(self, group: str, topic: str | None = None, partitions: tuple[int, ...] = (1,)) -> Make:
        asked = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
        one = OffsetDeleteRequestTopic(name=topic or self.topic, partitions=asked)
        return lambda version: OffsetDeleteRequest(group_id=group, topics=[one])

    def normal(self, response: Any) -> Any:
        """A response without the names that differ from run to run."""
        if response is None:
            return "closed"

        def walk(value: Any, name: str = "") -> Any:
            if isinstance(value, dict):
                return {key: walk(each, key) for key, each in value.items()}
            if isinstance(value, list):
                walked = [walk(each, name) for each in value]
                # Kafka answers for groups in the order of its shards, which is no promise.
                return sorted(walked, key=str) if name in ("results", "groups") else walked
            if name == "port" and value > 0:
                return "PORT"
            if name == "error_message" and value and not value.startswith(("Group ", "NONE")):
                return "TEXT"  # The code says it; the words are ours.
            if isinstance(value, str):
                for known, shown in (
                    (self.member_id, "MEMBER"), (self.topic_id.hex(), "TOPIC_ID"), (self.mark, "*"),
                    (self.mark.encode().hex(), "MARK"),
                ):
                    value = value.replace(known, shown)
                value = re.sub(r"fresh-\*-\d+", "FRESH", value)
                if name in ("member_id", "leader") and value.startswith("wire-"):
                    value = "NEW"
            return value

        return walk(plain(response))


def cases(world: World) -> Iterator[tuple[str, Make]]:
    """(name, request by version); every request with a fresh group id is about a group that does not exist."""
    new, stable, empty = world.fresh, world.stable, world.empty

    def each(build: Callable[[str], Make]) -> Make:
        return lambda version: build(new())(version)

    join, sync, beat, leave, commit, fetch = (
        world.join, world.sync, world.heartbeat, world.leave, world.commit, world.fetch
    )
    yield "join: empty group id", join("")
    yield "join: session timeout too short", each(lambda group: join(group, session_timeout_ms=10))
    yield "join: session timeout too long", each(lambda group: join(group, session_timeout_ms=10_000_000))
    yield "join: unknown member, unknown group", each(lambda group: join(group, member_id="nobody"))
    yield "join: new member", each(lambda group: join(group))
    yield "join: no protocols", each(lambda group: join(group, protocols=[]))
    yield "join: no protocol type", each(lambda group: join(group, protocol_type=""))
    yield "join: unknown member", join(stable, member_id="nobody")
    yield "join: other protocol type", join(stable, protocol_type="connect")
    other = [JoinGroupRequestProtocol(name="other", metadata=b"")]
    yield "join: other assignor", join(stable, protocols=other)
    yield "join: fenced instance", join(stable, since=5, member_id="nobody", group_instance_id="inst")
    yield "join: unknown instance", join(stable, since=5, member_id="nobody", group_instance_id="nobody")
    yield "sync: empty group id", sync("")
    yield "sync: unknown group", each(lambda group: sync(group))
    yield "sync: unknown member", sync(stable, member_id="nobody")
    yield "sync: bad generation", sync(stable, generation_id=9)
    yield "sync: fenced instance", sync(stable, since=3, member_id="nobody", group_instance_id="inst")
    yield "sync: other protocol", sync(stable, since=5, protocol_name="other")
    yield "sync: other protocol type", sync(stable, since=5, protocol_type="connect")
    yield "sync: no protocol", sync(stable, since=5, protocol_name=None)
    yield "sync: group without members", sync(empty)
    yield "sync: again", sync(stable)
    yield "heartbeat: empty group id", beat("")
    yield "heartbeat: unknown group", each(lambda group: beat(group))
    yield "heartbeat: unknown member", beat(stable, member_id="nobody")
    yield "heartbeat: empty member id", beat(stable, member_id="")
    yield "heartbeat: bad generation", beat(stable, generation_id=9)
    yield "heartbeat: fenced instance", beat(stable, since=3, member_id="nobody", group_instance_id="inst")
    yield "heartbeat: unknown instance", beat(stable, since=3, group_instance_id="nobody")
    yield "heartbeat: group without members", beat(empty)
    yield "heartbeat: good", beat(stable)
    yield "leave: empty group id", leave("")
    yield "leave: unknown group", each(lambda group: leave(group))
    yield "leave: unknown member", leave(stable)
    yield "leave: empty member id", leave(stable, "")
    yield "leave: fenced instance", leave(stable, since=3, instance="inst")
    yield "leave: unknown instance", leave(stable, "", since=3, instance="nobody")
    yield "leave: group without members", leave(empty)
    yield "leave: nobody named", lambda version: LeaveGroupRequest(group_id=stable) if version >= 3 else None
    yield "commit: empty group id", commit("")
    yield "commit: unknown group, no generation", each(lambda group: commit(group))
    yield "commit: unknown group, member id, no generation", each(lambda group: commit(group, member_id="nobody"))
    yield "commit: unknown group, generation", each(
        lambda group: commit(group, generation_id_or_member_epoch=1, member_id="nobody")
    )
    yield "commit: unknown group, instance", each(lambda group: commit(group, since=7, group_instance_id="nobody"))
    yield "commit: no member into a stable group", commit(stable)
    yield "commit: unknown member", commit(stable, generation_id_or_member_epoch=1, member_id="nobody")
    yield "commit: bad generation", commit(stable, generation_id_or_member_epoch=9, member_id=world.member_id)
    yield "commit: fenced instance", commit(
        stable, since=7, generation_id_or_member_epoch=1, member_id="nobody", group_instance_id="inst"
    )
    yield "commit: group without members, generation", commit(
        empty, generation_id_or_member_epoch=1, member_id="nobody"
    )
    yield "commit: good", commit(stable, generation_id_or_member_epoch=1, member_id=world.member_id)
    yield "commit: metadata too large", commit(empty, metadata="x" * 4097)
    yield "commit: metadata too large in bytes", commit(empty, metadata="ä" * 4096)
    yield "commit: metadata null", commit(empty, metadata=None)
    yield "commit: unknown topic", commit(empty, topic="no-such-topic")
    yield "commit: unknown partition", commit(empty, partitions=(0, 7))
    yield "commit: empty topic name", commit(empty, until=9, topic=" ")
    yield "commit: no topics", commit(empty, topics=False)
    yield "commit: negative offset", each(lambda group: commit(group, offset=-1))
    yield "commit: with a retention time", each(lambda group: commit(group, until=4, retention_time_ms=60_000))
    yield "fetch: empty group id", fetch("")
    yield "fetch: empty group id, all topics", fetch("", all_topics=True)
    yield "fetch: unknown group", each(lambda group: fetch(group))
    yield "fetch: unknown group, all topics", each(lambda group: fetch(group, all_topics=True))
    yield "fetch: committed", fetch(empty)
    yield "fetch: committed, all topics", fetch(empty, all_topics=True)
    yield "fetch: committed, stable", fetch(empty, stable=True)
    yield "fetch: unknown topic", fetch(empty, topic="no-such-topic")
    yield "fetch: unknown partition", fetch(empty, partitions=(0, 7))
    yield "fetch: unknown member", fetch(stable, since=9, member_id="nobody", member_epoch=1)
    yield "fetch: bad member epoch", fetch(stable, since=9, member_id=world.member_id, member_epoch=9)
    yield "fetch: unknown member, unknown group", each(
        lambda group: fetch(group, since=9, member_id="nobody", member_epoch=1)
    )
    yield "delete offsets: empty group id", world.delete_offsets("")
    yield "delete offsets: unknown group", world.delete_offsets(new())
    yield "delete offsets: unknown topic", world.delete_offsets(empty, "no-such-topic")
    yield "delete offsets: unknown partition", world.delete_offsets(empty, partitions=(1, 7))
    yield "delete offsets: subscribed", world.delete_offsets(stable, partitions=(0,))
    yield "delete offsets: unknown group and topic", world.delete_offsets(new(), "no-such-topic")
    yield "delete groups", lambda _: DeleteGroupsRequest(groups_names=["", new(), stable])
    yield "delete groups: named twice", lambda _: DeleteGroupsRequest(groups_names=["gone", "gone"])
    yield "describe: empty group id", lambda _: DescribeGroupsRequest(groups=[""])
    yield "describe: unknown", lambda _: DescribeGroupsRequest(groups=[new()])
    yield "describe: stable", lambda _: DescribeGroupsRequest(groups=[stable])
    yield "describe: group without members", lambda _: DescribeGroupsRequest(groups=[empty])
    yield "describe: operations", lambda version: DescribeGroupsRequest(
        groups=[empty, new()], include_authorized_operations=True
    ) if version >= 3 else None
    yield "list: unknown state", lambda version: ListGroupsRequest(states_filter=["Nonsense"]) if version >= 4 else None
    yield "list: unknown type", lambda version: ListGroupsRequest(types_filter=["Nonsense"]) if version >= 5 else None
    yield "list: other type", lambda version: ListGroupsRequest(types_filter=["share"]) if version >= 5 else None
    def find(*keys: str, since: int = 0, key_type: int = 0) -> Make:
        def make(version: int) -> Any:
            if version < since:
                return None
            if version < 4:
                return FindCoordinatorRequest(key=keys[0], key_type=key_type)
            return FindCoordinatorRequest(coordinator_keys=list(keys), key_type=key_type)

        return make

    yield "find: groups", find(stable, empty)
    yield "find: empty group id", find("")
    yield "find: unknown key type", find("x", since=1, key_type=9)
    yield "find: no keys", find(since=4)


def answers(bootstrap: str) -> dict[str, dict[str, Any]]:
    """Case -> versions ("0-3" for neighbours that agree) -> normalised response."""
    world = World(bootstrap)
    told: dict[str, dict[str, Any]] = {}
    try:
        for name, make in cases(world):
            runs: list[tuple[int, int, Any]] = []
            first = make(99) or make(9) or make(4)
            lowest, highest = API_KEYS[type(first).api_key].stable_versions
            for version in range(lowest, highest + 1):
                request = make(version)
                if request is None:
                    continue
                answer = world.normal(world.connection.ask(request, version))
                if runs and runs[-1][2] == answer and runs[-1][1] == version - 1:
                    runs[-1] = (runs[-1][0], version, answer)
                else:
                    runs.append((version, version, answer))
            told[name] = {f"{low}-{high}": answer for low, high, answer in runs}
    finally:
        world.connection.close()
    return told
