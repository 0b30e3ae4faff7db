"""The whole pipeline on real data: broker, producer, Spark as a batch and as streams, compared with pandas.

    make demo                                             # starts kbroker
    python -m spark_examples.demo --bootstrap HOST:PORT   # another broker, Apache Kafka included

First all flights of a year at once, read as a batch and as a stream. Then a month of them in event time, faster:
counted in windows by Spark while they come, written into a second topic, and watched live from there. At last two
months as a table: a report over it and its topic together, and the table before a correction. Ends with exit code 1 if
any count or mean differs from the source data by the last bit.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kbroker.testing.spark import delta_session, using_spark
from spark_examples import flights, live, table_report
from spark_examples.batch_report import carrier_delays, parsed
from spark_examples.command import OUT, kbroker_process, moment_ms, parser, readable_errors
from spark_examples.console import table
from spark_examples.flights import CarrierDelay
from spark_examples.plots import saved_figure
from spark_examples.replay import speed
from spark_examples.stream_available_now import load_new
from spark_examples.streams import read_batch
from spark_examples.topics import create_topic


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The counts of each stage; the demo holds when `differences()` is empty. Times in seconds."""

    truth: list[CarrierDelay]
    batch: list[CarrierDelay]
    stream: list[CarrierDelay]
    produced: int
    per_partition: dict[int, int]
    stream_rows: int
    stream_batches: int
    second_run_rows: int
    seconds: dict[str, float]

    def differences(self) -> list[str]:
        """The differences from the source data, a readable line each."""
        expected = sum(delay.flights for delay in self.truth)
        counts = {
            "acknowledged to the producer": (self.produced, expected),
            "rows of the batch": (sum(self.per_partition.values()), expected),
            "rows of the stream": (self.stream_rows, expected),
            "rows of the stream's second run": (self.second_run_rows, 0),
        }
        found = [f"{what}: {got:,} instead of {want:,}" for what, (got, want) in counts.items() if got != want]
        for name, answer in (("batch", self.batch), ("stream", self.stream)):
            if answer != self.truth:
                wrong = {d.carrier for d in {*answer} ^ {*self.truth}}
                found.append(f"{name}: differs from pandas for carriers {', '.join(sorted(wrong))}")
        return found


def run(bootstrap: str, work: Path, *, topic: str, limit: int | None = None) -> DemoResult:
    """Produces the flights into a new topic and reads them back both ways. `work` takes the stream's files."""
    seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def timed(stage: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        seconds[stage] = time.monotonic() - started

    frame = flights.load(limit)
    truth = flights.mean_delay_by_carrier(frame)
    create_topic(bootstrap, topic)
    with timed("produce"):
        produced, _ = flights.produce(bootstrap, topic, frame)
    with using_spark("kbroker demo") as spark:
        print("batch ...", file=sys.stderr)
        with timed("batch"):
            rows = read_batch(spark, bootstrap, topic)
            batch = carrier_delays(parsed(rows))
        per_partition = {row["partition"]: row["count"] for row in rows.groupBy("partition").count().collect()}
        into, checkpoint = work / "table", work / "checkpoint"
        with timed("stream"):
            stream_rows, batches = load_new(
                spark, bootstrap, topic, into=into, checkpoint=checkpoint, expected=len(frame)
            )
        again, _ = load_new(spark, bootstrap, topic, into=into, checkpoint=checkpoint, what="stream, again")
        stream = carrier_delays(spark.read.parquet(str(into)))
    return DemoResult(truth, batch, stream, produced, per_partition, stream_rows, batches, again, seconds)


def comparison_table(result: DemoResult) -> str:
    """Carrier by carrier: pandas beside both answers of Spark."""
    batch = {delay.carrier: delay for delay in result.batch}
    stream = {delay.carrier: delay for delay in result.stream}

    def shown(delay: CarrierDelay | None) -> str:
        return f"{delay.mean_delay_minutes:.4f}" if delay else "missing"

    rows = []
    for truth in result.truth:
        answers = (batch.get(truth.carrier), stream.get(truth.carrier))
        verdict = "equal" if all(answer == truth for answer in answers) else "DIFFERENT"
        rows.append((truth.carrier, truth.flights, shown(truth), *map(shown, answers), verdict))
    return table(["carrier", "flights", "pandas", "Spark batch", "Spark stream", ""], rows)


def save_plot(result: DemoResult, path: Path) -> None:
    """Mean delay by carrier: bars from the batch, dots from the stream, crosses from pandas."""

    def points(delays: list[CarrierDelay]) -> tuple[list[str], list[float]]:
        ordered = sorted(delays, key=lambda delay: delay.mean_delay_minutes)
        return [delay.carrier for delay in ordered], [delay.mean_delay_minutes for delay in ordered]

    title = f"Departure delay of {result.produced:,} flights from New York in 2013, read from a topic"
    with saved_figure(path, title=title) as axes:
        axes.bar(*points(result.batch), color="#9ecae1", label="Spark batch")
        axes.plot(*points(result.stream), "o", color="#08519c", label="Spark stream (availableNow)")
        axes.plot(*points(result.truth), "x", color="black", label="pandas")
        axes.set_ylabel("mean delay, minutes")
        axes.set_xlabel("carrier")


def report(result: DemoResult, plot: Path) -> None:
    """Prints and draws the first part."""
    save_plot(result, plot)
    print(comparison_table(result))
    print()
    spread = ", ".join(f"{partition}: {count:,}" for partition, count in sorted(result.per_partition.items()))
    print(f"rows by partition       {spread}")
    print(f"stream                  {result.stream_rows:,} rows in {result.stream_batches} micro-batches, then 0 new")
    print("seconds                 " + ", ".join(f"{stage} {spent:.1f}" for stage, spent in result.seconds.items()))
    print(f"plot                    {os.path.relpath(plot)}")


def report_live(result: live.LiveResult, plot: Path) -> None:
    """Prints and draws the second part."""
    live.save_plot(result, plot)
    print(
        f"replayed                {result.replayed:,} flights in {result.replay_seconds:.1f} s; "
        f"the last result {result.behind_seconds:.1f} s later"
    )
    print(
        f"live results            {len(result.answer):,} rows (window, carrier, origin) in {result.updates:,} updates, "
        f"{result.dropped:,} flights dropped as too late"
    )
    print(f"plot                    {os.path.relpath(plot)}")


@readable_errors
def main(argv: list[str] | None = None) -> None:
    arguments_of = parser("Flights through a broker and Spark, compared with pandas.", own_broker="for the demo alone")
    arguments_of.add_argument(
        "--topic", default=f"flights-{os.getpid()}", help="is created, so it must not exist (a new name)"
    )
    arguments_of.add_argument("--limit", type=int, help="only the first so many flights in the first part")
    arguments_of.add_argument("--no-live", action="store_true", help="without the second part")
    arguments_of.add_argument("--no-table", action="store_true", help="without the third part")
    arguments_of.add_argument(
        "--from", dest="start", type=moment_ms, default=moment_ms("2013-02-01"), help="of the replay (2013-02-01)"
    )
    arguments_of.add_argument(
        "--to", dest="end", type=moment_ms, default=moment_ms("2013-03-01"), help="its end (2013-03-01)"
    )
    arguments_of.add_argument(
        "--speed", type=speed, default=72_000.0, help="its speed (72000x: twenty hours in a second)"
    )
    arguments_of.add_argument("--out", type=Path, default=OUT, help="folder for the plots")
    arguments = arguments_of.parse_args(argv)
    with contextlib.ExitStack() as stack:
        started = time.monotonic()
        bootstrap = arguments.bootstrap or stack.enter_context(kbroker_process())
        if not arguments.bootstrap:
            print(f"kbroker ready on {bootstrap} after {time.monotonic() - started:.2f} s", file=sys.stderr)
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kbroker-spark-")))
        spark = stack.enter_context(using_spark("kbroker demo", delta_session))
        result = run(bootstrap, work, topic=arguments.topic, limit=arguments.limit)
        report(result, arguments.out / "mean_delay_by_carrier.png")
        differences = result.differences()
        if not arguments.no_live:
            print()
            frame = flights.load(start_ms=arguments.start, end_ms=arguments.end)
            followed = live.run(
                bootstrap, work, topic=f"{arguments.topic}-live", frame=frame, speed=arguments.speed, show=True
            )
            report_live(followed, arguments.out / "delay_by_day_and_origin.png")
            differences += followed.differences()
        if not arguments.no_table:
            print()
            frame = flights.load(end_ms=moment_ms("2013-03-01"))
            topic, live_from_ms = f"{arguments.topic}-table", moment_ms("2013-02-01")
            reports = table_report.run(spark, bootstrap, work, topic=topic, frame=frame, live_from_ms=live_from_ms)
            print(table_report.report_table(reports))
            differences += table_report.differences(reports)
    if differences:
        sys.exit("NOT as in the source data:\n  " + "\n  ".join(differences))
    print("every count and mean is equal to the source data's")


if __name__ == "__main__":
    main()
