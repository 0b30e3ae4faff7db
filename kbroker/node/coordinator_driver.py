"""Drives a coordinator's shards: one per partition of its topic that this node leads.

The cores decide (`kbroker.groups`, `kbroker.transactions`); here their records are appended and replayed, replies are
given when the records are committed, and time is told. Winning a partition's leadership loads its shard from the
log, losing it answers everybody who waits with NOT_COORDINATOR.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import trio

from kbroker.coordinator.batches import coordinator_batches
from kbroker.coordinator.core import append_error_for_client
from kbroker.coordinator.partitioner import partition_for
from kbroker.coordinator.result import (
    NO_TRANSACTION,
    CoordinatorRecord,
    CoordinatorResult,
    Token,
    TransactionalWriter,
)
from kbroker.errors import ApiError, ErrorCode
from kbroker.node.coordinator_loading import replay_chunk
from kbroker.node.coordinator_shard import C, GatheredStep, PendingReply, Shard
from kbroker.replication.delayed import Appended, DelayedProduce
from kbroker.types import TopicPartition
from kbroker.wire.errors import WireError

if TYPE_CHECKING:
    from kbroker.env import Env
    from kbroker.node.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)
R = TypeVar("R")

_LOAD_CHUNK_BYTES = 1 << 20
_REPLICATION_TIMEOUT_MS = 5_000
"""``offsets.commit.timeout.ms``'s default."""


class CoordinatorDriver(Generic[C]):
    """The node's part of a coordinator. `run` must be running for loads and deadlines to happen."""

    TOPIC: ClassVar[str]
    CONTENT: ClassVar[str]
    """What the topic holds, for the log."""
    REPLAYS_COMMITTED: ClassVar[bool] = False
    """Whether records change the core when they are committed, and not as soon as they are appended."""
    WITHOUT_TOPIC: ClassVar[ErrorCode] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    """What is answered before the topic exists."""

    def __init__(self, env: Env, replica_manager: ReplicaManager) -> None:
        self._env = env
        self._manager = replica_manager
        self._shards: dict[int, Shard[C]] = {}
        self._partition_count = 0
        self._waiting: dict[Token, PendingReply] = {}
        self._to_load: list[Shard[C]] = []
        self._gathering: list[Shard[C]] = []
        self._wake_gatherer = trio.Event()
        self._wake_timer = trio.Event()
        self._sleeping_until_ms: float = float("inf")
        self._wall_ms_at_start = env.wall_clock_ms()
        self._started = env.now()

    def now_ms(self) -> int:
        """Wall-clock ms of the node's start plus the time run since: sessions survive a clock that jumps."""
        return self._wall_ms_at_start + int((self._env.now() - self._started) * 1000)

    def _new_core(self) -> C:
        """An empty core, for a partition whose leadership this node has won."""
        raise NotImplementedError

    def _after_step(self, shard: Shard[C]) -> None:
        """A step of the shard is through: what the core has to have done besides its records is begun."""

    # -- metadata ------------------------------------------------------------------------------

    def on_image(self, delta: Any, image: Any) -> None:
        """Follow the leadership of the topic's partitions."""
        topic = image.topics.by_name.get(self.TOPIC)
        led: dict[int, int] = {}
        if topic is not None:
            self._partition_count = len(topic.partitions)
            led = {
                index: assigned.leader_epoch
                for index, assigned in topic.partitions.items()
                if assigned.leader == self._manager.node_id
            }
        else:
            self._partition_count = 0
        for index in [index for index in self._shards if index not in led]:
            self._unload(index)
        for index, leader_epoch in led.items():
            shard = self._shards.get(index)
            if shard is not None and shard.partition is not self._manager.partitions.get((self.TOPIC, index)):
                self._unload(index)  # of a topic that was deleted, and one of its name created, since the last image
                shard = None
            if shard is not None:
                shard.leader_epoch = leader_epoch
            else:
                self._begin_load(index, leader_epoch)

    def _begin_load(self, index: int, leader_epoch: int) -> None:
        partition = self._manager.get_partition(self.TOPIC, index)
        shard = self._shards[index] = Shard(self._new_core(), index, partition, leader_epoch)
        self._to_load.append(shard)
        self._wake()

    def _unload(self, index: int) -> None:
        shard = self._shards.pop(index)
        shard.loaded.set()
        self._deliver(shard.core.on_unloaded())
        gathered, shard.gathered = shard.gathered, []
        _tell(gathered, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _reload(self, shard: Shard[C]) -> None:
        """The log may hold what the core does not know: begin again from the log."""
        if self._shards.get(shard.index) is shard:
            self._unload(shard.index)
            if (self.TOPIC, shard.index) in self._manager.partitions:  # else it is just being dropped
                self._begin_load(shard.index, shard.leader_epoch)

    def _failed(self, shard: Shard[C]) -> None:
        """A mistake in the core or its log, where no request may be there to fail: begin with what the log holds."""
        logger.exception("the %s of partition %d are loaded again", self.CONTENT, shard.index)
        self._reload(shard)

    # -- requests ------------------------------------------------------------------------------

    def partition_for(self, key: str) -> int | None:
        """The partition whose leader coordinates a group or transactional id; None before the topic exists."""
        return partition_for(key, self._partition_count) if self._partition_count else None

    def shard_now(self, key: str) -> Shard[C]:
        """The shard of a key, for one that cannot wait. `ApiError`: also COORDINATOR_LOAD_IN_PROGRESS."""
        index = self.partition_for(key)
        if index is None:
            raise ApiError(self.WITHOUT_TOPIC)
        shard = self._shards.get(index)
        if shard is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if not shard.loaded.is_set():
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    async def loaded_shard(self, key: str) -> C:
        """The core that coordinates a key, after it has been loaded. `ApiError` when this node does not.

        It knows what was gathered until now: who asks may have sent a commit just before, on the same connection.
        """
        shard = await self._shard(key)
        self._append_gathered(shard)
        return shard.core

    async def read(self, key: str, question: Callable[[C], R]) -> R:
        """What a core answers about a key, as soon as what it knows is committed: it cannot be taken back then.

        `ApiError` of the question, when this node does not coordinate the key, or if that does not come about.
        """
        shard = await self._shard(key)
        self._append_gathered(shard)
        answer = question(shard.core)
        await self._until_committed(shard)
        return answer

    async def read_all(self, question: Callable[[C], R]) -> list[R]:
        """As `read`, of all cores of this node, for requests that concern every key."""
        answers = []
        for shard in list(self._shards.values()):
            await shard.loaded.wait()
            if self._shards.get(shard.index) is shard:
                self._append_gathered(shard)
                answers.append(question(shard.core))
                await self._until_committed(shard)
        return answers

    def _uncommitted(self, shard: Shard[C]) -> PendingReply | None:
        """What is completed, with an error or None, when all that the core knows is committed; None if it is.

        On a node without followers it always is. Kafka's ``CoordinatorRuntime`` too has a step that writes nothing
        wait for the writes before it: what it saw of them may not survive this leader.
        """
        partition = shard.partition
        if self.REPLAYS_COMMITTED or not partition.has_log:
            return None
        end = partition.log.log_end_offset
        if partition.state.high_watermark >= end:
            return None
        outcome = PendingReply(Token())
        name = partition.topic_partition
        known = Appended(partition, shard.leader_epoch, end)
        self._manager.watch_produce([known], lambda results: outcome.complete(results[name]), _REPLICATION_TIMEOUT_MS)
        return outcome

    async def _until_committed(self, shard: Shard[C]) -> None:
        stored = self._uncommitted(shard)
        await _until_done(stored)
        _raise_error(stored)

    async def _shard(self, key: str) -> Shard[C]:
        try:
            return self.shard_now(key)
        except ApiError as error:
            if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise
        index = cast(int, self.partition_for(key))
        shard = self._shards[index]
        await shard.loaded.wait()
        if self._shards.get(index) is not shard:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return shard

    async def loaded_shards(self) -> list[C]:
        """All cores of this node, for requests that concern every key."""
        for shard in list(self._shards.values()):
            await shard.loaded.wait()
            self._append_gathered(shard)
        return [shard.core for shard in self._shards.values()]

    async def submit(
        self,
        key: str,
        operation: Callable[[C, int], CoordinatorResult[R]],
        writer: TransactionalWriter = NO_TRANSACTION,
    ) -> R | PendingReply:
        """Run a step on the shard of a group or transactional id.

        Returns its response once the records are committed, or all before it where it has none; or a `PendingReply`
        where the core gave a token. `ApiError` for what the step refuses, or when its records cannot be stored.
        """
        shard = await self._shard(key)
        self._append_gathered(shard)
        result = operation(shard.core, self.now_ms())
        pending = None
        if isinstance(result.response, Token):
            pending = self._waiting[result.response] = PendingReply(result.response)
        stored = self._process(shard, result, writer)
        if pending is not None:
            return pending
        if stored is None:
            stored = self._uncommitted(shard)
        await _until_done(stored)
        _raise_failure(result, stored)
        return result.response

    def submit_gathered(
        self,
        key: str,
        operation: Callable[[C, int], CoordinatorResult[R]],
        on_stored: Callable[[R | None, ApiError | None], None],
    ) -> None:
        """As `submit`, for a step that does not depend on what others of its kind change, and without waiting.

        Many of them may be appended together (Kafka's ``group.coordinator.append.linger.ms``, which here is a turn of
        the event loop). ``on_stored`` is called with the response once the records are committed, often at once, or
        with why they could not be. `ApiError` for what the step refuses, also COORDINATOR_LOAD_IN_PROGRESS; then
        ``on_stored`` is not called.
        """
        shard = self.shard_now(key)
        result = operation(shard.core, self.now_ms())
        if shard.gathers and result.records:
            shard.gathered.append((result, on_stored))
            return
        # Whoever is alone does not wait; who comes in the same turn of the loop is gathered.
        stored = self._process(shard, result)
        if stored is None:
            _tell([(result, on_stored)], None)
            return
        shard.gathers = True
        self._gathering.append(shard)
        self._wake_gatherer.set()
        stored.on_done(lambda: _tell([(result, on_stored)], stored.response))

    def perform(
        self,
        key: str,
        operation: Callable[[C, int], CoordinatorResult[R]],
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        """Run a step for one that cannot wait: ``on_done`` is called when its records are committed, often at once.

        `ApiError` as `submit`, or COORDINATOR_LOAD_IN_PROGRESS; then ``on_done`` is not called.
        """
        shard = self.shard_now(key)
        self._append_gathered(shard)
        result = operation(shard.core, self.now_ms())
        stored = self._process(shard, result)

        def done() -> None:
            try:
                _raise_failure(result, stored)
            except ApiError as error:
                on_done(error.code)
            else:
                on_done(ErrorCode.NONE)

        if stored is None:
            done()
        else:
            stored.on_done(done)

    async def resolve(self, reply: R | PendingReply, connection: Any) -> R:
        """Wait for a reply that comes later, for as long as its client stays."""
        if not isinstance(reply, PendingReply):
            return reply
        try:
            await connection.wait_for(reply, float("inf"))
        finally:
            self._waiting.pop(reply.token, None)
        return cast(R, reply.response)

    # -- records -------------------------------------------------------------------------------

    def _process(
        self,
        shard: Shard[C],
        result: CoordinatorResult[Any],
        writer: TransactionalWriter = NO_TRANSACTION,
        on_committed: Callable[[ErrorCode | None], None] | None = None,
    ) -> PendingReply | None:
        """Append and replay a result; replies go out when it is committed.

        Returns None if there was nothing to append, else what is completed with the append's error or None.
        ``on_committed`` hears of that as well, before the rest of the step is done and, of a core that knows only
        what is committed, before it knows this: it may answer a client, and must not ask the core.
        """
        if not result.records:
            if on_committed is not None:
                on_committed(None)
            self._finish(shard, result, None)
            return None
        outcome = PendingReply(Token())

        def finished(error: ErrorCode | None) -> None:
            if on_committed is not None:
                on_committed(error)
            if error is None and self.REPLAYS_COMMITTED and not self._replay(shard, result, end_offset, writer):
                self._deliver(result.completed)  # what is committed holds; the core that did not take it is no more
            else:
                self._finish(shard, result, error)
            outcome.complete(error)

        try:
            end_offset = self._append(shard, result.records, writer)
        except ApiError as error:
            finished(error.code)
            return outcome
        if not self.REPLAYS_COMMITTED and not self._replay(shard, result, end_offset, writer):
            finished(ErrorCode.UNKNOWN_SERVER_ERROR)
            return outcome
        if shard.partition.state.high_watermark >= end_offset:
            finished(None)
            return outcome
        key = shard.partition.topic_partition
        appended = Appended(shard.partition, shard.partition.state.leader_epoch, end_offset)

        def replicated(results: dict[Hashable, Any]) -> None:
            error = results[key]
            finished(error)
            if error is not None and self.REPLAYS_COMMITTED:
                self._reload(shard)

        self._manager.watch_produce([appended], replicated, _REPLICATION_TIMEOUT_MS)
        return outcome

    def _append_gathered(self, shard: Shard[C]) -> None:
        """Append what has been gathered, as one step."""
        if not shard.gathered:
            return
        gathered, shard.gathered = shard.gathered, []
        records = [record for result, _ in gathered for record in result.records]
        stored = self._process(shard, CoordinatorResult(None, records))
        assert stored is not None
        stored.on_done(lambda: _tell(gathered, stored.response))

    def _replay(
        self, shard: Shard[C], result: CoordinatorResult[Any], end_offset: int, writer: TransactionalWriter
    ) -> bool:
        """Have the core take what it has appended; if it cannot, the shard has failed, and this is false."""
        if result.replay:
            now_ms = self.now_ms()
            replay = shard.core.replay
            offset = end_offset - len(result.records)
            try:
                for record in result.records:
                    replay(record, now_ms, offset=offset, producer_id=writer.producer_id)
                    offset += 1
            except Exception:
                self._failed(shard)
                return False
        return True

    def _finish(self, shard: Shard[C], result: CoordinatorResult[Any], error: ErrorCode | None) -> None:
        self._deliver(result.completed)
        if result.on_stored is not None:
            try:
                rest = result.on_stored(error, self.now_ms())
            except Exception:
                self._failed(shard)
                return
            self._process(shard, rest)
        self._after_step(shard)
        self._reconsider_deadline(shard)

    def _append(self, shard: Shard[C], records: list[CoordinatorRecord], writer: TransactionalWriter) -> int:
        now_ms = self._env.wall_clock_ms()
        end_offset = 0
        try:
            for batch in coordinator_batches(records, now_ms, writer):
                info = shard.partition.append_as_coordinator(batch, now_ms, verification_guard=writer.guard)
                end_offset = info.last_offset + 1
        except ApiError:
            if end_offset:
                self._reload(shard)  # a part of the step is in the log
            raise
        except Exception:
            # The node lives on, with all that other shards hold: there may be no request to fail here either.
            self._failed(shard)
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
        return end_offset

    def _deliver(self, completed: list[tuple[Token, object]]) -> None:
        for token, response in completed:
            pending = self._waiting.pop(token, None)
            if pending is not None:
                pending.complete(response)

    # -- background ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Load shards, keep their deadlines, and append what is gathered, for as long as the node runs."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_appending)
            await self._keep_deadlines()

    async def _keep_appending(self) -> None:
        while True:
            if not self._gathering:
                self._wake_gatherer = trio.Event()
                await self._wake_gatherer.wait()
            else:
                await trio.lowlevel.checkpoint()
            shards, self._gathering = self._gathering, []
            for shard in shards:
                if shard.gathered:
                    self._append_gathered(shard)
                    self._gathering.append(shard)  # there is likely to be more in the next turn
                else:
                    shard.gathers = False

    async def _keep_deadlines(self) -> None:
        while True:
            self._wake_timer = trio.Event()
            while self._to_load:
                shard = self._to_load.pop(0)
                if self._shards.get(shard.index) is shard:
                    await self._load(shard)
            deadline_ms = self._run_due()
            self._sleeping_until_ms = float("inf") if deadline_ms is None else deadline_ms
            seconds = (self._sleeping_until_ms - self.now_ms()) / 1000
            with trio.move_on_after(max(seconds, 0.001)):
                await self._wake_timer.wait()

    def _run_due(self) -> int | None:
        """Handle every deadline that has come; the next one, or None."""
        earliest: int | None = None
        for shard in list(self._shards.values()):
            if not shard.loaded.is_set():
                continue
            self._append_gathered(shard)
            while (result := self._on_deadline(shard)) is not None:
                self._process(shard, result)
            deadline_ms = shard.core.next_deadline()
            if deadline_ms is not None and (earliest is None or deadline_ms < earliest):
                earliest = deadline_ms
        return earliest

    def _on_deadline(self, shard: Shard[C]) -> CoordinatorResult[None] | None:
        if not shard.loaded.is_set() or self._shards.get(shard.index) is not shard:
            return None
        try:
            return shard.core.on_deadline(self.now_ms())
        except Exception:
            self._failed(shard)
            return None

    def _reconsider_deadline(self, shard: Shard[C]) -> None:
        deadline_ms = shard.core.next_deadline()
        if deadline_ms is not None and deadline_ms < self._sleeping_until_ms:
            self._wake()

    def _wake(self) -> None:
        self._wake_timer.set()

    async def _load(self, shard: Shard[C]) -> None:
        """Replay the partition into its shard."""
        key = TopicPartition(self.TOPIC, shard.index)
        count = end = 0
        try:
            if shard.partition.has_log or self._manager.log_manager.get_log(key) is not None:
                log = shard.partition.log
                offset, end = log.log_start_offset, log.log_end_offset
                while offset < end:
                    data = log.read_bytes(offset, _LOAD_CHUNK_BYTES, max_offset=end)
                    if not data:
                        break
                    offset, replayed = replay_chunk(shard.core, key, data, offset, self.now_ms())
                    count += replayed
                    await trio.lowlevel.checkpoint()
        except (ApiError, WireError) as error:
            self._cannot_load(shard, str(error))
            return
        except OSError as error:
            # Without its log dir the partition gets another leader; nobody here would look at it again.
            self._manager.storage_failed(shard.partition, error)
            self._cannot_load(shard, str(error))
            return
        except Exception:
            self._cannot_load(shard)
            return

        def loaded(results: dict[Hashable, Any]) -> None:
            if self._shards.get(shard.index) is not shard:
                return
            if results[key] is not None:
                # It is led in another epoch now; or not here, and the image that is being taken in unloads it.
                self._reload(shard)
                return
            try:
                shard.core.on_loaded(self.now_ms())
            except Exception:
                self._cannot_load(shard)
                return
            shard.loaded.set()
            self._wake()
            if count:
                logger.info("loaded the %s of %s from %d records", self.CONTENT, key, count)

        if self._shards.get(shard.index) is not shard:
            return
        if shard.partition.state.high_watermark >= end:
            loaded({key: None})
        else:
            # What an earlier leader left is not told before it is sure that it stays.
            self._manager.purgatory.watch_produce(DelayedProduce({key: end}, loaded))

    def _cannot_load(self, shard: Shard[C], reason: str = "") -> None:
        """The partition is not served until its leadership is won again; without a reason it is the core's mistake."""
        key = TopicPartition(self.TOPIC, shard.index)
        logger.error("cannot load the %s of %s: %s", self.CONTENT, key, reason or "a mistake", exc_info=not reason)
        if self._shards.get(shard.index) is shard:
            self._unload(shard.index)


async def _until_done(stored: PendingReply | None) -> None:
    if stored is not None and not stored.done:
        woken = trio.Event()
        stored.wake = woken.set
        await woken.wait()


def _raise_error(stored: PendingReply | None) -> None:
    if stored is not None and stored.response is not None:
        raise ApiError(append_error_for_client(stored.response))


def _raise_failure(result: CoordinatorResult[Any], stored: PendingReply | None) -> None:
    _raise_error(stored)
    if result.error is not None:
        raise result.error


def _tell(gathered: list[GatheredStep], failed: ErrorCode | None) -> None:
    """Say to each what came of its step's records."""
    error = None if failed is None else ApiError(append_error_for_client(failed))
    for result, on_stored in gathered:
        refused = error or result.error
        on_stored(result.response if refused is None else None, refused)
