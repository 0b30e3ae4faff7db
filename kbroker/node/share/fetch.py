"""A ShareFetch on its way: it reads partitions in turn, and waits until there is enough (``DelayedShareFetch``)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import trio

from kbroker.cores.replication.fetch_view import FetchView, PartitionKey
from kbroker.cores.share_partitions.requests import Denied, ShareFetched, ShareFetchParams, TopicIdPartition
from kbroker.errors import ApiError, ErrorCode
from kbroker.node.share.records import readable_bytes, take

if TYPE_CHECKING:
    from kbroker.cores.share_partitions.settings import ShareGroupSettings
    from kbroker.handlers.services.connection import Connection
    from kbroker.node.replicas.replica_manager import ReplicaManager
    from kbroker.node.share.led_partition import LedSharePartition

logger = logging.getLogger(__name__)


class Leader(Protocol):
    """The share partitions of this node, as a fetch needs them."""

    @property
    def replicas(self) -> ReplicaManager: ...

    def settings(self, group_id: str) -> ShareGroupSettings:
        """The settings of a group, as they are now."""

    def lead(self, group_id: str, wanted: TopicIdPartition) -> LedSharePartition:
        """The share partition, being loaded if it is new. ``ApiError`` if this node does not lead the partition."""

    def locked(self, led: LedSharePartition, until_ms: int) -> None:
        """Locks were given that end at a time."""


class ShareFetch:
    """The reading and waiting of one request."""

    def __init__(
        self, leader: Leader, params: ShareFetchParams, partitions: Sequence[TopicIdPartition], denied: Denied
    ) -> None:
        """``denied`` says what the member may not read once rules have changed, and raises if it may read nothing."""
        first = params.session_epoch % len(partitions) if params.session_epoch > 0 else 0
        self._partitions = [*partitions[first:], *partitions[:first]]
        """Another one comes first in each request, so that none starves."""
        self._leader = leader
        self._params = params
        self._denied = denied
        self._led: dict[TopicIdPartition, LedSharePartition] = {}
        self._errors: dict[TopicIdPartition, ErrorCode] = {}
        self._not_led: set[TopicIdPartition] = set()
        """Those of the errors that another broker may not have."""
        self._has_more = False
        """Whether there may be more behind what the last read has passed over."""
        self._view = FetchView({}, by_follower=False)

    async def run(self, connection: Connection) -> dict[TopicIdPartition, ShareFetched]:
        """Read, and wait at most ``max_wait_ms``; the partitions that were read, and those with errors."""
        now, view = self._leader.replicas.env.now, self._view
        deadline = now() + self._params.max_wait_ms / 1000
        view.in_request = True
        view.min_bytes = 1
        self._take_up()
        not_led = len(self._not_led)
        is_denied = False
        try:
            while True:
                view.begin_read()
                view.committed_only = committed = self._leader.settings(self._params.group_id).read_committed
                is_over = is_denied or now() >= deadline or self._must_tell(not_led)
                ready = self._ready()
                if is_over or self._is_enough(ready, committed):
                    fetched = self._take(ready, committed)
                    if is_over or any(fetched[wanted].is_news for wanted in ready):
                        return fetched
                    if self._has_more:  # others have their turn first: an aborted transaction may be long
                        await trio.lowlevel.checkpoint()
                        self._take_up()
                        continue
                rules_changed = await connection.wait_for(view, deadline - now())
                if connection.session_ended:
                    return {}
                if rules_changed:  # before anything is handed out
                    denied = self._denied(self._partitions)
                    self._errors.update(dict.fromkeys(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                    is_denied = bool(denied)
                self._take_up()
        finally:
            self._unwatch()

    def _must_tell(self, known: int) -> bool:
        """Whether the client has to look for leaders: of all its partitions, or of one that was led here before.

        A share partition that cannot be loaded has its client wait, so that it does not ask again at once.
        """
        return len(self._not_led) > known or len(self._not_led) == len(self._partitions)

    def _take_up(self) -> None:
        """Find the share partitions, and hear of their events from now on."""
        replicas, view = self._leader.replicas, self._view
        for wanted in self._partitions:
            led = self._led.get(wanted)
            if led is not None and led.error is not None:
                self._errors[wanted] = led.error.code
            if wanted in self._errors or (led is not None and led.is_current):
                continue
            if led is not None:
                led.waiting.pop(view, None)
            try:
                led = self._leader.lead(self._params.group_id, wanted)
            except ApiError as error:
                self._errors[wanted] = error.code
                self._not_led.add(wanted)
                continue
            led.waiting[view] = None
            self._led[wanted] = led
            name = PartitionKey("", wanted.topic_id, wanted.partition)
            replicas.purgatory.watch_fetch(view, name, led.partition.topic_partition)

    def _unwatch(self) -> None:
        self._view.in_request = False
        self._leader.replicas.purgatory.unwatch_fetch(self._view)
        for led in self._led.values():
            led.waiting.pop(self._view, None)

    def _ready(self) -> list[TopicIdPartition]:
        """The partitions that may be read."""
        return [
            wanted
            for wanted in self._partitions
            if wanted not in self._errors
            and (led := self._led.get(wanted)) is not None
            and led.core is not None
            and led.is_current
        ]

    def _is_enough(self, ready: list[TopicIdPartition], committed: bool) -> bool:
        """Whether there are ``min_bytes``. Less than two are seen by taking them."""
        params = self._params
        if params.min_bytes <= 1:
            return True
        share = max(1, params.max_bytes // max(1, len(ready)))
        found = 0
        for wanted in ready:
            try:
                found += min(share, readable_bytes(self._led[wanted], share, committed=committed))
            except ApiError:
                return True  # the answer says which error it is
        return found >= params.min_bytes

    def _take(self, ready: list[TopicIdPartition], committed: bool) -> dict[TopicIdPartition, ShareFetched]:
        """Hand out records of the partitions, each of which may fill its part of ``max_bytes``."""
        params = self._params
        fetched: dict[TopicIdPartition, ShareFetched] = {}
        share = max(1, params.max_bytes // max(1, len(ready)))
        lock_ms = self._leader.settings(params.group_id).delivery.record_lock_duration_ms
        records = size = 0
        self._has_more = False
        for wanted in ready:
            led = self._led[wanted]
            if records >= params.max_records:
                fetched[wanted] = ShareFetched()
                continue
            try:
                found = take(led, params, params.max_records - records, share, committed=committed, whole=not size)
                part = found or ShareFetched()
                self._has_more |= found is None
            except ApiError as error:
                part = ShareFetched(error=error.code)
                if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    part = ShareFetched()  # the log is shorter than it was: what comes next is waited for
            except Exception:
                logger.exception("Reading the share partition %s failed", led.key)
                part = ShareFetched(error=ErrorCode.UNKNOWN_SERVER_ERROR)
            if part.acquired:
                self._leader.locked(led, led.now_ms() + lock_ms)
            records += sum(last - first + 1 for first, last, _ in part.acquired)
            size += len(part.records)
            fetched[wanted] = part
        for wanted, code in self._errors.items():
            fetched[wanted] = ShareFetched(error=code)
        return fetched
