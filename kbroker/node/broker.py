"""Assembly of a node: log dirs, metadata quorum, replica manager, handlers, listeners, background work.

`Broker.run` starts the parts in the order in which they need one another and stops them the other way round; what
is long enough to be cut by a kill (flushing the logs) comes last and leaves the marker of a clean stop. Logs that take
long to open are opened while the controller works already, and the broker is registered (Kafka's ``BrokerServer``).

Some parts are made in modules of their own: those that only properties ask for in ``node.optional_parts``, the
coordinators in ``node.coordinators.coordinators``, what other brokers are for in ``node.replication``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING

import trio

from kbroker.config import BrokerConfig
from kbroker.cores.groups.own_assignors import NO_OWN_ASSIGNORS
from kbroker.cores.replication.fetch_session import FetchSessionCache
from kbroker.handlers.context import Services
from kbroker.log.checkpoint_files import MetaProperties, node_meta_properties
from kbroker.log.dirs.start_up import LoadedLogs, OpeningProgress
from kbroker.log.log_dir import metadata_directory_id
from kbroker.log.manager import LogManager
from kbroker.node.controller.broker_lifecycle import BrokerLifecycle
from kbroker.node.controller.leader_balancer import LeaderBalancer
from kbroker.node.controller.metadata_plane import MetadataPlane
from kbroker.node.controller.token_expiry import TokenExpiry
from kbroker.node.coordinators.producer_ids import ProducerIdAllocator
from kbroker.node.dynamic_broker_config import DynamicBrokerConfig
from kbroker.node.listeners import Listeners
from kbroker.node.logs.cordoned_log_dirs import CordonedLogDirs
from kbroker.node.logs.log_flusher import LogFlusher
from kbroker.node.logs.log_opening import open_beside, opens_beside
from kbroker.node.optional_parts import (
    make_authorizer,
    make_explorer,
    make_metrics,
    make_observers,
    make_rules,
    make_telemetry,
    make_tokens,
)
from kbroker.node.registrations import Registrations
from kbroker.node.replicas.replica_manager import ReplicaManager
from kbroker.node.security.security import NodeSecurity
from kbroker.node.serving.listener import Listener as ListenerServer
from kbroker.node.serving.long_steps import LongSteps
from kbroker.node.serving.work_queue import WorkQueue
from kbroker.node.share.share_groups_on_demand import ShareGroupsOnDemand
from kbroker.node.start_limit import StartLimit
from kbroker.raft_metadata.controller.policies import NO_POLICIES
from kbroker.raft_metadata.image import MetadataDelta, MetadataImage, ResourceType
from kbroker.raft_metadata.metadata_version import DIRECTORIES

if TYPE_CHECKING:
    from kbroker.node.coordinators.coordinators import Coordinators
    from kbroker.node.logs.log_cleaner import LogCleaner
    from kbroker.node.replicas.fetch_reader import FetchReader
    from kbroker.node.serving.quota_loader import QuotaLoader
    from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)

STOP_SECONDS = 4.5
"""The time that the flushes of a clean stop may take."""

CLEANER_DELAY_SECONDS = 1.0
"""Clients come first after a start, also before the imports of the cleaner."""


class Broker:
    """A node: its parts are there from ``run`` on."""

    log_manager: LogManager
    replica_manager: ReplicaManager
    metadata: MetadataPlane
    lifecycle: BrokerLifecycle
    services: Services
    coordinators: Coordinators | None = None
    share_groups: ShareGroupsOnDemand | None = None
    """None where share groups are not served."""
    log_cleaner: LogCleaner | None = None
    """There as soon as it runs."""

    def __init__(self, config: BrokerConfig, env: Env) -> None:
        self.config = config
        self.env = env
        self.security = NodeSecurity(config, env)
        self._authorizer = make_authorizer(config)
        """The one that ACLs are for."""
        self._rules = make_rules(config, self._authorizer, env)
        self._metrics = make_metrics(config, env, self)
        self.telemetry = make_telemetry(config, env, self._metrics)
        self._explorer = make_explorer(config, env, self)
        self._dynamic_config = DynamicBrokerConfig(config)
        self._listeners = Listeners(
            config, self._dynamic_config, self.security, make_observers(self._metrics, self._explorer)
        )
        self.ports = self._listeners.ports
        self.listeners = self._listeners.servers
        self.on_opening: Callable[[], object] = lambda: None
        """Called when the clients' listeners are there, before they accept anybody (``kbroker.testing``)."""
        self._quota_loader: QuotaLoader | None = None
        self._failed = False
        self._is_made = False
        """Whether all parts are there."""
        self.opening: OpeningProgress | None = OpeningProgress()
        """The progress of opening the logs; None once they are open."""
        self._logs_open = trio.Event()

    @property
    def metrics_port(self) -> int | None:
        """The port of the page for Prometheus; None without one."""
        return None if self._metrics is None else self._metrics.port

    @property
    def explorer_port(self) -> int | None:
        """The port that the node is watched by; None without an explorer."""
        return None if self._explorer is None else self._explorer.port

    @property
    def broker_epoch(self) -> int:
        """The epoch of the broker's present registration."""
        return self.lifecycle.broker_epoch

    async def run(self, task_status: trio.TaskStatus[Broker] = trio.TASK_STATUS_IGNORED) -> None:
        """Start, serve until cancelled, stop cleanly; ``task_status`` is told once it serves.

        :class:`FatalError` (perhaps inside an exception group) when it cannot start or go on.
        """
        failed = False
        limit = StartLimit(self.config.server_max_startup_time_ms)
        try:
            await self._listeners.bind(self.env.network)
            if self._metrics is not None:
                await self._metrics.bind()
            if self._explorer is not None:
                await self._explorer.bind()
            await self._serve(limit, task_status)
        except BaseException as error:
            failed = not _is_cancelled(error)
            raise
        finally:
            self._listeners.close()
            if self._is_made:
                await self._close_logs(failed)

    # Making the parts

    def _open(self, nursery: trio.Nursery, progress: OpeningProgress) -> None:
        """Open what is on the disks, and make all parts; nothing runs yet but the page of metrics.

        The logs are open then, or ``nursery`` opens them.
        """
        config, env = self.config, self.env
        properties = node_meta_properties(env.disk, config.metadata_log_dir, config.log_dirs)
        self.log_manager = manager = LogManager.lock(
            config.log_dirs,
            env.disk,
            cluster_id=properties.cluster_id,
            node_id=config.node_id,
            rng=env.rng,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            metadata_log_dir=config.metadata_log_dir,
        )
        load = partial(
            manager.load,
            now_ms=env.wall_clock_ms(),
            log_config=lambda topic_partition: self._dynamic_config.log_config({}),
            progress=progress,
        )
        try:
            beside = opens_beside(env, config.log_dirs)
            if not beside:
                manager.take_in(load())
            self._make_parts(properties)
        except BaseException:
            manager.close(high_watermarks={}, broker_epoch=-1)
            raise
        self._is_made = True
        if beside:
            nursery.start_soon(self._open_logs, nursery, progress, load)
        else:
            self.opening = None
            self._logs_open.set()

    async def _open_logs(
        self, nursery: trio.Nursery, progress: OpeningProgress, load: Callable[[], LoadedLogs]
    ) -> None:
        self.log_manager.take_in(await open_beside(self.env, nursery, progress, load))
        self.opening = None
        self._logs_open.set()

    def _make_parts(self, properties: MetaProperties) -> None:
        config, env = self.config, self.env
        self.replica_manager = ReplicaManager(
            node_id=config.node_id,
            env=env,
            config=config,
            log_manager=self.log_manager,
            topic_log_config=self._dynamic_config.log_config,
        )
        if self._metrics is not None:
            self.replica_manager.progress.traffic = self._metrics.counts.traffic
        self._make_metadata(properties)
        self._make_services(properties.cluster_id)

    def _make_metadata(self, properties: MetaProperties) -> None:
        """The metadata of the cluster, whoever follows it before all others, and this node's registration in it."""
        config, env, log_manager = self.config, self.env, self.log_manager
        metadata_dir = log_manager.metadata_dir
        assert metadata_dir is not None
        self.metadata = metadata = MetadataPlane(
            config,
            env,
            self.security.to_controllers,
            cluster_id=properties.cluster_id,
            directory_id=metadata_directory_id(metadata_dir, log_manager.log_dirs, properties),
            services=lambda: self.services,
            endpoints=self._listeners.endpoints(config.advertised_controller_listeners),
            policies=NO_POLICIES if self._rules is None else self._rules.policies,
            disk=metadata_dir.room.disk(keep=0),
        )
        metadata.subscribe(self._dynamic_config.on_image)
        if self._authorizer is not None:
            from kbroker.node.security.authorizer import AclLoader

            loader = AclLoader(self._authorizer)
            metadata.subscribe(loader.on_image)
            metadata.when_loaded(lambda: loader.begin(metadata.image))
        self.lifecycle = lifecycle = BrokerLifecycle(config, metadata, self.log_manager)
        self._registrations = Registrations(config, metadata, lifecycle, self._listeners, self.log_manager)
        # A stop before this node is registered leaves the marker of the last clean stop again.
        lifecycle.broker_epoch = self._registrations.previous_epoch()
        metadata.subscribe(CordonedLogDirs(self._dynamic_config, self.log_manager, lifecycle.beat_soon).on_image)

    def _make_services(self, cluster_id: str) -> None:
        """The coordinators, and all that handlers ask of a node."""
        config, env = self.config, self.env
        self._producer_ids = ProducerIdAllocator(
            lambda: self.metadata.client.allocate_producer_ids(self.lifecycle.broker_epoch)
        )
        self._timestamp_lookups = WorkQueue(env, most_bytes=64 << 20, most_begun=8)
        self._produce_queue = WorkQueue(env)
        self.coordinators = coordinators = self._make_coordinators() if config.is_broker else None
        self.services = Services(
            env=env,
            config=config,
            node_id=config.node_id,
            cluster_id=cluster_id,
            metadata=self.metadata,
            replica_manager=self.replica_manager,
            log_manager=self.log_manager,
            fetch_sessions=FetchSessionCache(
                config.max_incremental_fetch_session_cache_slots, self.replica_manager.purgatory, env.rng
            ),
            fetch_reader=cache(self._fetch_reader),
            producer_ids=self._producer_ids,
            timestamp_lookups=self._timestamp_lookups,
            produce_queue=self._produce_queue,
            long_steps=LongSteps(),
            check_own_configs=self._listeners.check_changes,
            authorizer=self._authorizer,
            tokens=make_tokens(config),
        )
        self.share_groups = None
        if coordinators is not None:
            self.services.groups = coordinators.groups
            self.services.transactions = coordinators.transactions
            self.services.markers = coordinators.markers
            self.share_groups = self._make_share_groups(coordinators)
        if self._rules is not None:
            self._rules.serve(self.services)
        if self._explorer is not None:
            self.services.tap = self._explorer.tap
        if self.telemetry is not None:
            self.services.telemetry = self.telemetry
            self.metadata.subscribe(self.telemetry.on_image)
        self.metadata.subscribe(self._on_quotas)

    def _make_share_groups(self, coordinators: Coordinators) -> ShareGroupsOnDemand:
        return ShareGroupsOnDemand(
            self.services,
            self.replica_manager,
            coordinators.groups,
            self.security.to_brokers,
            self.address_of,
            self.metadata.subscribe,
        )

    def _on_quotas(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow the limits to connections, and the quotas of clients; a cluster without any quota does not import
        what counts them."""
        if any(resource.type == ResourceType.BROKER for resource in delta.changed_configs):
            self._listeners.limit()
        if self._quota_loader is None:
            clients = None if self._rules is None else self._rules.quotas(self.config, self.services)
            limited = image.principals.client_quotas or self._dynamic_config.limits_connection_rate
            if not limited and clients is None:
                return
            from kbroker.node.serving.quota_loader import QuotaLoader

            self._quota_loader = QuotaLoader(self.services, self.config, self._dynamic_config, self.env.now, clients)
        self._quota_loader.on_image(delta, image)

    def _fetch_reader(self) -> FetchReader:
        from kbroker.node.replicas.fetch_reader import (
            FetchReader,  # with the first Fetch: a launch does not wait for it
        )

        return FetchReader(self.replica_manager)

    def _make_coordinators(self) -> Coordinators:
        from kbroker.node.coordinators.coordinators import make_coordinators

        return make_coordinators(
            self.config,
            self.env,
            self.security.to_brokers,
            self.replica_manager,
            self._dynamic_config,
            self._producer_ids,
            self.address_of,
            NO_OWN_ASSIGNORS if self._rules is None else self._rules.assignors,
        )

    def address_of(self, broker_id: int) -> tuple[str, int] | None:
        """Where other brokers reach a broker, as far as known."""
        broker = self.metadata.image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoints.get(self.config.inter_broker_listener_name)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    # Starting them

    async def _serve(self, limit: StartLimit, task_status: trio.TaskStatus[Broker]) -> None:
        async with trio.open_nursery() as outer:
            # Shielded: a node that stops serves on until others lead what it leads.
            work = trio.CancelScope(shield=True)
            outer.start_soon(self._leave_first, work)
            try:
                with work:
                    async with trio.open_nursery() as nursery:
                        if self._metrics is not None:
                            self._metrics.show(nursery)
                        if self.opening is not None:
                            self._open(nursery, self.opening)
                        self._listeners.listen(is_controller=True)
                        if self._metrics is not None:
                            self._metrics.start(nursery)
                        if self._explorer is not None:
                            self._explorer.start(nursery)
                        with limit.up_in_time():
                            await self._start_parts(nursery)
                        task_status.started(self)
            except BaseException:
                self._failed = True
                raise

    async def _leave_first(self, work: trio.CancelScope) -> None:
        try:
            await trio.sleep_forever()
        finally:
            try:
                if not self._failed and self._is_made:
                    with trio.CancelScope(shield=True):
                        await self.lifecycle.leave()
            finally:
                work.cancel()  # whatever becomes of that: nothing else ends it

    async def _start_parts(self, nursery: trio.Nursery) -> None:
        config, metadata = self.config, self.metadata
        self.security.start(nursery)
        nursery.start_soon(self.replica_manager.log_dirs.watch)
        await nursery.start(metadata.run)
        if not metadata.is_alone or self.opening is not None:
            # The others must reach this node before there can be a leader, and while its logs are opened.
            self._listeners.open(
                self.services, nursery, only=config.controller_listener_names, serve=self._serve_quorum
            )
            await metadata.wait_ready()
        if self.security.has_tasks:
            metadata.subscribe(self.security.on_image)
            await nursery.start(self.security.run, self._dynamic_config.of_listeners)
        if self._rules is not None:
            await nursery.start(self._rules.run)
        waits_for_logs = self.opening is not None
        if not waits_for_logs:
            nursery.start_soon(self.replica_manager.run)
        nursery.start_soon(self._timestamp_lookups.run)
        nursery.start_soon(self._produce_queue.run)
        if config.is_controller:
            nursery.start_soon(LeaderBalancer(metadata, config).run)
            nursery.start_soon(TokenExpiry(metadata, config, self.env).run)
        level = metadata.image.features.metadata_version  # what is registered is of this level at least
        self._registrations.check_log_dirs()
        await self._registrations.register()
        if level < DIRECTORIES:
            self._registrations.refresh(nursery)
        if waits_for_logs:
            await self._until_logs_are_open()
            nursery.start_soon(self.replica_manager.run)
        if config.is_broker:
            self._replicate_with_others(nursery)
        metadata.subscribe(self.replica_manager.metadata.on_image)
        if self.coordinators is not None:
            coordinators = self.coordinators
            for coordinator in (coordinators.groups, coordinators.transactions):
                metadata.subscribe(coordinator.on_image)
                nursery.start_soon(coordinator.run_tasks)
            nursery.start_soon(self._producer_ids.run)
        if self.share_groups is not None:
            metadata.subscribe(self.share_groups.on_image)
        flusher = LogFlusher(self.env, config, self.log_manager, self.replica_manager)
        flusher.producer_id_expiration_ms = lambda: self._dynamic_config.producer_id_expiration_ms
        if self._metrics is not None:
            flusher.times = self._metrics.counts.flushes
        nursery.start_soon(flusher.run)
        if config.log_cleaner_enable:
            nursery.start_soon(self._run_cleaner)
        if config.is_broker:
            self._listeners.listen(is_controller=False)  # whoever is told of this broker may connect
            await self._registrations.unfence(nursery)
        self._listeners.open(self.services, nursery)
        nursery.start_soon(self._listeners.run, self.env.network, self.services, nursery)
        self.on_opening()
        logger.info(
            "node %d serves %s",
            config.node_id,
            ", ".join(f"{name}://{host}:{port}" for name, (host, port) in self.ports.items()),
        )

    async def _until_logs_are_open(self) -> None:
        if self.config.is_broker:
            await self.lifecycle.stay_fenced(self._logs_open)
        else:
            await self._logs_open.wait()

    def _replicate_with_others(self, nursery: trio.Nursery) -> None:
        """Begin to replicate as soon as this node is not alone, before the replica manager hears of the others."""

        def on_image(delta: MetadataDelta, image: MetadataImage) -> None:
            if self.replica_manager.fetchers is None and not self.lifecycle.is_alone:
                from kbroker.node.replication import Replication

                replication = Replication(
                    config=self.config,
                    network=self.security.to_brokers,
                    replicas=self.replica_manager,
                    metadata=self.metadata,
                    broker_epoch=lambda: self.broker_epoch,
                    address=self.address_of,
                )
                replication.start(nursery.start_soon)

        self.metadata.subscribe(on_image)

    async def _run_cleaner(self) -> None:
        await trio.sleep(CLEANER_DELAY_SECONDS)
        from kbroker.node.logs.log_cleaner import CleanerSettings, LogCleaner

        def settings() -> CleanerSettings:
            return CleanerSettings.of(self._dynamic_config.with_prefix("log.cleaner."))

        self.log_cleaner = LogCleaner(self.env, self.log_manager, self.replica_manager, settings)
        await self.log_cleaner.run()

    # Stopping them

    async def _serve_quorum(self, server: ListenerServer) -> None:
        """A listener that the others' fetches come by: they go on until this node has left the quorum."""
        with trio.CancelScope(shield=True) as scope:
            self.metadata.quorum.on_stopped(scope.cancel)
            await server.serve()

    async def _close_logs(self, failed: bool) -> None:
        """Make everything durable and leave the marker of a clean stop, off the loop and within its time."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + STOP_SECONDS):
            marks, epoch = self.replica_manager.high_watermarks(), self.broker_epoch
            self.log_manager.on_offline.clear()  # what follows is done in a thread, and nobody waits any more

            def close() -> None:
                self.log_manager.close(high_watermarks=marks, broker_epoch=epoch)

            try:
                await self.env.run_blocking(close)
            except Exception:
                logger.exception("the logs could not be closed cleanly; the next start verifies them")
                self.log_manager.release()
        logger.info("node %d has stopped%s", self.config.node_id, " after a failure" if failed else "")
        if not failed:
            self.log_manager.check_any_online()


def _is_cancelled(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_cancelled(inner) for inner in error.exceptions)
    return isinstance(error, trio.Cancelled)
