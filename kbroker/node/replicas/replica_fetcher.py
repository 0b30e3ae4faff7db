"""Copies the partitions that other brokers lead: a task and a connection for each leader.

All partitions followed from one leader share one incremental fetch session (KIP-227), whatever ``num.replica.fetchers``
says: batches are passed on as they are, so one task for each leader keeps up. What to do with an answer is decided in
``cores.replication.follower_state``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from math import ceil, inf
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import trio

from kbroker.base.exponential_backoff import exponential_backoff
from kbroker.cores.replication.follower_state import (
    Append,
    AskForBounds,
    Retry,
    StartAt,
    TruncateTo,
    begin,
    on_bounds,
    on_fetched,
)
from kbroker.errors import ApiError, ErrorCode
from kbroker.node.peers.peer import GivenUp, Peer, UnsupportedByPeer
from kbroker.node.replicas.follower_writer import FollowerWriter, NotYet, log_of, weight_of
from kbroker.node.replicas.leader_session import Followed, Key, LeaderSession, Position, leader_bounds
from kbroker.types import Uuid
from kbroker.wire.errors import WireError
from kbroker.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData
from kbroker.wire.primitives import MAX_ELEMENTS
from kbroker.wire.schema import Request

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.node.replicas.partition import Partition
    from kbroker.node.replicas.partition_events import CheckpointRequests, Progress
    from kbroker.node.replicas.partition_table import PartitionTable
    from kbroker.node.replicas.replica_log_dirs import ReplicaLogDirs
    from kbroker.node.replicas.replication_throttles import ReplicationThrottles
    from kbroker.runtime.env import Env, Network

R = TypeVar("R")

logger = logging.getLogger(__name__)

FIRST_BACKOFF = 0.01
"""Seconds before a partition's first retry. Mostly its leader has not heard yet that it leads; every further one
doubles it, up to ``replica.fetch.backoff.ms``."""

YIELD_BYTES = 1 << 20
"""Bytes after which others get their turn: a follower that catches up is a broker too."""

BEHIND_MS = 10
"""Milliseconds that the leader may hold a request for, while an image's partitions are being brought in step."""
_PATIENCE = 10
"""Attempts after which even an error that mostly passes at once is logged."""
_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
_EXPECTED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Answers of a leader whose metadata are a moment older or newer than the follower's."""

_DENIED = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
"""The leader denies this broker's principal CLUSTER_ACTION, until somebody changes that."""


class FetcherOwner(Protocol):
    """The node's parts that a fetcher acts on, and the calls by which it reports (``replica_fetchers``)."""

    env: Env
    network: Network
    config: BrokerConfig
    table: PartitionTable
    progress: Progress
    log_dirs: ReplicaLogDirs
    checkpoints: CheckpointRequests
    throttles: ReplicationThrottles
    start_soon: Callable[..., None]

    @property
    def broker_epoch(self) -> Callable[[], int]:
        """Gives this broker's epoch."""
        ...

    def unfollow(self, partition: Partition) -> None:
        """A partition cannot be followed any more."""
        ...

    def suspect(self, leader: int) -> None:
        """A leader has closed the connection, or refuses one."""
        ...

    def clear(self, leader: int) -> None:
        """A leader answers."""
        ...

    def ended(self, fetcher: LeaderFetcher) -> None:
        """The fetcher has nothing left to follow, or the node stops."""
        ...


class LeaderFetcher:
    """Follows partitions from one broker, in a task that ends when there are none left."""

    def __init__(
        self,
        owner: FetcherOwner,
        leader: int,
        host: str,
        port: int,
        *,
        peer: Peer | None = None,
        writer: FollowerWriter | None = None,
    ) -> None:
        """``peer`` asks the leader, and ``writer`` writes what it gives; None: as every fetcher does."""
        self.leader = leader
        self.address = (host, port)
        self._owner = owner
        self._env = owner.env
        self._table = owner.table
        self._log_dirs = owner.log_dirs
        self._throttles = owner.throttles
        self._config = owner.config
        self._writer = writer or FollowerWriter(owner, leader)
        self._peer = peer or Peer(owner.network, host, port, client_id=f"broker-{owner.table.node_id}-fetcher-0")
        self._partitions: dict[Key, Followed] = {}
        self._session = LeaderSession(owner.config, owner.table.node_id, owner.broker_epoch)
        self._aside: dict[Key, Followed] = {}
        """Those that are not asked for now: they back off, or wait for the bounds of the leader's log."""
        self._out_of_range: dict[Key, Followed] = {}
        self._denied: dict[Key, ErrorCode] = {}
        """Partitions that the leader denies to this broker."""
        self._unflushed: dict[Key, Followed] = {}
        self._wake = trio.Event()
        self._held = False
        """A request is under way that the leader may hold back."""
        self._failures = 0
        self._complaint = ""
        self.answer_by = inf
        """Deadline of the request that is under way (``Env.now``); infinity if there is none."""
        self._limit = trio.CancelScope()

    # --- what is followed -------------------------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        """Follow a partition, from the end of its log on."""
        followed = Followed(partition)
        self._forget(followed.key)
        self._partitions[followed.key] = followed
        self._session.changed[followed.key] = None
        self._failures = 0
        self._wake.set()
        if self._held:
            # Otherwise the new one would wait until the leader lets go of the present request.
            self._held = False
            self._peer.close()

    def remove(self, key: Key) -> None:
        """Follow a partition no more."""
        self._forget(key)
        self._denied.pop(key, None)
        if self._partitions.pop(key, None) is not None:
            self._session.changed[key] = None
            self._wake.set()

    def _forget(self, key: Key) -> None:
        self._aside.pop(key, None)
        self._out_of_range.pop(key, None)

    @property
    def followed(self) -> list[Partition]:
        """The partitions."""
        return [followed.partition for followed in self._partitions.values()]

    # --- the task ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fetch until there is nothing left to follow."""
        try:
            while self._partitions:
                # One scope for many requests: `ReplicaFetchers` sees to their time.
                with trio.CancelScope() as self._limit:
                    await self._follow()
                if self._limit.cancelled_caught:
                    self._reset_session()
                    await self._failed("does not answer in time")
        finally:
            self._owner.ended(self)
            self._peer.close()

    async def _follow(self) -> None:
        while self._partitions:
            self._wake = trio.Event()
            if self._out_of_range:
                await self._look_up_bounds()
            self._take_up()
            self._hold_back()
            if len(self._aside) < len(self._partitions):
                await self._fetch()
            elif self._aside:  # nothing may be left to follow once bounds have been asked for
                # Partitions out of range stay aside until the leader has answered with the bounds; that may fail.
                again = self._env.now() + self._longest_backoff
                await self._sleep(min(again, *(followed.retry_at for followed in self._aside.values())))

    def give_up(self) -> None:
        """The request that is under way has taken too long."""
        self._limit.cancel()

    async def _sleep(self, until: float) -> None:
        with trio.move_on_after(max(until - self._env.now(), 0)):
            await self._wake.wait()
        await trio.lowlevel.checkpoint()

    async def _ask(self, request_class: type[Request[R]], make: Callable[[int], Request[R]]) -> R | None:
        """The leader's answer, or None once the failure has been waited out."""
        self.answer_by = self._env.now() + self._config.replica_socket_timeout_ms / 1000
        try:
            response, _ = await self._peer.ask_versioned(request_class, make)
            if self._limit.cancel_called:
                # It came just now, but what follows may wait, and must not be cancelled half-way.
                await trio.lowlevel.checkpoint_if_cancelled()
        except GivenUp:
            self._reset_session()
            return None
        except (OSError, WireError, UnsupportedByPeer) as error:
            self.answer_by = inf
            self._reset_session()
            if isinstance(error, OSError) and not self._failures:
                self._owner.suspect(self.leader)
            await self._failed(str(error))
            return None
        except Exception as error:
            self.answer_by = inf
            logger.exception("following broker %d failed", self.leader)
            self._reset_session()
            await self._failed(str(error))
            return None
        finally:
            self._held = False
            self.answer_by = inf
        return response

    async def _failed(self, complaint: str) -> None:
        if self._complaint != complaint:
            self._complaint = complaint
            logger.info("broker %d at %s:%d cannot be followed: %s", self.leader, *self.address, complaint)
        self._failures += 1
        await self._sleep(self._env.now() + self._backoff(self._failures))

    def _backoff(self, attempts: int) -> float:
        return exponential_backoff(FIRST_BACKOFF, attempts - 1, self._longest_backoff)

    @property
    def _longest_backoff(self) -> float:
        """``replica.fetch.backoff.ms`` in seconds, but never 0, or this would ask all the time."""
        return max(self._config.replica_fetch_backoff_ms / 1000, FIRST_BACKOFF)

    async def _fetch(self) -> None:
        response: FetchResponse | None = await self._ask(FetchRequest, self._request)
        if response is None:
            return
        if response.error_code:
            self._reset_session()
            if response.error_code not in _SESSION_ERRORS:
                await self._failed(f"it answers with error {response.error_code}")
            return
        self._failures = 0
        self._complaint = ""
        self._owner.clear(self.leader)
        self._session.answered(response.session_id)
        taken = 0
        for topic in response.responses:
            name = topic.topic or self._table.topic_name(Uuid(topic.topic_id))
            if name is None:
                continue
            for data in topic.partitions:
                taken += weight_of(self._table.partitions.get((name, data.partition_index)), data.records)
                self._take((name, data.partition_index), data)
                if taken >= YIELD_BYTES:
                    taken = 0
                    await trio.lowlevel.checkpoint()
        await self._flush()
        if not self._session.is_kept:
            self._reset_session()

    async def _flush(self) -> None:
        """Flush logs for which ``flush.messages`` asks: the next fetch confirms durable records to the leader.

        And those that heal: what was cut off is not to be there again after a power cut, when nothing says any more
        that it is damaged.
        """
        while self._unflushed:
            _, followed = self._unflushed.popitem()
            try:
                await self._log_dirs.flush(followed.partition)
                if followed.heals:
                    followed.heals = False
                    self._log_dirs.healed(followed.partition)
            except ApiError as error:
                logger.error("%s", error)
                self._owner.unfollow(followed.partition)
            except OSError as error:
                self._refused(followed, error)

    # --- the session ------------------------------------------------------------------------------------------

    def _reset_session(self) -> None:
        self._session.reset(self._partitions)

    def _take_up(self) -> None:
        """Partitions that have backed off for long enough are asked for again."""
        now = self._env.now()
        for key, followed in list(self._aside.items()):
            if followed.retry_at <= now:
                del self._aside[key]
                self._session.changed[key] = None

    def _hold_back(self) -> None:
        """While the throttle is exceeded, partitions that it is for are left out (``shouldFollowerThrottle``).

        Not those in sync: they would leave the ISR."""
        quota = self._throttles.follower
        if not quota.is_active:
            return
        wait_ms = quota.wait_ms(self._throttles.now_ms(), self._config.replica_fetch_backoff_ms)
        if not wait_ms:
            return
        retry_at = self._env.now() + wait_ms / 1000
        for key, followed in self._partitions.items():
            if not followed.in_sync and key not in self._aside and quota.is_throttled(*key):
                followed.retry_at = retry_at
                self._aside[key] = followed
                self._session.changed[key] = None

    def _request(self, version: int) -> FetchRequest:
        request = self._session.request(version, self._position, self._max_wait_ms)
        self._held = not self._table.behind
        return request

    def _max_wait_ms(self) -> int:
        """Milliseconds for which the leader may hold the next request.

        No partition that has backed off is fetched again while it does.
        """
        longest: int = self._config.replica_fetch_wait_max_ms
        if self._table.behind:  # there will be more to ask for in a moment
            longest = min(longest, BEHIND_MS)
        retry_at = min((followed.retry_at for followed in self._aside.values()), default=inf)
        if retry_at == inf:
            return longest
        return min(longest, max(ceil((retry_at - self._env.now()) * 1000), 0))

    def _position(self, key: Key) -> Position | None:
        """The entry that a partition is to have in the session; None if it is not to be fetched now."""
        followed = self._partitions.get(key)
        if followed is None or key in self._aside:
            return None
        partition = followed.partition
        try:
            log = partition.log
            if not followed.begun:
                followed.heals = log.is_damaged and self._writer.drop_damaged(partition)
                action = begin(log_of(partition))
                if action is not None:
                    self._writer.truncate(partition, action.offset)
                followed.begun = True
        except Exception as error:
            self._refused(followed, error)
            return None
        end, epoch = log.log_end_offset, log.leader_epochs.latest
        return Position(followed, end, epoch, log.log_start_offset, followed.doubts)

    # --- answers ----------------------------------------------------------------------------------------------

    def _take(self, key: Key, data: PartitionData) -> None:
        """Act on the leader's answer for a partition."""
        position = self._session.entries.get(key)
        followed = self._partitions.get(key)
        if position is None or followed is not position.followed:
            return
        partition = followed.partition
        self._session.changed[key] = None
        try:
            if partition.log.log_end_offset != position.fetch_offset:
                return
            action = on_fetched(log_of(partition), data)
            followed.accepted = not data.error_code
            followed.doubts = False
            if followed.heals and followed.accepted:
                self._unflushed[key] = followed
            if isinstance(action, Append):
                self._append(followed, action, data.records)
            elif isinstance(action, TruncateTo):
                self._cut_back(followed, action.offset)
            elif isinstance(action, AskForBounds):
                self._out_of_range[key] = self._aside[key] = followed
                followed.retry_at = inf
            else:
                assert isinstance(action, Retry)
                self._back_off(followed, action.error)
        except Exception as error:
            self._refused(followed, error)

    def _cut_back(self, followed: Followed, offset: int) -> None:
        self._writer.truncate(followed.partition, offset)
        end, before = followed.partition.log.log_end_offset, followed.cut_to
        if before is not None and end >= before:
            # The leader does not take for its own what it gave since: it may go on like this.
            self._set_aside(followed, self._longest_backoff)
            return
        followed.cut_to = end

    def _append(self, followed: Followed, action: Append, records: Any) -> None:
        partition = followed.partition
        if not self._writer.append(partition, followed.leader_epoch, action, records):
            self._set_aside(followed)
            return
        if records is not None and len(records) and partition.must_flush:
            self._unflushed[followed.key] = followed
        followed.attempts = 0
        if self._denied:
            self._denied.pop(followed.key, None)
        followed.in_sync = action.high_watermark <= partition.log.log_end_offset

    def _refused(self, followed: Followed, error: Exception) -> None:
        """This node cannot write the records of a partition, perhaps by a mistake; the others are followed on."""
        if isinstance(error, NotYet):
            self._set_aside(followed)
            return
        partition = followed.partition
        followed.doubts = isinstance(error, ApiError) and error.code is not ErrorCode.KAFKA_STORAGE_ERROR
        if isinstance(error, OSError):
            self._log_dirs.storage_failed(partition, error)
        if partition.read_only:
            self._owner.unfollow(partition)
            return
        mistake = not isinstance(error, (ApiError, OSError))
        logger.error("cannot replicate %s: %s", partition.topic_partition, error, exc_info=error if mistake else None)
        self._set_aside(followed)

    def _back_off(self, followed: Followed, error: ErrorCode) -> None:
        if error in _DENIED:
            if error not in self._denied.values():  # else it has been said of another partition
                logger.error("broker %d denies this broker what it follows: %s", self.leader, error.name)
            self._denied[followed.key] = error
            self._set_aside(followed, self._longest_backoff)
            return
        log = logger.debug if error in _EXPECTED and followed.attempts < _PATIENCE else logger.warning
        if followed.attempts <= _PATIENCE:
            log("broker %d does not let %s-%d be replicated: %s", self.leader, *followed.key, error.name)
        self._set_aside(followed)

    def _set_aside(self, followed: Followed, seconds: float | None = None) -> None:
        followed.attempts += 1
        followed.retry_at = self._env.now() + (self._backoff(followed.attempts) if seconds is None else seconds)
        self._aside[followed.key] = followed
        self._session.changed[followed.key] = None

    # --- outside of the leader's log --------------------------------------------------------------------------

    async def _look_up_bounds(self) -> None:
        """Ask for the bounds of the leader's logs, and truncate or restart the logs here by them."""
        asked = dict(islice(self._out_of_range.items(), MAX_ELEMENTS // 2))  # each may be of a topic of its own
        bounds = await leader_bounds(self._ask, self._table.node_id, asked.values())
        if bounds is None:
            return
        for key, followed in asked.items():
            if self._out_of_range.get(key) is not followed:
                continue
            self._forget(key)
            self._session.changed[key] = None
            if key not in bounds:
                self._set_aside(followed)
                continue
            partition = followed.partition
            try:
                action = on_bounds(log_of(partition), *bounds[key])
                if isinstance(action, TruncateTo):
                    self._cut_back(followed, action.offset)
                elif isinstance(action, StartAt):
                    self._writer.start_at(partition, action.offset)
                else:
                    self._set_aside(followed)  # it was the leader that changed; or it will not help to ask at once
            except Exception as error:
                self._refused(followed, error)
