"""Who votes: the voter set of a KRaft quorum (KIP-595, KIP-853)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kbroker.types import ZERO_UUID, Uuid
from kbroker.wire.records import control


class ReplicaKey(NamedTuple):
    """A replica of the metadata log: a node, and the disk it keeps the log on.

    ``directory_id`` is the zero uuid where it is not known (static quorums: kraft.version 0).
    """

    id: int
    directory_id: Uuid = ZERO_UUID

    @property
    def has_directory(self) -> bool:
        """Whether the disk is known."""
        return self.directory_id != ZERO_UUID


class VoterEndpoint(NamedTuple):
    """Where a voter's controller listener is."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class VoterNode:
    """One voter. ``endpoints`` by listener name."""

    key: ReplicaKey
    endpoints: Mapping[str, VoterEndpoint] = field(default_factory=dict)
    min_kraft_version: int = 0
    max_kraft_version: int = 1

    @property
    def id(self) -> int:
        """The node id."""
        return self.key.id


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters by node id. A node id occurs once, whatever its disk."""

    voters: Mapping[int, VoterNode] = field(default_factory=dict)

    @classmethod
    def of(cls, voters: Iterable[VoterNode]) -> VoterSet:
        """A set of these, in id order."""
        return cls({voter.id: voter for voter in sorted(voters, key=lambda voter: voter.id)})

    def __iter__(self) -> Iterator[VoterNode]:
        return iter(self.voters.values())

    def __len__(self) -> int:
        return len(self.voters)

    @property
    def ids(self) -> list[int]:
        """Node ids in order."""
        return list(self.voters)

    @property
    def majority(self) -> int:
        """How many voters decide."""
        return len(self.voters) // 2 + 1

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether this replica votes. A disk that one side does not know matches any."""
        voter = self.voters.get(key.id)
        if voter is None:
            return False
        if not voter.key.has_directory:
            return True
        return voter.key.directory_id == key.directory_id

    def is_only_voter(self, key: ReplicaKey) -> bool:
        """Whether this replica needs nobody's vote but its own."""
        return len(self.voters) == 1 and self.is_voter(key)

    def with_voter(self, voter: VoterNode) -> VoterSet:
        """The set with ``voter`` in it, in place of another of its id."""
        return VoterSet.of([*(other for other in self if other.id != voter.id), voter])

    def without(self, voter_id: int) -> VoterSet:
        """The set without that voter."""
        return VoterSet.of(voter for voter in self if voter.id != voter_id)

    def to_record(self) -> control.VotersRecord:
        """The control record that announces the set."""
        return control.VotersRecord(
            version=0,
            voters=[
                control.VotersRecordVoter(
                    voter_id=voter.id,
                    voter_directory_id=voter.key.directory_id,
                    endpoints=[
                        control.Endpoint(name=name, host=endpoint.host, port=endpoint.port)
                        for name, endpoint in voter.endpoints.items()
                    ],
                    kraft_version_feature=control.KRaftVersionFeature(
                        min_supported_version=voter.min_kraft_version,
                        max_supported_version=voter.max_kraft_version,
                    ),
                )
                for voter in self
            ],
        )

    @classmethod
    def from_record(cls, record: control.VotersRecord) -> VoterSet:
        """The set that a control record announces."""
        return cls.of(
            VoterNode(
                ReplicaKey(voter.voter_id, Uuid(voter.voter_directory_id)),
                {e.name: VoterEndpoint(e.host, e.port) for e in voter.endpoints},
                voter.kraft_version_feature.min_supported_version,
                voter.kraft_version_feature.max_supported_version,
            )
            for voter in record.voters
        )
