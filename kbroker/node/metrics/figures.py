"""Figures: families with their samples, as each part of the page yields them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Final, TypeAlias

from kbroker.observe.metrics.dialect import Dialect, Kind
from kbroker.observe.metrics.exposition import QUANTILES, Sample
from kbroker.observe.metrics.family import OWN, Family
from kbroker.observe.metrics.histogram import Histogram

Values: TypeAlias = Iterable[Sample]
Figures = Iterator[tuple[Family, Values]]

PAUSE: Final[tuple[Family, Values]] = (OWN.gauge("pause", ""), ())
"""No figure: whoever takes figures lets others have a turn."""
STRIDE: Final = 500
"""Partitions, groups or offsets that are looked at before that, or before a sample is `exposition.NOTHING`."""

MILLISECOND: Final = 1e6
"""Nanoseconds, as which durations are observed."""


def summary(
    family: Family,
    histograms: Mapping[tuple[str, ...], Histogram],
    counts: Mapping[tuple[str, ...], int] | None = None,
    unit: float = MILLISECOND,
    most: float = inf,
) -> Figures:
    """The number of observations in a family of its own, and quantiles, as the JMX exporter has them.

    Histograms are by the values of labels. ``counts`` are shown where only a sample is observed. ``unit`` is that of
    what is shown, in the unit of what is observed. Nothing is shown above ``most``, where the last class may end.
    """
    shares = [float(quantile) for quantile in QUANTILES]
    yield (
        count_family(family),
        [
            (labels, histogram.count if counts is None else counts.get(labels, 0))
            for labels, histogram in histograms.items()
        ],
    )
    yield (
        family._replace(kind=Kind.GAUGE, labels=(*family.labels, "quantile")),
        (  # each when its line is written, as there may be thousands
            ((*labels, quantile), min(value / unit, most))
            for labels, histogram in histograms.items()
            for quantile, value in zip(QUANTILES, histogram.quantiles(shares), strict=True)
        ),
    )


def lately(mean: Family, maximum: Family, histogram: Histogram) -> Figures:
    """The mean of what was observed since the last scrape, and the maximum; milliseconds."""
    of_mean, most = histogram.take()
    yield mean, [((), of_mean / MILLISECOND)]
    yield maximum, [((), most / MILLISECOND)]


def count_family(family: Family) -> Family:
    """The family of the numbers of observations of a summary."""
    names = {dialect: f"{name}_count" for dialect, name in family.names.items()}
    return Family(names, Kind.COUNTER, f"Observations of {family.names[Dialect.STRIMZI]}.", family.labels)
