"""Figures: families with their samples, as each part of the page yields them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kbroker.metrics.exposition import Sample
from kbroker.metrics.families import Family

Figures = Iterator[tuple[Family, Iterable[Sample]]]
