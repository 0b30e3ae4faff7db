"""The page of a scrape: asks each part of the node for its figures, and writes them family by family.

A node may have 100,000 partitions: the page is written in pieces, as fast as its reader takes it, and everybody else
has a turn between two of them. Figures of one page may therefore be some moments apart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from kbroker.metrics import exposition
from kbroker.metrics import families as f
from kbroker.metrics.dialect import Dialect, Kind
from kbroker.metrics.histogram import Histogram
from kbroker.metrics.traffic import TopicTraffic
from kbroker.node.metrics import cluster_figures, group_figures, partition_figures, process_figures
from kbroker.node.metrics.figures import Figures

if TYPE_CHECKING:
    from kbroker.node.metrics.measured_node import MeasuredNode
    from kbroker.node.metrics.node_metrics import NodeMetrics

LINES = 256
"""Lines of a piece."""

Send = Callable[[str], Awaitable[None]]


class MetricsPage:
    """Writes the metrics of a node in a dialect."""

    def __init__(self, broker: MeasuredNode, metrics: NodeMetrics) -> None:
        self._broker = broker
        self._metrics = metrics

    async def write(self, dialect: Dialect, send: Send) -> None:
        """Hand the page's text to ``send``, piece by piece."""
        piece: list[str] = []
        for family, samples in self._all(dialect):
            begun = False
            for text in exposition.lines(family, dialect, samples):
                if not begun:
                    piece.append(exposition.head(family, dialect))
                    begun = True
                piece.append(text)
                if len(piece) >= LINES:
                    await send("".join(piece))
                    piece.clear()
        if piece:
            await send("".join(piece))

    def _all(self, dialect: Dialect) -> Iterator[tuple[f.Family, Iterable[exposition.Sample]]]:
        broker = self._broker
        yield from self._traffic()
        yield from partition_figures.figures(broker.replica_manager)
        yield from self._broker_figures()
        yield from self._requests()
        yield from cluster_figures.figures(broker.metadata, self._metrics)
        coordinators = broker.coordinators
        if coordinators is not None:
            yield from group_figures.figures(coordinators.groups, coordinators.transactions, broker.replica_manager)
        yield from process_figures.figures(self._metrics.started_ms)
        yield from self._event_loop(dialect)

    def _traffic(self) -> Figures:
        traffic = self._metrics.traffic

        def counts(name: str) -> Iterator[exposition.Sample]:
            yield ("",), traffic.total(name)
            for topic, found in list(traffic.topics.items()):
                yield (topic,), getattr(found, name)

        for name in TopicTraffic.__slots__:
            yield f.TRAFFIC[name], counts(name)
        yield f.REPLICATION_BYTES_OUT, [((), traffic.replication_bytes_out)]

    def _broker_figures(self) -> Figures:
        broker = self._broker
        isr, sessions = broker.replica_manager.isr, broker.services.fetch_sessions
        offline = sum(log_dir.offline is not None for log_dir in broker.log_manager.log_dirs)
        yield f.ISR_SHRINKS, [((), isr.shrinkages)]
        yield f.ISR_EXPANDS, [((), isr.expansions)]
        yield f.OFFLINE_LOG_DIRS, [((), offline)]
        yield f.FETCH_SESSIONS, [((), len(sessions))]
        yield f.FETCH_SESSION_EVICTIONS, [((), sessions.evictions)]
        if broker.config.is_broker:
            own = broker.metadata.image.brokers.get(broker.config.node_id)
            yield f.BROKER_STATE, [((), 1 if own is None or own.fenced else 3)]

    def _requests(self) -> Figures:
        requests = self._metrics.requests
        yield (
            f.REQUEST_COUNT,
            [
                ((name, str(version)), count)
                for name, times in requests.items()
                for version, count in times.by_version.items()
            ],
        )
        for family, stage in ((f.TOTAL_TIME, "total"), (f.LOCAL_TIME, "local"), (f.REMOTE_TIME, "remote")):
            yield from _summary(family, {(name,): getattr(times, stage) for name, times in requests.items()})
        listeners = self._broker.listeners
        yield f.CONNECTIONS, [((server.name, "0"), server.connection_count) for server in listeners]
        yield f.CONNECTION_CREATIONS, [((server.name, "0"), server.admitted) for server in listeners]
        rate = self._metrics.rates.of
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

    def _event_loop(self, dialect: Dialect) -> Figures:
        loop = self._metrics.loop
        share = loop.idle_share()
        yield f.PROCESSOR_IDLE, [((), share)]
        yield f.HANDLER_IDLE, [((), loop.idle if dialect is Dialect.REPORTER else share)]
        yield from _summary(f.LOOP_TURN, {(): loop.turns})


def _summary(family: f.Family, histograms: dict[tuple[str, ...], Histogram]) -> Figures:
    """Quantiles, and the number of observations in a family of its own, as the JMX exporter has them."""
    shares = [float(quantile) for quantile in exposition.QUANTILES]
    names = {dialect: f"{name}_count" for dialect, name in family.names.items()}
    counts = f.Family(names, Kind.COUNTER, f"Observations of {family.names[Dialect.STRIMZI]}.", family.labels)
    quantiles = family._replace(kind=Kind.GAUGE, labels=(*family.labels, "quantile"))
    yield counts, [(labels, histogram.count) for labels, histogram in histograms.items()]
    yield (
        quantiles,
        [
            ((*labels, quantile), value)
            for labels, histogram in histograms.items()
            for quantile, value in zip(exposition.QUANTILES, histogram.quantiles(shares), strict=True)
        ],
    )
