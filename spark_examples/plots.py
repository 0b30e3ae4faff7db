"""Plots into files, without a display."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def saved_figure(path: Path, *, title: str, width: float = 9, height: float = 4.5) -> Iterator[Any]:
    """Matplotlib axes to draw on; what was drawn is saved, with a legend where something has a label. Inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(title)
    yield axes
    if axes.get_legend_handles_labels()[0]:
        axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
