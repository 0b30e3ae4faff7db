"""Runs the Raft core of a node: carries out each ``Ready`` (persist, send, apply) and keeps the core's time.

One task at a time calls the core, and the next call waits until the last :class:`Ready` is carried out. Only the
flushes of a leader's log run beside that: while ``fdatasync`` is in a thread, further records are appended, and the
next flush takes them all (group commit).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

import trio

from kbroker.errors import ApiError, ErrorCode, FatalError, LogDirFailure
from kbroker.log.full_disk import is_no_room, unless_full
from kbroker.raft_metadata.raft.core import RaftCore
from kbroker.raft_metadata.raft.election_state import ElectionState, QuorumStateFile
from kbroker.raft_metadata.raft.messages import (
    InboundRequest,
    OutboundRequest,
    RaftRequest,
    RaftResponse,
    Reply,
    SnapshotChunk,
)
from kbroker.raft_metadata.raft.replicated_log import ReplicatedLog
from kbroker.raft_metadata.raft.snapshot import CorruptSnapshot
from kbroker.raft_metadata.raft.types import Ready
from kbroker.runtime.env import Env
from kbroker.runtime.later import Later
from kbroker.runtime.timing import Alarm

logger = logging.getLogger(__name__)

Send = Callable[[OutboundRequest], Awaitable[Reply]]
"""Sends a request to another replica and waits for its outcome; raises nothing but cancellation."""


class RaftOwner(Protocol):
    """The core's owner, which applies the committed records."""

    async def read_committed(self, high_watermark: int) -> None:
        """All below ``high_watermark`` is committed: read it, with turns for others. ``on_high_watermark`` follows."""

    def on_high_watermark(self, high_watermark: int) -> None:
        """All below ``high_watermark`` is committed. Must not wait."""

    def on_role_changed(self) -> None:
        """Role, epoch or leader have changed. Must not wait. Comes before the rest of the ``Ready``."""


class RaftRunner:
    """The core with its clock, its log and its peers. Call ``start``, then ``run`` in a nursery."""

    def __init__(
        self,
        core: RaftCore,
        log: ReplicatedLog,
        quorum_file: QuorumStateFile,
        env: Env,
        owner: RaftOwner,
        send: Send | None = None,
    ) -> None:
        self.core = core
        self.log = log
        self._quorum_file = quorum_file
        self._env = env
        self._owner = owner
        self._send = send
        self._lock = trio.Lock()
        self._disk_lock = trio.Lock()
        """Held while the log is cut or flushed: a flush and a cut must not overlap."""
        self._appended = trio.Event()
        self._timer = Alarm()
        self._timer_at = math.inf
        self._stepped = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._unsent: list[OutboundRequest] = []
        self._asked: dict[int, Later[RaftResponse]] = {}
        """By token: responses to requests of other replicas, which the core will give."""
        self._next_token = 0
        self._has_room = True
        """Whether the disk had room for what was fetched last."""
        self.failure: BaseException | None = None

    # Calling the core

    def now_ms(self) -> int:
        """The core's clock."""
        return int(self._env.now() * 1000)

    async def start(self) -> None:
        """Start the core, and flush the records that it appends at once."""
        await self.step(self.core.start)
        if self.core.is_leader:
            await self.flush()

    async def step(self, call: Callable[[int], Ready]) -> None:
        """Call the core and carry out its ``Ready``. :class:`FatalError` if the disk fails."""
        try:
            self._lock.acquire_nowait()  # mostly it is free, and this saves a turn of the scheduler
        except trio.WouldBlock:
            await self._lock.acquire()
        try:
            if self.failure is not None:
                raise FatalError("the metadata quorum has failed")
            ready: Ready | None = call(self.now_ms())
            while ready is not None:
                if ready.needs_disk:
                    # The core relies on all of it, so that cancellation must not leave it half done.
                    with trio.CancelScope(shield=True):
                        ready = await self._act(ready)
                else:
                    ready = await self._act(ready)  # in one go
        except Exception as error:
            if self.failure is None:
                # Whichever task it was: the core must not be called again, and ``run`` ends.
                self.fail(error)
            raise
        finally:
            self._lock.release()
        if self.core.next_deadline() < self._timer_at:
            self._timer.ring()
        self._stepped.set()

    async def _act(self, ready: Ready) -> Ready | None:
        """Carry out a ``Ready``: persist, send, apply, in this order. Returns the next one, if there is."""
        core, log = self.core, self.log
        if ready.role_changed:
            # First, so that the controller decides nothing for an epoch that is over while the rest is under way.
            self._owner.on_role_changed()
        if ready.election_state is not None:
            await self._write_election_state(ready.election_state)
        if ready.append:
            # A leader that appends without a new election state has not waited, so that no other records came between.
            log.append_control(ready.append, core.epoch, timestamp_ms=self._env.wall_clock_ms())
            self._appended.set()
        if ready.truncate_to is not None:
            async with self._disk_lock:
                log.truncate_to(ready.truncate_to)
            logger.info("cut the metadata log at offset %d, where the leader's is another", log.end_offset)
        has_room = await self._take_fetched(ready)
        if ready.regained:
            await self._env.run_blocking(log.regain)
            logger.info("the metadata log is whole again, to offset %d: this voter votes", log.end_offset)
        if ready.flush:
            await self._flush_now()
        for request in ready.send:
            self._start_sending(request)
        for response in ready.respond:
            asked = self._asked.pop(response.token, None)
            if asked is not None:
                asked.set(response.response)
        if ready.high_watermark is not None:
            await self._owner.read_committed(ready.high_watermark)
            self._owner.on_high_watermark(ready.high_watermark)
        if not has_room:
            return core.on_no_room(self.now_ms())
        if ready.flush:
            return core.on_flushed(log.end_offset, self.now_ms())
        if ready.append:
            return core.on_appended(self.now_ms())
        return None

    async def _write_election_state(self, state: ElectionState) -> None:
        try:
            await self._env.run_blocking(self._quorum_file.write, state, self.log.kraft_version, self.core.voters.ids)
        except OSError as error:
            raise LogDirFailure(f"cannot write {self._quorum_file.path}: {error.strerror or error}") from error

    async def _take_fetched(self, ready: Ready) -> bool:
        """Keep what the leader has sent; False if the disk has no room for it."""
        core, log = self.core, self.log
        if ready.snapshot is None and not ready.records:
            return True
        try:
            if ready.snapshot is not None:
                await self._take_snapshot(ready.snapshot)
            if ready.records:
                fault = log.append_fetched(ready.records, core.epoch)
                if fault is not None:
                    logger.warning("refused records from leader %d for the metadata log: %s", core.leader_id, fault)
        except OSError as error:
            if not is_no_room(error):
                raise
            if self._has_room:
                logger.warning(
                    "no room for the metadata of leader %d; this node tries again: %s", core.leader_id, error
                )
            with unless_full():
                log.begin_at_latest_snapshot()  # what is fetched next may have the room of the last but one
            self._has_room = False
            return False
        self._has_room = True
        return True

    async def _take_snapshot(self, chunk: SnapshotChunk) -> None:
        log = self.log
        await self._env.run_blocking(log.write_snapshot_chunk, chunk.snapshot_id, chunk.position, chunk.data)
        if not chunk.is_last:
            return
        try:
            async with self._disk_lock:
                content = await self._env.run_long(partial(log.finish_snapshot, chunk.snapshot_id))
                try:
                    log.install_snapshot(chunk.snapshot_id, content)
                except OSError as error:
                    raise LogDirFailure(f"cannot begin the metadata log at a snapshot: {error}") from error
            logger.info("the metadata log goes on from the leader's snapshot %s", chunk.snapshot_id)
        except CorruptSnapshot as error:
            logger.warning("%s", error)

    # The disk

    def on_appended(self) -> None:
        """The owner has appended to the leader's log."""
        self._appended.set()

    async def _flush_now(self) -> None:
        try:
            async with self._disk_lock:
                work = self.log.begin_flush()
                if work is not None:
                    await self._env.run_blocking(work.run)
                    work.end()
        except OSError as error:
            # Never tried again: the kernel may have dropped the pages and report success the second time.
            raise LogDirFailure(f"cannot flush the metadata log: {error.strerror or error}") from error

    async def flush(self) -> None:
        """Flush the log and report it to the core, unless the log was truncated meanwhile."""
        self._appended = trio.Event()
        end_offset, truncations = self.log.end_offset, self.log.truncations
        await self._flush_now()
        if self.log.truncations == truncations:
            await self.step(lambda now_ms: self.core.on_flushed(end_offset, now_ms))

    # Tasks

    async def run(self) -> None:
        """Flush, keep time, exchange messages with the others, until cancelled. Raises the failure of any of these."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            unsent, self._unsent = self._unsent, []
            for request in unsent:
                self._start_sending(request)
            nursery.start_soon(self._flush_loop)
            nursery.start_soon(self._keep_time)

    async def _flush_loop(self) -> None:
        while True:
            await self._appended.wait()
            if self.failure is not None:
                raise self.failure
            if len(self.core.voters) > 1 and self.core.is_leader:
                await self.step(self.core.on_appended)
            await self.flush()

    async def _keep_time(self) -> None:
        while True:
            self._timer_at = deadline = self.core.next_deadline()
            # Half a millisecond more, as rounding might end the sleep a moment too early.
            await self._timer.sleep_until((deadline + 0.5) / 1000)
            if self.now_ms() >= deadline:
                await self.step(self.core.tick)

    async def hand_over(self, within: float) -> None:
        """Stop the replica; a leader sends EndQuorumEpoch and waits ``within`` seconds for the responses."""
        leads = self.core.is_leader
        await self.step(self.core.stop)
        with trio.move_on_after(within):
            while leads and self.core.is_handing_over:
                self._stepped = trio.Event()
                await self._stepped.wait()

    # The others

    def _start_sending(self, request: OutboundRequest) -> None:
        if self._nursery is None:
            self._unsent.append(request)
            return
        with suppress(RuntimeError):  # its tasks have ended: the node stops, and others may still ask it
            self._nursery.start_soon(self._exchange, request)

    async def _exchange(self, request: OutboundRequest) -> None:
        if self._send is None:
            return
        reply = await self._send(request)
        await self.step(lambda now_ms: self.core.receive(reply, now_ms))

    async def ask(self, request: RaftRequest) -> RaftResponse:
        """The core's response to another replica's request, perhaps after a while.

        ``ApiError`` BROKER_NOT_AVAILABLE if this replica has ended or ends meanwhile: its node stops, or has failed.
        """
        self._next_token += 1
        token = self._next_token
        asked = self._asked[token] = Later[RaftResponse]()
        try:
            await self.step(lambda now_ms: self.core.receive(InboundRequest(token, request), now_ms))
            return await asked
        except Exception as error:
            if self.failure is None:
                raise
            # Why is not the asker's concern: whoever runs the replica has the failure.
            raise _ended() from error
        finally:
            self._asked.pop(token, None)

    def fail(self, failure: BaseException) -> None:
        """Call the core no more. Tasks end with ``failure``, and those that have asked are told that nobody is here."""
        self.failure = failure
        self._appended.set()
        for asked in [*self._asked.values()]:
            asked.fail(_ended())


def _ended() -> ApiError:
    return ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "This node has left the metadata quorum.")


def failure_of(error: BaseException) -> FatalError | None:
    """The reason, in one line, why this node has left the quorum: its disk or the data there failed.

    None for any other error. Of a nursery's exception group the first error with a reason counts.
    """
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(failure_of, error.exceptions)), None)
    if isinstance(error, OSError):
        return LogDirFailure(f"metadata log: {error.filename or ''} {error.strerror or error}".replace("  ", " "))
    if isinstance(error, LogDirFailure):
        return LogDirFailure(str(error))
    return FatalError(str(error)) if isinstance(error, FatalError | CorruptSnapshot) else None
