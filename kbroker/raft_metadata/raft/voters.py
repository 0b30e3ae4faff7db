"""The voter set of a KRaft quorum, and its history in the log (KIP-595, KIP-853)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping

from kbroker.types import ZERO_UUID, Uuid
from kbroker.value_types import NamedTuple, dataclass, field
from kbroker.wire.records import control


class ReplicaKey(NamedTuple):
    """A replica of the metadata log: a node, and the disk on which it keeps the log.

    ``directory_id`` is the zero uuid if the disk is not known, as in static quorums (kraft.version 0).
    """

    id: int
    directory_id: Uuid = ZERO_UUID

    @property
    def has_directory(self) -> bool:
        """Whether the disk is known."""
        return self.directory_id != ZERO_UUID

    def matches(self, other: ReplicaKey) -> bool:
        """Whether ``other`` is this replica; an unknown disk of this one matches any."""
        return self.id == other.id and (not self.has_directory or self.directory_id == other.directory_id)


class VoterEndpoint(NamedTuple):
    """The address of a voter's controller listener."""

    host: str
    port: int


Endpoints = Mapping[str, VoterEndpoint]
"""The addresses of a node's controller listeners by name; empty if they are not known."""


@dataclass(frozen=True, slots=True)
class VoterNode:
    """A voter: its id and directory, its endpoints, and the levels of ``kraft.version`` that it supports."""

    key: ReplicaKey
    endpoints: Endpoints = field(default_factory=dict)
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
        """The set of these voters, in id order."""
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
        """The number of voters that decides."""
        return len(self.voters) // 2 + 1

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether a replica votes. An unknown disk of the voter matches any."""
        voter = self.voters.get(key.id)
        return voter is not None and voter.key.matches(key)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        """Whether a replica needs no vote but its own."""
        return len(self.voters) == 1 and self.is_voter(key)

    def with_voter(self, voter: VoterNode) -> VoterSet:
        """The set with ``voter``, which replaces another of its id."""
        return VoterSet.of([*(other for other in self if other.id != voter.id), voter])

    def without(self, voter_id: int) -> VoterSet:
        """The set without that voter."""
        return VoterSet.of(voter for voter in self if voter.id != voter_id)

    def endpoints(self, voter_id: int) -> Endpoints:
        """A voter's endpoints; empty for a node that is no voter."""
        voter = self.voters.get(voter_id)
        return {} if voter is None else voter.endpoints

    def to_record(self) -> control.VotersRecord:
        """The control record of the set."""
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
                        min_supported_version=voter.min_kraft_version, max_supported_version=voter.max_kraft_version
                    ),
                )
                for voter in self
            ],
        )

    @classmethod
    def from_record(cls, record: control.VotersRecord) -> VoterSet:
        """The set of a control record."""
        return cls.of(
            VoterNode(
                ReplicaKey(voter.voter_id, Uuid(voter.voter_directory_id)),
                {e.name: VoterEndpoint(e.host, e.port) for e in voter.endpoints},
                voter.kraft_version_feature.min_supported_version,
                voter.kraft_version_feature.max_supported_version,
            )
            for voter in record.voters
        )


class VoterSetHistory:
    """The voter sets that the log holds, committed or not, by the offset of their record.

    The latest one counts, from the moment it is in the log (KIP-853). Without any, ``static`` counts
    (``controller.quorum.voters``).
    """

    SNAPSHOT_OFFSET = -1
    """The offset of the set in a freshly formatted node's snapshot 0-0."""

    def __init__(self, static: VoterSet | None = None) -> None:
        self.static = static if static is not None else VoterSet()
        self._offsets: list[int] = []
        self._sets: list[VoterSet] = []
        self.last = self.static
        """The set that counts now."""

    @property
    def last_offset(self) -> int | None:
        """The offset of the set that counts; None for the static one."""
        return self._offsets[-1] if self._offsets else None

    def add(self, offset: int, voters: VoterSet) -> None:
        """Add the set of a record at ``offset``, which must be above all others (``ValueError``)."""
        if self._offsets and offset <= self._offsets[-1]:
            raise ValueError(f"voters at offset {offset} come after those at {self._offsets[-1]}")
        self._offsets.append(offset)
        self._sets.append(voters)
        self.last = voters

    def at(self, offset: int) -> VoterSet:
        """The set of a snapshot that ends after ``offset``."""
        index = bisect_right(self._offsets, offset)
        return self._sets[index - 1] if index else self.static

    def truncate_to(self, end_offset: int) -> None:
        """The log now ends at ``end_offset``."""
        while self._offsets and self._offsets[-1] >= end_offset:
            self._offsets.pop()
            self._sets.pop()
        self.last = self._sets[-1] if self._sets else self.static

    def forget_before(self, start_offset: int) -> None:
        """The log now starts at ``start_offset``: keep the set that counted before it, and all later ones."""
        index = bisect_left(self._offsets, start_offset)
        if index > 1:
            del self._offsets[: index - 1]
            del self._sets[: index - 1]

    def clear(self) -> None:
        """Forget all sets, as a snapshot replaces the log."""
        self._offsets.clear()
        self._sets.clear()
        self.last = self.static
