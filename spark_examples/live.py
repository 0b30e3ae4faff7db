"""Replay, Spark and the live table at once: what `demo` shows in its second part.

The same in three terminals, on a broker that runs already:

    python -m spark_examples.replay --speed 36000x
    python -m spark_examples.delays --follow --bootstrap 127.0.0.1:9092
    python -m spark_examples.watch
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbroker.testing.spark import using_spark
from spark_examples.delays import WindowDelay, create_result_topic, delay_writer, delays_of, read_delays
from spark_examples.flights import ORIGINS
from spark_examples.plots import saved_figure
from spark_examples.replay import Stopped, replay
from spark_examples.streams import Tally
from spark_examples.topics import create_topic
from spark_examples.watch import Board, watch

PATIENCE_SECONDS = 300.0
"""For how long results may stay away after the last flight until the demo gives up."""


@dataclass(frozen=True, slots=True)
class LiveResult:
    """The same result three times: by pandas, from the result topic, and from the live table. Times in seconds."""

    truth: list[WindowDelay]
    answer: list[WindowDelay]
    seen: list[WindowDelay]
    replayed: int
    updates: int
    dropped: int
    replay_seconds: float
    behind_seconds: float

    def differences(self) -> list[str]:
        """The differences from the source data, a readable line each."""
        found = []
        expected = sum(row.flights for row in self.truth)
        if self.replayed != expected:
            found.append(f"replayed: {self.replayed:,} instead of {expected:,}")
        for name, rows in (("result topic", self.answer), ("live table", self.seen)):
            if rows != self.truth:
                wrong = sorted({*rows} ^ {*self.truth}, key=str)
                found.append(f"{name}: {len(wrong):,} rows differ from pandas, the first of them {wrong[:1]}")
        return found


class _Replay(threading.Thread):
    """The replay beside the query; its outcome is `sent`, or `error`."""

    def __init__(self, bootstrap: str, topic: str, frame: Any, speed: float) -> None:
        super().__init__(name="replay", daemon=True)
        self._arguments = (bootstrap, topic, frame, speed)
        self.stop = threading.Event()
        self.sent = 0
        self.error: BaseException | None = None
        self.seconds = 0.0
        self.ended: float | None = None

    def run(self) -> None:
        bootstrap, topic, frame, speed = self._arguments
        started = time.monotonic()
        try:
            self.sent = replay(bootstrap, topic, frame, speed=speed, stop=self.stop)
        except Stopped:
            pass
        except BaseException as error:
            self.error = error
        self.ended = time.monotonic()
        self.seconds = self.ended - started


def run(bootstrap: str, work: Path, *, topic: str, frame: Any, speed: float, show: bool = False) -> LiveResult:
    """Creates `topic` and `topic`-delays, replays the flights into the first and follows the second to its end.

    `work` takes the checkpoint; `show` draws the table while it fills. Raises what the replay or the query failed with.
    """
    result_topic = f"{topic}-delays"
    create_topic(bootstrap, topic)
    create_result_topic(bootstrap, result_topic)
    board = Board()
    tally = Tally()
    with contextlib.ExitStack() as stack:
        spark = stack.enter_context(using_spark("kbroker demo"))
        query = (
            delay_writer(spark, bootstrap, topic, result_topic, checkpoint=work / "live-checkpoint")
            .trigger(processingTime="0 seconds")
            .start()
        )
        stack.callback(query.stop)
        flow = _Replay(bootstrap, topic, frame, speed)
        stack.callback(flow.join)
        stack.callback(flow.stop.set)
        flow.start()

        def complete(present: Board) -> bool:
            tally.read(query)
            failure = query.exception()
            if failure is not None:
                raise failure
            if flow.error is not None:
                raise flow.error
            late = flow.ended is not None and time.monotonic() - flow.ended > PATIENCE_SECONDS
            return flow.ended is not None and (present.flights >= len(frame) or late)

        watch(bootstrap, result_topic, board, until=complete, redraw=stack.enter_context(_drawing(show)))
        behind = time.monotonic() - (flow.ended or 0.0)
        query.processAllAvailable()  # what would come after the last expected row
        summary = tally.read(query)
    return LiveResult(
        truth=delays_of(frame),
        answer=read_delays(bootstrap, result_topic),
        seen=board.sorted_rows(),
        replayed=flow.sent,
        updates=board.updates,
        dropped=summary.dropped,
        replay_seconds=flow.seconds,
        behind_seconds=behind,
    )


@contextlib.contextmanager
def _drawing(show: bool) -> Iterator[Callable[[Board], None]]:
    if not show:
        yield lambda board: None
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stdout)
    with Live(console=console, auto_refresh=False) as drawn:
        yield lambda board: drawn.update(board.render(), refresh=True)
    if not console.is_terminal:  # there the table is written once, at the end, without a line end
        console.print()


def save_plot(result: LiveResult, path: Path) -> None:
    """Mean delay by window and airport: lines from the result topic, dots from pandas."""

    def points(rows: list[WindowDelay], origin: str) -> tuple[list[str], list[float]]:
        totals: dict[str, list[int]] = {}
        for row in rows:
            if row.origin == origin:
                total = totals.setdefault(row.window_start, [0, 0])
                total[0] += row.delay_minutes
                total[1] += row.departed
        kept = {start: minutes / departed for start, (minutes, departed) in totals.items() if departed}
        return [start[:10] for start in kept], list(kept.values())

    title = f"Departure delay of {result.replayed:,} flights, by day and airport, counted while they came"
    with saved_figure(path, title=title) as axes:
        for origin, colour in zip(ORIGINS, ("#08519c", "#e6550d", "#31a354"), strict=True):
            axes.plot(*points(result.answer, origin), color=colour, label=f"{origin}, result topic")
            axes.plot(*points(result.truth, origin), "o", markersize=3, color=colour)
        axes.set_ylabel("mean delay, minutes (dots: pandas)")
        axes.tick_params(axis="x", labelrotation=60, labelsize=7)
