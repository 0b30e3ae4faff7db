"""Workloads of share groups (KIP-932): records through Java share consumers, and what many groups cost."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from benchmarks import raw
from benchmarks.clients import LoadError
from benchmarks.group_workloads import Talk
from benchmarks.members import NOT_READY, Loop, Wire
from benchmarks.servers import Server
from benchmarks.workloads import Bench, Figures, Workload
from kbroker.types import Uuid
from kbroker.wire.messages.share_fetch import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    FetchPartition,
    FetchTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)
from kbroker.wire.messages.share_groups import ShareGroupHeartbeatRequest

SIZE, PARTITIONS, GROUPS = 1_000, 6, 1_000


def _start(server: Server) -> None:
    """Start a server that keeps states of share partitions on its only node."""
    server.more_properties = {
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
    server.start()
    server.await_port()
    raw.await_record(server.host, server.port, "first")


def _new_group(server: Server) -> str:
    """A group that reads from the earliest record."""
    name = f"share-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 3})
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, name, incremental_configs=[entry])
    admin.incremental_alter_configs([group])[group].result(30)
    return name


def consume(members: int) -> Workload:
    """Members that read a topic together and accept what they get; a JVM that serves has done the same before."""

    def run(bench: Bench, server: Server) -> Figures:
        _start(server)
        count = bench.amount(1_000_000, 150_000)
        topic = bench.new_topic(server, PARTITIONS)
        bench.load.run("produce", server.bootstrap, topic, count, SIZE, "acks=all")
        bench.java.share_consume(server.bootstrap, topic, _new_group(server), members, count)
        group = _new_group(server)
        before = server.cpu_seconds()
        result = bench.java.share_consume(server.bootstrap, topic, group, members, count)
        cpu = server.cpu_seconds() - before
        return {
            "records_per_s": result["records"] / result["seconds"],
            "cpu_us_per_record": cpu / result["records"] * 1e6,
        }

    title = f"share consumer, java, 1 KB, {'1 member' if members == 1 else f'{members} members'}"
    return Workload(f"share-consume-{members}", title, run, "fresh")


def accept_latency(bench: Bench, server: Server) -> Figures:
    """Measure one record at a time, from its send until its consumer knows that its acceptance is kept."""
    _start(server)
    topic = bench.new_topic(server, 1)
    return bench.java.share_latency(
        server.bootstrap, topic, _new_group(server), bench.amount(3_000, 1_000), bench.amount(5_000, 1_000)
    )


class ShareMember:
    """The only member of a group: it joins, fetches what is new, and accepts it."""

    def __init__(self, wire: Wire, group: str, topic: str, topic_id: Uuid) -> None:
        self.epoch = 0
        self.is_assigned = False
        self.accepted = 0
        self._id = uuid.uuid4().hex
        self._group, self._topic, self._topic_id = group, topic, topic_id
        self._wire = wire
        self._session = 0
        self._acquired: list[tuple[int, int]] = []

    @property
    def has_record(self) -> bool:
        """Whether there is a record to accept."""
        return bool(self._acquired)

    def heartbeat(self, told: list[Any]) -> None:
        """Join, or ask for the assignment."""

        def answered(response: Any) -> None:
            if response.error_code not in {0, *NOT_READY}:
                raise LoadError(f"ShareGroupHeartbeat: error {response.error_code} {response.error_message}")
            if not response.error_code:
                self.epoch = response.member_epoch
                if response.assignment is not None:
                    self.is_assigned = bool(response.assignment.topic_partitions)
            told.append(response)

        request = ShareGroupHeartbeatRequest(
            group_id=self._group, member_id=self._id, member_epoch=self.epoch, subscribed_topic_names=[self._topic]
        )
        self._wire.ask(request, 1, answered)

    def fetch(self, told: list[Any]) -> None:
        """Open the session with the first call."""

        def answered(response: Any) -> None:
            parts = [part for topic in response.responses for part in topic.partitions]
            wrong = {response.error_code, *(part.error_code for part in parts)} - {0}
            if wrong:
                raise LoadError(f"ShareFetch: errors {wrong}")
            for part in parts:
                self._acquired += [(each.first_offset, each.last_offset) for each in part.acquired_records]
            told.append(response)

        first = FetchTopic(topic_id=self._topic_id, partitions=[FetchPartition(partition_index=0)])
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._id,
            share_session_epoch=self._session,
            max_wait_ms=5_000 if self._session else 100,
            min_bytes=1,
            max_records=500,
            batch_size=500,
            topics=[] if self._session else [first],
        )
        self._session += 1
        self._wire.ask(request, 1, answered)

    def accept(self, told: list[Any]) -> None:
        """Accept what was fetched."""

        def answered(response: Any) -> None:
            codes = {response.error_code, *(p.error_code for t in response.responses for p in t.partitions)}
            if codes != {0}:
                raise LoadError(f"ShareAcknowledge: errors {codes}")
            self.accepted += len(acquired)
            told.append(response)

        acquired, self._acquired = self._acquired, []
        batches = [
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[1])
            for first, last in acquired
        ]
        partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        request = ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._id,
            share_session_epoch=self._session,
            topics=[AcknowledgeTopic(topic_id=self._topic_id, partitions=[partition])],
        )
        self._session += 1
        self._wire.ask(request, 1, answered)


def held_groups(bench: Bench, server: Server) -> Figures:
    """1,000 groups of one member each, all of one partition; each has been handed a record and has accepted it."""
    _start(server)
    topic = bench.new_topic(server, 1)
    talk = Talk(server)
    talk.await_coordinator()
    topic_id = talk.topic_id(topic)
    before = server.resident_bytes()
    loop = Loop(server.host, server.port)
    try:
        figures = _hold_groups(loop, server, topic, topic_id, before)
    finally:
        loop.close_all()
    talk.close()
    return figures


def _hold_groups(loop: Loop, server: Server, topic: str, topic_id: Uuid, before: int) -> Figures:
    """The work of :func:`held_groups`; ``before`` is the memory, in bytes, of a server without connections."""
    members = [ShareMember(loop.open(), f"held-{number}", topic, topic_id) for number in range(GROUPS)]
    connected = server.resident_bytes()
    deadline = time.monotonic() + 120
    while waiting := [member for member in members if not member.is_assigned]:
        if time.monotonic() > deadline:
            raise LoadError(f"{len(waiting)} of {GROUPS} groups are not assigned anything after 120 s")
        _all(loop, waiting, "heartbeat")
        time.sleep(0.5)
    _all(loop, members, "fetch")  # from here on what comes is theirs
    deadline = time.monotonic() + 120
    while waiting := [member for member in members if not member.has_record]:
        if time.monotonic() > deadline:
            raise LoadError(f"{len(waiting)} of {GROUPS} groups have not been handed the record after 120 s")
        raw.await_record(server.host, server.port, topic)  # each time: a group may begin after the last one
        _all(loop, waiting, "fetch")
    _all(loop, members, "accept")
    return {
        "MB": server.resident_bytes() / 1e6,
        "more_MB": (server.resident_bytes() - connected) / 1e6,
        "connections_MB": (connected - before) / 1e6,
    }


def _all(loop: Loop, members: Sequence[ShareMember], what: str) -> None:
    """Have each member ask, and wait for all answers."""
    told: list[Any] = []
    for member in members:
        getattr(member, what)(told)
    loop.run_until(lambda: len(told) == len(members), f"answers to {what} of all", 120)


SHARE_WORKLOADS = (
    consume(1),
    consume(10),
    Workload("share-latency", "share consumer, java, one record at a time, send to accepted", accept_latency, "fresh"),
    Workload("share-groups-held", "1,000 share groups, 1,000 connections", held_groups, "fresh"),
)
