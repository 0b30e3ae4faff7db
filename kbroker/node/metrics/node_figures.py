"""All figures of a node, asked of each of its parts.

Whoever reads them has an object of their own, with their own times for rates.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kbroker.errors import ErrorCode
from kbroker.node.metrics import cluster_figures, group_figures, lag_figures, log_figures, partition_figures
from kbroker.node.metrics.event_loop import IdleShare
from kbroker.node.metrics.figures import Figures, summary
from kbroker.node.metrics.leader_offsets import LeaderOffsets
from kbroker.node.metrics.log_figures import Space
from kbroker.observe.metrics import client_families, exposition
from kbroker.observe.metrics import families as f
from kbroker.observe.metrics.dialect import Dialect
from kbroker.observe.metrics.histogram import Histogram
from kbroker.observe.metrics.rates import Rates
from kbroker.observe.metrics.traffic import TopicTraffic
from kbroker.wire.registry import API_KEYS

if TYPE_CHECKING:
    from kbroker.log.dirs.start_up import OpeningProgress
    from kbroker.node.metrics.measured_node import MeasuredNode
    from kbroker.node.metrics.node_metrics import NodeMetrics


def _of_opening(opening: OpeningProgress) -> Figures:
    """The figures of logs that are being opened (KIP-831)."""
    yield f.LOGS_TO_RECOVER, [((each.path,), each.logs_left) for each in opening.dirs]
    yield f.SEGMENTS_TO_RECOVER, [((each.path, "0"), each.segments_left) for each in opening.dirs]


_PAGE = os.sysconf("SC_PAGE_SIZE")


def _of_process(node_id: int, started_ms: int) -> Figures:
    """Processor time, memory, files, and bytes read and written: by Linux's ``/proc``, fewer where there is none."""
    yield f.START_TIME, [((str(node_id),), started_ms)]
    yield f.CPU_SECONDS, [((), time.process_time())]
    yield f.START_SECONDS, [((), started_ms / 1000)]
    import resource

    yield f.MAJOR_FAULTS, [((), resource.getrusage(resource.RUSAGE_SELF).ru_majflt)]
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        yield f.MAX_FILES, [((), soft)]
    try:
        files = len(os.listdir("/proc/self/fd"))
        with open("/proc/self/statm", "rb") as statm:
            resident = int(statm.read().split()[1]) * _PAGE
    except OSError:
        return
    yield f.OPEN_FILES, [((), files)]
    yield f.RESIDENT_BYTES, [((), resident)]
    try:
        with open("/proc/self/io", encoding="ascii") as io:
            counts = dict(line.strip().split(": ") for line in io)
    except (OSError, ValueError):
        return  # not every container shows it
    for name, family in f.LINUX_DISK.items():
        if name in counts:
            yield family, [((), int(counts[name]))]


def _of_tables(states: Mapping[str, Mapping[str, Any]]) -> Figures:
    for name, family in f.TABLES.items():
        shown = {table: told for table, told in states.items() if told[name] is not None}
        yield family, [((told["topic"], table), told[name]) for table, told in shown.items()]
    yield f.TABLE_FOLLOWED, [((told["topic"], table), told["state"] == "following") for table, told in states.items()]


def broker_state(broker: MeasuredNode) -> int:
    """The number of Kafka's ``BrokerState``: STARTING, RECOVERY and RUNNING follow one another, the last for good.

    RECOVERY begins with the registration, and with the opening of logs, which may be earlier here.
    """
    if broker.lifecycle.was_unfenced:
        return 3
    own = broker.metadata.image.brokers.get(broker.config.node_id)
    is_registered = own is not None and own.incarnation_id == broker.metadata.incarnation_id
    return 2 if is_registered or broker.opening is not None else 1


class NodeFigures:
    """The figures of a node for one reader."""

    def __init__(self, broker: MeasuredNode, metrics: NodeMetrics) -> None:
        self._broker = broker
        self._metrics = metrics
        self._rates = Rates(metrics.env.now)
        self._idle = IdleShare(metrics.loop)

    async def look(self, dialect: Dialect) -> Figures:
        """Look up what takes time; the rest is found as the figures are taken. Dialects differ in `Kind.IDLE` alone."""
        broker, metrics = self._broker, self._metrics
        coordinators = broker.coordinators
        manager = broker.replica_manager
        space = await log_figures.spaces(metrics.env, broker.log_manager.log_dirs)
        if coordinators is None:
            return self._all(dialect, space, iter(()))
        held = await lag_figures.blocked_partitions(manager)
        await metrics.record_times.look_up(lag_figures.wanted(coordinators, manager, held))
        if metrics.leader_offsets is None:
            metrics.leader_offsets = LeaderOffsets(
                metrics.env, broker.pool_for("metrics"), broker.config.node_id, lambda: broker.metadata.image
            )
        await metrics.leader_offsets.look_up(lag_figures.led_elsewhere(coordinators, manager))
        ids = await lag_figures.transactional_ids(coordinators.transactions) if held else {}
        lags = lag_figures.figures(coordinators, manager, metrics.record_times, metrics.leader_offsets, held, ids)
        return self._all(dialect, space, lags)

    def _all(self, dialect: Dialect, space: Mapping[str, Space], lags: Figures) -> Figures:
        broker, metrics = self._broker, self._metrics
        manager, coordinators = broker.replica_manager, broker.coordinators
        share, rates = self._idle.take(), self._rates
        if broker.opening is not None:
            yield from _of_opening(broker.opening)
        yield from self._traffic()
        yield from partition_figures.figures(manager)
        dirs, care = broker.log_manager.log_dirs, broker.log_care
        yield from log_figures.figures(dirs, space, care.cleaner, care.scrubber, manager)
        yield from self._broker_figures()
        yield from self._requests()
        yield from self._connections()
        yield from cluster_figures.figures(broker.metadata, metrics, rates, share)
        if coordinators is not None:
            yield from group_figures.figures(coordinators, rates, metrics.env.now())
        yield from lags
        if broker.share_groups is not None:
            made = broker.share_groups.made
            yield from group_figures.share_figures(made, metrics.traffic, rates, metrics.env.now())
        yield from _of_process(broker.config.node_id, metrics.started_ms)
        yield f.PROCESSOR_IDLE, [((), share)]
        shown = metrics.loop.idle if dialect is Dialect.REPORTER else share
        yield f.HANDLER_IDLE, [((), shown)]
        if broker.config.is_broker:
            yield f.BROKER_HANDLER_IDLE, [((), shown)]
        if broker.config.is_controller:
            yield f.CONTROLLER_HANDLER_IDLE, [((), shown)]
        yield from summary(f.LOOP_TURN, {(): metrics.loop.turns}, {(): metrics.loop.count})
        yield from self._clients()
        yield from _of_tables(broker.table_states)

    def _traffic(self) -> Figures:
        traffic = self._metrics.traffic

        def counts(name: str) -> Iterator[exposition.Sample]:
            yield ("",), traffic.total(name)
            for topic, found in list(traffic.topics.items()):
                yield (topic,), getattr(found, name)

        for name in TopicTraffic.__slots__:
            yield f.TRAFFIC[name], counts(name)
        yield f.REPLICATION_BYTES_OUT, [((), traffic.replication_bytes_out)]
        yield f.REPLICATION_BYTES_IN, [((), traffic.replication_bytes_in)]
        yield f.REASSIGNMENT_BYTES_OUT, [((), traffic.reassignment_bytes_out)]
        yield f.REASSIGNMENT_BYTES_IN, [((), traffic.reassignment_bytes_in)]

    def _broker_figures(self) -> Figures:
        broker = self._broker
        isr, sessions = broker.replica_manager.isr, broker.services.fetch_sessions
        yield f.ISR_SHRINKS, [((), isr.shrinkages)]
        yield f.ISR_EXPANDS, [((), isr.expansions)]
        yield f.FAILED_ISR_UPDATES, [((), isr.refused)]
        yield f.FETCH_SESSIONS, [((), len(sessions))]
        yield f.FETCH_SESSION_EVICTIONS, [((), sessions.evictions)]
        yield from summary(f.FLUSH_TIME, {(): self._metrics.flushes})
        reads = self._metrics.env.disk_reads
        yield f.DISK_READS, [((), reads.count)]
        yield f.DISK_READ_BYTES, [((), reads.bytes)]
        if broker.config.is_broker:
            yield f.BROKER_STATE, [((), broker_state(broker))]

    def _requests(self) -> Figures:
        requests = self._metrics.requests
        counts = list(requests.counts())
        totals: Counter[tuple[str, ...]] = Counter()
        for name, _, count in counts:
            totals[name,] += count
        yield f.REQUEST_COUNT, [((name, str(version)), count) for name, version, count in counts]
        yield (
            f.ERRORS,
            [((API_KEYS[key].name, ErrorCode.of(code).name), count) for (key, code), count in requests.errors.items()],
        )
        for stage, family in f.STAGES.items():
            yield from summary(
                family, {(name,): getattr(times, stage) for name, times in requests.times.items()}, totals
            )
        sizes: dict[tuple[str, ...], Histogram] = {(name,): times.size for name, times in requests.times.items()}
        yield from summary(f.REQUEST_BYTES, sizes, totals, unit=1)

    def _connections(self) -> Figures:
        listeners = self._broker.listeners
        yield f.CONNECTIONS, [((server.name, "0"), server.connection_count) for server in listeners]
        yield f.CONNECTION_CREATIONS, [((server.name, "0"), server.admitted) for server in listeners]
        rate = self._rates.of
        yield (
            f.CONNECTION_CREATION_RATE,
            [((server.name, "0"), rate((server.name, "in"), server.admitted)) for server in listeners],
        )
        yield (
            f.CONNECTION_CLOSE_RATE,
            [
                ((server.name, "0"), rate((server.name, "out"), server.admitted - server.connection_count))
                for server in listeners
            ],
        )
        yield (
            f.CLIENTS,
            [((*client, server.name), count) for server in listeners for client, count in server.clients().items()],
        )

    def _clients(self) -> Figures:
        clients, telemetry = self._metrics.clients, self._broker.telemetry
        if telemetry is not None:
            yield client_families.INSTANCES, [((), telemetry.instances)]
        yield client_families.SHOWN_CLIENTS, [((), clients.clients)]
        yield client_families.SHOWN_SERIES, [((), len(clients))]
        yield client_families.DROPPED, [((), clients.dropped)]
