"""Assembly of a node: log dirs, metadata quorum, replica manager, handlers, listeners, background work.

``run_broker`` starts the parts in the order in which they need one another and stops them the other way round; what
is long enough to be cut by a kill (flushing the logs) comes last and leaves the marker of a clean stop.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import trio

from kbroker.config import BrokerConfig, Listener, effective_topic_config
from kbroker.errors import ApiError, FatalError
from kbroker.handlers.context import Services
from kbroker.handlers.registration import BROKER, CONTROLLER, registrations
from kbroker.log.checkpoints import META_PROPERTIES, MetaProperties, read_meta_properties
from kbroker.log.log_config import LogConfig
from kbroker.log.manager import LogManager
from kbroker.node.leader_balancer import LeaderBalancer
from kbroker.node.listener import ConnectionLimits, ConnectionQuota
from kbroker.node.listener import Listener as ListenerServer
from kbroker.node.log_flusher import LogFlusher
from kbroker.node.long_produces import LongProduces
from kbroker.node.look_ups import LookUps
from kbroker.node.memory_budget import MemoryBudget
from kbroker.node.producer_ids import ProducerIdAllocator
from kbroker.node.raft_driver import RaftDriver
from kbroker.node.replica_manager import ReplicaManager
from kbroker.raft_metadata.controller.schema import group_config
from kbroker.raft_metadata.image import Endpoint, MetadataDelta, MetadataImage
from kbroker.replication.fetch_session import FetchSessionCache

if TYPE_CHECKING:
    from kbroker.env import Env, StreamListener
    from kbroker.node.broker_lifecycle import BrokerLifecycle
    from kbroker.node.group_driver import GroupDriver

logger = logging.getLogger(__name__)

STOP_SECONDS = 4.5
"""How long the flushes of a clean stop may take."""

CLEANER_DELAY_SECONDS = 1.0
"""Clients come first after a start, also before the imports of the cleaner."""

DEFAULT_REQUEST_MEMORY = 512 << 20
"""Bytes of incomplete requests that all connections together may hold, when ``queued.max.request.bytes`` is -1."""

OTHER_FILES = 64
"""Open files that are neither logs nor clients: other nodes, processes, pipes, files that are written whole."""

_SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class Broker:
    """A running node."""

    def __init__(self, config: BrokerConfig, env: Env) -> None:
        self.config = config
        self.env = env
        #: Where each listener really is, by listener name.
        self.ports: dict[str, tuple[str, int]] = {}
        self.listeners: list[ListenerServer] = []
        self.services: Services
        self.log_manager: LogManager
        self.driver: RaftDriver
        self.replica_manager: ReplicaManager
        self.broker_epoch = -1
        self.lifecycle: BrokerLifecycle | None = None
        self.on_opening: Callable[[], object] = lambda: None
        """Called when the clients' listeners are there, before they accept anybody (``kbroker.testing``)."""
        self._opened: list[str] = []
        self._broken = False
        self._reconfigured: dict[str, tuple[dict[str, str], BrokerConfig]] = {}
        """By what their names begin with: properties set at run time, and the node's own with them."""

    async def run(self, task_status: trio.TaskStatus[Broker]) -> None:
        """Start, serve until cancelled, stop cleanly."""
        bound: dict[str, StreamListener] = {}
        opened = False
        failed = False
        try:
            for listener in self.config.listeners:
                stream_listener = await self.env.network.listen(listener.host, listener.port)
                bound[listener.name] = stream_listener
                self.ports[listener.name] = stream_listener.address
            self._open_logs()
            opened = True
            await self._serve(bound, task_status)
        except BaseException as error:
            failed = not _is_cancelled(error)
            raise
        finally:
            for stream_listener in bound.values():
                stream_listener.close()
            if opened:
                await self._close_logs(failed)

    def _open_logs(self) -> None:
        config, env = self.config, self.env
        properties = self._meta_properties()
        self.log_manager = LogManager.open(
            config.log_dirs,
            env.disk,
            now_ms=env.wall_clock_ms(),
            log_config=lambda topic_partition: self._log_config({}),
            cluster_id=properties.cluster_id,
            node_id=config.node_id,
            rng=env.rng,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
        )
        directory_id = self.log_manager.log_dirs[0].directory_id or properties.directory_id
        if directory_id is None:
            raise FatalError(f"{os.path.join(self.config.log_dirs[0], META_PROPERTIES)}: directory.id is missing")
        self.driver = RaftDriver(
            config, env, cluster_id=properties.cluster_id, directory_id=self._metadata_directory_id() or directory_id
        )
        self.replica_manager = ReplicaManager(
            node_id=config.node_id,
            env=env,
            config=config,
            log_manager=self.log_manager,
            topic_log_config=self._log_config,
        )
        self.replica_manager.load(self.log_manager.high_watermarks)
        self.services = Services(
            env=env,
            config=config,
            node_id=config.node_id,
            cluster_id=properties.cluster_id,
            metadata=self.driver,
            replica_manager=self.replica_manager,
            log_manager=self.log_manager,
            fetch_sessions=FetchSessionCache(config.max_incremental_fetch_session_cache_slots, env.rng),
            producer_ids=ProducerIdAllocator(self.driver, config.node_id, self._present_epoch),
            look_ups=LookUps(env),
            long_produces=LongProduces(env),
        )

    def _meta_properties(self) -> MetaProperties:
        for directory in (self.config.metadata_log_dir, *self.config.log_dirs):
            try:
                properties = read_meta_properties(self.env.disk, directory)
            except OSError as error:
                raise FatalError(f"cannot read meta.properties in {directory}: {error.strerror or error}") from error
            except Exception as error:
                raise FatalError(str(error)) from error
            if properties is not None:
                return properties
        raise FatalError(
            f"no meta.properties in {', '.join(self.config.log_dirs)}: format the node first (kbroker format)"
        )

    def _metadata_directory_id(self) -> Any:
        for log_dir in self.log_manager.log_dirs:
            if log_dir.path.rstrip("/") == str(self.config.metadata_log_dir).rstrip("/"):
                return log_dir.directory_id
        return None

    def _log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        return LogConfig.from_values(effective_topic_config(self.config, overrides, self._dynamic_configs()))

    def _dynamic_configs(self) -> dict[str, str]:
        """Broker properties that were set at run time, for this node or for all; its own win."""
        driver = getattr(self, "driver", None)  # the logs are opened before there is one
        if driver is None:
            return {}
        configs = driver.image.configs
        return {**configs.for_broker(None), **configs.for_broker(self.config.node_id)}

    def _config_with(self, prefix: str) -> BrokerConfig:
        """The node's properties, with those set at run time whose names begin so.

        Those were judged by the properties file that the active controller had at the time. Where they do not go
        together with this node's file of today, that is told once, and they have no effect: as in Apache Kafka, whose
        ``DynamicBrokerConfig`` keeps the properties before a change that a broker cannot apply.
        """
        changed = {name: value for name, value in self._dynamic_configs().items() if name.startswith(prefix)}
        if not changed:
            return self.config
        known = self._reconfigured.get(prefix)
        if known is not None and known[0] == changed:
            return known[1]
        try:
            config = self.config.with_properties(changed)
        except FatalError as error:
            config = self.config
            logger.error("set at run time, but without effect on this node: %s: %s", ", ".join(sorted(changed)), error)
        self._reconfigured[prefix] = changed, config
        return config

    async def _run_cleaner(self) -> None:
        await trio.sleep(CLEANER_DELAY_SECONDS)
        from kbroker.node.log_cleaner import CleanerSettings, LogCleaner

        def settings() -> CleanerSettings:
            return CleanerSettings.of(self._config_with("log.cleaner."))

        await LogCleaner(self.env, self.log_manager, self.replica_manager, settings).run()

    async def _serve(self, bound: Mapping[str, StreamListener], task_status: trio.TaskStatus[Broker]) -> None:
        async with trio.open_nursery() as outer:
            # Shielded: a node that stops serves on until others lead what it leads.
            work = trio.CancelScope(shield=True)
            outer.start_soon(self._leave_first, work)
            try:
                with work:
                    async with trio.open_nursery() as nursery:
                        await self._start_parts(bound, nursery)
                        task_status.started(self)
            except BaseException:
                self._broken = True
                raise

    async def _leave_first(self, work: trio.CancelScope) -> None:
        try:
            await trio.sleep_forever()
        finally:
            try:
                if self.lifecycle is not None and not self._broken:
                    with trio.CancelScope(shield=True):
                        await self.lifecycle.leave()
            finally:
                work.cancel()  # whatever becomes of that: nothing else ends it

    async def _start_parts(self, bound: Mapping[str, StreamListener], nursery: trio.Nursery) -> None:
        config = self.config
        await nursery.start(self.driver.run)
        if not self.driver.is_alone:
            # The others must reach this node before there can be a leader.
            self._open_listeners(bound, nursery, config.controller_listener_names)
            await self.driver.wait_ready()
        nursery.start_soon(self.replica_manager.run)
        nursery.start_soon(self.services.look_ups.run)
        nursery.start_soon(self.services.long_produces.run)
        if config.is_controller:
            nursery.start_soon(LeaderBalancer(self.driver, config).run)
        alone = self.driver.is_alone
        if alone:
            await self._register_alone()
            if config.is_broker:
                self._expect_others(nursery)
                nursery.start_soon(self._end_without_log_dirs)
        else:
            await self._join_cluster()
            if config.is_broker:
                assert self.lifecycle is not None
                self._replicate(nursery, self.lifecycle)
        self.driver.subscribe(self.replica_manager.on_image)
        groups = self._group_coordinator()
        if groups is not None:
            self.services.groups = groups
            self.driver.subscribe(groups.on_image)
            nursery.start_soon(groups.run)
            self._serve_transactions(groups, nursery)
        flusher = LogFlusher(self.env, config, self.log_manager, self.replica_manager)
        nursery.start_soon(flusher.run)
        if config.log_cleaner_enable:
            nursery.start_soon(self._run_cleaner)
        if self.lifecycle is not None and config.is_broker and not alone:
            await self._unfence(self.lifecycle, nursery)
        self._open_listeners(bound, nursery, [name for name in bound if name not in self._opened])
        self.on_opening()
        logger.info(
            "node %d serves %s",
            config.node_id,
            ", ".join(f"{name}://{host}:{port}" for name, (host, port) in self.ports.items()),
        )

    async def _register_alone(self) -> None:
        """Register with this node's own controller."""
        async with trio.open_nursery() as registering:
            if self.config.is_controller:
                registering.start_soon(
                    self.driver.register_controller, self._endpoints(self.config.advertised_controller_listeners)
                )
            if self.config.is_broker:
                registering.start_soon(self._register_broker)

    async def _join_cluster(self) -> None:
        """Register with the active controller, which may be another node."""
        from kbroker.node.broker_lifecycle import BrokerLifecycle

        config = self.config
        self.lifecycle = lifecycle = BrokerLifecycle(self.driver, self.services)
        if config.is_controller:
            await lifecycle.register_controller(self._endpoints(config.advertised_controller_listeners))
        if config.is_broker:
            self.broker_epoch = await lifecycle.register_broker(
                self._endpoints(config.advertised_listeners),
                self._log_dir_ids(),
                config.broker_rack,
                previous_broker_epoch=self._previous_epoch(),
            )
            # Only then may it act on its metadata: those of its last life may call it the leader of what it has lost.
            await self.driver.wait_for_image(lambda image: image.offset >= self.broker_epoch)

    async def _unfence(self, lifecycle: BrokerLifecycle, nursery: trio.Nursery) -> None:
        """Be unfenced, and know what this broker leads since, before any client is served.

        Clients that know it from its last life are there at once, and would be told that it does not lead or
        coordinate what others say it does. (So does Kafka's ``BrokerServer``; librdkafka, told so when it fetches
        committed offsets, never asks again.)
        """
        await nursery.start(lifecycle.run)

        def is_unfenced(image: MetadataImage) -> bool:
            own = image.brokers.get(self.config.node_id)
            return own is not None and own.epoch == lifecycle.broker_epoch and not own.fenced

        await self.driver.wait_for_image(is_unfenced)

    def _expect_others(self, nursery: trio.Nursery) -> None:
        """A quorum of one may have many brokers: once there is another, this one replicates as they do."""

        def on_image(delta: MetadataDelta, image: MetadataImage) -> None:
            if self.lifecycle is not None or len(image.brokers) < 2:
                return
            from kbroker.node.broker_lifecycle import BrokerLifecycle

            self.lifecycle = lifecycle = BrokerLifecycle(self.driver, self.services)
            lifecycle.broker_epoch = self.broker_epoch
            # Now, as the replica manager is about to hear of whom it is to follow.
            self._replicate(nursery, lifecycle)
            nursery.start_soon(self._live_with_others, lifecycle)

        self.driver.subscribe(on_image)

    async def _end_without_log_dirs(self) -> None:
        """A broker that is alone sends no heartbeats, by which others notice that all their log dirs have failed."""
        failed = trio.Event()
        self.log_manager.on_offline = lambda: failed.set()
        while self.lifecycle is None:
            await failed.wait()
            failed = trio.Event()
            self.log_manager.check_any_online()

    async def _live_with_others(self, lifecycle: BrokerLifecycle) -> None:
        """The same life of this broker goes on with heartbeats, like that of any other."""
        config = self.config
        await lifecycle.register_broker(
            self._endpoints(config.advertised_listeners),
            self._log_dir_ids(),
            config.broker_rack,
            previous_broker_epoch=self.broker_epoch,
        )
        await lifecycle.run()

    def _present_epoch(self) -> int:
        """This broker's epoch, also once it has registered anew because the controller had forgotten it."""
        return self.broker_epoch if self.lifecycle is None else self.lifecycle.broker_epoch

    def _previous_epoch(self) -> int:
        """This broker's epoch before a clean stop; -1 if any log directory was not left in order (KIP-966)."""
        epochs = {log_dir.broker_epoch if log_dir.was_clean else -1 for log_dir in self.log_manager.log_dirs}
        return epochs.pop() if len(epochs) == 1 else -1

    def _replicate(self, nursery: trio.Nursery, lifecycle: BrokerLifecycle) -> None:
        """Follow what other brokers lead, and tell the controller how the followers do."""
        from kbroker.node.isr import IsrManager
        from kbroker.node.replica_fetchers import ReplicaFetchers

        manager = self.replica_manager

        def broker_epoch() -> int:
            return lifecycle.broker_epoch

        manager.fetchers = ReplicaFetchers(
            env=self.env, config=self.config, manager=manager, broker_epoch=broker_epoch, address=self._address_of
        )
        manager.isr = IsrManager(
            env=self.env,
            config=self.config,
            manager=manager,
            broker_epoch=broker_epoch,
            ask_controller=lifecycle.ask_controller,
        )
        nursery.start_soon(manager.fetchers.run)
        nursery.start_soon(manager.isr.run)
        if len(self.log_manager.log_dirs) > 1:
            from kbroker.node.directory_assignments import DirectoryAssignments

            assignments = DirectoryAssignments(
                manager, lambda: self.driver.image, broker_epoch, lifecycle.ask_controller
            )
            self.driver.subscribe(assignments.on_image)
            nursery.start_soon(assignments.run)

    def _log_dir_ids(self) -> list[Any]:
        return [log_dir.directory_id for log_dir in self.log_manager.log_dirs if log_dir.directory_id is not None]

    async def _register_broker(self) -> None:
        try:
            self.broker_epoch = await self.driver.register_broker(
                self._endpoints(self.config.advertised_listeners),
                self._log_dir_ids(),
                rack=self.config.broker_rack,
                previous_broker_epoch=self._previous_epoch(),
            )
        except ApiError as error:
            raise FatalError(error.message or str(error)) from None

    def _endpoints(self, listeners: tuple[Listener, ...]) -> list[Endpoint]:
        """What clients are told: the advertised addresses, with the ports that were really bound for port 0."""
        result = []
        for listener in listeners:
            host, port = listener.host, listener.port
            if port == 0 and listener.name in self.ports:
                port = self.ports[listener.name][1]
            if host in ("", "0.0.0.0", "::"):
                host = socket.gethostname()
            protocol = _SECURITY_PROTOCOLS.get(listener.security_protocol, 0)
            result.append(Endpoint(listener.name, host, port, protocol))
        return result

    def _group_coordinator(self) -> GroupDriver | None:
        if not self.config.is_broker:
            return None
        from kbroker.groups.settings import GroupSettings
        from kbroker.node.group_driver import GroupDriver

        settings = GroupSettings.from_config(self.config)
        return GroupDriver(
            env=self.env,
            replica_manager=self.replica_manager,
            settings=lambda: settings,
            group_config=lambda image, group_id: group_config(image, self.config, group_id),
        )

    def _serve_transactions(self, groups: GroupDriver, nursery: trio.Nursery) -> None:
        from kbroker.node.broker_requests import MARKERS, MEMBERSHIP, BrokerRequests
        from kbroker.node.transaction_driver import TransactionDriver
        from kbroker.node.transaction_markers import MarkerWriter
        from kbroker.transactions.settings import TransactionSettings

        def settings(image: Any) -> TransactionSettings:
            return TransactionSettings.from_config(self._config_with("transaction."))

        markers = MarkerWriter(self.env, self.replica_manager, groups, self.config.request_timeout_ms)
        transactions = TransactionDriver(
            env=self.env,
            replica_manager=self.replica_manager,
            settings=settings,
            producer_ids=self.services.producer_ids,
            markers=markers,
            remote_markers=BrokerRequests(MARKERS, self.env, self.config, nursery.start_soon, self._address_of),
            remote_coordinators=BrokerRequests(MEMBERSHIP, self.env, self.config, nursery.start_soon, self._address_of),
        )
        self.services.markers = markers
        self.services.transactions = transactions
        self.driver.subscribe(transactions.on_image)
        nursery.start_soon(transactions.run)
        nursery.start_soon(self.services.producer_ids.run)

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
        """Where other brokers reach a broker, as far as known."""
        broker = self.driver.image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoints.get(self.config.inter_broker_listener_name)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def _open_listeners(self, bound: Mapping[str, StreamListener], nursery: trio.Nursery, names: Sequence[str]) -> None:
        config = self.config
        limits = ConnectionLimits(
            max_connections=min(config.max_connections, _connections_by_file_limit()),
            max_connections_per_ip=config.max_connections_per_ip,
            per_ip_overrides=config.max_connections_per_ip_overrides,
            max_idle=config.connections_max_idle_ms / 1000,
            max_frame_bytes=config.socket_request_max_bytes,
        )
        quota = ConnectionQuota(limits)
        memory = config.queued_max_request_bytes
        budget = MemoryBudget(memory if memory > 0 else DEFAULT_REQUEST_MEMORY)
        for listener in config.listeners:
            if listener.name not in names:
                continue
            self._opened.append(listener.name)
            is_controller = listener.name in config.controller_listener_names
            server = ListenerServer(
                listener.name,
                bound[listener.name],
                services=self.services,
                table=registrations(CONTROLLER if is_controller else BROKER),
                is_controller=is_controller,
                quota=quota,
                budget=budget,
            )
            self.listeners.append(server)
            nursery.start_soon(self._serve_quorum if is_controller and not self.driver.is_alone else _serve, server)

    async def _serve_quorum(self, server: ListenerServer) -> None:
        """A listener that the others' fetches come by: they go on until this node has left the quorum."""
        with trio.CancelScope(shield=True) as scope:
            self.driver.on_stopped(scope.cancel)
            await server.serve()

    async def _close_logs(self, failed: bool) -> None:
        """Make everything durable and leave the marker of a clean stop, off the loop and within its time."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + STOP_SECONDS):
            marks = self.replica_manager.high_watermarks()
            self.broker_epoch = self._present_epoch()
            self.log_manager.on_offline = None  # what follows is done in a thread, and nobody waits any more

            def close() -> None:
                self.log_manager.close(high_watermarks=marks, broker_epoch=self.broker_epoch)

            try:
                await self.env.run_blocking(close)
            except Exception:
                logger.exception("the logs could not be closed cleanly; the next start verifies them")
                self.log_manager.release()
        logger.info("node %d has stopped%s", self.config.node_id, " after a failure" if failed else "")


async def _serve(server: ListenerServer) -> None:
    await server.serve()


def _is_cancelled(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_cancelled(inner) for inner in error.exceptions)
    return isinstance(error, trio.Cancelled)


def _connections_by_file_limit() -> int:
    """Connections that leave file descriptors for all else. The logs have half of them: three eighths are for segments
    (``LogManager.open``), a third as many for indexes (``OpenFiles``).

    There must be one for a log at any time: if it cannot be opened, that is taken for a disk that fails.
    """
    try:
        import resource
    except ImportError:  # pragma: no cover - not a POSIX system
        return 1 << 31
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 31 if soft == resource.RLIM_INFINITY else max(64, soft // 2 - min(OTHER_FILES, soft // 8))


async def run_broker(
    config: BrokerConfig, env: Env, *, task_status: trio.TaskStatus[Broker] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run a node until it is cancelled; ``started`` gives the :class:`Broker` once it serves.

    :class:`FatalError` (perhaps inside an exception group) when it cannot start or go on.
    """
    await Broker(config, env).run(task_status)
