"""A live table of what `delays` writes, read with a stock consumer.

    python -m spark_examples.watch --topic flight-delays

The table keeps the last value of each key, whatever order and however often they come: Spark's sink writes at least
once, and a row again whenever it changes. It ends with Ctrl-C, or after `--seconds`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from spark_examples.command import parser, readable_errors
from spark_examples.delays import RESULT_TOPIC, WindowDelay, sorted_delays
from spark_examples.flights import ORIGINS, airline_names
from spark_examples.topics import reader, topic_exists

if TYPE_CHECKING:
    from rich.table import Table

TREND_WINDOWS = 26
BARS = "▁▂▃▄▅▆▇█"
FULL_BAR_MINUTES = 60.0


class Board:
    """The present state of the result: every row by its key, and what a person wants to see of them."""

    def __init__(self) -> None:
        self.rows: dict[bytes, WindowDelay] = {}
        self.updates = 0

    def apply(self, key: bytes, value: bytes | None) -> None:
        """A record of the result topic; a tombstone takes the row out."""
        self.updates += 1
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = WindowDelay.of(value)

    @property
    def flights(self) -> int:
        return sum(row.flights for row in self.rows.values())

    @property
    def newest_window(self) -> str:
        return max((row.window_start for row in self.rows.values()), default="")

    def sorted_rows(self) -> list[WindowDelay]:
        """All rows, by window, carrier and origin."""
        return sorted_delays(self.rows.values())

    def means(self) -> dict[tuple[str, str], float]:
        """(carrier, origin) to the mean delay over all windows, minutes."""
        return _means(((row.carrier, row.origin), row) for row in self.rows.values())

    def trends(self) -> dict[str, list[float]]:
        """Carrier to its mean delays in the last windows, oldest first; 0 where it did not fly."""
        means = _means(((row.carrier, row.window_start), row) for row in self.rows.values())
        windows = sorted({row.window_start for row in self.rows.values()})[-TREND_WINDOWS:]
        carriers = {carrier for carrier, _ in means}
        return {carrier: [means.get((carrier, window), 0.0) for window in windows] for carrier in carriers}

    def render(self) -> Table:
        """The board as a table of rich."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        until = self.newest_window[:10] or "..."
        shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=f"Departure delay, minutes, up to {until}")
        shown.caption = f"{self.flights:,} flights, {len(self.rows):,} rows, {self.updates:,} updates"
        shown.add_column("carrier", no_wrap=True)
        shown.add_column("flights", justify="right", no_wrap=True)
        for origin in ORIGINS:
            shown.add_column(origin, justify="right", no_wrap=True)
        shown.add_column("mean delay by window", no_wrap=True)
        means, trends, names = self.means(), self.trends(), airline_names()
        counts: dict[str, int] = defaultdict(int)
        for row in self.rows.values():
            counts[row.carrier] += row.flights
        for carrier in sorted(counts):
            cells = []
            for origin in ORIGINS:
                mean = means.get((carrier, origin))
                cells.append(Text("") if mean is None else Text(f"{mean:.1f}", style=_colour(mean)))
            bars = Text("".join(_bar(mean) for mean in trends.get(carrier, [])), style="cyan")
            shown.add_row(f"{carrier} {names.get(carrier, '')[:13]}", f"{counts[carrier]:,}", *cells, bars)
        return shown


def _means(rows: Iterable[tuple[tuple[str, str], WindowDelay]]) -> dict[tuple[str, str], float]:
    totals: dict[tuple[str, str], list[int]] = {}
    for key, row in rows:
        total = totals.setdefault(key, [0, 0])
        total[0] += row.delay_minutes
        total[1] += row.departed
    return {key: minutes / departed for key, (minutes, departed) in totals.items() if departed}


def _bar(minutes: float) -> str:
    return BARS[round(min(max(minutes / FULL_BAR_MINUTES, 0.0), 1.0) * (len(BARS) - 1))]


def _colour(minutes: float) -> str:
    return "green" if minutes < 8 else "yellow" if minutes < 16 else "red"


def watch(
    bootstrap: str, topic: str, board: Board, *, until: Callable[[Board], bool], redraw: Callable[[Board], None]
) -> None:
    """Follows the topic from its beginning, all partitions, without a group, until `until` says so.

    Waits for a topic that is not there yet. `until` and `redraw` are called about five times a second. Raises
    KafkaException.
    """
    while not topic_exists(bootstrap, topic):
        if until(board):
            return
        redraw(board)
        time.sleep(0.2)
    with reader(bootstrap, topic) as (consumer, _):
        drawn = 0.0
        while not until(board):
            for message in consumer.consume(5_000, 0.2):
                error = message.error()
                if error is not None:
                    raise KafkaException(error)
                board.apply(message.key() or b"", message.value())
            if time.monotonic() - drawn >= 0.2:
                drawn = time.monotonic()
                redraw(board)
        redraw(board)


@readable_errors
def main(argv: list[str] | None = None) -> None:
    arguments_of = parser("A live table of delays.", own_broker=None)
    arguments_of.add_argument("--topic", default=RESULT_TOPIC, help="what delays writes")
    arguments_of.add_argument("--seconds", type=float, help="end after so many seconds")
    arguments = arguments_of.parse_args(argv)
    from rich.live import Live

    board = Board()
    ends = None if arguments.seconds is None else time.monotonic() + arguments.seconds

    with Live(board.render(), auto_refresh=False) as live:
        watch(
            arguments.bootstrap,
            arguments.topic,
            board,
            until=lambda _: ends is not None and time.monotonic() >= ends,
            redraw=lambda present: live.update(present.render(), refresh=True),
        )


if __name__ == "__main__":
    main()
