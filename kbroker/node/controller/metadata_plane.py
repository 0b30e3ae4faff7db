"""The parts of a node that keep the cluster's metadata, put together: handlers and the rest of the node ask this one.

``quorum`` replicates the metadata log, ``images`` publishes what is committed, ``controller_log`` takes the changes
that the active controller decides, ``sessions`` watches over the brokers, ``client`` asks the active controller.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import trio

from kbroker.config import BrokerConfig
from kbroker.errors import ApiError, ErrorCode
from kbroker.log.checkpoint_files import MetaProperties
from kbroker.log.full_disk import Room
from kbroker.node.controller.broker_sessions import SessionKeeper
from kbroker.node.controller.controller_client import ControllerClient
from kbroker.node.controller.controller_log import ControllerLog
from kbroker.node.controller.image_publisher import ImagePublisher, Subscriber
from kbroker.node.controller.metadata_snapshots import MetadataSnapshots
from kbroker.node.controller.quorum import MetadataLog, Quorum
from kbroker.node.controller.raft_runner import failure_of
from kbroker.raft_metadata.config_schema import ConfigSchema
from kbroker.raft_metadata.controller import Controller, ControllerResult, ControllerView
from kbroker.raft_metadata.controller.brokers import BrokerRegistration
from kbroker.raft_metadata.controller.policies import NO_POLICIES, Policies
from kbroker.raft_metadata.controller.sessions import Heartbeat, HeartbeatState
from kbroker.raft_metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES
from kbroker.raft_metadata.image import Endpoint, MetadataDelta, MetadataImage
from kbroker.raft_metadata.metadata_version import CONTROLLER_REGISTRATION
from kbroker.raft_metadata.raft.messages import RaftRequest, RaftResponse
from kbroker.raft_metadata.raft.record_store import RecordStore
from kbroker.raft_metadata.raft.voters import VoterEndpoint, VoterSet
from kbroker.raft_metadata.topics import NewTopic
from kbroker.runtime.env import Env, Network
from kbroker.types import Uuid, random_uuid

if TYPE_CHECKING:
    from kbroker.handlers.common.context import Services
    from kbroker.handlers.services.connection import Connection
    from kbroker.handlers.services.requester import Requester
    from kbroker.node.controller.early_credentials import EarlyCredentials
    from kbroker.raft_metadata.raft.quorum_description import QuorumDescription
    from kbroker.wire.records.metadata import UserScramCredentialRecord
    from kbroker.wire.schema import Request

R = TypeVar("R")
T = TypeVar("T")

logger = logging.getLogger(__name__)


class MetadataPlane:
    """A node's part in the cluster's metadata. ``run`` it in a nursery; ``wait_ready`` before asking it anything."""

    def __init__(
        self,
        config: BrokerConfig,
        env: Env,
        network: Network,
        *,
        cluster_id: str,
        directory_id: Uuid,
        services: Callable[[], Services],
        endpoints: Iterable[Endpoint] = (),
        store: RecordStore | None = None,
        policies: Policies = NO_POLICIES,
        room: Room | None = None,
        directories: Mapping[str, Uuid] = MappingProxyType({}),
    ) -> None:
        """Open the metadata log. :class:`FatalError` if it cannot be read.

        ``network`` reaches the other controllers.
        ``services`` gives what the handlers of this node's own controller are to see, from ``run`` on; ``endpoints``
        are where its listeners are found by the quorum; ``store`` takes the place of the log's files, and ``room`` is
        that of their directory. ``directories``: the ids of the node's log directories, by their paths. ``policies``
        are asked while this node is the active controller.
        """
        self.config = config
        self.env = env
        self.node_id = config.node_id
        self.cluster_id = cluster_id
        self.directory_id = directory_id
        self.schema = ConfigSchema(config)
        self.controller = Controller(
            config.node_id, self.schema, env.rng, policies, recovery_timeout_ms=config.unclean_recovery_timeout_ms
        )
        self._turn = None if policies is NO_POLICIES else trio.Lock()
        """Held by a change whose policies are about to be asked."""
        self.incarnation_id = random_uuid(env.rng)
        files: MetadataLog | None = None
        try:
            identity = MetaProperties(cluster_id, config.node_id, directory_id)
            disk = env.disk if room is None else room.disk(keep=0)
            # The last of the reserve is for the log, also while a snapshot is written.
            snapshot_disk = None if room is None else room.disk()
            files = MetadataLog(config, env, disk, identity, store, snapshot_disk=snapshot_disk)
            if room is not None:
                files.replicated.check_room = room.check_votes
            files.promises.note_directories(directories)
            self.images = ImagePublisher(files.replicated, lambda: self.quorum.core.leader_id)
            addresses = {each.name: VoterEndpoint(each.host, each.port) for each in endpoints}
            self.quorum = Quorum(config, env, network, files, cluster_id, directory_id, self, addresses)
            self.controller_log = ControllerLog(self.controller, self.quorum, self.images, env, files)
        except Exception as error:
            if files is not None:
                with suppress(OSError):  # the error says why
                    files.replicated.close()
            failure = failure_of(error)
            if failure is None:
                raise
            raise failure from error
        self.records = files.records
        """The record files of the metadata log; None if there are none."""
        self._early_credentials: EarlyCredentials | None = None
        self._is_loaded = False
        self._when_loaded: list[Callable[[], None]] = []
        self.snapshots = MetadataSnapshots(
            files.replicated,
            files.snapshots,
            self.images,
            env,
            config.metadata_log_max_record_bytes_between_snapshots,
            config.metadata_log_max_snapshot_interval_ms,
        )
        self.sessions = SessionKeeper(
            self.controller_log, env, config.broker_session_timeout_ms, self.incarnation_id, has_broker=config.is_broker
        )
        self.client = ControllerClient(
            config,
            network,
            self.images,
            is_local=lambda: self.controller_log.is_active,
            leader=self.quorum.leader_node,
            services=services,
        )
        self._room = room
        self._leads = (-1, -1)
        """The active controller and its epoch, by the latest image."""
        self.images.subscribe(self._log_leader)

    def _log_leader(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if (image.controller_id, image.epoch) != self._leads:
            self._leads = image.controller_id, image.epoch
            if not self.is_alone:
                logger.info("node %d leads the metadata quorum in epoch %d", *self._leads)

    # Its life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take part in the quorum until cancelled; started when the log is open and, on a node that is the only voter,
        its controller decides. :class:`FatalError` when it cannot go on."""
        tasks = [self.snapshots.run, self.sessions.run]
        if self.config.is_controller and self.config.metadata_max_idle_interval_ms:
            tasks.append(self._write_idle_records)
        try:
            await self.quorum.run(*tasks, task_status=task_status)
        finally:
            self.client.close()

    async def _write_idle_records(self) -> None:
        await self.images.wait_for(lambda image: self._is_followed())
        # Imported here: a node that is the whole cluster needs none of it.
        from kbroker.node.controller.idle_records import IdleRecords

        interval_ms = self.config.metadata_max_idle_interval_ms
        idle = IdleRecords(self.controller_log, self.images, self.env, interval_ms, self._is_followed, self._is_full)
        await idle.run()

    def _is_followed(self) -> bool:
        """Whether other nodes have the metadata log, as voters, brokers or controllers."""
        own = {self.node_id}
        return not self.is_alone or bool((self.image.brokers.keys() | self.image.controllers.keys()) - own)

    def _is_full(self) -> bool:
        return self._room is not None and self._room.is_full

    async def wait_ready(self) -> None:
        """Wait for a leader, and for an image of all that was committed before. Raises why that will never be."""
        await self.quorum.wait_ready()

    # For the quorum (QuorumOwner)

    def on_role_changed(self) -> None:
        """The replica leads, or follows another."""
        self.controller_log.on_role_changed()
        self.client.on_role_changed()

    async def read_committed(self, high_watermark: int) -> None:
        """Read what is committed into an image, but for this node's own changes."""
        await self.controller_log.read_committed(high_watermark)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Tell the parts that more of the log is committed."""
        self.controller_log.on_high_watermark(high_watermark)
        if self.is_loaded:
            while self._when_loaded:
                self._when_loaded.pop()()
            if self.quorum.core.leader_id >= 0:
                self.quorum.set_ready()
        self.snapshots.on_high_watermark()

    def on_quorum_failed(self) -> None:
        """The replica has ended."""
        self.controller_log.fail()

    # The metadata

    @property
    def image(self) -> MetadataImage:
        """The latest image; everything in it is committed."""
        return self.images.image

    @property
    def is_loaded(self) -> bool:
        """Whether an image has had all that was committed in the leader's eyes. From then on it is True.

        Before, an image may be any earlier state of the cluster: a replica that comes back reads the log in pieces, and
        a new cluster begins with an empty one (``MetadataLoader.stillNeedToCatchUp``).
        """
        if not self._is_loaded and self.image.features.metadata_version:
            core, next_offset = self.quorum.core, self.images.next_offset
            leader = core.leader
            if leader is not None:
                self._is_loaded = next_offset > leader.epoch_start_offset
            else:
                self._is_loaded = 0 <= core.first_high_watermark <= next_offset
        return self._is_loaded

    def when_loaded(self, callback: Callable[[], None]) -> None:
        """Call ``callback()`` once, as soon as the image has all that was committed."""
        self._when_loaded.append(callback)

    def scram_credential(self, user: str, mechanism: int) -> UserScramCredentialRecord | None:
        """A user's SCRAM credential; before the metadata is loaded, the one on this node's disk."""
        if self.is_loaded:
            self._early_credentials = None
            return self.image.principals.scram.get((user, mechanism))
        if self._early_credentials is None:
            from kbroker.node.controller.early_credentials import (
                EarlyCredentials,  # only controllers with SCRAM need it
            )

            self._early_credentials = EarlyCredentials(self.quorum.log, self.env.disk, self.config.metadata_log_dir)
        return self._early_credentials.credentials().get((user, mechanism))

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call ``subscriber(delta, image)`` with every further image, and now with the whole of the latest."""
        self.images.subscribe(subscriber)

    async def wait_for_image(self, condition: Callable[[MetadataImage], bool]) -> None:
        """Wait until ``condition`` holds for the latest image."""
        await self.images.wait_for(condition)

    def features(self) -> dict[str, tuple[int, int]]:
        """The levels of features that this node registers with."""
        return {name: (levels.min, levels.max) for name, levels in SUPPORTED_FEATURES.items()}

    def finalized_features(self) -> tuple[dict[str, int], int]:
        """Finalized levels with ``kraft.version``, and the epoch that ApiVersions gives them (an image's offset)."""
        levels = dict(self.image.features.levels)
        kraft_version = self.quorum.log.kraft_version
        if kraft_version:
            levels[KRAFT_VERSION] = kraft_version
        return levels, self.image.offset

    @property
    def knows_controllers(self) -> bool:
        """Whether controllers register at the level of ``metadata.version``."""
        return self.image.features.metadata_version >= CONTROLLER_REGISTRATION

    # The quorum

    @property
    def is_alone(self) -> bool:
        """Whether this node is the only voter."""
        return self.quorum.is_alone

    @property
    def voters(self) -> VoterSet:
        """The voters, as far as known."""
        return self.quorum.voters

    @property
    def voter_ids(self) -> Sequence[int]:
        """The node ids of the voters: of the latest set there is, whether it is committed or not."""
        return self.quorum.voters.ids

    def describe_quorum(self) -> QuorumDescription:
        """The leader, the voters and observers, and their log end offsets."""
        return self.quorum.describe()

    async def ask_quorum(self, request: RaftRequest) -> RaftResponse:
        """The replica's answer to a request of another: :meth:`Quorum.ask`."""
        return await self.quorum.ask(request)

    async def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> None:
        """Have the quorum that this node leads take a level of ``kraft.version``; it is not committed yet then.

        ``ApiError`` NOT_CONTROLLER if this node does not lead, INVALID_UPDATE_VERSION if not all voters are known to
        support the level.
        """
        from kbroker.raft_metadata.raft.messages import UpgradeKRaftVersion, UpgradeKRaftVersionResult

        try:
            result = await self.quorum.ask(UpgradeKRaftVersion(self.quorum.core.epoch, level, validate_only))
        except ApiError as error:  # the replica has ended; whoever passed the request on asks the next controller
            raise ApiError(ErrorCode.NOT_CONTROLLER, error.message) from None
        assert isinstance(result, UpgradeKRaftVersionResult)
        if result.error:
            raise ApiError(result.error, result.message)

    # The controller

    @property
    def is_leader(self) -> bool:
        """Whether this node is the active controller."""
        return self.controller_log.is_active

    async def submit(self, operation: Callable[[ControllerView], ControllerResult[T]]) -> T:
        """Run a step on the active controller, which must be this node: :meth:`ControllerLog.submit`.

        With policies there is one such step in each turn of the event loop: they may take long, and others want theirs.
        """
        if self._turn is not None:
            async with self._turn:
                await trio.lowlevel.checkpoint()
                await self.controller_log.wait_for_turn()
        return await self.controller_log.submit(operation)

    def check_registration(self, registration: BrokerRegistration) -> None:
        """``ApiError`` DUPLICATE_BROKER_REGISTRATION if another node has the id and lives."""
        self.sessions.check_registration(registration)

    async def heartbeat(self, beat: Heartbeat, connection: Connection) -> HeartbeatState:
        """A broker shows on a connection that it lives: :meth:`SessionKeeper.heartbeat`."""
        return await self.sessions.heartbeat(beat, connection)

    async def create_topics(
        self, topics: Sequence[NewTopic], requester: Requester | None = None
    ) -> Mapping[str, object]:
        """Create topics wherever the active controller is: :meth:`ControllerClient.create_topics`."""
        return await self.client.create_topics(topics, requester)

    async def forward(self, request: Request[R], requester: Requester) -> R | None:
        """Another node's response, as the active controller, to a client's request; None if it cannot be had."""
        return await self.client.forward(request, requester)
