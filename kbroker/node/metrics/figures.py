"""Figures: families with their samples, as each part of the page yields them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Final

from kbroker.metrics.dialect import Dialect, Kind
from kbroker.metrics.exposition import QUANTILES, Sample
from kbroker.metrics.family import Family, own
from kbroker.metrics.histogram import Histogram

Figures = Iterator[tuple[Family, Iterable[Sample]]]

PAUSE: Final[tuple[Family, Iterable[Sample]]] = (own("pause", Kind.GAUGE, ""), ())
"""No figure: whoever takes figures lets others have a turn."""
STRIDE: Final = 500
"""Partitions that are looked at before that."""

MILLISECOND = 1e6
"""Nanoseconds, as which durations are observed."""


def summary(
    family: Family,
    histograms: Mapping[tuple[str, ...], Histogram],
    counts: Mapping[tuple[str, ...], int] | None = None,
    unit: float = MILLISECOND,
    most: float = inf,
) -> Figures:
    """Quantiles, and the number of observations in a family of its own, as the JMX exporter has them.

    ``counts`` are the numbers to show, where only a sample is observed. ``unit`` is that of what is shown, in the unit
    of what is observed. Nothing is shown above ``most``, where the last class may end.
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


def count_family(family: Family) -> Family:
    """The family of the numbers of observations of a summary."""
    names = {dialect: f"{name}_count" for dialect, name in family.names.items()}
    return Family(names, Kind.COUNTER, f"Observations of {family.names[Dialect.STRIMZI]}.", family.labels)
