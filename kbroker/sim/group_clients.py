"""Members of a consumer group (KIP-848) in a simulated cluster: who owns what, and what they commit."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import trio

from kbroker.cores.coordinator.partitioner import partition_for
from kbroker.errors import ErrorCode
from kbroker.sim.clients import ClusterClient
from kbroker.sim.transaction_clients import GROUP, OFFSETS_TOPIC, TRY_AGAIN, Coordinated, fetched_offset
from kbroker.sim.world import Violation
from kbroker.types import TopicPartition, Uuid, random_uuid, uuid_to_str
from kbroker.wire.messages.consumer_groups import ConsumerGroupHeartbeatRequest, HeartbeatTopicPartitions
from kbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics

SESSION_SECONDS = 45.0
"""``group.consumer.session.timeout.ms``."""

_REJOIN = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})

_NOT_NOW = frozenset(
    {
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        *_REJOIN,
    }
)


@dataclass(slots=True)
class Instance:
    """The joins of one ``group.instance.id``: each takes the place of who has it, who is then fenced (KIP-345)."""

    claims: set[str] = field(default_factory=set)
    """Members that asked for this place: their ids, and a number for each JoinGroup that asked for a member id."""
    underway: int = 0
    """The number of such requests that were not answered: each may still arrive, however late, and take the place."""

    def fenced(self, who: str, *, joining: bool, stored: bool, real: bool) -> None:
        """A member is answered so, to its own request for the place if ``joining``. `Violation` if it is wrong.

        A member that is ``stored`` is known to every later coordinator. Before that, one that takes over may know of
        whoever had the place before only: JoinGroup tells a member id that is stored with the assignment. So may one
        that was replaced and has not heard of it; its answer is not ``real``.
        """
        if not joining and not (stored and real) and len(self.claims) > 1:
            return
        if not self.underway:
            raise Violation(f"{who} is fenced, and nobody can have taken its place")
        self.underway -= 1  # that one has arrived


@dataclass(slots=True)
class GroupHistory:
    """The common knowledge of all members of one group."""

    topic: str
    partitions: int
    offsets_partitions: int
    members: list[SimGroupMember] = field(default_factory=list)
    acknowledged: dict[int, int] = field(default_factory=dict)
    """The highest offset whose commit was acknowledged, by partition."""
    tried: dict[int, int] = field(default_factory=dict)
    generations: dict[int, dict[int, str]] = field(default_factory=dict)
    """Of a classic group: whom each partition was given to in a generation."""
    instances: defaultdict[str, Instance] = field(default_factory=lambda: defaultdict(Instance))
    commits: int = 0
    assignments: int = 0
    stopped: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether every partition has exactly one owner."""
        owned = sorted(index for member in self.members if not member.gone for index in member.owned)
        return owned == list(range(self.partitions))


class SimGroupMember:
    """A simulated member: owns its assigned partitions, commits growing offsets, gives up revoked ones at once."""

    session_seconds = SESSION_SECONDS

    def __init__(
        self, client: ClusterClient, group: str, history: GroupHistory, instance_id: str | None = None
    ) -> None:
        self.owned: dict[int, int] = {}
        """Partitions, and the offset that is committed there as far as it knows; -1 before it has asked."""
        self.gone = False
        self.heard_at = -SESSION_SECONDS
        """When the coordinator answered last."""
        self.id = uuid_to_str(random_uuid(client.rng))
        self.instance_id = instance_id
        self._epoch = 0
        self._was_answered = False
        self._is_stored = False
        """Whether it was told what a coordinator tells only once the member is stored."""
        self._topic_id = Uuid(bytes(16))
        self._client = client
        self._group = group
        self._history = history
        self._coordinator = Coordinated(client, group, GROUP)
        self._scope = trio.CancelScope()
        history.members.append(self)

    async def run(self) -> None:
        """Until the history is ``stopped``, or this member has left."""
        rng = self._client.rng
        with self._scope:
            while not self._history.stopped and not self.gone:
                await self._heartbeat()
                for index in sorted(self.owned):
                    if index in self.owned:
                        await (self._look_up(index) if self.owned[index] < 0 else self._commit(index))
                await trio.sleep(rng.uniform(0.2, 1.0))

    def crash(self) -> None:
        """It is gone and tells nobody; what it has sent may still arrive."""
        self.gone = True
        self.owned.clear()
        self._scope.cancel()

    async def leave(self) -> None:
        """It goes, and says so as far as anybody hears it."""
        self.crash()
        # A static member is expected back.
        epoch = -1 if self.instance_id is None else -2
        await self._coordinator.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self._group, member_id=self.id, member_epoch=epoch, instance_id=self.instance_id
            )
        )

    def _start_again(self) -> None:
        """Another process is started with the same instance id; this one has ended."""
        self.id = uuid_to_str(random_uuid(self._client.rng))
        self._epoch = 0
        self._was_answered = self._is_stored = False
        self.owned.clear()

    def _fenced(self, api: str, real: bool, *, joining: bool = False) -> None:
        """FENCED_INSTANCE_ID is what it is answered: consumers end with it. `Violation` if nobody took its place."""
        who = f"{self._group}: {api} of {self.instance_id} as {self.id}"
        if self.instance_id is None:
            raise Violation(f"{who} is fenced, and is no static member")
        self._history.instances[self.instance_id].fenced(who, joining=joining, stored=self._is_stored, real=real)
        self._start_again()

    @property
    def _where(self) -> TopicPartition:
        return TopicPartition(OFFSETS_TOPIC, partition_for(self._group, self._history.offsets_partitions))

    async def _ask(self, request: Any, version: int | None = None, *, joining: bool = False) -> tuple[Any, bool]:
        """The response, if any, and whether it comes from who may say so; ``joining`` asks for an instance's place."""
        before = self._client.authority(self._where)
        instance = self._history.instances[self.instance_id] if joining and self.instance_id is not None else None
        if instance is not None:
            instance.claims.add(self.id or str(len(instance.claims)))
            instance.underway += 1
        response = await self._coordinator.ask(request, version)
        if instance is not None and response is not None:
            instance.underway -= 1
        real = before is not None and before == self._client.authority(self._where)
        return response, real and before is not None and before[0] == self._coordinator.node_id

    async def _heartbeat(self) -> None:
        history = self._history
        joining = self._epoch == 0
        owned = HeartbeatTopicPartitions(topic_id=self._topic_id, partitions=sorted(self.owned))
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self.id,
            member_epoch=self._epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=None if self._was_answered else [history.topic],
            topic_partitions=[owned] if self.owned and not joining else [],
        )
        response, real = await self._ask(request, joining=joining)
        # What may have been lost is asked for with all fields, as clients do: the answer then has the assignment.
        self._was_answered = response is not None and response.error_code == ErrorCode.NONE
        if response is None or self.gone:
            return
        code = ErrorCode(response.error_code)
        if code in _REJOIN:
            if real and not joining:
                self._check_known(code, response.error_message or "")
            self._epoch = 0
            self.owned.clear()
        elif code in TRY_AGAIN:
            await self._coordinator.lost()
        elif code == ErrorCode.UNRELEASED_INSTANCE_ID and joining:
            pass  # until the session of the one before has timed out
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self._fenced("ConsumerGroupHeartbeat", real)
        elif code != ErrorCode.NONE:
            raise Violation(f"{self._group}: ConsumerGroupHeartbeat is answered {code.name}: {response.error_message}")
        else:
            self.heard_at = trio.current_time()
            self._epoch = response.member_epoch
            self._is_stored = True
            if response.assignment is not None:
                self._take(response.assignment, real)

    def _take(self, assignment: Any, real: bool) -> None:
        assigned: set[int] = set()
        for topic in assignment.topic_partitions:
            self._topic_id = topic.topic_id
            assigned.update(topic.partitions)
        self._history.assignments += 1
        for index in sorted(assigned - self.owned.keys()):
            if real:
                self._check_alone(index)
            self.owned[index] = -1
        for index in self.owned.keys() - assigned:
            del self.owned[index]

    def _check_known(self, code: ErrorCode, message: str) -> None:
        """Check that the coordinator knows this member's epoch, which was committed before the member had it."""
        alive = trio.current_time() - self.heard_at < SESSION_SECONDS - 5
        if "greater" in message or (code == ErrorCode.UNKNOWN_MEMBER_ID and alive):
            raise Violation(f"{self._group}: {self.id} was told of epoch {self._epoch}, now {code.name}: {message}")

    def _check_alone(self, index: int) -> None:
        for other in self._history.members:
            lives = trio.current_time() - other.heard_at < other.session_seconds - 5
            if other is not self and not other.gone and lives and index in other.owned:
                raise Violation(f"{self._group}: {self.id} is given {index}, which {other.id} has not given up")

    async def _look_up(self, index: int) -> None:
        history = self._history
        acknowledged = history.acknowledged.get(index, -1)
        topic = OffsetFetchRequestTopics(name=history.topic, partition_indexes=[index])
        group = OffsetFetchRequestGroup(
            group_id=self._group, member_id=self.id, member_epoch=self._epoch, topics=[topic]
        )
        response, real = await self._ask(OffsetFetchRequest(groups=[group], require_stable=True), 9)
        if response is None or index not in self.owned:
            return
        code, answer = fetched_offset(response)
        if code in TRY_AGAIN:
            await self._coordinator.lost()
        elif code != ErrorCode.NONE:
            if code not in _NOT_NOW:
                raise Violation(f"{self._group}: OffsetFetch is answered {code.name}")
        elif real and answer is not None:
            if not acknowledged <= answer.committed_offset <= history.tried.get(index, -1):
                raise Violation(
                    f"{self._group}: committed for {index} is {answer.committed_offset}, after {acknowledged} was"
                    f" acknowledged and {history.tried.get(index, -1)} tried"
                )
            self.owned[index] = max(0, answer.committed_offset)

    async def _commit(self, index: int) -> None:
        history = self._history
        offset = self.owned[index] + 1
        history.tried[index] = max(offset, history.tried.get(index, -1))
        partition = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._epoch,
            member_id=self.id,
            group_instance_id=self.instance_id,
            topics=[OffsetCommitRequestTopic(name=history.topic, partitions=[partition])],
        )
        response, real = await self._ask(request, 9)
        if response is None:
            if index in self.owned:
                self.owned[index] = -1  # stored or not: ask again what counts
            return
        code = ErrorCode(response.topics[0].partitions[0].error_code)
        if code == ErrorCode.NONE:
            history.commits += 1
            history.acknowledged[index] = max(offset, history.acknowledged.get(index, -1))
            if index in self.owned:
                self.owned[index] = offset
        elif code in TRY_AGAIN:
            if index in self.owned:
                self.owned[index] = -1
            await self._coordinator.lost()
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self._fenced("OffsetCommit", real)
        elif code not in _NOT_NOW:
            raise Violation(f"{self._group}: OffsetCommit is answered {code.name}")
