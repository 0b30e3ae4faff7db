"""The simulated members of groups: they share a topic in both protocols, and two owners do not go unseen."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="the `bench` extra is not installed")

from benchmarks.clients import LoadError
from benchmarks.group_workloads import commit_frame, heartbeat_frame
from benchmarks.members import PROTOCOLS, ClassicMember, Group, Loop, Member, drop
from kbroker.testing import running_broker
from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.compiler import decode
from kbroker.wire.messages.classic_groups import HeartbeatRequest
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.offset_commit import OffsetCommitRequest
from kbroker.wire.messages.topics import CreatableTopic, CreateTopicsRequest


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with running_broker() as broker:
        host, port = broker.bootstrap_servers.rsplit(":", 1)
        yield host, int(port)


def topic_of(loop: Loop, name: str, partitions: int) -> Uuid:
    """The id of a new topic; asks for a coordinator, too, which makes the offsets topic."""
    told: list[Any] = []
    wire = loop.open()
    new = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    wire.ask(CreateTopicsRequest(topics=[new], timeout_ms=10_000), 7, told.append)
    wire.ask(FindCoordinatorRequest(key=name), 2, told.append)
    loop.run_until(lambda: len(told) == 2, "the topics", 180)
    loop.close(wire)
    return Uuid(told[0].topics[0].topic_id)


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_members_share_what_there_is_through_joins_and_leaves(address: tuple[str, int], protocol: str) -> None:
    loop = Loop(*address)
    group = Group(f"group-{protocol}", f"topic-{protocol}", topic_of(loop, f"topic-{protocol}", 7), 7)
    make = PROTOCOLS[protocol]
    for _ in range(3):
        make(loop, group).join()
    loop.run_until(group.is_settled, "three to share", 180)
    assert sorted(len(member.owned) for member in group.members) == [2, 2, 3]
    leaver = group.members[0]
    leaver.leave()
    loop.run_until(lambda: leaver.finished, "one to leave", 180)
    drop([leaver])
    loop.run_until(group.is_settled, "two to share", 180)
    make(loop, group).join()
    loop.run_until(group.is_settled, "three to share again", 180)
    assert set().union(*(member.owned for member in group.members)) == set(range(7))
    assert {partition: owner for partition, owner in group.owners.items() if partition not in owner.owned} == {}


def test_two_owners_are_an_error(address: tuple[str, int]) -> None:
    loop = Loop(*address)
    group = Group("group", "topic", ZERO_UUID, 2)
    one, two = ClassicMember(loop, group), ClassicMember(loop, group)
    group.take(one, {0, 1}, 1)
    with pytest.raises(LoadError, match="two owners"):
        group.take(two, {1}, 2)
    group.give(one, {1})
    with pytest.raises(LoadError, match="given twice in generation 1"):
        group.take(two, {1}, 1)


def test_frames_are_what_the_protocol_says(address: tuple[str, int]) -> None:
    loop = Loop(*address)
    group = Group("group", "topic", ZERO_UUID, 2)
    member: Member = ClassicMember(loop, group)
    member.member_id, member.generation = "member", 3
    # Behind length, key, version, correlation id and the client id.
    start = 4 + 2 + 2 + 4 + 2 + len("benchmark")
    for frame, request, version in (
        (heartbeat_frame(group, member, 1), HeartbeatRequest, 3),
        (commit_frame(group, member, 1), OffsetCommitRequest, 7),
    ):
        assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
        decoded: Any
        decoded, end = decode(request, version, frame, start)
        assert end == len(frame)
        assert decoded.group_id == "group"
        assert decoded.member_id == "member"
        generation = getattr(decoded, "generation_id", None) or getattr(decoded, "generation_id_or_member_epoch", None)
        assert generation == 3
