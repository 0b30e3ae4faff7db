"""The interface of the Raft core: its settings, the log that it reads, and the ``Ready`` that a driver carries out.

The settings, the voters and the addresses of a node are made from its properties here, too.
"""

from __future__ import annotations

from typing import Protocol

from kbroker.config import BrokerConfig
from kbroker.raft_metadata.raft.election_state import ElectionState
from kbroker.raft_metadata.raft.leader_state import QuorumReplicaProgress
from kbroker.raft_metadata.raft.messages import Node, OutboundRequest, OutboundResponse, SnapshotChunk
from kbroker.raft_metadata.raft.voters import ReplicaKey, VoterEndpoint, VoterNode, VoterSet, VoterSetHistory
from kbroker.types import OffsetAndEpoch
from kbroker.value_types import NamedTuple

BOOTSTRAP_SNAPSHOT = OffsetAndEpoch(0, 0)
"""The id of the snapshot that formatting writes. It is never sent: the first leader writes its voters into the log."""


class LogView(Protocol):
    """The log and the snapshots, as the core reads them. Only the driver changes them."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        ...

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, of the latest snapshot if there is none, else 0."""
        ...

    @property
    def voters(self) -> VoterSetHistory:
        """The voter sets in the log."""
        ...

    @property
    def kraft_version(self) -> int:
        """The level of ``kraft.version`` in the log."""
        ...

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None: ...

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None: ...

    @property
    def is_whole(self) -> bool:
        """Whether all that this replica has promised is known, and the log has it: nothing was damaged, or it came
        back."""
        ...

    def keeps_promises_to(self, end_offset: int) -> bool:
        """Whether the log below ``end_offset`` has all that this replica had promised when it was last whole."""
        ...

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        """The end offset of the largest epoch not above ``epoch``; the log's end for an epoch above all."""
        ...

    def read_bytes(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds ``offset``; at least one if there is any. ``DamagedLog``."""
        ...

    def doubt(self, offset: int) -> None:
        """Have what is read at ``offset`` verified once more."""
        ...

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        """A snapshot's size, and up to ``max_bytes`` from ``position``; None if there is no such snapshot."""
        ...


class RaftConfig(NamedTuple):
    """Kafka's ``controller.quorum.*``, in milliseconds and bytes."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_bytes: int = 1024 * 1024
    fetch_snapshot_max_bytes: int = 1024 * 1024
    fetch_max_wait_ms: int = 500
    auto_join: bool = False
    initial_election_timeout_ms: int = 200
    """Longest wait of a voter that starts and knows no leader. It may be short: a pre-vote disturbs no leader."""
    refused_election_timeout_ms: int = 100
    """Longest wait of a follower whose leader's address refuses connections."""


class Ready:
    """The driver's instructions, to be carried out in the order of the fields before it calls the core again.

    - ``role_changed``: role, epoch or leader have changed. The owner hears of it first, so that it decides nothing more
      for an epoch that is over.
    - ``election_state`` must be on disk before the driver goes on.
    - ``append``, of a leader: append a batch of control records in the epoch of the core.
    - ``truncate_to``, of a follower: cut the log there. ``snapshot``: keep a chunk; with the last one the snapshot
      replaces the log. ``records``: append the leader's batches, as far as they are intact.
    - ``regained``: note, durably, that the log has all again that it had lost.
    - ``flush``: the whole log must be on disk before the messages go out. At the end the driver calls ``on_flushed``,
      or ``on_no_room`` if what came with it was left out, as the disk has no room. After ``append`` without
      ``flush`` it calls ``on_appended`` instead, and ``on_flushed`` once the batch is on disk.
    - ``send``: requests to other nodes; ``respond``: responses to requests of other nodes.
    - ``high_watermark``: all below is committed; None if it did not move.
    """

    __slots__ = (
        "append",
        "election_state",
        "flush",
        "high_watermark",
        "records",
        "regained",
        "respond",
        "role_changed",
        "send",
        "snapshot",
        "truncate_to",
    )

    def __init__(self) -> None:
        self.role_changed = False
        self.election_state: ElectionState | None = None
        self.append: list[object] = []
        self.truncate_to: int | None = None
        self.snapshot: SnapshotChunk | None = None
        self.records = b""
        self.regained = False
        self.flush = False
        self.send: list[OutboundRequest] = []
        self.respond: list[OutboundResponse] = []
        self.high_watermark: int | None = None

    @property
    def needs_disk(self) -> bool:
        """Whether carrying it out may wait for the disk."""
        return (
            self.flush
            or self.regained
            or self.election_state is not None
            or self.truncate_to is not None
            or self.snapshot is not None
        )


class QuorumView(NamedTuple):
    """The quorum as its leader sees it; the times are of the core's clock, -1 for never."""

    leader_id: int
    epoch: int
    high_watermark: int
    log_end_offset: int
    """The end of this replica's own log."""
    voters: list[QuorumReplicaProgress]
    observers: list[QuorumReplicaProgress]


def raft_config(config: BrokerConfig) -> RaftConfig:
    """The settings of the core, from ``controller.quorum.*``."""
    return RaftConfig(
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
        fetch_snapshot_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
        auto_join=config.controller_quorum_auto_join_enable,
    )


def controller_listener(config: BrokerConfig) -> str:
    """The name of the listener that the quorum's nodes use among themselves, the first controller listener."""
    names = config.controller_listener_names
    return names[0] if names else "CONTROLLER"


def static_voters(config: BrokerConfig) -> VoterSet:
    """The voters of ``controller.quorum.voters``. Their disks and levels are not known: they tell them their leader."""
    listener = controller_listener(config)
    return VoterSet.of(
        VoterNode(ReplicaKey(voter.node_id), {listener: VoterEndpoint(voter.host, voter.port)}, 0, 0)
        for voter in config.controller_quorum_voters
    )


def bootstrap_nodes(config: BrokerConfig) -> list[Node]:
    """The nodes to ask for the leader: ``controller.quorum.bootstrap.servers``, or without them the static voters."""
    addresses = [VoterEndpoint(host, port) for host, port in config.controller_quorum_bootstrap_servers] or [
        VoterEndpoint(voter.host, voter.port) for voter in config.controller_quorum_voters
    ]
    return [Node(-2 - index, address) for index, address in enumerate(addresses)]
