"""Drives a coordinator's shards: one per partition of its topic that this node leads.

The cores decide (`kbroker.cores.groups`, `kbroker.cores.transactions`). The driver follows the leadership of the
topic's partitions, loads a shard when this node wins one, hands requests and the time to the cores. Their records go
through `coordinator_steps`. Losing a partition answers all waiting requests with NOT_COORDINATOR.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import trio

from kbroker.cores.coordinator.partitioner import partition_for
from kbroker.cores.coordinator.result import NO_TRANSACTION, CoordinatorResult, Outcome, Token, TransactionalWriter
from kbroker.cores.replication.purgatory import OffsetWaiter, Results
from kbroker.errors import ApiError, ErrorCode
from kbroker.node.coordinators.coordinator_loading import replay_log
from kbroker.node.coordinators.coordinator_shard import C, Shard
from kbroker.node.coordinators.coordinator_steps import CoordinatorSteps
from kbroker.runtime.later import Later
from kbroker.types import TopicPartition
from kbroker.wire.errors import WireError

if TYPE_CHECKING:
    from kbroker.node.replicas.replica_manager import ReplicaManager
    from kbroker.raft_metadata.image import MetadataDelta, MetadataImage
    from kbroker.runtime.env import Env
    from kbroker.runtime.round import Round

logger = logging.getLogger(__name__)
R = TypeVar("R")

_DAMAGED_SECONDS = 0.1
"""Between two attempts to load a log that is damaged."""

_WRITE_TIMEOUT_MS = 5_000
"""``offsets.commit.timeout.ms``'s default."""


class CoordinatorDriver(Generic[C]):
    """The node's part of a coordinator. `run_tasks` must be running for loads and deadlines to happen."""

    TOPIC: ClassVar[str]
    WHAT_IT_HOLDS: ClassVar[str]
    """The content of the topic, for the node's log."""
    REPLAY_ON_COMMIT: ClassVar[bool] = False
    """Whether records change the core when they are committed, and not as soon as they are appended."""

    def __init__(self, env: Env, replica_manager: ReplicaManager, *, write_timeout_ms: int = _WRITE_TIMEOUT_MS) -> None:
        self._env = env
        self._manager = replica_manager
        self._steps: CoordinatorSteps[C] = CoordinatorSteps(
            self, env, replica_manager, replay_on_commit=self.REPLAY_ON_COMMIT, write_timeout_ms=write_timeout_ms
        )
        self.shards: dict[int, Shard[C]] = {}
        """Those that this node leads, loaded or not, by partition."""
        self._partition_count = 0
        self._to_load: list[Shard[C]] = []
        self._wake_loader = trio.Event()
        self._wake_timer = trio.Event()
        self._sleeping_until_ms: float = float("inf")
        self._wall_ms_at_start = env.wall_clock_ms()
        self._started = env.now()
        self.loads: deque[tuple[float, float]] = deque(maxlen=64)
        """When the last partitions were loaded (``Env.now``), and the seconds that each took, for metrics."""

    def now_ms(self) -> int:
        """Wall-clock ms of the node's start plus the time run since: sessions survive a clock that jumps."""
        return self._wall_ms_at_start + int((self._env.now() - self._started) * 1000)

    def clock_ahead_ms(self) -> int:
        """The time by which the wall clock is ahead of `now_ms`, as that stands still while the machine sleeps. Times
        are stored so much later: the next start goes by the wall clock, and would take what is older for expired."""
        return max(0, self._env.wall_clock_ms() - self.now_ms())

    def _new_core(self) -> C:
        """An empty core, for a partition whose leadership this node has won."""
        raise NotImplementedError

    def _before_loaded(self, core: C) -> Iterable[None]:
        """Prepare a core into which all records are replayed, in steps."""
        return ()

    # -- leadership ----------------------------------------------------------------------------

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
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
        for index in [index for index in self.shards if index not in led]:
            self._unload(index)
        for index, leader_epoch in led.items():
            shard = self.shards.get(index)
            if shard is not None and shard.partition is not self._manager.find(self.TOPIC, index):
                self._unload(index)  # of a topic that was deleted, and one of its name created, since the last image
                shard = None
            if shard is not None:
                shard.leader_epoch = leader_epoch
            else:
                self._begin_load(index, leader_epoch)

    def _begin_load(self, index: int, leader_epoch: int) -> None:
        partition = self._manager.get_partition(self.TOPIC, index)
        shard = self.shards[index] = Shard(self._new_core(), index, partition, leader_epoch)
        self._to_load.append(shard)
        self._wake_loader.set()

    def _unload(self, index: int) -> None:
        shard = self.shards.pop(index)
        shard.loaded.set()
        self._steps.deliver(shard.core.on_unloaded())
        self._steps.drop_gathered(shard)

    def reload(self, shard: Shard[C]) -> None:
        """Begin again from the log, which may hold what the core does not know."""
        if self.shards.get(shard.index) is shard:
            self._unload(shard.index)
            if self._manager.find(self.TOPIC, shard.index) is not None:  # else it is just being dropped
                self._begin_load(shard.index, shard.leader_epoch)
                self.shards[shard.index].when_loaded += shard.when_loaded

    def failed(self, shard: Shard[C]) -> None:
        """Log the exception that is being handled, a mistake in the core or its log, and `reload`.

        There may be no request to fail.
        """
        logger.exception("the %s of partition %d are loaded again", self.WHAT_IT_HOLDS, shard.index)
        self.reload(shard)

    # -- requests ------------------------------------------------------------------------------

    def partition_for(self, key: str) -> int | None:
        """The partition whose leader coordinates a group or transactional id; None before the topic exists."""
        return partition_for(key, self._partition_count) if self._partition_count else None

    def loaded_shard(self, key: str) -> Shard[C]:
        """Returns the shard of a key. `ApiError` NOT_COORDINATOR, also before the topic exists, or
        COORDINATOR_LOAD_IN_PROGRESS.
        """
        index = self.partition_for(key)
        shard = None if index is None else self.shards.get(index)
        if shard is None or not shard.partition.state.is_leader:  # as of a damaged log, which may lack something
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if not shard.loaded.is_set():
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def loaded_core(self, key: str) -> C:
        """The core that coordinates a key, for a question or a heartbeat in place. `ApiError` as `run`."""
        return self.loaded_shard(key).core

    async def until_loaded(self, key: str) -> None:
        """Wait while the shard of a key is being loaded. `ApiError` NOT_COORDINATOR."""
        index = self.partition_for(key)
        shard = None if index is None else self.shards.get(index)
        if index is None or shard is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if not shard.loaded.is_set():
            await shard.loaded.wait()
            if self.shards.get(index) is not shard:
                raise ApiError(ErrorCode.NOT_COORDINATOR)

    def run(
        self,
        key: str,
        operation: Callable[[C, int], CoordinatorResult[R] | CoordinatorResult[Token]],
        *,
        gather: bool = False,
        round: Round | None = None,
        writer: TransactionalWriter = NO_TRANSACTION,
        outcome: Later[R] | None = None,
    ) -> Later[R]:
        """Run a step on the core of a group or transactional id; its response when its records are committed.

        ``operation`` is called at once, with the core and the time in ms. `ApiError` if it refuses the step, and
        NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS: nothing is done then. The result fails if the records cannot be
        stored. A step without records succeeds when all records before it are committed. Where the core gives a
        `Token`, the response comes with a later step.

        With ``gather`` the step depends on nothing that others of its kind change. The first such step of a turn of the
        event loop is appended at once, the others together at the end of the turn, or of the time that they linger
        (KIP-1224, ``group.coordinator.append.linger.ms``); those of a ``round`` of the poller at its end. Without
        records it succeeds at once.

        ``outcome`` is a result that has a callback already, which runs before the rest of the step, such as the markers
        of a transaction (`CoordinatorSteps.process`).
        """
        shard = self.loaded_shard(key)
        if not gather:
            self._steps.append_gathered(shard)
            shard = self.loaded_shard(key)  # it is loaded anew if that failed
        result = operation(shard.core, self.now_ms())
        early = outcome is not None
        if outcome is None:
            outcome = Later()
        if gather:
            if not result.records:
                self._steps.process(shard, result, outcome)
            elif shard.gathers or (round is not None and self._steps.gather_in(round, shard)):
                shard.gathered.append((result, outcome))
            else:
                self._steps.process(shard, result, outcome)
                self._steps.begin_gathering(shard)
        elif type(result.response) is Token:
            self._steps.replies[result.response] = outcome
            self._steps.process(shard, result)
        elif result.records or self.REPLAY_ON_COMMIT:
            self._steps.process(shard, result, outcome, writer, early=early)
        else:
            self._steps.process_without_records(shard, result, outcome)
        return outcome

    def run_in_round(
        self, key: str, operation: Callable[[C, int], CoordinatorResult[R]], round: Round, outcome: Outcome
    ) -> bool:
        """`run` with ``gather``, where the end of a round finds the step committed, or its ``outcome`` failed.

        False, and nothing is done, where steps linger or followers are to have the records. `ApiError` as `run`.
        """
        shard = self.loaded_shard(key)
        if not (shard.partition.acknowledges_at_once(-1) and self._steps.gather_in(round, shard)):
            return False
        shard.gathered.append((operation(shard.core, self.now_ms()), outcome))
        return True

    async def read(self, key: str, question: Callable[[C], R]) -> R:
        """Ask a core about a key, once it is loaded; the answer when all that the core knew is committed.

        `ApiError` of the question, NOT_COORDINATOR, or if that is not committed.
        """
        await self.until_loaded(key)
        return await self._answer(self.loaded_shard(key), question)

    async def read_all(self, question: Callable[[C], R]) -> list[R]:
        """`read`, of all cores of this node, for requests that concern every key.

        Those that another node gets meanwhile are left out: it is asked as well.
        """
        answers = []
        for index in list(self.shards):
            while (shard := self.shards.get(index)) is not None:
                await shard.loaded.wait()
                try:
                    if self.shards.get(index) is shard:
                        answers.append(await self._answer(shard, question))
                        break
                except ApiError:
                    if self.shards.get(index) is shard:
                        raise
        return answers

    def partition_states(self) -> tuple[int, int]:
        """The number of partitions that are being loaded, and of those that are served, for metrics."""
        active = sum(shard.loaded.is_set() for shard in self.shards.values())
        return len(self.shards) - active, active

    def loaded_cores(self) -> list[C]:
        """The cores that are loaded now, for figures: what they know need not be committed yet."""
        return [shard.core for shard in self.shards.values() if shard.loaded.is_set()]

    async def _answer(self, shard: Shard[C], question: Callable[[C], R]) -> R:
        self._steps.append_gathered(shard)
        answer = question(shard.core)
        committed = self._steps.until_committed(shard)
        if committed is not None:
            await committed
        return answer

    # -- background ----------------------------------------------------------------------------

    async def run_tasks(self) -> None:
        """Load shards, keep their deadlines, and append gathered steps, for as long as the node runs."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._steps.keep_appending)
            nursery.start_soon(self._keep_loading)
            await self._keep_deadlines()

    async def _keep_loading(self) -> None:
        """Load shards one after the other. A log may be long: the deadlines of the other shards do not wait for it."""
        while True:
            while self._to_load:
                shard = self._to_load.pop(0)
                if self.shards.get(shard.index) is shard:
                    await self._load(shard)
            self._wake_loader = trio.Event()
            await self._wake_loader.wait()

    async def _keep_deadlines(self) -> None:
        while True:
            self._wake_timer = trio.Event()
            await self._run_due()
            self._sleeping_until_ms = self._next_deadline_ms()
            seconds = (self._sleeping_until_ms - self.now_ms()) / 1000
            with trio.move_on_after(max(seconds, 0.001)):
                await self._wake_timer.wait()

    async def _run_due(self) -> None:
        """Handle every deadline that has come, each in a turn of the event loop.

        Thousands come together where a client's host is lost, or some time after a coordinator has moved. The shards
        take turns: members whose time is up do not wait for all offsets of another shard that expire.
        """
        some_left = True
        while some_left:
            some_left = False
            for shard in list(self.shards.values()):
                if self.run_unasked(shard, lambda core: core.on_deadline(self.now_ms())):
                    some_left = True
                    await trio.lowlevel.checkpoint()

    def _next_deadline_ms(self) -> float:
        """The earliest deadline of all shards, in ms; infinity if there is none."""
        deadlines = [shard.core.next_deadline() for shard in self.shards.values() if shard.loaded.is_set()]
        return min((each for each in deadlines if each is not None), default=float("inf"))

    def run_unasked(self, shard: Shard[C], step: Callable[[C], CoordinatorResult[None] | None]) -> bool:
        """Run a step that no request has asked for. False if the shard is not loaded, or there is nothing to do.

        A mistake of the core's is the end of the shard, which is loaded again (`failed`), and not of the node.
        """
        self._steps.append_gathered(shard)
        if not shard.loaded.is_set() or self.shards.get(shard.index) is not shard:  # also where the append has failed
            return False
        try:
            result = step(shard.core)
        except Exception:
            self.failed(shard)
            return False
        if result is None:
            return False
        self._steps.process(shard, result)
        return True

    def run_when_loaded(self, index: int, step: Callable[[C], CoordinatorResult[None] | None]) -> None:
        """`run_unasked` on the shard of a partition, when it is loaded: now or later. Nothing if there is none."""
        if index in self.shards:
            self._steps.append_gathered(self.shards[index])
        shard = self.shards.get(index)  # it is loaded anew if that failed
        if shard is None:
            return
        if shard.loaded.is_set():
            self.run_unasked(shard, step)
        else:
            shard.when_loaded.append(step)

    def after_step(self, shard: Shard[C]) -> None:
        """A step of the shard is done: keep the deadlines that it has set."""
        deadline_ms = shard.core.next_deadline()
        if deadline_ms is not None and deadline_ms < self._sleeping_until_ms:
            self._wake()

    def _wake(self) -> None:
        self._wake_timer.set()

    async def _load(self, shard: Shard[C]) -> None:
        """Replay the partition into its shard."""
        key, began = TopicPartition(self.TOPIC, shard.index), self._env.now()
        try:
            count, end = await replay_log(shard, self._manager, self.now_ms)
            for _ in self._before_loaded(shard.core):
                await trio.lowlevel.checkpoint()
        except (ApiError, WireError) as error:
            partition = shard.partition
            if partition.is_damaged and not partition.offline and partition.log.has_damaged_bytes:
                await trio.sleep(_DAMAGED_SECONDS)  # another leads then, or the log has a hole there
                self.reload(shard)
            else:
                self._cannot_load(shard, str(error))
            return
        except OSError as error:
            # Without its log dir the partition gets another leader; nobody here would look at it again.
            shard.partition.storage_failed(error)
            self._cannot_load(shard, str(error))
            return
        except Exception:
            self._cannot_load(shard)
            return

        def loaded(results: Results) -> None:
            if self.shards.get(shard.index) is not shard:
                return
            if results[key] is not None:
                # It is led in another epoch now; or not here, and the image that is being taken in unloads it.
                self.reload(shard)
                return
            try:
                shard.core.on_loaded(self.now_ms())
            except Exception:
                self._cannot_load(shard)
                return
            shard.loaded.set()
            while shard.when_loaded:
                self.run_when_loaded(shard.index, shard.when_loaded.pop(0))
            self.loads.append((self._env.now(), self._env.now() - began))
            self._wake()
            if count:
                logger.info("loaded the %s of %s from %d records", self.WHAT_IT_HOLDS, key, count)

        if self.shards.get(shard.index) is not shard:
            return
        if shard.partition.state.high_watermark >= end:
            loaded({key: None})
        else:
            # Records of an earlier leader may still be lost: no client hears of them before they are committed.
            self._manager.purgatory.watch_produce(OffsetWaiter({key: end}, loaded))

    def _cannot_load(self, shard: Shard[C], reason: str = "") -> None:
        """Leave the partition unserved until its leadership is won again. Without a reason it is the core's mistake."""
        key = TopicPartition(self.TOPIC, shard.index)
        logger.error(
            "cannot load the %s of %s: %s", self.WHAT_IT_HOLDS, key, reason or "a mistake", exc_info=not reason
        )
        if self.shards.get(shard.index) is shard:
            self._unload(shard.index)
