"""The ``quorum-state`` file: epoch, leader and vote, so that a node never votes twice in an epoch.

The file is Kafka's JSON (``QuorumStateData`` version 0 for static quorums, 1 with directory ids).
"""

from __future__ import annotations

import json
import logging
import os
from typing import Protocol

from kbroker.log.disk import Disk, write_atomically
from kbroker.raft_metadata.raft.voters import ReplicaKey
from kbroker.types import ZERO_UUID, uuid_from_str, uuid_to_str
from kbroker.value_types import NamedTuple

logger = logging.getLogger(__name__)

FILE_NAME = "quorum-state"
_MAX_EPOCH = 2**31 - 1


class ElectionState(NamedTuple):
    """An epoch, its leader (-1: unknown), and this node's vote in it (None: no vote).

    A leader's own vote is None, too: it no longer matters.
    """

    epoch: int = 0
    leader_id: int = -1
    voted: ReplicaKey | None = None


def encode_election_state(state: ElectionState, kraft_version: int, voters: list[int]) -> bytes:
    """The file's content."""
    voted_id = -1 if state.voted is None else state.voted.id
    fields: dict[str, object]
    if kraft_version >= 1:
        directory = ZERO_UUID if state.voted is None else state.voted.directory_id
        fields = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted_id,
            "votedDirectoryId": uuid_to_str(directory),
            "data_version": 1,
        }
    else:
        fields = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in voters],
            "data_version": 0,
        }
    return json.dumps(fields, separators=(",", ":")).encode("ascii")


def decode_election_state(data: bytes) -> ElectionState:
    """The content of a file; ``ValueError`` if it is not one."""
    try:
        fields = json.loads(data)
        version = int(fields["data_version"])
        if version not in (0, 1):
            raise ValueError(f"data_version {version} is unknown")
        voted_id = int(fields["votedId"])
        voted = None
        if voted_id >= 0:
            directory = uuid_from_str(fields["votedDirectoryId"]) if version >= 1 else ZERO_UUID
            voted = ReplicaKey(voted_id, directory)
        state = ElectionState(int(fields["leaderEpoch"]), int(fields["leaderId"]), voted)
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if not 0 <= state.epoch <= _MAX_EPOCH or state.leader_id < -1:
        raise ValueError(f"epoch {state.epoch} cannot have leader {state.leader_id}")
    return state


class KeptVote(Protocol):
    """The second place of the state (:class:`~kbroker.raft_metadata.raft.promises.Promises`)."""

    election: ElectionState | None

    def vote(self, election: ElectionState, voters: list[int]) -> None: ...


class QuorumStateFile:
    """The file in the metadata log's directory, and the state's second place."""

    def __init__(self, disk: Disk, directory: str, kept: KeptVote) -> None:
        self._disk = disk
        self._kept = kept
        self.path = os.path.join(directory, FILE_NAME)

    def read(self) -> ElectionState | None:
        """The state, from the place that knows more; None if neither has one, as before the first election.

        A node writes both; Apache Kafka writes the file alone, which is then of a later epoch or has a vote.
        """
        places = [self._kept.election]
        try:
            if self._disk.exists(self.path):
                places.append(decode_election_state(self._disk.read_bytes(self.path)))
        except ValueError as error:
            logger.warning("%s is damaged: %s; it is made anew", self.path, error)
        known = [state for state in places if state is not None]
        return max(known, key=lambda state: (state.epoch, state.leader_id >= 0, state.voted is not None), default=None)

    def write(self, state: ElectionState, kraft_version: int, voters: list[int]) -> None:
        """Replace the state in both places; on return it is on disk. Blocks."""
        self._kept.vote(state, voters)
        write_atomically(self._disk, self.path, encode_election_state(state, kraft_version, voters))
