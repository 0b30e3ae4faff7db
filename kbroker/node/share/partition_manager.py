"""The share partitions that this node leads, and the share sessions of their readers (``SharePartitionManager``).

A share partition is loaded with the first ShareFetch that names it. It goes when the partition gets another leader
epoch, when the persister refuses its writer, and when the group's last session here has ended and its connection ends
too, or begins with another group.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING

import trio

from kbroker.cores.share_partitions.acknowledging import AcknowledgementBatch
from kbroker.cores.share_partitions.requests import Denied, ShareFetched, ShareFetchParams, TopicIdPartition
from kbroker.cores.share_partitions.sessions import ShareSession, ShareSessions
from kbroker.cores.share_state import Persister, SharePartitionKey
from kbroker.errors import ApiError, ErrorCode
from kbroker.node.share.fetch import ShareFetch
from kbroker.node.share.led_partition import LedSharePartition
from kbroker.raft_metadata.features import SHARE_VERSION
from kbroker.runtime.later import Later

if TYPE_CHECKING:
    from kbroker.cores.share_partitions.in_flight_view import InFlightView
    from kbroker.cores.share_partitions.settings import ShareGroupSettings
    from kbroker.handlers.services.connection import Connection
    from kbroker.node.replicas.partition import Partition
    from kbroker.node.replicas.replica_manager import ReplicaManager
    from kbroker.node.share.dead_letters import DeadLetterQueue
    from kbroker.observe.metrics.share_traffic import SharePartitionTraffic, ShareTraffic
    from kbroker.raft_metadata.image import MetadataDelta, MetadataImage

_FOREVER_MS = 2**62


class SharePartitionManager:
    """Answers ShareFetch and ShareAcknowledge. `run` ends locks whose time is over."""

    def __init__(
        self,
        manager: ReplicaManager,
        persister: Persister,
        settings: Callable[[str], ShareGroupSettings],
        max_sessions: int,
        dead_letters: DeadLetterQueue,
    ) -> None:
        """``settings`` gives those of a group, as they are now."""
        self.sessions = ShareSessions(max_sessions)
        self.replicas = manager
        self.settings = settings
        self._persister = persister
        self._dead_letters = dead_letters
        self._led: dict[SharePartitionKey, LedSharePartition] = {}
        self._groups_of: dict[Connection, set[str]] = {}
        """Groups of which a session was opened on a connection, and which have members or have had them lately."""
        self._sessions_of: dict[Connection, list[ShareSession]] = {}
        self._deadlines: list[tuple[int, SharePartitionKey]] = []
        """Heap of the times, in ms, at which locks may end."""
        self._new_deadline = trio.Event()

    @property
    def _traffic(self) -> ShareTraffic | None:
        """The counts of the metrics, if there are any."""
        traffic = self.replicas.progress.traffic
        return None if traffic is None else traffic.shares

    def led(self) -> list[LedSharePartition]:
        """The share partitions that are led here, loaded or not, for metrics."""
        return [led for led in self._led.values() if led.is_current]

    # --- share partitions -------------------------------------------------------------------------------------

    def lead(self, group_id: str, wanted: TopicIdPartition) -> LedSharePartition:
        """The share partition, being loaded if it is new. ``ApiError`` if this node does not lead the partition."""
        partition = self._partition(wanted)
        key = SharePartitionKey(group_id, *wanted)
        led = self._led.get(key)
        if led is not None and led.is_current and led.partition is partition:
            return led
        if led is not None:
            led.end()
        led = self._led[key] = LedSharePartition(
            key,
            partition,
            env=self.replicas.env,
            persister=self._persister,
            settings=partial(self.settings, group_id),
            start_soon=self.replicas.start_soon,
            on_ended=self._forget,
            dead_letters=self._dead_letters,
            traffic=self._new_counts(),
        )
        self.replicas.start_soon(self._load, led)
        return led

    def _partition(self, wanted: TopicIdPartition) -> Partition:
        name = self.replicas.topic_name(wanted.topic_id)
        if name is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        return self.replicas.get_leader(name, wanted.partition)

    def _new_counts(self) -> SharePartitionTraffic | None:
        if self._traffic is None:
            return None
        from kbroker.observe.metrics.share_traffic import SharePartitionTraffic

        return SharePartitionTraffic()

    async def _load(self, led: LedSharePartition) -> None:
        began = self.replicas.env.now()
        await led.load()
        if self._traffic is not None and led.core is not None:
            self._traffic.loads.observe_seconds(self.replicas.env.now() - began)

    def in_memory(self, key: SharePartitionKey) -> LedSharePartition | None:
        """A share partition as this node has it, whether or not it still leads; None if it has none."""
        return self._led.get(key)

    def _forget(self, led: LedSharePartition) -> None:
        if self._led.get(led.key) is led:
            del self._led[led.key]
        led.end()

    def _find(self, group_id: str, wanted: TopicIdPartition) -> LedSharePartition | None:
        led = self._led.get(SharePartitionKey(group_id, *wanted))
        return led if led is not None and led.is_current else None

    def _of_group(self, group_id: str) -> list[LedSharePartition]:
        return [led for led in self._led.values() if led.key.group_id == group_id]

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Drop what this node does not lead any more; everything where the cluster serves no share groups any more."""
        if delta.features_changed and not image.features.levels.get(SHARE_VERSION, 0):
            for session in list(self.sessions):
                self.sessions.close(session)
            for led in list(self._led.values()):
                self._forget(led)
        changed = {*delta.changed_topics, *delta.deleted_topics}
        if changed:
            for led in list(self._led.values()):
                if led.key.topic_id in changed:
                    self.replicas.find(*led.partition.topic_partition)  # led on or not: it is known after this
                    if not led.is_current:
                        self._forget(led)

    # --- those who look ---------------------------------------------------------------------------------------

    def in_flight(self, group_id: str, wanted: TopicIdPartition, most: int) -> InFlightView | None:
        """The records in flight, in at most so many ranges; None where no member has read since this node leads.

        ``ApiError`` if this node does not lead the partition.
        """
        from kbroker.cores.share_partitions.in_flight_view import view

        self._partition(wanted)
        led = self._find(group_id, wanted)
        return None if led is None or led.core is None else view(led.core, most, led.now_ms())

    def read_here(self) -> dict[str, list[TopicIdPartition]]:
        """Group -> the partitions led here that its members have read."""
        found: dict[str, list[TopicIdPartition]] = {}
        for led in self.led():
            found.setdefault(led.key.group_id, []).append(TopicIdPartition(*led.key[1:]))
        return found

    # --- requests ---------------------------------------------------------------------------------------------

    async def fetch(
        self, params: ShareFetchParams, partitions: Sequence[TopicIdPartition], connection: Connection, denied: Denied
    ) -> dict[TopicIdPartition, ShareFetched]:
        """Hand out records; if there are less than ``min_bytes``, wait for some. Those that were read, in order.

        A partition's error is in its part. ``ConnectionLost`` when the client goes away meanwhile. ``denied`` is asked
        when rules have changed during a wait.
        """
        if not partitions or params.max_records <= 0 or params.max_bytes <= 0:
            return {}
        fetched = await ShareFetch(self, params, partitions, denied).run(connection)
        if self.replicas.progress.traffic is not None:
            self._count_fetch(params.group_id, fetched, len(partitions))
        return fetched

    def _count_fetch(self, group_id: str, fetched: Mapping[TopicIdPartition, ShareFetched], wanted_count: int) -> None:
        traffic = self.replicas.progress.traffic
        assert traffic is not None
        read = 0
        for wanted, part in fetched.items():
            read += part.error is None
            name = self.replicas.topic_name(wanted.topic_id)
            if name is not None:
                traffic.shared(name, len(part.records), failed=part.error is not None)
            led = self._find(group_id, wanted) if part.acquired else None
            if led is not None and led.traffic is not None:
                for first, last, count in part.acquired:
                    if count == 1:
                        led.traffic.batch_sizes.observe(last - first + 1)
        traffic.shares.fetch(group_id, read, wanted_count)

    def give_back(self, params: ShareFetchParams, fetched: Mapping[TopicIdPartition, ShareFetched]) -> None:
        """Take back what a member has not been sent, as if it had never been handed out."""
        for wanted, part in fetched.items():
            led = self._find(params.group_id, wanted)
            if led is not None and led.core is not None:
                led.core.give_back(params.member_id, part.acquired)
                led.wake()

    async def acknowledge(
        self, group_id: str, member_id: str, batches: Mapping[TopicIdPartition, Sequence[AcknowledgementBatch]]
    ) -> dict[TopicIdPartition, ApiError | None]:
        """Take a member's word for records that it holds; the answer of each partition, once that is kept."""
        outcomes: dict[TopicIdPartition, Later[None]] = {}
        for wanted, told in batches.items():
            outcomes[wanted] = self._acknowledge(self._find(group_id, wanted), member_id, told)
        answers: dict[TopicIdPartition, ApiError | None] = {}
        for wanted, outcome in outcomes.items():
            try:
                await outcome
                answers[wanted] = None
            except ApiError as error:
                answers[wanted] = error.without_traceback()
        traffic = self.replicas.progress.traffic
        if traffic is not None:
            for wanted, refusal in answers.items():
                name = self.replicas.topic_name(wanted.topic_id)
                if name is not None:
                    traffic.acknowledged(name, failed=refusal is not None)
                for first, last, types in batches[wanted] if refusal is None else ():
                    traffic.shares.acknowledge(types, last - first + 1)
        return answers

    def _acknowledge(
        self, led: LedSharePartition | None, member_id: str, told: Sequence[AcknowledgementBatch]
    ) -> Later[None]:
        refused: Later[None] = Later()
        if led is None:
            refused.fail(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return refused
        if led.core is None:
            refused.fail(ApiError(ErrorCode.INVALID_RECORD_STATE))
            return refused
        try:
            outcome = led.keep(led.core.acknowledge(member_id, told, led.now_ms()))
        except ApiError as error:
            refused.fail(error.without_traceback())
            return refused
        return outcome

    # --- sessions ---------------------------------------------------------------------------------------------

    def open_session(
        self, group_id: str, member_id: str, partitions: Iterable[TopicIdPartition], connection: Connection
    ) -> None:
        """Open a member's session anew; it ends with its connection. ``ApiError`` SHARE_SESSION_LIMIT_REACHED."""
        session = self.sessions.open(group_id, member_id, partitions)
        if connection not in self._groups_of:
            self._groups_of[connection] = set()
            connection.when_closed.append(partial(self._on_closed, connection))
        groups = self._groups_of[connection]
        if group_id not in groups:
            self._forget_ended(groups)
            groups.add(group_id)
        others = (each for each in self._sessions_of.get(connection, ()) if self.sessions.is_open(each))
        self._sessions_of[connection] = [*others, session]

    def close_session(self, group_id: str, member_id: str) -> None:
        """End a member's session: what it holds is there for others."""
        self._end(self.sessions.find(group_id, member_id))

    def _end(self, session: ShareSession) -> None:
        if not self.sessions.close(session):
            return
        for led in self._of_group(session.group_id):
            if led.core is not None and led.is_current:
                led.keep(led.core.release(session.member_id))

    def _on_closed(self, connection: Connection) -> None:
        for session in self._sessions_of.pop(connection, ()):
            if self._traffic is not None and self.sessions.is_open(session):
                self._traffic.evicted_sessions += 1
            self._end(session)
        self._forget_ended(self._groups_of.pop(connection, set()))

    def _forget_ended(self, groups: set[str]) -> None:
        """Take out the groups whose last session here has ended, and forget their share partitions."""
        for group_id in [each for each in groups if not self.sessions.has_members(each)]:
            groups.remove(group_id)
            for led in self._of_group(group_id):
                self._forget_idle(led)

    def _forget_idle(self, led: LedSharePartition) -> None:
        """Forget a share partition without readers, once all that it has decided is kept."""
        if led.is_idle:
            self._forget(led)
        elif not led.is_to_be_forgotten:
            led.is_to_be_forgotten = True
            self.replicas.start_soon(self._forget_later, led)

    async def _forget_later(self, led: LedSharePartition) -> None:
        await led.until_idle()
        led.is_to_be_forgotten = False
        if not self.sessions.has_members(led.key.group_id):
            self._forget(led)

    # --- locks ------------------------------------------------------------------------------------------------

    def locked(self, led: LedSharePartition, until_ms: int) -> None:
        """Locks were given that end at a time: note it, unless some end earlier."""
        if led.locks_end_ms is not None and led.locks_end_ms <= until_ms:
            return
        led.locks_end_ms = until_ms
        if not self._deadlines or until_ms < self._deadlines[0][0]:
            self._new_deadline.set()
        heapq.heappush(self._deadlines, (until_ms, led.key))

    async def run(self) -> None:
        """End locks whose time is over, for as long as the node runs."""
        now = self.replicas.env.now
        while True:
            self._new_deadline = trio.Event()
            until = (self._deadlines[0][0] + 1) / 1000 if self._deadlines else inf
            with trio.move_on_at(until):
                await self._new_deadline.wait()
            now_ms = int(now() * 1000)
            while self._deadlines and self._deadlines[0][0] <= now_ms:
                _, key = heapq.heappop(self._deadlines)
                led = self._led.get(key)
                if led is not None:
                    self._expire(led, now_ms)

    def end_all_locks(self, group_id: str | None = None) -> int:
        """End all locks of a group, or of all groups, whatever their time; how many share partitions had some."""
        expired = 0
        for led in list(self._led.values()):
            if group_id is None or led.key.group_id == group_id:
                expired += self._expire(led, _FOREVER_MS)
        return expired

    def _expire(self, led: LedSharePartition, now_ms: int) -> bool:
        if led.core is None or not led.is_current:
            return False
        write = led.core.expire_locks(now_ms)
        led.locks_end_ms = None
        deadline = led.core.next_deadline(led.now_ms())
        if deadline is not None:
            self.locked(led, deadline)
        if write is None:
            return False
        if led.traffic is not None:
            led.traffic.expired_locks += sum(each.last_offset - each.first_offset + 1 for each in write.state.batches)
        led.keep(write)
        led.wake()
        return True
