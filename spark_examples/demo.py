"""The whole pipeline on real data: broker, producer, Spark batch, Spark stream, compared with pandas.

    make demo                                             # starts kbroker
    python -m spark_examples.demo --bootstrap HOST:PORT   # another broker, Apache Kafka included

Ends with exit code 1 if any count or mean differs from the source data by the last bit.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from spark_examples import flights
from spark_examples.batch_report import carrier_delays, parsed, read_batch
from spark_examples.connector import ROOT, SetupError, spark_session
from spark_examples.console import table
from spark_examples.flights import CarrierDelay
from spark_examples.stream_available_now import load_new

START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What each stage saw; the demo holds when `differences()` is empty. Times in seconds."""

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
        """One readable line for each thing that is not as in the source data."""
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


@contextlib.contextmanager
def kbroker_process() -> Iterator[str]:
    """A kbroker in a process of its own, on a free port, with data in a temporary folder; yields its address."""
    with tempfile.TemporaryDirectory(prefix="kbroker-demo-") as data:
        command = [sys.executable, "-m", "kbroker", "start", "--port", "0", "--data-dir", f"{data}/data"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        log = Path(data) / "broker.log"
        with log.open("wb") as errors:
            broker = subprocess.Popen(command, cwd=data, stdout=subprocess.PIPE, stderr=errors, env=environment)
        try:
            yield _await_ready(broker, log)
        finally:
            broker.send_signal(signal.SIGTERM)
            try:
                broker.wait(10)
            except subprocess.TimeoutExpired:
                broker.kill()
                broker.wait()
            assert broker.stdout is not None
            broker.stdout.close()


def _await_ready(broker: subprocess.Popen[bytes], log: Path) -> str:
    assert broker.stdout is not None
    deadline = time.monotonic() + START_SECONDS
    seen = b""
    while time.monotonic() < deadline:
        if select.select([broker.stdout], [], [], 0.2)[0]:
            chunk = os.read(broker.stdout.fileno(), 4096)
            seen += chunk
            ready = re.search(rb"kbroker ready: (?:\w+://)?([^\s,]+:\d+)", seen)
            if ready:
                return ready.group(1).decode()
            if not chunk:
                break
    raise SetupError(f"kbroker did not start:\n{log.read_text(errors='replace')[-2000:]}")


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
    flights.create_topic(bootstrap, topic)
    with timed("produce"):
        produced, _ = flights.produce(bootstrap, topic, frame)
    print("starting Spark ...", file=sys.stderr)
    with timed("start Spark"):
        spark = spark_session("kbroker demo")
    try:
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
    finally:
        spark.stop()
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
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    def points(delays: list[CarrierDelay]) -> tuple[list[str], list[float]]:
        ordered = sorted(delays, key=lambda delay: delay.mean_delay_minutes)
        return [delay.carrier for delay in ordered], [delay.mean_delay_minutes for delay in ordered]

    figure, axes = pyplot.subplots(figsize=(9, 4.5))
    axes.bar(*points(result.batch), color="#9ecae1", label="Spark batch")
    axes.plot(*points(result.stream), "o", color="#08519c", label="Spark stream (availableNow)")
    axes.plot(*points(result.truth), "x", color="black", label="pandas")
    axes.set_title(f"Departure delay of {result.produced:,} flights from New York in 2013, read from a topic")
    axes.set_ylabel("mean delay, minutes")
    axes.set_xlabel("carrier")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="Flights through a broker and Spark, compared with pandas.")
    parser.add_argument("--bootstrap", help="a running broker; without it a kbroker is started")
    parser.add_argument("--topic", default=f"flights-{os.getpid()}", help="is created, so it must not exist")
    parser.add_argument("--limit", type=int, help="only the first so many flights")
    parser.add_argument("--out", type=Path, default=ROOT / "out", help="folder for the plot")
    arguments = parser.parse_args()
    try:
        with contextlib.ExitStack() as stack:
            started = time.monotonic()
            bootstrap = arguments.bootstrap or stack.enter_context(kbroker_process())
            if not arguments.bootstrap:
                print(f"kbroker ready on {bootstrap} after {time.monotonic() - started:.2f} s", file=sys.stderr)
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kbroker-spark-")))
            result = run(bootstrap, work, topic=arguments.topic, limit=arguments.limit)
    except SetupError as error:
        sys.exit(f"error: {error}")
    except KafkaException as error:
        sys.exit(f"error: {error.args[0].str()}")
    plot = arguments.out / "mean_delay_by_carrier.png"
    save_plot(result, plot)
    print(comparison_table(result))
    print()
    spread = ", ".join(f"{partition}: {count:,}" for partition, count in sorted(result.per_partition.items()))
    print(f"rows by partition       {spread}")
    print(f"stream                  {result.stream_rows:,} rows in {result.stream_batches} micro-batches, then 0 new")
    print("seconds                 " + ", ".join(f"{stage} {spent:.1f}" for stage, spent in result.seconds.items()))
    print(f"plot                    {os.path.relpath(plot)}")
    differences = result.differences()
    if differences:
        sys.exit("NOT as in the source data:\n  " + "\n  ".join(differences))
    print("every count and mean is equal to the source data's")


if __name__ == "__main__":
    main()
