"""Stores the steps of coordinator cores: appends and replays their records, and answers once these are committed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol
from weakref import WeakValueDictionary

import trio

from kbroker.cores.coordinator.batches import coordinator_batches
from kbroker.cores.coordinator.result import (
    NO_TRANSACTION,
    CoordinatorRecord,
    CoordinatorResult,
    Token,
    TransactionalWriter,
    append_error_for_client,
)
from kbroker.cores.replication.purgatory import Appended, Results
from kbroker.errors import ApiError, ErrorCode
from kbroker.node.coordinators.coordinator_shard import C, GatheredStep, Shard
from kbroker.runtime.later import Later
from kbroker.wire.compression import CompressionType

if TYPE_CHECKING:
    from kbroker.node.replicas.replica_manager import ReplicaManager
    from kbroker.runtime.env import Env
    from kbroker.runtime.round import Round


class ShardOwner(Protocol[C]):
    """The driver, as its steps see it."""

    def now_ms(self) -> int:
        """The time by which the cores count."""

    def reload(self, shard: Shard[C]) -> None:
        """Begin again from the log, which may hold what the core does not know."""

    def failed(self, shard: Shard[C]) -> None:
        """Log the exception that is being handled, and `reload`."""

    def after_step(self, shard: Shard[C]) -> None:
        """Begin the work that the core asks for besides its records, such as markers."""


class CoordinatorSteps(Generic[C]):
    """Stores the steps of all shards of a coordinator. `keep_appending` must be running for steps to be gathered."""

    def __init__(
        self,
        owner: ShardOwner[C],
        env: Env,
        replica_manager: ReplicaManager,
        *,
        replay_on_commit: bool,
        write_timeout_ms: int,
    ) -> None:
        """``replay_on_commit``: records change the core when they are committed, not as soon as they are appended.

        ``write_timeout_ms`` bounds the wait for followers.
        """
        self._owner = owner
        self._env = env
        self._manager = replica_manager
        self.replay_on_commit = replay_on_commit
        self._write_timeout_ms = write_timeout_ms
        self.replies: WeakValueDictionary[Token, Later[Any]] = WeakValueDictionary()
        """Replies that a later step completes. An entry disappears with the request that waits for it."""
        self._gathering: list[Shard[C]] = []
        """Shards that gather steps in this turn of the event loop."""
        self._wake_gatherer = trio.Event()
        self.linger_ms = -1
        """The time that steps are gathered; -1 for one turn of the event loop, 0 for not at all."""
        self.codec = CompressionType.NONE
        """The compression of the batches."""

    def process(
        self,
        shard: Shard[C],
        result: CoordinatorResult[Any],
        outcome: Later[Any] | None = None,
        writer: TransactionalWriter = NO_TRANSACTION,
        *,
        early: bool = False,
    ) -> None:
        """Append and replay a step's records; replies and ``outcome`` are given when they are committed.

        With ``early`` the outcome is given before the rest of the step is done and, where ``replay_on_commit``, before
        the core knows the records: its callback may answer a client, and must not ask the core.
        """
        if not result.records:
            if outcome is not None:
                _give(outcome, result, None)
            self._finish(shard, result, None)
            return

        def finished(error: ErrorCode | None) -> None:
            if early and outcome is not None:
                _give(outcome, result, error)
            if error is None and self.replay_on_commit and not self._replay(shard, result, end_offset, writer):
                self.deliver(result.completed)  # the records are committed, though the core could not take them
            else:
                self._finish(shard, result, error)
            if not early and outcome is not None:
                _give(outcome, result, error)

        try:
            end_offset = self._append(shard, result.records, writer)
        except ApiError as error:
            finished(error.code)
            return
        if not self.replay_on_commit and not self._replay(shard, result, end_offset, writer):
            finished(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        partition = shard.partition
        if partition.state.high_watermark >= end_offset and partition.acknowledges_at_once(1):
            finished(None)
            return
        key = partition.topic_partition
        appended = Appended(partition, partition.state.leader_epoch, end_offset)

        def replicated(results: Results) -> None:
            error = results[key]
            if error is ErrorCode.REQUEST_TIMED_OUT and self.replay_on_commit:
                # It may be committed yet. Until then the core has this change under way, and takes no other.
                if outcome is not None:
                    _give(outcome, result, error)
                self._manager.watch_produce([appended], replicated, self._write_timeout_ms)
                return
            finished(error)
            if error is not None and self.replay_on_commit:
                self._owner.reload(shard)

        self._manager.watch_stored([(partition, end_offset)], replicated, self._write_timeout_ms)

    def process_without_records(self, shard: Shard[C], result: CoordinatorResult[Any], outcome: Later[Any]) -> None:
        """Finish a step that has no records; its outcome is given when all that the core knows is committed."""
        self._finish(shard, result, None)
        committed = self.until_committed(shard)
        if committed is None:
            _give(outcome, result, None)
            return

        def given() -> None:
            if committed.error is not None:
                outcome.fail(committed.error)
            else:
                _give(outcome, result, None)

        committed.on_done(given)

    def until_committed(self, shard: Shard[C]) -> Later[None] | None:
        """Done when all that the core knows is committed, or with the reason why it is not; None if it is already.
        `ApiError` NOT_COORDINATOR where the log is lost.

        On a node without followers it always is. Kafka's ``CoordinatorRuntime`` too has a step without records wait
        for the writes before it: what the step saw of them may not survive this leader.
        """
        partition = shard.partition
        if self.replay_on_commit or not partition.has_log:
            return None
        if partition.offline:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        end = partition.log.log_end_offset
        if partition.state.high_watermark >= end:
            return None
        committed: Later[None] = Later()
        name = partition.topic_partition

        def replicated(results: Results) -> None:
            error = results[name]
            if error is None:
                committed.set(None)
            else:
                committed.fail(ApiError(append_error_for_client(error)))

        known = Appended(partition, shard.leader_epoch, end)
        self._manager.watch_produce([known], replicated, self._write_timeout_ms)
        return committed

    def _append(self, shard: Shard[C], records: list[CoordinatorRecord], writer: TransactionalWriter) -> int:
        """The end of the log after the records. ``ApiError`` if they are not all there."""
        now_ms = self._env.wall_clock_ms()
        end_offset = 0
        try:
            limit = shard.partition.config.max_message_bytes
            for batch in coordinator_batches(records, now_ms, writer, self.codec, limit):
                info = shard.partition.append_as_coordinator(batch, now_ms, verification_guard=writer.guard)
                end_offset = info.last_offset + 1
        except ApiError:
            if end_offset:
                self._owner.reload(shard)  # a part of the step is in the log
            raise
        except Exception:
            # The node lives on, with all that other shards hold: there may be no request to fail here either.
            self._owner.failed(shard)
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
        return end_offset

    def _replay(
        self, shard: Shard[C], result: CoordinatorResult[Any], end_offset: int, writer: TransactionalWriter
    ) -> bool:
        """Have the core take the records that were appended. False if it cannot: then the shard has failed."""
        if result.replay:
            now_ms = self._owner.now_ms()
            core, records = shard.core, result.records
            offset = end_offset - len(records)
            replay = core.replay
            try:
                if len(records) > 1 and writer is NO_TRANSACTION and core.replay_alike is not None:
                    keys, values = zip(*records, strict=True)
                    if None not in values and core.replay_alike(keys, values, offset):
                        return True
                for record in records:
                    replay(record, now_ms, offset=offset, producer_id=writer.producer_id)
                    offset += 1
            except Exception:
                self._owner.failed(shard)
                return False
        return True

    def _finish(self, shard: Shard[C], result: CoordinatorResult[Any], error: ErrorCode | None) -> None:
        """Do the rest of a step, whose records are committed, or not with an ``error``."""
        self.deliver(result.completed)
        if result.on_stored is not None:
            try:
                rest = result.on_stored(error, self._owner.now_ms())
            except Exception:
                self._owner.failed(shard)
                return
            self.process(shard, rest)
        self._owner.after_step(shard)

    def deliver(self, completed: list[tuple[Token, object]]) -> None:
        """Give replies that requests have been waiting for."""
        for token, response in completed:
            reply = self.replies.pop(token, None)
            if reply is not None:
                reply.set(response)

    # -- gathered steps ------------------------------------------------------------------------

    def begin_gathering(self, shard: Shard[C]) -> None:
        """Have steps that come to the shard in this turn of the event loop gathered, and appended at its end; or for as
        long as they may linger."""
        if not self.linger_ms:
            return
        shard.gathers = True
        self._gathering.append(shard)
        self._wake_gatherer.set()

    def gather_in(self, round: Round, shard: Shard[C]) -> bool:
        """Have steps that come to the shard in a round gathered, and appended at its end. False if they linger, or are
        not to be gathered."""
        if self.linger_ms >= 0:
            return False
        if not shard.in_round:
            shard.in_round = True
            round.at_end(partial(self._append_at_end, shard))
        return True

    def _append_at_end(self, shard: Shard[C]) -> None:
        shard.in_round = False
        self.append_gathered(shard)

    def append_gathered(self, shard: Shard[C]) -> None:
        """Append the gathered steps now, as one: another step is to see them."""
        if not shard.gathered:
            return
        gathered, shard.gathered = shard.gathered, []
        stored: Later[None] = Later()
        stored.on_done(lambda: _give_all(gathered, stored.error))
        self.process(
            shard, CoordinatorResult(None, [record for step, _ in gathered for record in step.records]), stored
        )

    def drop_gathered(self, shard: Shard[C]) -> None:
        """Answer the gathered steps of a shard that this node no longer leads with NOT_COORDINATOR."""
        gathered, shard.gathered = shard.gathered, []
        _give_all(gathered, ApiError(append_error_for_client(ErrorCode.NOT_LEADER_OR_FOLLOWER)))

    async def keep_appending(self) -> None:
        """Append gathered steps at the end of each turn of the event loop, or when they have lingered, until
        cancelled."""
        while True:
            if not self._gathering:
                self._wake_gatherer = trio.Event()
                await self._wake_gatherer.wait()
            elif self.linger_ms < 0:
                await trio.lowlevel.checkpoint()
            if self.linger_ms > 0:
                await trio.sleep(self.linger_ms / 1000)
            shards, self._gathering = self._gathering, []
            for shard in shards:
                if shard.gathered:
                    self.append_gathered(shard)
                    self._gathering.append(shard)  # there is likely to be more in the next turn
                else:
                    shard.gathers = False


def _give(outcome: Later[Any], result: CoordinatorResult[Any], append_error: ErrorCode | None) -> None:
    """Give a step's outcome, whose records are committed, or not with an ``append_error``."""
    if append_error is not None:
        outcome.fail(ApiError(append_error_for_client(append_error)))
    elif result.error is not None:
        outcome.fail(result.error)
    else:
        outcome.set(result.response)


def _give_all(gathered: list[GatheredStep], error: ApiError | None) -> None:
    """Give the outcomes of steps that were stored together; with an ``error`` none of them was."""
    for result, outcome in gathered:
        if error is not None:
            outcome.fail(error)
        elif result.error is not None:
            outcome.fail(result.error)
        else:
            outcome.set(result.response)
