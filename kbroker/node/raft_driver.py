"""Runs the metadata quorum of one node: the log, the Raft core, the controller, and the images that all else follows.

Many changes may wait for one flush (group commit): while ``fdatasync`` runs in a thread, further records are appended,
and the next flush takes them all. A change is answered when the high watermark has passed its records and every
subscriber has seen the image that holds them.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import trio

from kbroker.config import BrokerConfig
from kbroker.env import Env
from kbroker.errors import ApiError, ErrorCode, FatalError
from kbroker.node.broker_sessions import HeartbeatState, SessionKeeper
from kbroker.node.raft_runner import RaftRunner, failure_of
from kbroker.raft_metadata.controller import Controller, ControllerResult
from kbroker.raft_metadata.controller.brokers import BrokerRegistration
from kbroker.raft_metadata.controller.features import KRAFT_VERSION, SUPPORTED_FEATURES, features_to_register
from kbroker.raft_metadata.controller.producer_ids import ProducerIdBlock
from kbroker.raft_metadata.controller.schema import ConfigSchema
from kbroker.raft_metadata.controller.sessions import Heartbeat
from kbroker.raft_metadata.controller.topics import NewTopic
from kbroker.raft_metadata.election_state import QuorumStateFile
from kbroker.raft_metadata.image import ControllerImage, Endpoint, MetadataDelta, MetadataImage
from kbroker.raft_metadata.loader import ImageLoader, Published
from kbroker.raft_metadata.quorum_config import (
    bootstrap_nodes,
    controller_listener,
    own_endpoints,
    raft_config,
    static_voters,
)
from kbroker.raft_metadata.quorum_description import NO_QUORUM, QuorumDescription, describe_quorum
from kbroker.raft_metadata.raft import RaftCore
from kbroker.raft_metadata.raft_messages import OutboundRequest, RaftRequest, RaftResponse, Reply
from kbroker.raft_metadata.replicated_log import PartitionStore, RecordStore, ReplicatedLog
from kbroker.raft_metadata.snapshot import SnapshotStore, encode_snapshot, read_bootstrap
from kbroker.raft_metadata.storage import METADATA_DIRECTORY, activation_records, bootstrap_records
from kbroker.raft_metadata.voters import ReplicaKey, VoterSet
from kbroker.types import OffsetAndEpoch, Uuid, random_uuid
from kbroker.wire.records.metadata import AbortTransactionRecord

if TYPE_CHECKING:
    from kbroker.node.controller_channel import ControllerChannel
    from kbroker.node.raft_peers import RaftPeers

T = TypeVar("T")

HAND_OVER_SECONDS = 1.0
"""How long a leader that stops waits for the others to have heard of it."""

logger = logging.getLogger(__name__)

Subscriber = Callable[[MetadataDelta, MetadataImage], None]
"""Called with what changed and the new image, in order, on the event loop; must not wait."""


class _Pending(NamedTuple):
    """Records that this leader appended and that are not committed yet."""

    first_offset: int
    last: OffsetAndEpoch
    delta: MetadataDelta
    image: MetadataImage
    timestamp_ms: int


class _Waiter:
    """Somebody who waits until all below ``offset`` is committed; ``failed``: this node does not lead any more."""

    __slots__ = ("event", "failed", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.event = trio.Event()
        self.failed = False


class RaftDriver:
    """One node's part in the metadata quorum. ``run`` it in a nursery; ``wait_ready`` before asking anything of it."""

    def __init__(
        self,
        config: BrokerConfig,
        env: Env,
        *,
        cluster_id: str,
        directory_id: Uuid,
        metadata_log_dir: str | None = None,
        store: RecordStore | None = None,
    ) -> None:
        self.config = config
        self.env = env
        self.node_id = config.node_id
        self.cluster_id = cluster_id
        self.directory_id = directory_id
        self.log_dir = metadata_log_dir or config.metadata_log_dir
        self.directory = os.path.join(self.log_dir, METADATA_DIRECTORY)
        self.schema = ConfigSchema(config)
        self.controller = Controller(config.node_id, self.schema, env.rng)
        self.incarnation_id = random_uuid(env.rng)
        self.loader = ImageLoader()
        self._store = store
        self._image = MetadataImage()
        self._subscribers: list[Subscriber] = []
        self._log: ReplicatedLog | None = None
        self._core: RaftCore | None = None
        self._runner: RaftRunner | None = None
        self._quorum_file = QuorumStateFile(env.disk, self.directory)
        self._snapshots = SnapshotStore(env.disk, self.directory)
        self._bootstrap: list[object] | None = None
        self._read_to = 0
        self._pending: deque[_Pending] = deque()
        self._waiting: deque[_Waiter] = deque()
        self._ready = trio.Event()
        self._published = trio.Event()
        self._failure: BaseException | None = None
        self._bytes_at_snapshot = 0
        self._peers: RaftPeers | None = None
        self._channel: ControllerChannel | None = None
        self._forward_complaint = ""
        self._broken = False
        self._stopped: list[Callable[[], None]] = []
        self._sessions = SessionKeeper(self, env, config.broker_session_timeout_ms)
        self._leading = False
        """Whether the controller decides: this node leads, and the image holds all that came before its epoch."""
        self._snapshot_wanted = trio.Event()

    # What others see

    @property
    def image(self) -> MetadataImage:
        """The latest image; everything in it is committed."""
        return self._image

    @property
    def is_leader(self) -> bool:
        """Whether this node is the active controller."""
        return self._leading

    @property
    def is_alone(self) -> bool:
        """Whether this node needs nobody else to decide."""
        return self._core is not None and self._core.voters.is_only_voter(self._core.local)

    @property
    def voters(self) -> VoterSet:
        """The voters, as far as known."""
        return VoterSet() if self._core is None else self._core.voters

    @property
    def kraft_version(self) -> int:
        """The finalized level of ``kraft.version``."""
        return 0 if self._log is None else self._log.kraft_version

    def subscribe(self, subscriber: Subscriber) -> None:
        """Have ``subscriber(delta, image)`` called with every further image, and now with all there is so far."""
        self._subscribers.append(subscriber)
        if self._image.offset >= 0:
            subscriber(self._whole_image_delta(), self._image)

    def _whole_image_delta(self) -> MetadataDelta:
        delta = MetadataDelta(MetadataImage())
        for record in self._image.records():
            delta.replay(record)
        return delta

    def describe_quorum(self) -> QuorumDescription:
        """Who leads, who votes, how far they are."""
        if self._core is None or self._runner is None:
            return NO_QUORUM
        return describe_quorum(self._core, self._runner.now_ms(), self.env.wall_clock_ms())

    async def wait_ready(self) -> None:
        """Until there is a leader and the image holds all that was committed before."""
        await self._ready.wait()
        if self._failure is not None:
            raise self._failure

    async def submit(self, operation: Callable[[Controller, int], ControllerResult[T]]) -> T:
        """Run ``operation(controller, now_ms)`` on the active controller; its response once its records are committed.

        ``ApiError`` NOT_CONTROLLER if that is not this node, and whatever the operation raises. An operation without
        records still waits until everything that it may have seen is committed.
        """
        self.check_leading()
        log, core = self._log, self._core
        assert log is not None and core is not None
        now_ms = self.env.wall_clock_ms()
        self.controller.next_offset = log.end_offset
        result = operation(self.controller, now_ms)
        if result.records:
            self._append(result.records, now_ms)
        if log.end_offset > core.high_watermark:
            waiter = _Waiter(log.end_offset)
            self._waiting.append(waiter)
            await waiter.event.wait()
            if waiter.failed:
                raise ApiError(ErrorCode.NOT_CONTROLLER, "The controller failed before the change was committed.")
        return result.response

    def check_leading(self) -> None:
        """``ApiError`` NOT_CONTROLLER unless this node is the active controller."""
        core = self._core
        if not self._leading or core is None or not core.is_leader or self._failure is not None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "This is not the active controller.")

    def check_registration(self, registration: BrokerRegistration) -> None:
        """``ApiError`` DUPLICATE_BROKER_REGISTRATION if another node has the id and lives."""
        self._sessions.check_registration(registration)

    async def heartbeat(self, beat: Heartbeat, connection: Any) -> HeartbeatState:
        """A broker shows that it lives. ``ApiError`` if it should tell another controller, or register anew.

        ``connection``: what its request came on; that it ends is a reason to look after the broker.
        """
        return await self._sessions.heartbeat(beat, connection)

    async def ask_quorum(self, request: RaftRequest) -> RaftResponse:
        """Another replica's request (Vote, Fetch and the like), answered by the Raft core."""
        if self._runner is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "The metadata quorum is not open.")
        return await self._runner.ask(request)

    async def create_topics(self, topics: Sequence[NewTopic]) -> Mapping[str, Any]:
        """Create topics on this node's own account; by name an ``ApiError``, or something else if it went well."""
        if self.is_leader or self.is_alone:
            return await self.submit(lambda controller, now_ms: controller.topics.create_topics(topics))
        from kbroker.node import controller_client

        return await controller_client.create_topics(self, topics)

    async def allocate_producer_ids(self, broker_epoch: int) -> ProducerIdBlock:
        """A block of producer ids for this broker. ``ApiError`` if there is none to be had now."""
        if self.is_leader or self.is_alone:
            return await self.submit(
                lambda controller, now_ms: controller.producer_ids.allocate(self.node_id, broker_epoch)
            )
        from kbroker.node import controller_client

        return await controller_client.allocate_producer_ids(self, broker_epoch)

    async def wait_for_image(self, condition: Callable[[MetadataImage], bool]) -> None:
        """Until the latest image is as wished."""
        while not condition(self._image):
            if self._published.is_set():
                self._published = trio.Event()  # one for all who wait
            await self._published.wait()

    async def forward(self, request: Any, version: int | None, *, timeout: float | None = None) -> Any:
        """Have the active controller answer a request, in this version or the latest; None if it cannot be had.

        ``timeout`` in seconds; ``request.timeout.ms`` if it is None.
        """
        core = self._core
        if core is None:
            return None
        leader = core.node_of(core.leader_id, core.quorum.leader_endpoints)
        if leader is None or leader.id == self.node_id:
            return None
        if self._channel is None:
            # Imported here: a node alone in its quorum has nobody to ask.
            from kbroker.node.controller_channel import ControllerChannel

            self._channel = ControllerChannel(self.env.network, f"to-controller-{self.node_id}")
        if timeout is None:
            timeout = self.config.request_timeout_ms / 1000
        try:
            response = await self._channel.ask(leader.address, request, version, timeout)
        except Exception as error:
            complaint = f"the active controller {leader.id} cannot be asked: {error}"
            if complaint != self._forward_complaint:
                self._forward_complaint = complaint  # once, however often it is tried
                logger.info("%s", complaint)
            return None
        self._forward_complaint = ""
        return response

    def _append(self, records: Sequence[object], now_ms: int) -> None:
        assert self._log is not None and self._core is not None and self._runner is not None
        before = self.controller.image
        version = before.features.metadata_version
        # Replayed before it is written: a record that cannot follow must not reach the log.
        expected = OffsetAndEpoch(self._log.end_offset + len(records) - 1, self._core.epoch)
        delta = self.controller.replay(records, expected)
        try:
            last = self._log.append_records(
                records,
                self._core.epoch,
                timestamp_ms=now_ms,
                metadata_version=version or self.controller.image.features.metadata_version,
            )
        except ValueError as error:
            self.controller.reset(before, self._log.end_offset)
            raise ApiError(ErrorCode.POLICY_VIOLATION, str(error)) from None
        except OSError as error:
            self._fail(FatalError(f"cannot write the metadata log in {self.directory}: {error.strerror or error}"))
            raise ApiError(ErrorCode.NOT_CONTROLLER, "The controller cannot write its log.") from None
        assert last == expected
        first_offset = last.offset - len(records) + 1
        self._pending.append(_Pending(first_offset, last, delta, self.controller.image, now_ms))
        self._runner.on_appended()

    # Convenience for the node that starts

    async def register_broker(
        self,
        endpoints: Sequence[Endpoint],
        log_dirs: Sequence[Uuid],
        *,
        rack: str | None = None,
        features: Mapping[str, tuple[int, int]] | None = None,
        previous_broker_epoch: int = -1,
        unfence: bool = True,
    ) -> int:
        """Register this node as a broker under its present addresses, and open it for clients; answers its epoch."""
        for name in sorted(self.features().keys() - SUPPORTED_FEATURES.keys()):
            logger.warning("the cluster has %s, which this node tolerates but does not implement", name)
        registration = BrokerRegistration(
            broker_id=self.node_id,
            incarnation_id=self.incarnation_id,
            endpoints=endpoints,
            features=features or self.features(),
            log_dirs=log_dirs,
            rack=rack,
            previous_broker_epoch=previous_broker_epoch,
        )
        epoch = await self.submit(lambda controller, now_ms: controller.brokers.register(registration))
        if unfence:
            await self.submit(lambda controller, now_ms: controller.brokers.unfence(self.node_id, epoch))
        return epoch

    def features(self) -> dict[str, tuple[int, int]]:
        """Which levels of which features this node tells the cluster that it can do."""
        found = features_to_register(self.image.features.levels)
        return {name: (levels.min, levels.max) for name, levels in found.items()}

    async def register_controller(self, endpoints: Sequence[Endpoint]) -> None:
        """Write this node's controller listeners down where brokers and tools find them."""
        registration = ControllerImage(
            id=self.node_id,
            incarnation_id=self.incarnation_id,
            endpoints={endpoint.name: endpoint for endpoint in endpoints},
            features=self.features(),
        )
        await self.submit(lambda controller, now_ms: controller.brokers.register_controller(registration))

    # The work

    async def run(self, *, task_status: trio.TaskStatus[RaftDriver] = trio.TASK_STATUS_IGNORED) -> None:
        """Open, lead, and serve until cancelled; ``started`` when ready. :class:`FatalError` when it cannot go on."""
        try:
            runner = self._open()
            await runner.start()
            while self._log is not None and self._leading and self._log.end_offset > runner.core.high_watermark:
                await runner.flush()  # what the new controller begins with
            task_status.started(self)
            async with trio.open_nursery() as nursery:
                # Shielded, so that a node that stops can still hand over what it leads.
                work = trio.CancelScope(shield=True)
                nursery.start_soon(self._work, work, runner)
                try:
                    await trio.sleep_forever()
                finally:
                    with trio.CancelScope(shield=True):
                        await self._stop(runner)
                    work.cancel()
        except (Exception, BaseExceptionGroup) as error:
            failure = failure_of(error)
            if failure is None:
                raise
            self._fail(failure)
            raise failure from error
        finally:
            for callback in self._stopped:
                callback()
            self._fail(trio.ClosedResourceError("the metadata quorum has stopped"))
            for others in (self._peers, self._channel):
                if others is not None:
                    others.close()
            if self._log is not None:
                with trio.CancelScope(shield=True):
                    self._log.close()

    async def _work(self, scope: trio.CancelScope, runner: RaftRunner) -> None:
        with scope:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(runner.run)
                    nursery.start_soon(self._snapshot_loop)
                    nursery.start_soon(self._sessions.run)
            except Exception:
                self._broken = True
                raise

    async def _stop(self, runner: RaftRunner) -> None:
        """Leave the others in good order, in the time there is."""
        if self.is_alone or self._broken:
            return
        await runner.hand_over(HAND_OVER_SECONDS)

    def on_stopped(self, callback: Callable[[], None]) -> None:
        """Have ``callback()`` called when the quorum is left: nobody needs to reach this node any more."""
        self._stopped.append(callback)

    def _open(self) -> RaftRunner:
        now_ms = self.env.wall_clock_ms()
        if self._store is None:
            snapshots = self._snapshots.ids()
            self._store = PartitionStore.open(
                self.directory,
                self.env.disk,
                segment_bytes=self.config.metadata_log_segment_bytes,
                now_ms=now_ms,
                snapshot_offset=snapshots[-1].offset if snapshots else 0,
            )
        try:
            self._log = log = ReplicatedLog(self._store, self._snapshots, static_voters(self.config))
        except FatalError as error:
            raise FatalError(f"{self.directory}: {error}") from None
        self._bootstrap = read_bootstrap(self.env.disk, self.log_dir)
        latest = log.latest_snapshot_id
        if latest is not None and latest.offset > 0:
            self._load_snapshot(latest)
        config = self.config
        self._core = RaftCore(
            ReplicaKey(self.node_id, self.directory_id),
            log,
            self.env.rng,
            config=raft_config(config),
            election_state=self._quorum_file.read(),
            bootstrap=bootstrap_nodes(config),
            local_endpoints=own_endpoints(config),
            listener_name=controller_listener(config),
            can_become_voter=config.is_controller,
        )
        self._runner = RaftRunner(self._core, log, self._quorum_file, self.env, self, self._send)
        return self._runner

    async def _send(self, request: OutboundRequest) -> Reply:
        if self._peers is None:
            # Imported here: a node alone in its quorum has nobody to talk to.
            from kbroker.node.raft_peers import RaftPeers

            self._peers = RaftPeers(
                self.env.network,
                self.node_id,
                self.cluster_id,
                controller_listener(self.config),
                self.config.controller_quorum_request_timeout_ms,
                self.config.socket_connection_setup_timeout_ms,
            )
        return await self._peers.send(request)

    def _load_snapshot(self, snapshot_id: OffsetAndEpoch) -> Published:
        assert self._log is not None
        content = self._log.load_snapshot(snapshot_id)
        published = self.loader.load_snapshot(content.records, snapshot_id)
        self.loader.last_timestamp = content.last_contained_log_timestamp
        self._read_to = snapshot_id.offset
        return published

    def on_role_changed(self) -> None:
        """The core leads or does not: a controller that lost its epoch forgets what was not committed."""
        core = self._core
        assert core is not None
        if self._leading and not core.is_leader:
            self._leading = False
            self._pending.clear()
            self._fail_waiting()
        leader = core.node_of(core.leader_id, core.quorum.leader_endpoints)
        if leader is not None and self._channel is not None:
            self._channel.turn_to(leader.address)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Take in and publish what is committed."""
        assert self._log is not None and self._core is not None
        limit = min(high_watermark, self._pending[0].first_offset) if self._pending else high_watermark
        if self._read_to < limit:
            self._apply_from_log(limit)
        while self._pending and self._pending[0].last.offset < high_watermark:
            pending = self._pending.popleft()
            self._read_to = pending.last.offset + 1
            self.loader.adopt(pending.image, pending.timestamp_ms)
            self._publish(pending.delta, pending.image)
        while self._waiting and self._waiting[0].offset <= high_watermark:
            self._waiting.popleft().event.set()
        leader = self._core.leader
        if leader is not None and not self._leading and self._read_to > leader.epoch_start_offset:
            self._begin_leading()
        if self._image.features.metadata_version and self._core.quorum.has_leader:
            self._ready.set()
        if (
            self._log.bytes_seen - self._bytes_at_snapshot
            >= self.config.metadata_log_max_record_bytes_between_snapshots
        ):
            self._snapshot_wanted.set()

    def _apply_from_log(self, high_watermark: int) -> None:
        """What others wrote, and the control records that this node's epoch begins with."""
        assert self._log is not None and self._core is not None
        if self._read_to < self._log.start_offset:
            latest = self._log.latest_snapshot_id
            assert latest is not None
            self._publish(*self._load_snapshot(latest))
        epoch = self._core.epoch
        for batch in self._log.read(self._read_to, high_watermark):
            self.loader.take(batch)
            self._read_to = batch.last_offset + 1
            epoch = batch.epoch
        if self._read_to - 1 > self._image.offset:
            published = self.loader.publish(OffsetAndEpoch(self._read_to - 1, epoch))
            if published is not None:
                self._publish(*published)

    def _begin_leading(self) -> None:
        """All that came before this node's epoch is in the image: from now on its controller decides."""
        assert self._log is not None
        aborts = self.loader.in_transaction
        if aborts:
            # Its writer died within it, and nobody will end it (KIP-868).
            self.loader.abandon_transaction()
        self.controller.reset(self.loader.image, self._log.end_offset)
        self._leading = True
        self._sessions.on_leading()
        if aborts:
            self._append([AbortTransactionRecord(reason="The writer is gone")], self.env.wall_clock_ms())
        if self.controller.image.features.metadata_version == 0:
            # The cluster's history begins with the records of ``bootstrap.checkpoint``.
            records = self._bootstrap if self._bootstrap is not None else bootstrap_records()
            whole = activation_records(records, self.schema.static_min_insync_replicas)
            self._append(whole, self.env.wall_clock_ms())

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if (image.controller_id, image.epoch) != (self._image.controller_id, self._image.epoch) and not self.is_alone:
            logger.info("node %d leads the metadata quorum in epoch %d", image.controller_id, image.epoch)
        self._image = image
        self._published.set()
        for subscriber in self._subscribers:
            subscriber(delta, image)

    async def _snapshot_loop(self) -> None:
        while True:
            await self._snapshot_wanted.wait()
            self._snapshot_wanted = trio.Event()
            await self.write_snapshot()

    async def write_snapshot(self) -> OffsetAndEpoch:
        """Write the image as a snapshot, and forget what it stands for; its id."""
        assert self._log is not None and self._core is not None
        image, timestamp = self._image, self.loader.last_timestamp
        snapshot_id = OffsetAndEpoch(image.offset + 1, image.epoch)
        self._bytes_at_snapshot = self._log.bytes_seen
        if snapshot_id in self._snapshots.ids():
            return snapshot_id
        log, now_ms = self._log, self.env.wall_clock_ms()
        kraft_version, voters = log.kraft_version, log.voters.at(image.offset)

        def write() -> None:
            data = encode_snapshot(
                image.records(),
                epoch=image.epoch,
                now_ms=now_ms,
                last_contained_log_timestamp=timestamp,
                kraft_version=kraft_version,
                voters=voters,
                metadata_version=image.features.metadata_version,
            )
            self._snapshots.write(snapshot_id, data)

        await self.env.run_blocking(write)
        log.on_snapshot_written(snapshot_id, now_ms)
        logger.info("wrote metadata snapshot %s", self._snapshots.path(snapshot_id))
        return snapshot_id

    def _fail(self, failure: BaseException) -> None:
        if self._failure is None:
            self._failure = failure
        self._ready.set()
        if self._runner is not None:
            self._runner.failure = self._failure
            self._runner.on_appended()
        self._leading = False
        self._fail_waiting()

    def _fail_waiting(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            waiter.failed = True
            waiter.event.set()

    def finalized_features(self) -> tuple[dict[str, int], int]:
        """Finalized levels with ``kraft.version``, and the epoch that ApiVersions gives them (an image's offset)."""
        levels = dict(self._image.features.levels)
        if self.kraft_version:
            levels[KRAFT_VERSION] = self.kraft_version
        return levels, self._image.offset
