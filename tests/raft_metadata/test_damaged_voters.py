"""A voter that has lost a part of its log: when it votes again, and that nobody counts on what it has no more."""

from __future__ import annotations

import random

from kbroker.errors import ErrorCode
from kbroker.raft_metadata.raft.batches import encode_records
from kbroker.raft_metadata.raft.core import RaftCore
from kbroker.raft_metadata.raft.election_state import ElectionState
from kbroker.raft_metadata.raft.messages import Fetch, FetchResult, OutboundRequest, Reply
from kbroker.raft_metadata.raft.promises import Promises
from kbroker.raft_metadata.raft.replicated_log import ReplicatedLog
from kbroker.raft_metadata.raft.types import RaftConfig
from kbroker.raft_metadata.raft.voters import ReplicaKey, VoterEndpoint, VoterNode, VoterSet
from kbroker.sim.quorum.disk import MemoryStore, SimSnapshots
from kbroker.types import OffsetAndEpoch
from kbroker.wire.records.metadata import NoOpRecord
from tests.raft_metadata.test_raft_scripts import LISTENER, Script

ENDPOINTS = {number: {LISTENER: VoterEndpoint(f"node{number}", 9093)} for number in (1, 2, 3)}
VOTERS = VoterSet.of(VoterNode(ReplicaKey(number), endpoints) for number, endpoints in ENDPOINTS.items())


class Follower:
    """A voter that has lost all of its log, and follows leader 2 of epoch 3."""

    def __init__(self, promised: OffsetAndEpoch) -> None:
        promises = Promises()
        promises.note_end(promised)
        promises.lose("it was emptied")
        self.log = ReplicatedLog(MemoryStore(), SimSnapshots(), VOTERS, promises)
        self.core = RaftCore(
            ReplicaKey(1),
            self.log,
            random.Random(1),
            config=RaftConfig(),
            election_state=ElectionState(3, leader_id=2),
            bootstrap=[],
            local_endpoints=ENDPOINTS[1],
        )
        self.core.start(0)
        self._fetch = self._flushed()

    def _flushed(self) -> OutboundRequest:
        (request,) = self.core.on_flushed(self.log.end_offset, 0).send
        assert isinstance(request.request, Fetch) and request.request.offset == self.log.end_offset
        return request

    def take_one(self, high_watermark: int) -> None:
        """The leader answers with one record."""
        records = encode_records(
            [NoOpRecord()], base_offset=self.log.end_offset, epoch=3, timestamp_ms=0, metadata_version=30
        )
        result = FetchResult(ErrorCode.NONE, 3, 2, {}, high_watermark=high_watermark, records=records)
        sent = self._fetch
        ready = self.core.receive(Reply(sent.correlation_id, sent.destination, result), 0)
        assert self.log.append_fetched(ready.records, 3) is None
        self._fetch = self._flushed()


def test_it_votes_behind_a_leader_that_is_never_idle() -> None:
    follower = Follower(promised=OffsetAndEpoch(2, 2))
    for taken in range(1, 8):
        # The leader has no high watermark at first, and commits as quickly afterwards as this voter catches up.
        follower.take_one(-1 if taken < 3 else taken + 3)
        assert follower.core.may_vote == (taken >= 6), taken


def test_it_does_not_vote_before_it_has_what_it_had_promised() -> None:
    follower = Follower(promised=OffsetAndEpoch(5, 3))
    for taken in range(1, 8):
        follower.take_one(2)
        assert follower.core.may_vote == (taken >= 5), taken


def test_a_fetch_that_waited_promises_nothing_again() -> None:
    """Voter 3 asks for offset 2, loses what is before, and asks for offset 1: its first Fetch still waits."""
    script = Script()
    for command in ("nodes 3", "start 1 2 3", "live 200", "append 2", "drop 1", "deliver 3", "deliver 2", "crash 3"):
        script.run(command)
    script.replicas[3].store.truncate_to(1)
    leader = script.replicas[2].core
    assert leader is not None and leader.leader is not None and leader.leader.voters[3].end_offset == 2
    script.run("start 3")
    script.run("deliver 2")
    assert leader.leader.voters[3].end_offset == 1
    script.run("append 2")
    script.run("flush 2")
    assert (script.replicas[2].log.end_offset, leader.high_watermark) == (3, 1)


def test_no_leader_cuts_off_what_the_latest_snapshot_has() -> None:
    """It was committed, which a replica knows from its start on; its log begins at the snapshot before."""
    script = Script()
    for command in ("nodes 3", "start 1 2 3", "live 200"):
        script.run(command)
    for _ in range(2):
        for command in ("append 2", "flush 2", "live 100", "snapshot 1"):
            script.run(command)
    for command in ("crash 1", "start 1"):
        script.run(command)
    log, core = script.replicas[1].log, script.replicas[1].core
    assert core is not None and log.latest_snapshot_id is not None
    assert log.start_offset < log.latest_snapshot_id.offset == core.high_watermark
