"""The ``quorum-state`` file: epoch, leader and vote, so that a node never votes twice in an epoch.

The file is Kafka's JSON (``QuorumStateData`` version 0 for static quorums, 1 with directory ids).
"""

from __future__ import annotations

import json
import os

from kbroker.errors import FatalError
from kbroker.log.disk import Disk, write_atomically
from kbroker.raft_metadata.raft.voters import ReplicaKey
from kbroker.types import ZERO_UUID, uuid_from_str, uuid_to_str
from kbroker.value_types import NamedTuple

FILE_NAME = "quorum-state"


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
        return ElectionState(int(fields["leaderEpoch"]), int(fields["leaderId"]), voted)
    except (KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


class QuorumStateFile:
    """The file in the metadata log's directory."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.path = os.path.join(directory, FILE_NAME)

    def read(self) -> ElectionState | None:
        """The state; None before the first election. :class:`FatalError` if the file is damaged: without it the node
        might vote twice."""
        if not self._disk.exists(self.path):
            return None
        try:
            return decode_election_state(self._disk.read_bytes(self.path))
        except ValueError as error:
            raise FatalError(f"{self.path} is damaged: {error}") from error

    def write(self, state: ElectionState, kraft_version: int, voters: list[int]) -> None:
        """Replace the file; on return it is on disk. Blocks."""
        write_atomically(self._disk, self.path, encode_election_state(state, kraft_version, voters))
