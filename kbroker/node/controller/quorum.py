"""A node's part in the metadata quorum: opens the metadata log, and runs its Raft replica until the node ends.

The parts above the replica live in modules of their own: ``image_publisher`` (committed records as images),
``controller_log`` (the active controller's changes), ``metadata_snapshots``. ``metadata_plane`` puts them together.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import trio

from kbroker.config import BrokerConfig
from kbroker.errors import FatalError, LogDirFailure
from kbroker.log.checkpoint_files import MetaProperties
from kbroker.log.disk import Disk
from kbroker.log.file_names import TEMPORARY_SUFFIX
from kbroker.log.log_dir import STRAY_SUFFIX
from kbroker.node.controller.raft_runner import RaftOwner, RaftRunner, failure_of
from kbroker.raft_metadata.raft.batches import MetadataBatch
from kbroker.raft_metadata.raft.core import RaftCore
from kbroker.raft_metadata.raft.election_state import QuorumStateFile
from kbroker.raft_metadata.raft.messages import Node, OutboundRequest, RaftRequest, RaftResponse, Reply
from kbroker.raft_metadata.raft.promises import Promises, PromisesFile
from kbroker.raft_metadata.raft.record_store import PartitionStore, RecordStore
from kbroker.raft_metadata.raft.replicated_log import ReplicatedLog
from kbroker.raft_metadata.raft.snapshot import PART_SUFFIX, SnapshotStore
from kbroker.raft_metadata.raft.types import bootstrap_nodes, controller_listener, raft_config, static_voters
from kbroker.raft_metadata.raft.voters import ReplicaKey, VoterEndpoint, VoterSet
from kbroker.raft_metadata.storage import METADATA_DIRECTORY
from kbroker.runtime.env import Env, Network
from kbroker.types import Uuid

if TYPE_CHECKING:
    from kbroker.node.controller.raft_peers import RaftPeers
    from kbroker.raft_metadata.raft.quorum_description import QuorumDescription

logger = logging.getLogger(__name__)

HAND_OVER_SECONDS = 1.0
"""The time that a leader that stops waits for the others to have heard of it."""


class MetadataLog:
    """The files of the metadata log: its records, its snapshots, and the state of elections."""

    def __init__(
        self,
        config: BrokerConfig,
        env: Env,
        disk: Disk,
        identity: MetaProperties,
        store: RecordStore | None = None,
        *,
        snapshot_disk: Disk | None = None,
        may_be_damaged: bool = False,
    ) -> None:
        """Open them; ``store`` takes the place of the record files, ``snapshot_disk`` that of ``disk`` for snapshots.

        :class:`FatalError` for what cannot be read, or if this node is the only voter and something is lost, unless it
        ``may_be_damaged``.
        """
        self.log_dir = config.metadata_log_dir
        self.directory = os.path.join(self.log_dir, METADATA_DIRECTORY)
        self.snapshots = SnapshotStore(snapshot_disk or disk, self.directory)
        self.promises = Promises() if store is not None else PromisesFile(disk, self.log_dir, identity)
        self.quorum_file = QuorumStateFile(disk, self.directory, self.promises)
        self._disk = disk
        self._config = config
        self.election = self.quorum_file.read()
        if store is None:
            store = self._open(env, may_be_damaged)
        self.records = store.log if isinstance(store, PartitionStore) else None
        """The record files; None if there are none."""
        try:
            self.replicated = ReplicatedLog(store, self.snapshots, static_voters(config), self.promises)
        except FatalError as error:
            raise FatalError(f"{self.directory}: {error}") from None
        try:
            self._check_promises(may_be_damaged)
        except BaseException:
            self.replicated.close()
            raise

    @property
    def loss(self) -> str:
        """For a person: what is lost of the log, and what was set aside."""
        from kbroker.raft_metadata.raft.loss import told

        return f"{self.promises.lost}; {told(batch for _, batch in self.set_aside)}"

    @property
    def set_aside(self) -> list[tuple[bytes, MetadataBatch]]:
        """The whole batches, with their bytes, in what was taken out of the log and not put back."""
        from kbroker.raft_metadata.raft.loss import set_aside_batches

        return set_aside_batches(self._disk, self.directory, self.replicated.damage)

    def _open(self, env: Env, may_be_damaged: bool) -> PartitionStore:
        def open_store() -> PartitionStore:
            return PartitionStore.open(
                self.directory,
                self._disk,
                segment_bytes=self._config.metadata_log_segment_bytes,
                now_ms=env.wall_clock_ms(),
                snapshot_offsets=[snapshot_id.offset for snapshot_id in ids],
                known_end=self.promises.end,
                latest_epoch=None if self.election is None or may_be_damaged else self.election.epoch,
            )

        self.snapshots.remove_unfinished(PART_SUFFIX, TEMPORARY_SUFFIX)
        ids = self.snapshots.set_damaged_aside()
        store = open_store()
        if store.log_start_offset <= (ids[-1].offset if ids else 0):
            return store
        reason = f"the log starts at offset {store.log_start_offset}, and no whole snapshot holds what was before"
        store.close()
        self.promises.lose(reason)
        if self._is_only_voter(static_voters(self._config)) and not may_be_damaged:
            raise _lost(self.directory, reason)
        # Nothing of it can be used. It stays beside, and the others have it all.
        if self.election is not None:
            self.promises.vote(self.election, self.promises.voters)
        aside = f"{self.directory}.{env.rng.randbytes(16).hex()}{STRAY_SUFFIX}"
        logger.warning("%s: %s; it is set aside as %s, and fetched anew", self.directory, reason, aside)
        self._disk.rename(self.directory, aside)
        self._disk.sync_dir(self.log_dir)
        ids = []
        return open_store()

    def _is_only_voter(self, voters: VoterSet) -> bool:
        return (voters.ids or self.promises.voters) == [self._config.node_id]

    def _check_promises(self, may_be_damaged: bool) -> None:
        """Say what is lost, and refuse to go on if no other node can give it back."""
        promises, log = self.promises, self.replicated
        if self.election is None and log.last_epoch > 0:
            promises.lose_vote()
        if may_be_damaged or not self._config.is_controller or log.is_whole:
            return
        if self._is_only_voter(log.voters.last):
            if promises.lost is not None and not promises.is_damaged:
                raise _lost(self.directory, self.loss)
            logger.warning("%s is made anew", promises.lost or self.quorum_file.path)
            promises.accept(log.end)  # nobody else votes
        elif promises.vote_lost:
            logger.warning(
                "%s is lost, and nobody knows in which epochs this voter has voted: it votes no more. Take it out of"
                " the voters and let it join again, or let it vote as it is: kbroker recover-metadata --accept-loss",
                self.quorum_file.path,
            )
        else:
            logger.warning(
                "%s: %s; this voter neither votes nor stands for election until a leader has given back what it lacks."
                " If no voter that is left can be elected: kbroker recover-metadata",
                self.directory,
                promises.lost,
            )


def _lost(directory: str, what: str) -> FatalError:
    return FatalError(
        f"{directory} has lost part of the metadata log, and this node is the only voter: {what}; kbroker"
        " recover-metadata goes on from a copy, as each broker has one, or without what is lost"
    )


class QuorumOwner(RaftOwner, Protocol):
    """Follows the replica (:class:`RaftOwner`), and hears of its end."""

    def on_quorum_failed(self) -> None:
        """The replica does nothing any more. Must not wait; may come more than once."""


class Quorum:
    """A node's Raft replica with its disk and its peers. ``run`` it in a nursery."""

    def __init__(
        self,
        config: BrokerConfig,
        env: Env,
        network: Network,
        files: MetadataLog,
        cluster_id: str,
        directory_id: Uuid,
        owner: QuorumOwner,
        endpoints: Mapping[str, VoterEndpoint],
    ) -> None:
        """``endpoints``: the addresses of this node's controller listeners, as other nodes are told them."""
        self._config = config
        self._env = env
        self._network = network
        self._cluster_id = cluster_id
        self._owner = owner
        self.log = files.replicated
        self.core = RaftCore(
            ReplicaKey(config.node_id, directory_id),
            files.replicated,
            env.rng,
            config=raft_config(config),
            election_state=files.election,
            bootstrap=bootstrap_nodes(config),
            local_endpoints=endpoints,
            listener_name=controller_listener(config),
            can_become_voter=config.is_controller,
        )
        self.runner = RaftRunner(self.core, files.replicated, files.quorum_file, env, owner, self._send)
        self._peers: RaftPeers | None = None
        self.failure: BaseException | None = None
        """The reason why the replica has ended; None while it works."""
        self._ready = trio.Event()
        self._work_failed = False
        self._stopped: list[Callable[[], None]] = []

    # What others see

    @property
    def is_alone(self) -> bool:
        """Whether this node is the only voter."""
        return self.core.voters.is_only_voter(self.core.local)

    @property
    def voters(self) -> VoterSet:
        """The voters, as far as known."""
        return self.core.voters

    def leader_node(self) -> Node | None:
        """The leader with its address, as far as known."""
        return self.core.leader_node

    def describe(self) -> QuorumDescription:
        """The leader, the voters and observers, and their log end offsets."""
        from kbroker.raft_metadata.raft.quorum_description import describe_quorum

        return describe_quorum(self.core, self.runner.now_ms(), self._env.wall_clock_ms())

    async def wait_ready(self) -> None:
        """Wait for a leader, and for an image of all that was committed before. Raises why that will never be."""
        await self._ready.wait()
        if self.failure is not None:
            raise self.failure

    def set_ready(self) -> None:
        """The owner knows the leader, and what was committed before."""
        self._ready.set()

    async def ask(self, request: RaftRequest) -> RaftResponse:
        """The replica's answer to a request of another (Vote, Fetch and the like).

        ``ApiError`` BROKER_NOT_AVAILABLE if the replica has ended, or ends meanwhile.
        """
        return await self.runner.ask(request)

    # Its life

    async def run(
        self, *tasks: Callable[[], Awaitable[object]], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Take part until cancelled, with the owner's ``tasks`` beside; started when what it leads from the beginning
        is on disk. :class:`FatalError` when it cannot go on."""
        try:
            await self.runner.start()
            while self.core.is_leader and self.log.end_offset > self.core.high_watermark:
                await self.runner.flush()  # the first records of a new controller
            task_status.started()
            async with trio.open_nursery() as nursery:
                # Shielded, so that a node that stops can still hand over what it leads.
                work = trio.CancelScope(shield=True)
                nursery.start_soon(self._work, work, tasks)
                try:
                    await trio.sleep_forever()
                finally:
                    with trio.CancelScope(shield=True):
                        await self._stop()
                    work.cancel()
        except (Exception, BaseExceptionGroup) as error:
            failure = failure_of(error)
            if failure is None:
                raise
            self.fail(failure)
            raise failure from error
        finally:
            for callback in self._stopped:
                callback()
            self.fail(trio.ClosedResourceError("the metadata quorum has stopped"))
            if self._peers is not None:
                self._peers.close()
            try:
                self.log.close()
            except OSError as error:
                if not isinstance(self.failure, FatalError):  # that one says more
                    raise LogDirFailure(f"cannot close the metadata log: {error}") from error

    async def _work(self, scope: trio.CancelScope, tasks: tuple[Callable[[], Awaitable[object]], ...]) -> None:
        with scope:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.runner.run)
                    for task in tasks:
                        nursery.start_soon(task)
            except Exception:
                self._work_failed = True
                raise

    async def _stop(self) -> None:
        """Leave the others in good order, in the time there is."""
        if self.is_alone or self._work_failed:
            return
        await self.runner.hand_over(HAND_OVER_SECONDS)

    def on_stopped(self, callback: Callable[[], None]) -> None:
        """Have ``callback()`` called when the quorum is left: nobody needs to reach this node any more."""
        self._stopped.append(callback)

    def fail(self, failure: BaseException) -> None:
        """End the replica's work; ``failure`` keeps the first one."""
        if self.failure is None:
            self.failure = failure
        self._ready.set()
        self.runner.fail(self.failure)
        self._owner.on_quorum_failed()

    async def _send(self, request: OutboundRequest) -> Reply:
        if self._peers is None:
            # Imported here: a node alone in its quorum has nobody to talk to.
            from kbroker.node.controller.raft_peers import RaftPeers

            self._peers = RaftPeers(
                self._network,
                self._config.node_id,
                self._cluster_id,
                controller_listener(self._config),
                self._config.controller_quorum_request_timeout_ms,
                self._config.socket_connection_setup_timeout_ms,
            )
        return await self._peers.send(request)
