"""Conversations between replicas of the metadata log, as scripts: ``tests/scripts/raft_*.txt``.

A script has commands, each followed by what came of it. ``REGENERATE_SCRIPTS=1 pytest`` writes what comes of them now;
the difference is for the review. Commands::

    nodes 3 [dynamic]      a quorum of this many, none of them running
    start N...             start nodes, with what is on their disks
    deliver [N]            bring all messages to where they go, or those to node N; answers too; until nothing moves
    drop N                 lose what is on its way from and to node N
    wait MS                let time pass; nothing is delivered
    live MS                let time pass and deliver; empty fetches are not shown, what is repeated once
    append N VALUE         append a record on node N, which leads
    flush N                what node N's leader has appended is on its disk
    crash N                node N dies; what was not flushed is lost
    snapshot N             node N writes a snapshot of what is committed, and forgets the log below
    add N M [early]        ask node N to make M a voter, and perhaps to answer before that is committed
    remove N M             ask node N to make M an observer
    upgrade N LEVEL        node N's controller asks for a level of kraft.version
    resign N               node N gives up leading
    show                   every node's state
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.raft.core import RaftCore
from kbroker.raft_metadata.raft.election_state import ElectionState
from kbroker.raft_metadata.raft.messages import (
    AddVoter,
    InboundRequest,
    KRaftVersions,
    KRaftVersionsResult,
    Node,
    OutboundRequest,
    RaftRequest,
    RaftResponse,
    RemoveVoter,
    Reply,
    UpgradeKRaftVersion,
)
from kbroker.raft_metadata.raft.replicated_log import ReplicatedLog
from kbroker.raft_metadata.raft.snapshot import encode_snapshot
from kbroker.raft_metadata.raft.types import RaftConfig, Ready
from kbroker.raft_metadata.raft.voters import ReplicaKey, VoterEndpoint, VoterNode, VoterSet
from kbroker.sim.quorum.disk import MemoryStore, SimSnapshots
from kbroker.types import OffsetAndEpoch, Uuid
from kbroker.wire.records.metadata import NoOpRecord

SCRIPTS = Path(__file__).parent.parent / "scripts"
LISTENER = "CONTROLLER"


class _Replica:
    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.store = MemoryStore()
        self.snapshots = SimSnapshots()
        self.election: ElectionState | None = None
        self.log: ReplicatedLog
        self.core: RaftCore | None = None
        self.callers: dict[int, Callable[[RaftResponse], None]] = {}
        self.tokens = 0


class Script:
    """Runs commands and says what came of them."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.replicas: dict[int, _Replica] = {}
        self.on_the_way: deque[tuple[int, int, Callable[[], None]]] = deque()
        self.lines: list[str] = []
        self.voters = VoterSet()
        self.dynamic = False

    def run(self, command: str) -> str:
        """Run a command of a script, and return its output."""
        self.lines = []
        name, *arguments = command.split()
        getattr(self, f"do_{name}")(*arguments)
        return "\n".join(self.lines) or "ok"

    def say(self, text: str) -> None:
        """A line of output."""
        self.lines.append(text)

    # Commands

    def do_nodes(self, count: str, kind: str = "static") -> None:
        self.dynamic = kind == "dynamic"
        keys = [ReplicaKey(number, Uuid(bytes([number]) * 16)) for number in range(1, int(count) + 1)]
        voters = [key for key in keys if key.id <= 3]
        self.voters = VoterSet.of(
            VoterNode(
                key if self.dynamic else ReplicaKey(key.id),
                {LISTENER: VoterEndpoint(f"node{key.id}", 9093)},
                0,
                1 if self.dynamic else 0,
            )
            for key in voters
        )
        for key in keys:
            replica = self.replicas[key.id] = _Replica(key)
            if self.dynamic and key in voters:
                replica.snapshots.write(
                    OffsetAndEpoch(0, 0),
                    encode_snapshot((), now_ms=0, last_contained_log_timestamp=0, kraft_version=1, voters=self.voters),
                )

    def do_start(self, *numbers: str) -> None:
        for number in map(int, numbers):
            replica = self.replicas[number]
            replica.log = ReplicatedLog(replica.store, replica.snapshots, None if self.dynamic else self.voters)
            replica.core = RaftCore(
                replica.key,
                replica.log,
                random.Random(number),
                config=RaftConfig(),
                election_state=replica.election,
                bootstrap=[
                    Node(-1 - voter, VoterEndpoint(f"node{voter}", 9093))
                    for voter in self.voters.ids
                    if voter != number
                ],
                local_endpoints={LISTENER: VoterEndpoint(f"node{number}", 9093)},
            )
            self.act(replica, replica.core.start(self.now_ms))

    def do_deliver(self, to: str = "0") -> None:
        kept: deque[tuple[int, int, Callable[[], None]]] = deque()
        steps = 0
        while self.on_the_way and steps < 200:
            source, target, arrive = self.on_the_way.popleft()
            if to != "0" and target != int(to):
                kept.append((source, target, arrive))
            else:
                steps += 1
                arrive()
        self.on_the_way = kept

    def do_drop(self, number: str) -> None:
        before = len(self.on_the_way)
        self.on_the_way = deque(entry for entry in self.on_the_way if int(number) not in entry[:2])
        self.say(f"{before - len(self.on_the_way)} lost")

    def do_wait(self, duration: str) -> None:
        until = self.now_ms + int(duration)
        while True:
            due = [(r.core.next_deadline(), n, r) for n, r in self.replicas.items() if r.core is not None]
            due = [entry for entry in due if entry[0] <= until]
            if not due:
                break
            deadline, _, replica = min(due, key=lambda entry: entry[:2])
            self.now_ms = max(self.now_ms, int(deadline))
            assert replica.core is not None
            self.act(replica, replica.core.tick(self.now_ms))
        self.now_ms = until

    def do_live(self, duration: str) -> None:
        for _ in range(int(duration) // 10):
            self.do_wait("10")
            self.do_deliver()
        self.lines = [
            line
            for line in dict.fromkeys(self.lines)
            if "Fetch" not in line or line.endswith("records") or "diverging" in line or "snapshot" in line
        ]

    def do_append(self, number: str) -> None:
        replica = self.replicas[int(number)]
        core = self.core_of(replica)
        last = replica.log.append_records([NoOpRecord()], core.epoch, timestamp_ms=0, metadata_version=30)
        self.say(f"node {number}: record at offset {last.offset} of epoch {last.epoch}")
        self.act(replica, core.on_appended(self.now_ms))

    def do_flush(self, number: str) -> None:
        replica = self.replicas[int(number)]
        self.flush(replica)
        self.act(replica, self.core_of(replica).on_flushed(replica.log.end_offset, self.now_ms))

    def do_crash(self, number: str) -> None:
        replica = self.replicas[int(number)]
        replica.core = None
        replica.store.crash()
        replica.callers.clear()
        self.do_drop(number)

    def do_snapshot(self, number: str) -> None:
        replica = self.replicas[int(number)]
        offset = self.core_of(replica).high_watermark
        epoch = replica.log.last_epoch
        data = encode_snapshot(
            (),
            epoch=epoch,
            now_ms=0,
            last_contained_log_timestamp=0,
            kraft_version=replica.log.kraft_version,
            voters=replica.log.voters.last,
        )
        replica.snapshots.write(OffsetAndEpoch(offset, epoch), data)
        replica.log.on_snapshot_written(OffsetAndEpoch(offset, epoch), 0)
        self.say(f"node {number}: snapshot {offset}-{epoch}")

    def do_add(self, leader: str, number: str, how: str = "") -> None:
        key = self.replicas[int(number)].key
        endpoints = {LISTENER: VoterEndpoint(f"node{number}", 9093)}
        self.ask(leader, AddVoter(key, endpoints, 1000, ack_when_committed=how != "early"))

    def do_remove(self, leader: str, number: str) -> None:
        self.ask(leader, RemoveVoter(self.replicas[int(number)].key))

    def do_upgrade(self, number: str, level: str) -> None:
        core = self.core_of(self.replicas[int(number)])
        self.ask(number, UpgradeKRaftVersion(core.epoch, int(level)))

    def do_resign(self, number: str) -> None:
        replica = self.replicas[int(number)]
        self.act(replica, self.core_of(replica).resign(self.now_ms))

    def do_show(self) -> None:
        for number, replica in self.replicas.items():
            core = replica.core
            if core is None:
                self.say(f"node {number}: down")
                continue
            self.say(
                f"node {number}: {core.role.value} epoch {core.epoch} leader {core.leader_id} log "
                f"{replica.log.start_offset}..{replica.log.end_offset} high watermark {core.high_watermark} "
                f"voters {core.voters.ids}"
            )

    # The driver

    def core_of(self, replica: _Replica) -> RaftCore:
        assert replica.core is not None
        return replica.core

    def ask(self, number: str, request: RaftRequest) -> None:
        replica = self.replicas[int(number)]
        replica.tokens += 1
        replica.callers[replica.tokens] = lambda response: self.say(f"answer: {told(response)}")
        self.act(replica, self.core_of(replica).receive(InboundRequest(replica.tokens, request), self.now_ms))

    def flush(self, replica: _Replica) -> None:
        work = replica.log.begin_flush()
        if work is not None:
            work.end()

    def act(self, replica: _Replica, ready: Ready) -> None:
        """As the driver does; everything is said in that order."""
        core, log, number = self.core_of(replica), replica.log, replica.key.id
        name = f"node {number}"
        if ready.election_state is not None:
            state = replica.election = ready.election_state
            voted = "nobody" if state.voted is None else f"node {state.voted.id}"
            self.say(f"{name}: writes epoch {state.epoch}, leader {state.leader_id}, voted for {voted}")
        if ready.truncate_to is not None:
            log.truncate_to(ready.truncate_to)
            self.say(f"{name}: cuts its log at {log.end_offset}")
        if ready.snapshot is not None:
            chunk = ready.snapshot
            log.write_snapshot_chunk(chunk.snapshot_id, chunk.position, chunk.data)
            if chunk.is_last:
                log.install_snapshot(chunk.snapshot_id, log.finish_snapshot(chunk.snapshot_id))
                self.say(f"{name}: goes on from snapshot {chunk.snapshot_id.offset}-{chunk.snapshot_id.epoch}")
        if ready.records:
            fault = log.append_fetched(ready.records, core.epoch)
            self.say(f"{name}: appends, log ends at {log.end_offset}{f' ({fault})' if fault else ''}")
        if ready.append:
            log.append_control(ready.append, core.epoch, timestamp_ms=0)
            records = ", ".join(type(record).__name__ for record in ready.append)
            self.say(f"{name}: appends {records}, log ends at {log.end_offset}")
        if ready.flush:
            self.flush(replica)
            self.say(f"{name}: flushes up to {log.end_offset}")
        for request in ready.send:
            self.send(number, request)
        for response in ready.respond:
            if caller := replica.callers.pop(response.token, None):
                caller(response.response)
        if ready.high_watermark is not None:
            self.say(f"{name}: high watermark {ready.high_watermark}")
        if ready.role_changed:
            self.say(f"{name}: is {core.role.value} in epoch {core.epoch}, leader {core.leader_id}")
        if ready.flush:
            self.act(replica, core.on_flushed(log.end_offset, self.now_ms))
        elif ready.append:
            self.act(replica, core.on_appended(self.now_ms))

    def send(self, source: int, outbound: OutboundRequest) -> None:
        target = int(outbound.destination.address.host.removeprefix("node"))
        self.say(f"{source} > {target}: {told(outbound.request)}")

        def answer(response: RaftResponse | None, *, refused: bool = False) -> None:
            def arrive() -> None:
                core = self.replicas[source].core
                if core is not None:
                    reply = Reply(outbound.correlation_id, outbound.destination, response, refused)
                    self.act(self.replicas[source], core.receive(reply, self.now_ms))

            if response is not None:
                self.say(f"{target} > {source}: {told(response)}")
            self.on_the_way.append((target, source, arrive))

        def deliver() -> None:
            replica = self.replicas[target]
            if replica.core is None:
                answer(None, refused=True)
            elif isinstance(outbound.request, KRaftVersions):
                answer(KRaftVersionsResult(ErrorCode.NONE, 0, 1))
            else:
                replica.tokens += 1
                replica.callers[replica.tokens] = answer
                message = InboundRequest(replica.tokens, outbound.request)
                self.act(replica, replica.core.receive(message, self.now_ms))

        self.on_the_way.append((source, target, deliver))


def told(message: RaftRequest | RaftResponse) -> str:
    """A message in a few words: what is not as always."""
    parts = []
    value: Any
    for name, value in zip(message._fields, message, strict=True):
        if name in ("leader_endpoints", "endpoints", "max_bytes", "max_wait_ms", "log_start_offset"):
            continue
        if isinstance(value, ErrorCode):
            text = "" if value == ErrorCode.NONE else value.name
        elif isinstance(value, ReplicaKey):
            text = f"{name} {value.id}"
        elif isinstance(value, OffsetAndEpoch):
            text = f"{name} {value.offset}@{value.epoch}"
        elif isinstance(value, bytes):
            text = f"{name}" if value else ""
        elif isinstance(value, bool):
            text = name if value else ""
        elif isinstance(value, tuple):
            text = f"{name} {[key.id for key in value]}"
        else:
            text = "" if value is None else f"{name} {value}"
        if text:
            parts.append(text)
    name = type(message).__name__
    kafka_name = f"{name.removesuffix('Result')}Response" if name.endswith("Result") else f"{name}Request"
    return " ".join([kafka_name, *parts])


def play(text: str) -> str:
    """The script with what comes of its commands now."""
    script, out = Script(), []
    for line in text.splitlines():
        if line.startswith("#"):
            out.append(line)
        elif line and not line.startswith(" ") and line.startswith("> "):
            out.append("")
            out.append(line)
            out += [f"    {entry}" for entry in script.run(line[2:]).splitlines()]
    return "\n".join(out).strip() + "\n"


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("raft_*.txt")), ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    text = path.read_text("utf-8")
    played = play(text)
    if os.environ.get("REGENERATE_SCRIPTS"):
        path.write_text(played, "utf-8")
    else:
        assert played == text, f"REGENERATE_SCRIPTS=1 pytest {__file__} writes it anew"
