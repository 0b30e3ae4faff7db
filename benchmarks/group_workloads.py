"""Workloads of consumer groups: rebalances, heartbeats and commits, what many groups cost, and a restart."""

from __future__ import annotations

import random
import statistics
import struct
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import raw
from benchmarks.clients import LoadError
from benchmarks.members import NOT_READY, PROTOCOLS, ClassicMember, Group, Loop, Member, Wire, drop
from benchmarks.servers import Server
from benchmarks.workloads import Bench, Figures, Workload
from compat_tests.groups.hosts import KINDS, Host, await_that, never_two_owners
from kbroker.types import Uuid
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics

MEMBERS, PARTITIONS = 50, 100
CONNECTIONS = 1_000
OFFSET_GROUPS, OFFSET_PARTITIONS = 100, 1_000


class Talk:
    """A connection that asks one thing at a time, for what is not measured."""

    def __init__(self, server: Server) -> None:
        self.loop = Loop(server.host, server.port)
        self._wire: Wire = self.loop.open()

    def ask(self, request: Any, version: int) -> Any:
        """The response."""
        told: list[Any] = []
        self._wire.ask(request, version, told.append)
        self.loop.run_until(lambda: bool(told), f"an answer to {type(request).__name__}")
        return told[0]

    def await_coordinator(self) -> None:
        """The first question makes the offsets topic, which takes a moment."""
        deadline = time.monotonic() + 60
        while self.ask(FindCoordinatorRequest(key="any"), 2).error_code:
            if time.monotonic() > deadline:
                raise LoadError("no group coordinator after 60 s")
            time.sleep(0.02)

    def topic_id(self, topic: str) -> Uuid:
        """The id of a topic."""
        found = self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
        return Uuid(found.topics[0].topic_id)

    def close(self) -> None:
        self.loop.close(self._wire)


def new_group(bench: Bench, server: Server, partitions: int) -> tuple[Group, str]:
    """A group of its own, and the new topic that it is about."""
    topic = bench.new_topic(server, partitions)
    talk = Talk(server)
    talk.await_coordinator()
    group = Group(f"group-{uuid.uuid4().hex[:8]}", topic, talk.topic_id(topic), partitions)
    talk.close()
    return group, topic


def summed_up(seconds: Sequence[float]) -> Figures:
    """Times as the tables show them."""
    ordered = sorted(seconds)
    return {
        "mean_ms": statistics.fmean(ordered) * 1e3,
        "p50_ms": statistics.median(ordered) * 1e3,
        "p99_ms": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1e3,
    }


def rebalances(protocol: str) -> Workload:
    """Fifty members, of which some leave and come back; the time from a join to everyone's share.

    A change takes a second by the consumer protocol, on either broker: heartbeats carry it. So there are fewer of them.
    """
    changes = {"classic": 120, "consumer": 40}[protocol]

    def run(bench: Bench, server: Server) -> Figures:
        group, topic = new_group(bench, server, PARTITIONS)
        loop, random_source = Loop(server.host, server.port), random.Random(848)
        make = PROTOCOLS[protocol]
        for _ in range(MEMBERS):
            make(loop, group).join()
        loop.run_until(group.is_settled, f"{MEMBERS} members to share the partitions", 120)
        joins: list[float] = []
        for number in range(bench.amount(changes, 40)):
            # Half of the changes are joins: it walks between 40 and 50 members.
            if number % 2:
                loop.run_until(group.is_settled, "a settled group", 60)
                start = time.monotonic()
                make(loop, group).join()
                loop.run_until(group.is_settled, "everyone to be assigned after a join", 60)
                joins.append(time.monotonic() - start)
            else:
                leaver = random_source.choice(group.members)
                leave(loop, leaver)
                loop.run_until(group.is_settled, "everyone to be assigned after a leave", 60)
        for member in list(group.members):
            leave(loop, member)
        bench.delete_topic(server, topic)
        return summed_up(joins)

    title = f"{MEMBERS} members joining and leaving, {protocol} protocol, join to all assigned"
    return Workload(f"rebalance-{protocol}", title, run, in_quick=True)


def leave(loop: Loop, member: Member) -> None:
    """Let the member leave and wait for the answer."""
    member.leave()
    loop.run_until(lambda: member.finished, "a member to leave", 60)
    drop([member])


def client_rebalances(protocol: str) -> Workload:
    """The same, smaller, with librdkafka's own members, whose heartbeats are as the stock settings have them."""

    def run(bench: Bench, server: Server) -> Figures:
        kind = KINDS["confluent-kafka-consumer" if protocol == "consumer" else "confluent-kafka"]
        topic, group = bench.new_topic(server, 12), f"group-{uuid.uuid4().hex[:8]}"
        host = Host(kind.client)
        try:
            members = [host.join(server.bootstrap, group, kind, f"m{index}", topics=[topic]) for index in range(4)]
            everyone = list(members)

            def settled() -> bool:
                counts = [len(member.owned) for member in members]
                return sum(counts) == 12 and max(counts) - min(counts) <= 1

            await_that(settled, "the partitions shared", members, 90)
            joins = []
            for number in range(bench.amount(4, 3)):
                start = time.monotonic()
                members.append(host.join(server.bootstrap, group, kind, f"n{number}", topics=[topic]))
                everyone.append(members[-1])
                await_that(settled, "everyone to be assigned after a join", members, 90)
                joins.append(time.monotonic() - start)
                members.pop(0).close()
                await_that(settled, "everyone to be assigned after a leave", members, 90)
            for member in members:
                member.close()
            never_two_owners(everyone)
        finally:
            host.close()
        bench.delete_topic(server, topic)
        return summed_up(joins)

    title = f"4 librdkafka members and a fifth that joins, {protocol} protocol, join to all assigned"
    return Workload(f"rebalance-clients-{protocol}", title, run)


def stable_members(bench: Bench, server: Server) -> tuple[Group, str]:
    """A stable classic group whose members only exist: the frames that name them are the load."""
    group, topic = new_group(bench, server, MEMBERS)
    loop = Loop(server.host, server.port)
    for _ in range(MEMBERS):
        ClassicMember(loop, group).join()
    loop.run_until(group.is_settled, "a stable group", 60)
    for member in group.members:
        loop.close(member.wire)
    return group, topic


def member_requests(
    what: str, frame: Callable[[Group, Member, int], bytes], error_offset: Callable[[Group], int]
) -> Workload:
    """50 connections, each with one request of its own member under way."""

    def run(bench: Bench, server: Server) -> Figures:
        group, topic = stable_members(bench, server)
        frames = bench.scratch / "member-frames"
        made = [frame(group, member, index) for index, member in enumerate(group.members)]
        frames.write_bytes(b"".join(made))
        seconds = bench.amount(8, 4)
        # A JVM needs a while to be as fast as it gets.
        bench.load.run("requests", server.port, frames, MEMBERS, MEMBERS, 3, error_offset(group))
        before = server.cpu_seconds()
        result = bench.load.run("requests", server.port, frames, MEMBERS, MEMBERS, seconds, error_offset(group))
        cpu = server.cpu_seconds() - before
        bench.delete_topic(server, topic)
        return {
            "requests_per_s": result["requests"] / result["seconds"],
            "cpu_us_per_request": cpu / result["requests"] * 1e6,
        }

    return Workload(f"{what}-requests", f"{MEMBERS} connections, {what}", run, in_quick=True)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def heartbeat_frame(group: Group, member: Member, index: int) -> bytes:
    """Heartbeat v3."""
    body = _string(group.name) + struct.pack(">i", member.generation) + _string(member.member_id)
    return raw.frame(12, 3, body + struct.pack(">h", -1))


def commit_frame(group: Group, member: Member, index: int) -> bytes:
    """OffsetCommit v7 of one partition."""
    body = _string(group.name) + struct.pack(">i", member.generation) + _string(member.member_id)
    body += struct.pack(">hi", -1, 1) + _string(group.topic)
    return raw.frame(8, 7, body + struct.pack(">iiqi", 1, index, 1234, -1) + _string(""))


def held_groups(protocol: str) -> Workload:
    """1,000 groups of ten members, held by 1,000 connections, each of which speaks for ten members."""

    def run(bench: Bench, server: Server) -> Figures:
        server.start()
        server.await_port()
        raw.await_record(server.host, server.port, "first")
        topic = bench.new_topic(server, 10)
        talk = Talk(server)
        talk.await_coordinator()
        topic_id = talk.topic_id(topic)
        before = server.resident_bytes()
        loop = Loop(server.host, server.port)
        wires = [loop.open() for _ in range(CONNECTIONS)]
        connected = server.resident_bytes()
        groups: list[Group] = []
        for wave in range(10):
            # A tenth of the groups at a time: a join waits for the other members of its group.
            fresh = [Group(f"held-{wave}-{number}", topic, topic_id, 10) for number in range(CONNECTIONS // 10)]
            for number, wire in enumerate(wires):
                group = fresh[number // 10]
                PROTOCOLS[protocol](loop, group, wire, heartbeats=False).join()
            settle(loop, fresh, protocol)
            groups += fresh
        alive = check_alive(loop, groups)
        figures = {
            "MB": server.resident_bytes() / 1e6,
            "more_MB": (server.resident_bytes() - connected) / 1e6,
            "connections_MB": (connected - before) / 1e6,
        }
        if alive != 10 * CONNECTIONS:
            raise LoadError(f"only {alive} of {10 * CONNECTIONS} members are alive")
        for wire in wires:
            loop.close(wire)
        talk.close()
        return figures

    title = f"1,000 groups with 10,000 members, {protocol} protocol, {CONNECTIONS:,} connections"
    return Workload(f"groups-held-{protocol}", title, run, "fresh", in_quick=True)


def settle(loop: Loop, groups: Sequence[Group], protocol: str) -> None:
    """Wait until the members have their shares; those of the consumer protocol need to be heard again for it."""

    def settled() -> bool:
        return all(group.is_settled() for group in groups)

    deadline = time.monotonic() + 60
    members = [member for group in groups for member in group.members]
    while protocol == "consumer" and not settled():
        if time.monotonic() > deadline:
            raise LoadError("the groups did not settle within 60 s")
        loop.run_until(lambda: all(member.is_stable for member in members), "answers to all heartbeats", 60)
        for member in members:
            member.is_stable = False
            member.heartbeat()
        loop.run_until(lambda: all(member.is_stable for member in members), "answers to all heartbeats", 60)
    loop.run_until(settled, "shares for all", 60)


def check_alive(loop: Loop, groups: Sequence[Group]) -> int:
    """Let each member send a heartbeat, and count the answers without an error."""
    told: list[Any] = []
    members = [member for group in groups for member in group.members]
    for member in members:
        member.heartbeat(told.append)
    loop.run_until(lambda: len(told) == len(members), "answers to all heartbeats", 60)
    return sum(not each.error_code for each in told)


def commit_offsets(talk: Talk, topic: str, topic_id: Uuid, groups: int) -> None:
    """For each group an offset in every partition; a group's number and the partition's make the offset."""
    for number in range(groups):
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=number * 10_000 + index, committed_metadata=""
            )
            for index in range(OFFSET_PARTITIONS)
        ]
        one = OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=partitions)
        request = OffsetCommitRequest(group_id=f"offsets-{number}", topics=[one])
        deadline = time.monotonic() + 30
        while wrong := {each.error_code for each in talk.ask(request, 8).topics[0].partitions} - {0}:
            # Each group's coordinator gets ready by itself.
            if not wrong <= NOT_READY or time.monotonic() > deadline:
                raise LoadError(f"OffsetCommit: errors {wrong}")
            time.sleep(0.02)


def await_offsets(server: Server, topic: str, groups: int) -> float:
    """`time.monotonic()` of when an offset of each group was there; then all are compared with what was committed."""
    deadline = time.monotonic() + 90
    missing = list(range(groups))
    talk: Talk | None = None
    one = OffsetFetchRequestTopics(name=topic, partition_indexes=[7])
    while missing and time.monotonic() < deadline:
        try:
            talk = talk or Talk(server)
            wanted = OffsetFetchRequestGroup(group_id=f"offsets-{missing[-1]}", topics=[one])
            told = talk.ask(OffsetFetchRequest(groups=[wanted]), 8).groups[0]
            if not told.error_code and told.topics[0].partitions[0].committed_offset == missing[-1] * 10_000 + 7:
                missing.pop()
                continue
        except OSError:
            talk = None
        time.sleep(0.002)
    loaded = time.monotonic()
    if missing or talk is None:
        raise LoadError(f"the offsets of {len(missing)} groups are not there after 90 s")
    for number in range(groups):
        every = OffsetFetchRequestGroup(group_id=f"offsets-{number}", topics=None)
        told = talk.ask(OffsetFetchRequest(groups=[every]), 8).groups[0]
        found = {each.partition_index: each.committed_offset for each in told.topics[0].partitions}
        if found != {index: number * 10_000 + index for index in range(OFFSET_PARTITIONS)}:
            raise LoadError(f"group offsets-{number} has other offsets than it committed")
    talk.close()
    return loaded


def restart_with_offsets(bench: Bench, server: Server) -> Figures:
    """Launch to the last group's offsets, with 1,000 and with 100,000 offsets: the difference is what loading takes."""
    server.start()
    server.await_port()
    raw.await_record(server.host, server.port, "first")
    topic = bench.new_topic(server, OFFSET_PARTITIONS)
    took = {}
    for groups in (1, OFFSET_GROUPS):
        talk = Talk(server)
        talk.await_coordinator()
        commit_offsets(talk, topic, talk.topic_id(topic), groups)
        talk.close()
        server.halt()
        server.start()
        server.await_port()
        took[groups] = await_offsets(server, topic, groups) - server.launched_at
    return {"restart_s": took[OFFSET_GROUPS], "loaded_s": took[OFFSET_GROUPS] - took[1]}


def cold_start(bench: Bench, server: Server) -> Figures:
    """Ten of librdkafka's members of a consumer group start at the same time; until each has its two partitions."""
    kind, members_count = KINDS["confluent-kafka-consumer"], 10
    took = []
    for _ in range(bench.amount(3, 2)):
        topic, group = bench.new_topic(server, 2 * members_count), f"group-{uuid.uuid4().hex[:8]}"
        host = Host(kind.client)
        try:
            start = time.monotonic()
            members = [
                host.join(server.bootstrap, group, kind, f"m{index}", topics=[topic]) for index in range(members_count)
            ]

            def settled(members: Sequence[Any] = members) -> bool:
                return all(len(member.owned) == 2 for member in members)

            await_that(settled, "two partitions for each", members, 90)
            took.append(time.monotonic() - start)
            never_two_owners(members)
        finally:
            host.close()
        bench.delete_topic(server, topic)
    return {"settled_s": statistics.median(took), "slowest_s": max(took)}


GROUP_WORKLOADS: tuple[Workload, ...] = (
    rebalances("classic"),
    rebalances("consumer"),
    client_rebalances("classic"),
    client_rebalances("consumer"),
    Workload("cold-start-consumer", "ten of librdkafka's members that start together, consumer protocol", cold_start),
    # Behind the length: correlation id and throttle time, and for a commit one topic with one partition.
    member_requests("heartbeat", heartbeat_frame, lambda group: 4 + 4),
    member_requests("offset-commit", commit_frame, lambda group: 4 + 4 + 4 + 2 + len(group.topic.encode()) + 4 + 4),
    held_groups("classic"),
    held_groups("consumer"),
    Workload("offsets-restart", "restart with 100,000 committed offsets", restart_with_offsets, "fresh", in_quick=True),
)
