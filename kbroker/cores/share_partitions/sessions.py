"""Share sessions (KIP-932): the partitions that each member fetches, remembered from request to request.

Pure. The rules are those of Kafka 4.4's ``ShareSessionCache`` and ``ShareSession``: a session is opened by epoch 0,
each later request has the next epoch, and it ends by epoch -1 or with its connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kbroker.cores.share_partitions.requests import TopicIdPartition
from kbroker.errors import ApiError, ErrorCode
from kbroker.types import Uuid

INITIAL_EPOCH = 0
"""Opens a session."""
FINAL_EPOCH = -1
"""Ends a session."""
_LAST_EPOCH = 2**31 - 1


class ShareSession:
    """One member's session: its partitions, in the order in which they are served."""

    __slots__ = ("_known_topics", "_partitions", "epoch", "group_id", "member_id")

    def __init__(self, group_id: str, member_id: str, partitions: Iterable[TopicIdPartition]) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = INITIAL_EPOCH + 1
        """The epoch that the next request must have."""
        self._partitions: dict[TopicIdPartition, bool] = dict.fromkeys(partitions, False)
        """Value: whether the next response tells of the partition even if it has nothing new."""
        self._known_topics: set[Uuid] = set()
        """Topics that there were at an earlier request."""

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def partitions(self) -> list[TopicIdPartition]:
        """The partitions that are fetched, those that were sent records lately last."""
        return list(self._partitions)

    def advance(self, epoch: int) -> None:
        """Take up a request with an epoch. ``ApiError`` INVALID_SHARE_SESSION_EPOCH unless it is the next one."""
        if epoch != self.epoch:
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        self.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1

    def update(self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        """Change the partitions as a request says."""
        for partition in added:
            self._partitions.setdefault(partition, True)
        for partition in forgotten:
            self._partitions.pop(partition, None)

    def know(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Note partitions whose topic there is."""
        self._known_topics.update(partition.topic_id for partition in partitions)

    def error(self, partition: TopicIdPartition, code: ErrorCode) -> ErrorCode:
        """The error as the session tells it: a topic that it has known, which is gone, is no unknown id."""
        is_gone = code is ErrorCode.UNKNOWN_TOPIC_ID and partition.topic_id in self._known_topics
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_gone else code

    def must_tell(self, partition: TopicIdPartition, *, has_records: bool, has_error: bool) -> bool:
        """Whether a later response tells of a partition: of news, of one that is new here, of the end of an error.

        One that is sent records is served last from then on.
        """
        pending = self._partitions.get(partition)
        if pending is None:
            return has_records or has_error  # it was forgotten while the request was served
        if has_records:
            del self._partitions[partition]
        self._partitions[partition] = has_error
        return has_records or has_error or pending


class ShareSessions:
    """The sessions of a node, at most ``limit`` (``group.share.max.share.sessions``)."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._members: dict[str, int] = {}
        """Sessions of each group that has some."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ShareSession]:
        return iter(self._sessions.values())

    def has_members(self, group_id: str) -> bool:
        """Whether any member of a group has a session."""
        return group_id in self._members

    def is_open(self, session: ShareSession) -> bool:
        """Whether a session is the present one of its member."""
        return self._sessions.get((session.group_id, session.member_id)) is session

    def find(self, group_id: str, member_id: str) -> ShareSession:
        """A member's session. ``ApiError`` SHARE_SESSION_NOT_FOUND."""
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def open(self, group_id: str, member_id: str, partitions: Iterable[TopicIdPartition]) -> ShareSession:
        """Open a session, in place of the member's last one. ``ApiError`` SHARE_SESSION_LIMIT_REACHED."""
        last = self._sessions.get((group_id, member_id))
        if last is not None:
            self.close(last)
        if len(self._sessions) >= self._limit:
            raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[group_id, member_id] = ShareSession(group_id, member_id, partitions)
        self._members[group_id] = self._members.get(group_id, 0) + 1
        return session

    def close(self, session: ShareSession) -> bool:
        """End a session; False if it has ended before, or the member has opened another since."""
        if not self.is_open(session):
            return False
        del self._sessions[session.group_id, session.member_id]
        self._members[session.group_id] -= 1
        if not self._members[session.group_id]:
            del self._members[session.group_id]
        return True
