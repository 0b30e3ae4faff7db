"""The answers of the verbs of a test, and their failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, TypedDict

from kbroker.testing.parameters import Api, Error, Group, Index, Offset, Regex, Topic

NodeAction: TypeAlias = Literal["stop", "start", "kill", "pause", "resume"]


class NotThere(LookupError):
    """A topic, a node or the like that does not exist; the text is one line."""


class CannotNow(RuntimeError):
    """It is not possible for what is there, as it is now; the text is one line."""


class NotInTime(TimeoutError):
    """A wait that came to its end; ``seen`` is what was seen last."""

    def __init__(self, text: str, seen: object) -> None:
        super().__init__(text)
        self.seen = seen


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """A group as its coordinator describes it. The state is empty, and the coordinator -1, of one that is not there."""

    group: str
    type: str
    state: str
    coordinator: int
    members: list[str]
    """Their ids."""
    assigned: dict[str, list[str]]
    """Member id -> its partitions, as ``topic-0``."""

    def __str__(self) -> str:
        return f"{self.state or 'not there'} with {len(self.members)} members"


@dataclass(frozen=True, slots=True)
class OffsetSeen:
    """An offset of a partition: the end of its log, or what a group has committed (-1: nothing)."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"at {self.offset}"


@dataclass(frozen=True, slots=True)
class LagSeen:
    """The records of a topic that a group has not read, by partition."""

    topic: str
    group: str
    lag: dict[int, int]

    def __str__(self) -> str:
        return f"behind by {sum(self.lag.values())} records"


@dataclass(frozen=True, slots=True)
class LeaderSeen:
    """The leader of a partition."""

    topic: str
    partition: int
    leader: int

    def __str__(self) -> str:
        return f"led by {self.leader}"


@dataclass(frozen=True, slots=True)
class ResetDone:
    """The topics and groups that are gone, and the groups that members kept."""

    topics: list[str]
    groups: list[str]
    kept: list[str]

    def __str__(self) -> str:
        kept = f", {len(self.kept)} groups kept" if self.kept else ""
        return f"{len(self.topics)} topics and {len(self.groups)} groups deleted{kept}"


@dataclass(frozen=True, slots=True)
class ClockSeen:
    """The clocks of the nodes: whether they stand, the seconds that they are ahead of the machine's, and the time."""

    stands: bool
    ahead: float
    wall_clock_ms: int


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node: "running", "paused" or "down", and its address for clients."""

    node: int
    state: str
    address: str


@dataclass(frozen=True, slots=True)
class RequestSeen:
    """A request that a client made, and what it was answered (empty, with the reason, where it was not)."""

    number: int
    node: int
    at_ms: int
    took_ms: float
    api: str
    version: int
    client_id: str | None
    correlation_id: int
    peer: str
    principal: str
    software: str
    topics: dict[str, list[int]]
    """Those that the request names, with their partitions; of a fetch also those of its session."""
    groups: list[str]
    transactional_ids: list[str]
    errors: list[str]
    """Those in the answer, each once."""
    request: str
    answer: str


@dataclass(frozen=True, slots=True)
class RequestsSeen:
    """Requests, oldest first; how many there are of those that were asked for, and where to go on.

    ``lost`` are requests of any kind that gave way to newer ones.
    """

    requests: list[RequestSeen]
    count: int
    next: int
    lost: int

    def __str__(self) -> str:
        return f"{self.count} requests"


class Wanted(TypedDict, total=False):
    """The requests that are asked for; without any of these, all. ``after``: their lowest number."""

    api: Api | None
    client_id: Regex | None
    topic: Topic | None
    partition: Index | None
    group: Group | None
    error: Error | None
    after: Offset
