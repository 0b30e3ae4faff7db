"""One share group: its members, its target assignment, and the partitions whose states exist.

Kafka's ``ShareGroup`` and ``ShareGroupMember`` (4.4). Nothing here decides: replay of the coordinator's records changes
a group, on load and in operation alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from enum import Enum
from types import MappingProxyType

from kbroker.cores.groups.assignors.spec import Assignment
from kbroker.cores.groups.modern_group import NOTHING_ASSIGNED, SubscribedGroup
from kbroker.types import Uuid
from kbroker.value_types import NamedTuple, dataclass, field

STABLE_MEMBER = 0
"""The only state of a member: it has its part of a target at once, as nobody has to give up anything."""


class ShareGroupState(Enum):
    """The state of a group, with the names that tools show."""

    EMPTY = "Empty"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ShareGroupMember:
    """A member as its two records describe it; a change makes a new one."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    assigned: Assignment = field(default_factory=lambda: NOTHING_ASSIGNED)

    must_give_up, rebalance_timeout_ms = False, -1
    """Others may read the same partitions, so nobody gives up anything first."""


class TopicPartitions(NamedTuple):
    """A topic by name, and some of its partitions."""

    name: str
    partitions: frozenset[int]


TopicsById = Mapping[Uuid, TopicPartitions]

_NO_TOPICS: TopicsById = MappingProxyType({})
_NO_NAMES: Mapping[Uuid, str] = MappingProxyType({})


class StatePartitions(NamedTuple):
    """The partitions of a group by the stage of their states, as the group's record has them.

    A topic whose states are being deleted stays in ``deleting``, by id with its name, until the share coordinator has
    forgotten them.
    """

    initializing: TopicsById = _NO_TOPICS
    initialized: TopicsById = _NO_TOPICS
    deleting: Mapping[Uuid, str] = _NO_NAMES


NO_STATES = StatePartitions()


@dataclass(slots=True, eq=False)
class ShareGroup(SubscribedGroup[ShareGroupMember]):
    """A share group's state."""

    KIND = "share"
    MEMBER = ShareGroupMember
    NO_TARGET = NOTHING_ASSIGNED
    RELEASED = MappingProxyType({"assigned": NOTHING_ASSIGNED})

    states: StatePartitions = NO_STATES
    states_changed_ms: int = 0
    """When ``states`` were stored; 0 after a load: an initialization of before is not under way any more."""

    @property
    def state(self) -> ShareGroupState:
        """Whether there are members."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def subscribed_names(self) -> Mapping[str, int]:
        """The topics that members subscribe to, with the number of those members."""
        return self._names

    def depends_on_any(self, topics: Set[str]) -> bool:
        """Whether a member subscribes to one of the topics."""
        return not topics.isdisjoint(self._names)

    def put_member(self, member: ShareGroupMember) -> None:
        """Add the member, or put it in the place of its older self."""
        self.remove_member(member.member_id)
        self.members[member.member_id] = member
        self._count_names(member, 1)

    def remove_member(self, member_id: str) -> None:
        """Remove the member, if there is one."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_names(member, -1)


def united(first: TopicsById, second: TopicsById) -> dict[Uuid, TopicPartitions]:
    """The partitions of both; a topic has the name of ``second`` where it is in both."""
    result = dict(first)
    for topic_id, each in second.items():
        known = result.get(topic_id)
        result[topic_id] = each if known is None else TopicPartitions(each.name, known.partitions | each.partitions)
    return result


def without(topics: TopicsById, removed: TopicsById) -> dict[Uuid, TopicPartitions]:
    """The partitions of ``topics`` that are not in ``removed``."""
    result = {}
    for topic_id, each in topics.items():
        gone = removed.get(topic_id)
        left = each.partitions if gone is None else each.partitions - gone.partitions
        if left:
            result[topic_id] = TopicPartitions(each.name, left)
    return result


def without_topics(topics: TopicsById, topic_ids: Iterable[Uuid]) -> dict[Uuid, TopicPartitions]:
    """``topics`` but for some."""
    gone = frozenset(topic_ids)
    return {topic_id: each for topic_id, each in topics.items() if topic_id not in gone}
