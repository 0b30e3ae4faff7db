"""Assembly of a node: log dirs, metadata quorum, replica manager, handlers, listeners, background work.

``run_broker`` starts the parts in the order in which they need one another and stops them the other way round; what
is long enough to be cut by a kill (flushing the logs) comes last and leaves the marker of a clean stop.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import trio

from kbroker.config import BrokerConfig
from kbroker.errors import FatalError
from kbroker.groups.own_assignors import NO_OWN_ASSIGNORS
from kbroker.handlers.context import Services
from kbroker.log.checkpoint_files import META_PROPERTIES, MetaProperties, node_meta_properties
from kbroker.log.manager import LogManager
from kbroker.node.broker_lifecycle import BrokerLifecycle
from kbroker.node.cordoned_log_dirs import CordonedLogDirs
from kbroker.node.dispatcher import Dispatcher
from kbroker.node.dynamic_broker_config import DynamicBrokerConfig
from kbroker.node.leader_balancer import LeaderBalancer
from kbroker.node.listener import Listener as ListenerServer
from kbroker.node.listeners import Listeners
from kbroker.node.log_flusher import LogFlusher
from kbroker.node.long_steps import LongSteps
from kbroker.node.metadata_plane import MetadataPlane
from kbroker.node.produce_queue import ProduceQueue
from kbroker.node.producer_ids import ProducerIdAllocator
from kbroker.node.replica_manager import ReplicaManager
from kbroker.node.reply_queue import ReplyQueue
from kbroker.node.security import NodeSecurity
from kbroker.node.share_groups_on_demand import ShareGroupsOnDemand
from kbroker.node.start_limit import StartLimit
from kbroker.node.timestamp_lookup_queue import TimestampLookupQueue
from kbroker.node.token_expiry import TokenExpiry
from kbroker.raft_metadata.controller.policies import NO_POLICIES
from kbroker.raft_metadata.image import MetadataDelta, MetadataImage, ResourceType
from kbroker.raft_metadata.metadata_version import DIRECTORIES
from kbroker.replication.fetch_session import FetchSessionCache
from kbroker.types import Uuid

if TYPE_CHECKING:
    from kbroker.env import Env
    from kbroker.node.coordinators import Coordinators
    from kbroker.node.explorer.service import ExplorerService
    from kbroker.node.fetch_reader import FetchReader
    from kbroker.node.log_cleaner import LogCleaner
    from kbroker.node.metrics.service import MetricsService
    from kbroker.node.quota_loader import QuotaLoader
    from kbroker.node.replies import MakeDispatcher
    from kbroker.node.rules.setup import NodeRules
    from kbroker.node.telemetry.telemetry import Telemetry
    from kbroker.security.authorizer.standard import StandardAuthorizer
    from kbroker.security.delegation_tokens import DelegationTokens

logger = logging.getLogger(__name__)

STOP_SECONDS = 4.5
"""How long the flushes of a clean stop may take."""

RULES = (
    "alter.config.policy.class.name",
    "authorizer.class.name",
    "create.topic.policy.class.name",
    "client.quota.callback.class",
    "group.consumer.assignors",
    "group.share.assignors",
    "group.streams.assignors",
    "group.streams.topology.description.plugin.class",
)
"""Properties that may name callables in Python for the whole node."""

CLEANER_DELAY_SECONDS = 1.0
"""Clients come first after a start, also before the imports of the cleaner."""


class NoBrokerRole:
    """Takes the place of the coordinators on a node that is a controller only: none of its APIs asks for them."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a node without the broker role has no {name}")


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
        self._authorizer = _make_authorizer(config)
        """The one that ACLs are for."""
        self._rules = _make_rules(config, self._authorizer, env)
        self._metrics = _make_metrics(config, env, self)
        self.telemetry = _make_telemetry(config, env, self._metrics)
        self._explorer = _make_explorer(config, env, self)
        dispatcher: MakeDispatcher = Dispatcher if self._metrics is None else self._metrics.counts.dispatcher
        if self._explorer is not None:
            dispatcher = self._explorer.watched(dispatcher)
        replies = ReplyQueue if self._metrics is None else self._metrics.counts.replies
        self._listeners = Listeners(config, self.security, dispatcher, replies)
        self.ports = self._listeners.ports
        self.listeners = self._listeners.servers
        self.on_opening: Callable[[], object] = lambda: None
        """Called when the clients' listeners are there, before they accept anybody (``kbroker.testing``)."""
        self._dynamic_config = DynamicBrokerConfig(config)
        self._quota_loader: QuotaLoader | None = None
        self._failed = False

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

    async def run(self, task_status: trio.TaskStatus[Broker]) -> None:
        """Start, serve until cancelled, stop cleanly."""
        opened = failed = False
        limit = StartLimit(self.config.server_max_startup_time_ms)
        try:
            await self._listeners.bind(self.env.network)
            if self._metrics is not None:
                await self._metrics.bind()
            if self._explorer is not None:
                await self._explorer.bind()
            self._open()
            opened = True
            await self._serve(limit, task_status)
        except BaseException as error:
            failed = not _is_cancelled(error)
            raise
        finally:
            self._listeners.close()
            if opened:
                await self._close_logs(failed)

    # Making the parts

    def _open(self) -> None:
        """Open what is on the disks, and make all parts; nothing runs yet."""
        config, env = self.config, self.env
        properties = node_meta_properties(env.disk, config.metadata_log_dir, config.log_dirs)
        self.log_manager = LogManager.open(
            config.log_dirs,
            env.disk,
            now_ms=env.wall_clock_ms(),
            log_config=lambda topic_partition: self._dynamic_config.log_config({}),
            cluster_id=properties.cluster_id,
            node_id=config.node_id,
            rng=env.rng,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
        )
        self.replica_manager = ReplicaManager(
            node_id=config.node_id,
            env=env,
            config=config,
            log_manager=self.log_manager,
            topic_log_config=self._dynamic_config.log_config,
        )
        if self._metrics is not None:
            self.replica_manager.progress.traffic = self._metrics.counts.traffic
        try:
            self._make_parts(properties)
        except BaseException:
            self.log_manager.close(high_watermarks=self.replica_manager.high_watermarks(), broker_epoch=-1)
            raise

    def _make_parts(self, properties: MetaProperties) -> None:
        config, env = self.config, self.env
        self.metadata = MetadataPlane(
            config,
            env,
            self.security.to_controllers,
            cluster_id=properties.cluster_id,
            directory_id=self._metadata_directory_id(properties),
            services=lambda: self.services,
            policies=NO_POLICIES if self._rules is None else self._rules.policies,
        )
        self.metadata.subscribe(self._dynamic_config.on_image)
        if self._authorizer is not None:
            from kbroker.node.authorizer import AclLoader

            metadata, loader = self.metadata, AclLoader(self._authorizer)
            metadata.subscribe(loader.on_image)
            metadata.when_loaded(lambda: loader.begin(metadata.image))
        self.lifecycle = lifecycle = BrokerLifecycle(config, self.metadata, self.log_manager)
        cordoned = CordonedLogDirs(self._dynamic_config, self.log_manager, lifecycle.beat_soon)
        self.metadata.subscribe(cordoned.on_image)
        self._producer_ids = ProducerIdAllocator(
            lambda: self.metadata.client.allocate_producer_ids(lifecycle.broker_epoch)
        )
        self._timestamp_lookups = TimestampLookupQueue(env)
        self._produce_queue = ProduceQueue(env)
        self.coordinators = coordinators = self._make_coordinators() if config.is_broker else None
        absent: Any = NoBrokerRole()
        self.services = Services(
            env=env,
            config=config,
            node_id=config.node_id,
            cluster_id=properties.cluster_id,
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
            check_listeners=self._check_listeners if self.security.has_tasks else None,
            groups=absent if coordinators is None else coordinators.groups,
            transactions=absent if coordinators is None else coordinators.transactions,
            markers=absent if coordinators is None else coordinators.markers,
            authorizer=self._authorizer,
            tokens=_make_tokens(config),
        )
        self.share_groups = None if coordinators is None else self._make_share_groups(coordinators)
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
            self._address_of,
            self.metadata.subscribe,
        )

    def _on_quotas(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow the limits to connections, and the quotas of clients; a cluster without any quota does not import
        what counts them."""
        if any(resource.type == ResourceType.BROKER for resource in delta.changed_configs):
            self._listeners.limit(self._dynamic_config)
        if self._quota_loader is None:
            clients = None if self._rules is None else self._rules.quotas(self.config)
            limited = image.principals.client_quotas or self._dynamic_config.limits_connection_rate
            if not limited and clients is None:
                return
            from kbroker.node.quota_loader import QuotaLoader

            self._quota_loader = QuotaLoader(self.services, self.config, self._dynamic_config, self.env.now, clients)
        self._quota_loader.on_image(delta, image)

    async def _check_listeners(self, changes: Mapping[str, str | None]) -> None:
        await self.security.check_changes(self._dynamic_config.with_prefix("listener.name."), changes)

    def _fetch_reader(self) -> FetchReader:
        from kbroker.node.fetch_reader import FetchReader  # with the first Fetch: a launch does not wait for it

        return FetchReader(self.replica_manager)

    def _metadata_directory_id(self, properties: MetaProperties) -> Uuid:
        """The id of the metadata log's directory, by which the voters know this node."""
        log_dirs = self.log_manager.log_dirs
        path = str(self.config.metadata_log_dir).rstrip("/")
        own = next((log_dir.directory_id for log_dir in log_dirs if log_dir.path.rstrip("/") == path), None)
        directory_id = (
            own or properties.directory_id or log_dirs[0].directory_id
        )  # those of the metadata log's come first
        if directory_id is None:
            raise FatalError(f"{os.path.join(self.config.log_dirs[0], META_PROPERTIES)}: directory.id is missing")
        return directory_id

    def _make_coordinators(self) -> Coordinators:
        from kbroker.node.coordinators import make_coordinators

        return make_coordinators(
            self.config,
            self.env,
            self.security.to_brokers,
            self.replica_manager,
            self._dynamic_config,
            self._producer_ids,
            self._address_of,
            NO_OWN_ASSIGNORS if self._rules is None else self._rules.assignors,
        )

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
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
                if not self._failed:
                    with trio.CancelScope(shield=True):
                        await self.lifecycle.leave()
            finally:
                work.cancel()  # whatever becomes of that: nothing else ends it

    async def _start_parts(self, nursery: trio.Nursery) -> None:
        config, metadata = self.config, self.metadata
        self.security.start(nursery)
        await nursery.start(metadata.run)
        if not metadata.is_alone:
            # The others must reach this node before there can be a leader.
            self._listeners.open(
                self.services, nursery, only=config.controller_listener_names, serve=self._serve_quorum
            )
            await metadata.wait_ready()
        if self.security.has_tasks:
            metadata.subscribe(self.security.on_image)
            await nursery.start(self.security.run, lambda: self._dynamic_config.with_prefix("listener.name."))
        if self._rules is not None:
            await nursery.start(self._rules.run)
        nursery.start_soon(self.replica_manager.run)
        nursery.start_soon(self._timestamp_lookups.run)
        nursery.start_soon(self._produce_queue.run)
        if config.is_controller:
            nursery.start_soon(LeaderBalancer(metadata, config).run)
            nursery.start_soon(TokenExpiry(metadata, config, self.env).run)
        level = metadata.image.features.metadata_version  # what is registered is of this level at least
        await self._register()
        if config.is_broker:
            self._replicate_with_others(nursery)
        if level < DIRECTORIES:
            self._refresh_registrations(nursery)
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
        if self._metrics is not None:
            flusher.times = self._metrics.counts.flushes
        nursery.start_soon(flusher.run)
        if config.log_cleaner_enable:
            nursery.start_soon(self._run_cleaner)
        if config.is_broker:
            await self._unfence(nursery)
        self._listeners.open(self.services, nursery)
        self.on_opening()
        logger.info(
            "node %d serves %s",
            config.node_id,
            ", ".join(f"{name}://{host}:{port}" for name, (host, port) in self.ports.items()),
        )

    async def _register(self) -> None:
        """Register with the active controller as what this node is."""
        config, metadata = self.config, self.metadata
        if config.is_controller and metadata.knows_controllers:
            await self._register_controller()
        if config.is_broker:
            epoch = await self._register_broker(self._previous_epoch())
            # Only then may it act on its metadata: those of its last life may call it the leader of what it has lost.
            await metadata.wait_for_image(lambda image: image.offset >= epoch)

    async def _register_controller(self) -> None:
        await self.lifecycle.register_controller(self._listeners.endpoints(self.config.advertised_controller_listeners))

    async def _register_broker(self, previous_broker_epoch: int) -> int:
        directory_ids = (log_dir.directory_id for log_dir in self.log_manager.log_dirs)
        return await self.lifecycle.register_broker(
            self._listeners.endpoints(self.config.advertised_listeners),
            [directory_id for directory_id in directory_ids if directory_id is not None],
            self.config.broker_rack,
            previous_broker_epoch=previous_broker_epoch,
        )

    def _previous_epoch(self) -> int:
        """This broker's epoch before a clean stop; -1 if any log directory was not left in order (KIP-966)."""
        epochs = {log_dir.broker_epoch if log_dir.was_clean else -1 for log_dir in self.log_manager.log_dirs}
        return epochs.pop() if len(epochs) == 1 else -1

    def _refresh_registrations(self, nursery: trio.Nursery) -> None:
        """Register more of this node once the level of ``metadata.version`` allows it."""
        from kbroker.node.registration_refresh import RegistrationRefresh

        refresh = RegistrationRefresh(
            self.metadata,
            register_controller=self._register_controller,
            register_broker=lambda: self._register_broker(self.broker_epoch),
        )
        self.metadata.subscribe(refresh.on_image)
        nursery.start_soon(refresh.run)

    async def _unfence(self, nursery: trio.Nursery) -> None:
        """Wait until this broker is unfenced and its image shows that, before any client is served.

        Clients that know its address connect at once, and would get NOT_LEADER_OR_FOLLOWER or NOT_COORDINATOR for
        partitions that other brokers say it leads. (Kafka's ``BrokerServer`` waits, too; librdkafka never retries
        OffsetFetch after such an error.)
        """
        await nursery.start(self.lifecycle.run)

        def is_unfenced(image: MetadataImage) -> bool:
            own = image.brokers.get(self.config.node_id)
            return own is not None and own.epoch == self.broker_epoch and not own.fenced

        await self.metadata.wait_for_image(is_unfenced)

    def _replicate_with_others(self, nursery: trio.Nursery) -> None:
        """Begin to replicate as soon as this node is not alone, before the replica manager hears of the others."""

        def on_image(delta: MetadataDelta, image: MetadataImage) -> None:
            if self.replica_manager.fetchers is None and not self.lifecycle.is_alone:
                self._replicate(nursery)

        self.metadata.subscribe(on_image)

    def _replicate(self, nursery: trio.Nursery) -> None:
        """Start to follow partitions of other leaders, and to propose ISR changes to the controller."""
        from kbroker.node.replication import Replication

        ask_controller = self.metadata.client.ask

        def broker_epoch() -> int:
            return self.broker_epoch

        replication = Replication(
            config=self.config,
            network=self.security.to_brokers,
            replicas=self.replica_manager,
            broker_epoch=broker_epoch,
            address=self._address_of,
            ask_controller=ask_controller,
        )
        replication.start(nursery.start_soon)
        if len(self.log_manager.log_dirs) > 1:
            from kbroker.node.directory_assignments import DirectoryAssignments

            assignments = DirectoryAssignments(
                self.replica_manager, lambda: self.metadata.image, broker_epoch, ask_controller
            )
            self.metadata.subscribe(assignments.on_image)
            nursery.start_soon(assignments.run)

    async def _run_cleaner(self) -> None:
        await trio.sleep(CLEANER_DELAY_SECONDS)
        from kbroker.node.log_cleaner import CleanerSettings, LogCleaner

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


def _make_metrics(config: BrokerConfig, env: Env, node: Broker) -> MetricsService | None:
    """The metrics of a node that is to show some; None, and nothing imported, for all others."""
    if not config.raw.get("prometheus.metrics.reporter.listener", "").strip():
        return None
    from kbroker.config.metrics import metrics_address
    from kbroker.node.metrics.service import MetricsService

    address = metrics_address(config.raw)
    return None if address is None else MetricsService(address, env, node)


def _make_explorer(config: BrokerConfig, env: Env, node: Broker) -> ExplorerService | None:
    """The explorer of a node that is to be watched; None, and nothing imported, for all others."""
    if not config.raw.get("kbroker.explorer.listener", "").strip():
        return None
    from kbroker.config.explorer import explorer_address
    from kbroker.node.explorer.service import ExplorerService

    address = explorer_address(config.raw)
    return None if address is None else ExplorerService(address, env, node)


def _make_authorizer(config: BrokerConfig) -> StandardAuthorizer | None:
    """The authorizer that the properties ask for; None if everybody may do everything."""
    if not config.values.get("authorizer.class.name"):
        return None
    from kbroker.config.security.authorization import has_authorizer
    from kbroker.security.authorizer.settings import standard_authorizer

    return standard_authorizer(config) if has_authorizer(config) else None


def _make_rules(config: BrokerConfig, authorizer: StandardAuthorizer | None, env: Env) -> NodeRules | None:
    """The rules in Python for the whole node, by its own file; None if there are none."""
    if not any("python:" in str(config.values.get(name)) for name in RULES):
        return None
    from kbroker.node.rules.setup import NodeRules

    return NodeRules(config, authorizer, env)


def _make_telemetry(config: BrokerConfig, env: Env, metrics: MetricsService | None) -> Telemetry | None:
    """The node's part of KIP-714, which asks clients for metrics; None if nothing would take them."""
    if not config.is_broker or (metrics is None and "metric.reporters" not in config.raw):
        return None
    from kbroker.config.telemetry import receivers_of

    if metrics is None and not receivers_of(config.metric_reporters):
        return None
    from kbroker.node.telemetry.receivers import make_receivers
    from kbroker.node.telemetry.telemetry import Telemetry

    page = None if metrics is None else metrics.counts.clients.push
    return Telemetry(env, make_receivers(config.metric_reporters), config.telemetry_max_bytes, page)


def _make_tokens(config: BrokerConfig) -> DelegationTokens | None:
    """The key of delegation tokens; None, and nothing imported, if the properties have none."""
    if not config.values.get("delegation.token.secret.key"):
        return None
    from kbroker.security.delegation_tokens import DelegationTokens

    return DelegationTokens.of_config(config)


def _is_cancelled(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_cancelled(inner) for inner in error.exceptions)
    return isinstance(error, trio.Cancelled)


async def run_broker(
    config: BrokerConfig, env: Env, *, task_status: trio.TaskStatus[Broker] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run a node until it is cancelled; ``started`` gives the :class:`Broker` once it serves.

    :class:`FatalError` (perhaps inside an exception group) when it cannot start or go on.
    """
    await Broker(config, env).run(task_status)
