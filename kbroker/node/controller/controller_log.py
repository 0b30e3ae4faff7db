"""The active controller's changes: appended to the metadata log, and answered once they are committed and published.

Many changes may wait for one flush (group commit): while ``fdatasync`` runs in a thread, further records are appended,
and the next flush takes them all. A change is answered when the high watermark has passed its records and every
subscriber has seen the image that holds them.

A change may be about thousands of partitions: it is decided, replayed and encoded in turns, between which others are
served. Other changes wait meanwhile, and what is under way is in no image before it is whole and in the log.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import trio

from kbroker.errors import ApiError, ErrorCode, LogDirFailure
from kbroker.node.controller.image_publisher import ImagePublisher, turn_lengths
from kbroker.node.controller.quorum import MetadataLog, Quorum
from kbroker.raft_metadata.controller import Controller, ControllerResult, ControllerView
from kbroker.raft_metadata.image import MetadataDelta, MetadataImage
from kbroker.raft_metadata.raft.batches import BatchEncoder
from kbroker.raft_metadata.raft.snapshot import read_bootstrap
from kbroker.raft_metadata.storage import activation_records, bootstrap_records
from kbroker.runtime.env import Env
from kbroker.runtime.later import Later
from kbroker.value_types import NamedTuple, dataclass
from kbroker.wire.errors import EncodeError
from kbroker.wire.records.metadata import AbortTransactionRecord

if TYPE_CHECKING:
    from kbroker.observe.metrics.histogram import Histogram

T = TypeVar("T")

logger = logging.getLogger(__name__)


class _Pending(NamedTuple):
    """Records that this leader appended and that are not committed yet, with the image that they make."""

    first_offset: int
    last_offset: int
    delta: MetadataDelta
    image: MetadataImage
    timestamp_ms: int
    appended_at: float
    """Seconds of the node's clock."""


@dataclass(slots=True)
class _Batch:
    """Records that are decided on and not appended yet."""

    before: MetadataImage
    """The image that they are decided by."""
    delta: MetadataDelta
    first_offset: int
    epoch: int
    now_ms: int
    encoder: BatchEncoder | None = None

    @property
    def count(self) -> int:
        return 0 if self.encoder is None else self.encoder.count


class _Overtaken(Exception):
    """The log or the image has changed while a change was under way: by a new voter, by the loss of the epoch."""


class ControllerLog:
    """The controller on top of the metadata log.

    It is active while this node leads the quorum and has read all that came before its epoch.
    """

    def __init__(
        self, controller: Controller, quorum: Quorum, images: ImagePublisher, env: Env, files: MetadataLog
    ) -> None:
        self._controller = controller
        self._quorum = quorum
        self._log = quorum.log
        self._core = quorum.core
        self._images = images
        self._env = env
        self._directory = files.directory
        self._log_dir = files.log_dir
        self._pending: deque[_Pending] = deque()
        self._waiting: deque[tuple[int, Later[None]]] = deque()
        """Changes that are answered once all below an offset is committed."""
        self.change_times: Histogram | None = None
        """Of the work for changes, and ``commit_times`` until they are committed, on a node that has metrics."""
        self.commit_times: Histogram | None = None
        self._under_way: trio.Event | None = None
        """Set when the change is decided that is under way: one between whose turns others are served."""
        self._active = False
        self._on_active: list[Callable[[], None]] = []

    @property
    def controller(self) -> Controller:
        """The controller; its image holds what is appended, committed or not."""
        return self._controller

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller."""
        return self._active

    def check_active(self) -> None:
        """``ApiError`` NOT_CONTROLLER unless this node is the active controller."""
        if not self._active or not self._core.is_leader or self._quorum.failure is not None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "This is not the active controller.")

    def on_active(self, callback: Callable[[], None]) -> None:
        """Have ``callback()`` called each time that this node becomes the active controller, before it decides."""
        self._on_active.append(callback)

    async def submit(self, operation: Callable[[ControllerView], ControllerResult[T]]) -> T:
        """Run ``operation(view)`` on the active controller; its response once its records are committed.

        ``ApiError`` NOT_CONTROLLER if that is not this node, and whatever the operation raises. An operation without
        records still waits until everything that it may have seen is committed.
        """
        await self.wait_for_turn()
        result, end_offset = await self._decide(operation)
        if end_offset > self._core.high_watermark:
            committed = Later[None]()
            self._waiting.append((end_offset, committed))
            await committed
        return result.response

    async def wait_for_turn(self) -> None:
        """Wait until no change is under way."""
        while self._under_way is not None:
            await self._under_way.wait()  # all that wait are woken at once, and most decide without a pause

    async def _decide(
        self, operation: Callable[[ControllerView], ControllerResult[T]]
    ) -> tuple[ControllerResult[T], int]:
        """Run the operation and append its records; the result, and what must be committed before it is answered."""
        now, start = self._env.now, self._log.end_offset
        decided: trio.Event | None = None
        try:
            while True:
                self.check_active()
                began, waited = now(), 0.0
                result = operation(self._controller.begin(self._log.end_offset))
                try:
                    with trio.CancelScope(shield=True):  # there may be a batch of it in the log
                        for _ in self._append(result.records):
                            if decided is None:
                                decided = self._under_way = trio.Event()
                            paused = now()
                            await trio.lowlevel.checkpoint()
                            waited += now() - paused
                except _Overtaken:
                    continue  # decided anew; of several batches the first ones are right without the rest
                # From here on until it is known who waits there is no pause: they wait in the order of the log.
                end_offset = self._log.end_offset
                if result.at_once and end_offset == start:
                    return result, 0
                if self.change_times is not None:
                    self.change_times.observe_seconds(now() - began - waited)
                return result, end_offset
        finally:
            if decided is not None:
                self._under_way = None
                decided.set()

    def _append(self, records: Iterable[object]) -> Iterator[None]:
        """Append records in batches, in steps between which others may have a turn. `_Overtaken` where that has changed
        what the rest was decided by."""
        batch, most = self._new_batch(), self._env.budgets.batch_records
        for turn, some in enumerate(_decided(records, self._env)):
            if turn:
                yield
                self.check_active()
                if (
                    self._core.epoch != batch.epoch
                    or self._controller.image is not batch.before
                    or self._log.end_offset != batch.first_offset
                ):
                    raise _Overtaken
            while some:
                if batch.count == most:  # not sooner: what refuses the request as a whole may still come
                    self._write(batch)
                    batch = self._new_batch()
                room = most - batch.count
                self._add(batch, some[:room])
                some = some[room:]
        if batch.count:
            self._write(batch)

    def _new_batch(self) -> _Batch:
        before = self._controller.image
        return _Batch(before, MetadataDelta(before), self._log.end_offset, self._core.epoch, self._env.wall_clock_ms())

    def _add(self, batch: _Batch, records: list[object]) -> None:
        # Replayed before it is written: a record that cannot follow must not reach the log.
        for record in records:
            batch.delta.replay(record)
        level = batch.before.features.metadata_version
        if batch.encoder is None:
            batch.encoder = BatchEncoder(batch.now_ms, level or batch.delta.features.metadata_version)
        with self._refused_alone(level):
            batch.encoder.add(records)

    def _write(self, batch: _Batch) -> None:
        assert batch.encoder is not None
        with self._refused_alone(batch.before.features.metadata_version):
            last = self._log.append_batch(batch.encoder, batch.epoch)
        self._controller.adopt(batch.delta, last)
        image, appended_at = self._controller.image, self._env.now()
        self._pending.append(_Pending(batch.first_offset, last.offset, batch.delta, image, batch.now_ms, appended_at))
        self._quorum.runner.on_appended()

    @contextmanager
    def _refused_alone(self, version: int) -> Iterator[None]:
        """Refuse a change that cannot be written; a disk that fails ends this controller."""
        try:
            yield
        except EncodeError as error:
            # Not the caller's fault, and no other change's: this one is refused, and the controller goes on.
            logger.exception("a change has a record that metadata.version %d cannot express", version)
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
        except ValueError as error:
            raise ApiError(ErrorCode.POLICY_VIOLATION, str(error)) from None
        except OSError as error:
            self._quorum.fail(
                LogDirFailure(f"cannot write the metadata log in {self._directory}: {error.strerror or error}")
            )
            raise ApiError(ErrorCode.NOT_CONTROLLER, "The controller cannot write its log.") from None

    async def read_committed(self, high_watermark: int) -> None:
        """Read what is committed and not this controller's own, with turns for others; `on_high_watermark` follows."""
        own = self._pending[0].first_offset if self._pending else high_watermark
        await self._images.read_in_turns(min(high_watermark, own), self._core.epoch, self._env)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Publish what is committed, answer those that waited for it, and begin to decide if all before is known."""
        pending, images = self._pending, self._images
        own = pending[0].first_offset if pending else high_watermark
        images.read_to(min(high_watermark, own), self._core.epoch)
        while pending and pending[0].last_offset < high_watermark:
            change = pending.popleft()
            images.adopt(change.delta, change.image, change.timestamp_ms)
            if self.commit_times is not None:
                self.commit_times.observe_seconds(self._env.now() - change.appended_at)
        while self._waiting and self._waiting[0][0] <= high_watermark:
            self._waiting.popleft()[1].set(None)
        leader = self._core.leader
        if leader is not None and not self._active and images.next_offset > leader.epoch_start_offset:
            self._begin()

    def _begin(self) -> None:
        """Become active: all that came before this node's epoch is in the image."""
        aborts = self._images.abandon_transaction()
        self._controller.reset(self._images.loaded_image)
        self._active = True
        for callback in self._on_active:
            callback()
        if aborts:
            self._append_at_once([AbortTransactionRecord(reason="The writer is gone")])
        if self._controller.image.features.metadata_version == 0:
            # The cluster's history begins with the records of ``bootstrap.checkpoint``, which nobody needs afterwards.
            found = read_bootstrap(self._env.disk, self._log_dir)
            records = found if found is not None else bootstrap_records()
            self._append_at_once(activation_records(records, self._controller.schema.static_min_insync_replicas))

    def _append_at_once(self, records: Iterable[object]) -> None:
        for _ in self._append(records):
            pass

    def on_role_changed(self) -> None:
        """Forget what is not committed if this node does not lead any more."""
        if self._active and not self._core.is_leader:
            self._pending.clear()
            self.fail()

    def fail(self) -> None:
        """Decide nothing any more; changes that are not committed are answered with NOT_CONTROLLER."""
        self._active = False
        while self._waiting:
            _, committed = self._waiting.popleft()
            committed.fail(ApiError(ErrorCode.NOT_CONTROLLER, "The controller failed before the change was committed."))


def _decided(records: Iterable[object], env: Env) -> Iterator[list[object]]:
    """Decide on records as they are read; returns those of one turn after the other."""
    left = iter(records)
    for turn in turn_lengths(env):
        some = list(islice(left, turn))
        if not some:
            return
        yield [record for record in some if record is not None]
