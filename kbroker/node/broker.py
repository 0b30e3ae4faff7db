"""A node: its parts, made in the order in which they need one another, started in the order of one list.

`Broker.run` takes the addresses, locks the log directories, makes the parts, starts them in their order, and stops them
in the reverse order; what is long enough to be cut by a kill (flushing the logs) comes last and leaves the marker of a
clean stop. Logs that take long to open are opened while the controller works already, and the broker is registered
(Kafka's ``BrokerServer``).

Some parts are made in modules of their own: those that only properties ask for in ``node.parts``, the coordinators in
``node.coordinators.coordinators``, what other brokers are for in ``node.replication``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any

import trio

from kbroker.config import BrokerConfig
from kbroker.cores.groups.own_assignors import NO_OWN_ASSIGNORS
from kbroker.cores.replication.fetch_session import FetchSessionCache
from kbroker.handlers.common.context import NO_BROKER, Services
from kbroker.log.checkpoint_files import MetaProperties, node_meta_properties
from kbroker.log.dirs.start_up import OpeningProgress
from kbroker.log.log_dir import metadata_directory_id
from kbroker.log.manager import LogManager
from kbroker.node.controller.broker_lifecycle import BrokerLifecycle
from kbroker.node.controller.leader_balancer import LeaderBalancer, TokenExpiry
from kbroker.node.controller.metadata_plane import MetadataPlane
from kbroker.node.coordinators.producer_ids import ProducerIdAllocator
from kbroker.node.dynamic_broker_config import CordonedLogDirs, DynamicBrokerConfig
from kbroker.node.listeners import Listeners
from kbroker.node.logs.log_care import LogCare
from kbroker.node.logs.log_flusher import LogFlusher
from kbroker.node.logs.log_opening import LogOpening
from kbroker.node.parts import (
    Part,
    StartLimit,
    make_authorizer,
    make_explorer,
    make_metrics,
    make_observers,
    make_rules,
    make_telemetry,
    make_tokens,
    run_parts,
)
from kbroker.node.peers.peer_pool import PeerPool
from kbroker.node.registrations import Registrations, previous_epoch
from kbroker.node.replicas.replica_manager import ReplicaManager
from kbroker.node.replication import Replication
from kbroker.node.security.security import NodeSecurity
from kbroker.node.serving.listener import Listener as ListenerServer
from kbroker.node.serving.node_quotas import NodeQuotas
from kbroker.node.serving.work_queue import WorkQueue
from kbroker.node.share.on_demand import ShareGroupsOnDemand
from kbroker.raft_metadata.controller.policies import NO_POLICIES
from kbroker.raft_metadata.storage import mend_meta_properties
from kbroker.runtime.turns import StepTurns

if TYPE_CHECKING:
    from kbroker.handlers.common.context import WriteProduce
    from kbroker.node.coordinators.coordinators import Coordinators
    from kbroker.node.replicas.fetch_reader import FetchReader
    from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)

LONG_STEP_GAP_SECONDS = 0.025
"""Seconds that the node has between two steps of large requests: serving a heartbeat takes a few turns of the event
loop."""


class Broker:
    """A node. ``run`` it once.

    What needs neither an address nor a disk is made here. The rest are properties, which ``run`` has made when the
    directories are locked, before anything runs: each is made when another one first asks for it.
    """

    def __init__(self, config: BrokerConfig, env: Env) -> None:
        self.config = config
        self.env = env
        self._pools: list[PeerPool] = []
        self.security = NodeSecurity(config, env)
        self._acls = make_authorizer(config)
        """The authorizer that ACLs are for."""
        self._rules = make_rules(config, self._acls, env)
        self.table_states: dict[str, dict[str, Any]] = {}
        """Table -> what its follower beside this node has told last; empty without followers."""
        self._metrics = make_metrics(config, env, self)
        self.telemetry = make_telemetry(config, env, self._metrics)
        self._explorer = make_explorer(config, env, self)
        self._dynamic_config = DynamicBrokerConfig(config)
        self._logs = LogOpening(
            env, lambda: self._dynamic_config.log_config({}), leaves_holes=config.log_recovery_on_damage == "hole"
        )
        self._listeners = Listeners(
            config, self._dynamic_config, self.security, make_observers(self._metrics, self._explorer)
        )
        self.ports = self._listeners.ports
        self.listeners = self._listeners.servers
        self.on_opening: list[Callable[[], object]] = []
        """Called when the clients' listeners are there, before they accept anybody (``kbroker.testing``)."""
        self._timestamp_lookups = WorkQueue(env, most_bytes=64 << 20, most_begun=8)
        self._produce_queue = WorkQueue(env)

    @property
    def metrics_port(self) -> int | None:
        """The port of the page for Prometheus; None without one."""
        return None if self._metrics is None else self._metrics.port

    @property
    def explorer_port(self) -> int | None:
        """The port that the node is watched by; None without an explorer."""
        return None if self._explorer is None else self._explorer.port

    @property
    def opening(self) -> OpeningProgress | None:
        """The progress of opening the logs; None once they are open."""
        return self._logs.progress

    @property
    def broker_epoch(self) -> int:
        """The epoch of the broker's present registration."""
        return self.lifecycle.broker_epoch

    def address_of(self, broker_id: int) -> tuple[str, int] | None:
        """Where other brokers reach a broker, as far as known."""
        broker = self.metadata.image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoints.get(self.config.inter_broker_listener_name)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def pool_for(self, purpose: str) -> PeerPool:
        """Return connections to other brokers for one purpose; they end with this node."""
        config = self.config
        client_id, timeout = f"broker-{config.node_id}-{purpose}", config.request_timeout_ms / 1000
        self._pools.append(PeerPool(self.security.to_brokers, client_id, self.address_of, timeout))
        return self._pools[-1]

    # What is made once the disks may be touched

    @cached_property
    def _properties(self) -> MetaProperties:
        config, disk = self.config, self.env.disk
        mend_meta_properties(disk, config.metadata_log_dir, config.log_dirs)
        return node_meta_properties(disk, config.metadata_log_dir, config.log_dirs)

    @cached_property
    def log_manager(self) -> LogManager:
        """The logs. Making this locks their directories: ``FatalError`` if that cannot be."""
        config = self.config
        return LogManager.lock(
            config.log_dirs,
            self.env.disk,
            cluster_id=self._properties.cluster_id,
            node_id=config.node_id,
            rng=self.env.rng,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            metadata_log_dir=config.metadata_log_dir,
        )

    @cached_property
    def replica_manager(self) -> ReplicaManager:
        """The replicas of this node."""
        manager = ReplicaManager(
            node_id=self.config.node_id,
            env=self.env,
            config=self.config,
            log_manager=self.log_manager,
            topic_log_config=self._dynamic_config.log_config,
        )
        if self._metrics is not None:
            manager.progress.traffic = self._metrics.counts.traffic
        return manager

    @cached_property
    def log_care(self) -> LogCare:
        """The cleaner and the scrubber of the logs."""
        return LogCare(self.env, self.log_manager, self.replica_manager, self._dynamic_config.with_prefix)

    @cached_property
    def metadata(self) -> MetadataPlane:
        """The metadata of the cluster. ``FatalError`` if their log cannot be read."""
        config, log_manager = self.config, self.log_manager
        metadata_dir = log_manager.metadata_dir
        assert metadata_dir is not None
        return MetadataPlane(
            config,
            self.env,
            self.security.to_controllers,
            cluster_id=self._properties.cluster_id,
            directory_id=metadata_directory_id(metadata_dir, log_manager.log_dirs, self._properties),
            services=lambda: self.services,
            endpoints=self._listeners.endpoints(config.advertised_controller_listeners),
            policies=NO_POLICIES if self._rules is None else self._rules.policies,
            room=metadata_dir.room,
            directories={each.path: each.directory_id for each in log_manager.log_dirs if each.directory_id},
        )

    @cached_property
    def lifecycle(self) -> BrokerLifecycle:
        """This broker's life by the active controller."""
        lifecycle = BrokerLifecycle(self.config, self.metadata, self.log_manager)
        # A stop before this node is registered leaves the marker of the last clean stop again.
        lifecycle.broker_epoch = previous_epoch(self.log_manager)
        return lifecycle

    @cached_property
    def _producer_ids(self) -> ProducerIdAllocator:
        return ProducerIdAllocator(lambda: self.metadata.client.allocate_producer_ids(self.broker_epoch))

    @cached_property
    def coordinators(self) -> Coordinators | None:
        """The coordinators; None on a node without the broker role."""
        if not self.config.is_broker:
            return None
        from kbroker.node.coordinators.coordinators import make_coordinators

        made = make_coordinators(
            self.config,
            self.env,
            self.replica_manager,
            self._dynamic_config,
            self._producer_ids,
            self.pool_for,
            NO_OWN_ASSIGNORS if self._rules is None else self._rules.assignors,
        )
        if self._rules is not None:
            self._rules.describe(made.groups)
        return made

    @cached_property
    def share_groups(self) -> ShareGroupsOnDemand | None:
        """The parts of share groups; None on a node without the broker role."""
        if self.coordinators is None:
            return None
        return ShareGroupsOnDemand(
            lambda: self.services,
            self.replica_manager,
            self.coordinators.groups,
            self.pool_for,
            self.metadata.subscribe,
        )

    @cached_property
    def _quotas(self) -> NodeQuotas:
        by_rule = None if self._rules is None else self._rules.quotas(self.config, self.metadata)
        return NodeQuotas(self.config, self._dynamic_config, self.env.now, by_rule)

    @cached_property
    def services(self) -> Services:
        """All that handlers ask of this node."""
        config, coordinators, rules = self.config, self.coordinators, self._rules
        own = None if rules is None else rules.authorizer
        selector = None if rules is None else rules.selector
        return Services(
            env=self.env,
            config=config,
            node_id=config.node_id,
            cluster_id=self._properties.cluster_id,
            metadata=self.metadata,
            replica_manager=self.replica_manager,
            log_manager=self.log_manager,
            fetch_sessions=FetchSessionCache(
                config.max_incremental_fetch_session_cache_slots, self.replica_manager.purgatory, self.env.rng
            ),
            fetch_reader=cache(self._fetch_reader),
            producer_ids=self._producer_ids,
            timestamp_lookups=self._timestamp_lookups,
            produce_writer=cache(_produce_writer),
            produce_queue=self._produce_queue,
            long_steps=StepTurns(LONG_STEP_GAP_SECONDS),
            large_answers=trio.Lock(),
            quotas=self._quotas,
            groups=NO_BROKER if coordinators is None else coordinators.groups,
            transactions=NO_BROKER if coordinators is None else coordinators.transactions,
            markers=NO_BROKER if coordinators is None else coordinators.markers,
            share_groups=None if self.share_groups is None else self.share_groups.parts,
            check_own_configs=self._listeners.check_changes,
            authorizer=self._acls if own is None else own,
            authorizer_of=None if own is None else own.of_request,
            kept_acls=None if rules is None else rules.acls,
            tokens=make_tokens(config),
            replica_selector=None if selector is None else selector.of_request,
            telemetry=self.telemetry,
            scrubber=lambda: self.log_care.scrubber,
            tap=None if self._explorer is None else self._explorer.tap,
        )

    def _fetch_reader(self) -> FetchReader:
        # With the first Fetch: a launch does not wait for the import.
        from kbroker.node.replicas.fetch_reader import FetchReader

        return FetchReader(self.replica_manager)

    def _parts(self) -> Iterator[Part]:
        """Returns the parts in the order in which they start, and in which they hear of each image of the metadata."""
        config, metadata, replicas = self.config, self.metadata, self.replica_manager
        registrations = Registrations(config, metadata, self.lifecycle, self._listeners, self.log_manager)
        if self._metrics is not None:
            yield Part(start=self._metrics.show)
        # What is to know of an image before all others.
        yield Part(on_image=self._dynamic_config.on_image)
        if self._acls is not None:
            from kbroker.node.security.authorizer import AclLoader

            loader = AclLoader(self._acls)
            metadata.when_loaded(lambda: loader.begin(metadata.image))
            yield Part(on_image=loader.on_image)
        cordoned = CordonedLogDirs(self._dynamic_config, self.log_manager, self.lifecycle.beat_soon)
        yield Part(on_image=cordoned.on_image)
        if self.telemetry is not None:
            yield Part(on_image=self.telemetry.on_image)
        yield Part(on_image=self._listeners.on_image)
        yield Part(on_image=self._quotas.on_image)
        # The controller comes before the logs: two nodes that recover leave the third one a quorum.
        yield Part(run=lambda: self._logs.run(self.log_manager))
        yield Part(start=lambda _: self._listeners.listen(is_controller=True))
        if self._metrics is not None:
            yield Part(start=self._metrics.start)
        if self._explorer is not None:
            yield Part(start=self._explorer.start)
        yield Part(start=self.security.start)
        yield Part(run=replicas.log_dirs.watch)
        yield Part(start=self._start_metadata)
        if self.security.has_tasks:
            yield Part(
                on_image=self.security.on_image,
                start=lambda nursery: nursery.start(self.security.run, self._dynamic_config.of_listeners),
            )
        rules = self._rules
        if rules is not None:
            yield Part(start=lambda nursery: nursery.start(rules.run))
        yield Part(run=self._run_replicas)
        yield Part(run=self._timestamp_lookups.run)
        yield Part(run=self._produce_queue.run)
        if config.is_controller:
            yield Part(run=LeaderBalancer(metadata, config).run)
            yield Part(run=TokenExpiry(metadata, config, self.env).run)
        # The broker is registered before its logs are open, and is fenced until then.
        yield Part(start=registrations.start)
        yield Part(start=self._until_logs_are_open)
        replication = Replication(
            config, self.security.to_brokers, replicas, metadata, self.lifecycle, self.address_of, self.pool_for
        )
        if config.is_broker:
            yield Part(on_image=replication.on_image)  # before the replicas hear of partitions of others
        yield Part(on_image=replicas.metadata.on_image, start=lambda _: replicas.metadata.until_in_step())
        if self.coordinators is not None:
            for coordinator in (self.coordinators.groups, self.coordinators.transactions):
                yield Part(on_image=coordinator.on_image, run=coordinator.run_tasks)
            yield Part(run=self._producer_ids.run)
        if self.share_groups is not None:
            yield Part(on_image=self.share_groups.on_image)
        flusher = LogFlusher(self.env, config, self.log_manager, replicas)
        flusher.producer_id_expiration_ms = lambda: self._dynamic_config.producer_id_expiration_ms
        if self._metrics is not None:
            flusher.times = self._metrics.counts.flushes
        yield Part(run=flusher.run)
        if config.log_cleaner_enable:
            yield Part(run=self.log_care.clean)
        if config.log_scrub_bytes_per_second:
            yield Part(run=lambda: self.log_care.scrub(config.log_scrub_bytes_per_second, self.metadata))
        # Clients are the last.
        if config.is_broker:
            # Whoever is told of this broker may connect.
            yield Part(start=lambda _: self._listeners.listen(is_controller=False))
            yield Part(start=replication.until_losses_are_told)
            yield Part(start=registrations.unfence, stop=self.lifecycle.leave)
        yield Part(start=partial(self._open_listeners, self.services))

    # Starting and stopping

    async def run(self, task_status: trio.TaskStatus[Broker] = trio.TASK_STATUS_IGNORED) -> None:
        """Start, serve until cancelled, stop cleanly; ``task_status`` is told once it serves.

        :class:`FatalError` (perhaps inside an exception group) when it cannot start or go on.
        """
        limit = StartLimit(self.config.server_max_startup_time_ms)
        parts: list[Part] = []
        failed = False
        try:
            await self._listeners.bind(self.env.network)
            if self._metrics is not None:
                await self._metrics.bind()
            if self._explorer is not None:
                await self._explorer.bind()
            parts = self._make()
            await run_parts(parts, self.metadata.subscribe, limit, lambda: task_status.started(self))
        except BaseException as error:
            failed = not _is_cancelled(error)
            raise
        finally:
            self._listeners.close()
            for pool in self._pools:
                pool.close()
            if parts:
                await self.log_care.close(self.broker_epoch)
                logger.info("node %d has stopped%s", self.config.node_id, " after a failure" if failed else "")
                if not failed:
                    self.log_manager.check_any_online()

    def _make(self) -> list[Part]:
        """Lock the directories, open their logs unless that takes long, and make all parts; nothing runs yet."""
        log_manager = self.log_manager
        try:
            self._logs.open_if_quick(log_manager)
            parts = list(self._parts())
        except BaseException:
            log_manager.close(high_watermarks={}, broker_epoch=-1)
            raise
        return parts

    async def _start_metadata(self, nursery: trio.Nursery) -> None:
        await nursery.start(self.metadata.run)
        if not self.metadata.is_alone or self.opening is not None:
            # The others must reach this node before there can be a leader, and while its logs are opened.
            self._listeners.open(
                self.services, nursery, only=self.config.controller_listener_names, serve=self._serve_quorum
            )
            await self.metadata.wait_ready()

    async def _serve_quorum(self, server: ListenerServer) -> None:
        """A listener that the others' fetches come by: they go on until this node has left the quorum."""
        with trio.CancelScope(shield=True) as scope:
            self.metadata.quorum.on_stopped(scope.cancel)
            await server.serve()

    async def _run_replicas(self) -> None:
        await self._logs.done.wait()
        await self.replica_manager.run()

    async def _until_logs_are_open(self, nursery: trio.Nursery) -> None:
        if self.config.is_broker:
            await self.lifecycle.stay_fenced(self._logs.done)
        else:
            await self._logs.done.wait()

    async def _open_listeners(self, services: Services, nursery: trio.Nursery) -> None:
        self._listeners.open(services, nursery)
        nursery.start_soon(self._listeners.run, self.env.network, services, nursery)
        for callback in self.on_opening:
            callback()
        logger.info(
            "node %d serves %s",
            self.config.node_id,
            ", ".join(f"{name}://{host}:{port}" for name, (host, port) in self.ports.items()),
        )


def _produce_writer() -> WriteProduce:
    from kbroker.node.replicas.produce_writer import write_produce  # with the first Produce

    return write_produce


def _is_cancelled(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_cancelled(inner) for inner in error.exceptions)
    return isinstance(error, trio.Cancelled)
