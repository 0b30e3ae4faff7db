"""A cluster that lives, and the console that shows it: three nodes, producers, groups, transactions, a Spark query.

    make console                             # or: python -m spark_examples.living
    python -m spark_examples.living --without-spark

Flights come as they left, an hour of 2013 in a second. One group keeps up with them, another is too slow; seats are
booked in transactions, some of which are aborted; Spark counts delays by minute into a topic of its own. Ctrl-C ends
everything, and nothing stays behind.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer

from kbroker.testing.spark import SetupError, java_home, using_spark
from spark_examples import flights
from spark_examples.command import bare_parser, readable_errors
from spark_examples.delays import create_result_topic, delay_writer
from spark_examples.processes import first_match, process
from spark_examples.replay import Stopped, replay
from spark_examples.topics import create_topic

FLIGHTS = "flights"
RESULTS = "flight-delays"
BOOKINGS = "bookings"
SEATS = "seats"

EVENT_SECONDS_A_SECOND = 3600.0
TRANSACTION_SECONDS = 4.0
SLOW_RECORDS_A_SECOND = 10

QUIET = {"log_level": 2}
"""Of a client whose brokers stop before it does: what it would tell of that is expected."""


class Flows:
    """Flows of records in the cluster, a thread each, until ``stop``. ``failure`` is the error of the first to fail."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.failure: BaseException | None = None

    def start(self, *flows: Callable[[], None]) -> None:
        """Begin with some of them."""
        for flow in flows:
            self._threads.append(threading.Thread(target=self._run, args=(flow,), daemon=True))
            self._threads[-1].start()

    def _run(self, flow: Callable[[], None]) -> None:
        try:
            flow()
        except Stopped:
            pass
        except BaseException as error:
            if not self._stop.is_set():
                self.failure = self.failure or error

    def stop(self) -> None:
        """End them all."""
        self._stop.set()
        for thread in self._threads:
            thread.join(10)

    def produce_flights(self) -> None:
        """The flights of the year at their pace, again and again."""
        frame = flights.load()
        while not self._stop.is_set():
            replay(self._bootstrap, FLIGHTS, frame, speed=EVENT_SECONDS_A_SECOND, stop=self._stop)

    def keep_up(self) -> None:
        """A member of a group that reads whatever comes."""
        self._consume("departures", "departures-board", [FLIGHTS], None)

    def read_slowly(self) -> None:
        """The one member of a group that is slower than the flights come."""
        self._consume("reports", "reports-nightly", [FLIGHTS, BOOKINGS], SLOW_RECORDS_A_SECOND)

    def _consume(self, group: str, client: str, topics: list[str], a_second: int | None) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "client.id": client,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 1000,
                **QUIET,
            }
        )
        try:
            consumer.subscribe(topics)
            while not self._stop.is_set():
                consumer.consume(a_second or 500, 0.5)
                if a_second is not None:
                    self._stop.wait(1)
        finally:
            consumer.close()

    def _persist(self, step: Callable[[float], None]) -> None:
        """Take a step of a transaction again while it may be: the machine is busy, or a node is gone."""
        while True:
            try:
                return step(10)
            except KafkaException as error:
                if self._stop.is_set() or not error.args[0].retriable():
                    raise

    def book(self) -> None:
        """Transactions over two topics, each open for a while; every fifth is aborted."""
        chance = random.Random(2013)
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "transactional.id": "booking", "client.id": "booking", **QUIET}
        )
        self._persist(producer.init_transactions)
        for number in itertools.count(1):
            producer.begin_transaction()
            for _ in range(3):
                seat = f"{chance.randint(1, 40)}{chance.choice('ABCDEF')}"
                booking = {"booking": number, "carrier": chance.choice(["UA", "B6", "EV", "DL"]), "seat": seat}
                producer.produce(BOOKINGS, json.dumps(booking), str(number))
                producer.produce(SEATS, json.dumps({"taken_by": number}), seat)
            producer.flush(10)
            if self._stop.wait(TRANSACTION_SECONDS):
                producer.abort_transaction(10)
                return
            try:
                self._persist(producer.commit_transaction if number % 5 else producer.abort_transaction)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                self._persist(producer.abort_transaction)
            if self._stop.wait(TRANSACTION_SECONDS / 2):
                return


@contextlib.contextmanager
def living_cluster(work: Path, *, console: str, port: int) -> Iterator[tuple[str, str, Flows]]:
    """The cluster with all that goes on in it but for Spark; yields brokers, the page's address, and the flows."""
    nodes_log, console_log = work / "nodes.log", work / "console.log"
    with contextlib.ExitStack() as stack:
        words = ["up", "--nodes", "3", "--port", str(port), "--data", str(work / "data"), "--explorer", "0"]
        nodes = stack.enter_context(process(*words, log=nodes_log))
        bootstrap = first_match(nodes, r"kbroker ready: (\S+)", nodes_log)
        explorers = re.search(r"kbroker watch -b (\S+)", nodes_log.read_text())
        assert explorers is not None, "kbroker up tells how its nodes are watched"
        words = ["console", "-b", bootstrap, "--listen", console, "--explorer", explorers[1], "--writes", "--until-eof"]
        page = stack.enter_context(process(*words, log=console_log))
        url = first_match(page, r"(http://\S+)", console_log)
        newest = {"retention.ms": "3600000", "message.timestamp.type": "LogAppendTime"}
        create_topic(bootstrap, FLIGHTS, config=newest)
        create_topic(bootstrap, BOOKINGS, 3)
        create_topic(bootstrap, SEATS, 3, {"cleanup.policy": "compact"})
        create_result_topic(bootstrap, RESULTS)
        flows = Flows(bootstrap)
        stack.callback(flows.stop)
        flows.start(flows.produce_flights, flows.keep_up, flows.keep_up, flows.read_slowly, flows.book)
        yield bootstrap, url, flows


@contextlib.contextmanager
def spark_counting(bootstrap: str, work: Path) -> Iterator[Callable[[], int]]:
    """Spark counts delays by minute of arrival, into a topic; yields what tells how many rows it has read."""
    with using_spark("kbroker living") as spark:
        checkpoint, minute = work / "checkpoint", "1 minute"
        writer = delay_writer(
            spark, bootstrap, FLIGHTS, RESULTS, checkpoint=checkpoint, window=minute, watermark=minute
        )
        query = writer.trigger(processingTime="2 seconds").start()

        def rows() -> int:
            failure = query.exception()
            if failure is not None:
                raise failure
            return sum(report["numInputRows"] for report in query.recentProgress)

        try:
            yield rows
        finally:
            query.stop()


def watch_over(flows: Flows, rows: Callable[[], int] | None, until: float) -> None:
    """Wait, and say once that Spark reads. Raises what has failed."""
    told = rows is None
    while time.monotonic() < until:
        time.sleep(0.5)
        if flows.failure is not None:
            raise flows.failure
        if rows is not None and rows() and not told:
            told = True
            print(f"Spark reads {FLIGHTS} and writes {RESULTS}", flush=True)


@readable_errors
def main(argv: list[str] | None = None) -> None:
    arguments_of = bare_parser("A cluster that lives, and the console that shows it; until Ctrl-C.")
    arguments_of.add_argument("--console", default="127.0.0.1:8080", metavar="HOST:PORT", help="address of the page")
    arguments_of.add_argument("--port", type=int, default=0, help="of the first node; 0 takes free ports")
    arguments_of.add_argument("--seconds", type=float, default=float("inf"), help="end after so long (never)")
    arguments_of.add_argument("--without-spark", action="store_true", help="without the streaming query")
    arguments = arguments_of.parse_args(argv)
    until = time.monotonic() + arguments.seconds
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends everything, too
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kbroker-living-")))
        bootstrap, url, flows = stack.enter_context(
            living_cluster(work, console=arguments.console, port=arguments.port)
        )
        print(f"the console is on {url}\nthe cluster is at {bootstrap}; Ctrl-C ends everything", flush=True)
        rows = None
        if not arguments.without_spark:
            try:
                java_home()
                rows = stack.enter_context(spark_counting(bootstrap, work))
            except SetupError as error:
                print(f"without Spark: {error}", file=sys.stderr, flush=True)
        watch_over(flows, rows, until)


if __name__ == "__main__":
    main()
