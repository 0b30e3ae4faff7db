"""Lines of figures for the process that exports them, in pieces between which others have a turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, TypeVar

from kbroker.node.metrics.figures import MILLISECOND, PAUSE, Figures, Lately, Observed, Values
from kbroker.observe.metrics.clients import HELP, ClientSeries
from kbroker.observe.metrics.dialect import Dialect, Kind
from kbroker.observe.metrics.exposition import NOTHING
from kbroker.observe.metrics.family import Family
from kbroker.observe.metrics.histogram import Histogram, bound
from kbroker.observe.metrics.otlp import MEASURED, PERCENTILES, Line, Shape

if TYPE_CHECKING:
    from kbroker.observe.metrics.exposition import Sample

T = TypeVar("T")

SAMPLES: Final = 256
"""Values of a line."""
HISTOGRAMS: Final = 8
"""Histograms of a line."""

_DURATIONS: Final = (11, 32)
"""Buckets of nanoseconds: of 16 µs and less, then to twice as much each, the last but one ends at 34 s."""
_SIZES: Final = (0, 27)
"""Buckets of bytes and other numbers: of 7 and less, then to twice as much each, the last but one ends at 1 GiB."""

_SHAPES: Final = {"counter": Shape.COUNTER, "gauge": Shape.GAUGE}


def lines(figures: Figures, clients: ClientSeries, now: float, clock_ns: Callable[[], int]) -> Iterator[bytes]:
    """The lines of all figures and of clients' metrics; an empty one where others are to have a turn.

    ``now`` is the node's clock, ``clock_ns`` that of the wall.
    """
    for figure in figures:
        if figure is PAUSE:
            yield b""
        else:
            for line in _lines(*figure, clock_ns):
                yield b"" if line is None else line.encode()
    for _, dotted, kind, samples in clients.series(now):
        shape = _SHAPES.get(kind, Shape.UP_DOWN)
        for some in _batches(samples, SAMPLES):
            own = [(tuple(chain.from_iterable(labels)), value) for labels, value in some]
            yield Line(dotted, shape, HELP, None, clock_ns(), own).encode()


def _lines(family: Family, values: Values, clock_ns: Callable[[], int]) -> Iterator[Line | None]:
    """The lines of a family; None where others are to have a turn."""
    name, labels = family.names[Dialect.STRIMZI], list(family.labels)
    if isinstance(values, Observed):
        for line in _histograms(name, family, values):
            yield line._replace(time_ns=clock_ns())
        if name in PERCENTILES:
            line = Line(name, Shape.GAUGE, family.help, [*labels, "quantile"], clock_ns(), list(_quantiles(values)))
            if line.samples:
                yield line
    elif isinstance(values, Lately):
        observed = Observed({(): values.histogram})
        for line in _histograms(name.removesuffix("_avg"), family, observed):
            yield line._replace(time_ns=clock_ns())
    else:
        shape = Shape.COUNTER if family.kind is Kind.COUNTER else Shape.GAUGE
        for some in _pieces(values, SAMPLES):
            yield Line(name, shape, family.help, labels, clock_ns(), some) if some else None


def _pieces(samples: Iterable[Sample], most: int) -> Iterator[list[Sample]]:
    """Samples in pieces of up to ``most``, and an empty one for each that is ``NOTHING``."""
    piece: list[Sample] = []
    for sample in samples:
        if sample is NOTHING:
            yield []
            continue
        piece.append(sample)
        if len(piece) == most:
            yield piece
            piece = []
    if piece:
        yield piece


def _batches(samples: Iterable[T], most: int) -> Iterator[list[T]]:
    left = iter(samples)
    while some := list(islice(left, most)):
        yield some


def _histograms(name: str, family: Family, observed: Observed) -> Iterator[Line]:
    """The buckets of what has been observed; what has not is left out."""
    is_time = observed.unit == MILLISECOND
    lowest, highest = _DURATIONS if is_time else _SIZES
    bounds = [bound(power) / observed.unit for power in range(lowest, highest + 1)]
    seen = [(labels, histogram) for labels, histogram in observed.histograms.items() if histogram.count]
    for some in _batches(seen, HISTOGRAMS):
        histograms = [
            (labels, histogram.total / observed.unit, histogram.buckets(lowest, highest)) for labels, histogram in some
        ]
        yield Line(name, Shape.HISTOGRAM, family.help, list(family.labels), 0, (), histograms, bounds)


def _quantiles(observed: Observed) -> Iterator[Sample]:
    """The two quantiles that have names of their own, of recent times. They are asked of few histograms."""
    for labels, histogram in observed.histograms.items():
        if histogram.count and (not labels or labels[0] in MEASURED):
            median, slow = histogram.quantiles((0.5, 0.99))
            if slow:  # otherwise nothing was observed lately
                yield (*labels, "0.50"), median / observed.unit
                yield (*labels, "0.99"), slow / observed.unit


def keep_observations() -> None:
    """Have histograms keep what the quantiles of pages forget. It is to be called before the first is made."""
    Histogram.keeps = True
