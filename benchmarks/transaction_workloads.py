"""Workloads of transactions: commits a second, the price for readers, and the cost of many transactional ids."""

from __future__ import annotations

import time
import uuid
from typing import Any

from confluent_kafka import Producer

from benchmarks import raw
from benchmarks.clients import LoadError
from benchmarks.group_workloads import Talk, summed_up
from benchmarks.servers import Server
from benchmarks.workloads import Bench, Figures, Workload
from kbroker.wire.messages.described_transactions import DescribeTransactionsRequest
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, InitProducerIdRequest

RECORDS, SIZE = 100, 100
"""Of one transaction."""
IDS = 10_000
_TRANSIENT = (14, 15, 16, 51)


def producer(server: Server) -> Producer:
    """librdkafka's producer with an id of its own, initialized."""
    made = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "transactional.id": f"bench-{uuid.uuid4().hex[:8]}",
            "linger.ms": 0,
            "log_level": 3,
        }
    )
    made.init_transactions(60)
    return made


def commit(made: Producer, topic: str, count: int, partitions: int = 0) -> list[float]:
    """Seconds of each of ``count`` transactions, from its beginning to its commit. With ``partitions`` their records go
    to these in turn, else where the client likes."""
    value = bytes(SIZE)
    took = []
    for _ in range(count):
        start = time.monotonic()
        made.begin_transaction()
        for number in range(RECORDS):
            if partitions:
                made.produce(topic, value, partition=number % partitions)
            else:
                made.produce(topic, value)
        made.commit_transaction(60)
        took.append(time.monotonic() - start)
    return took


def transactions(bench: Bench, server: Server) -> Figures:
    """Measure a producer that commits one transaction after another."""
    topic = bench.new_topic(server, 1)
    made = producer(server)
    commit(made, topic, 50)
    start = time.monotonic()
    count = bench.amount(1_000, 500)
    took = commit(made, topic, count)
    figures = {"transactions_per_s": count / (time.monotonic() - start), **summed_up(took)}
    bench.delete_topic(server, topic)
    return figures


def committed_reading(bench: Bench, server: Server) -> Figures:
    """The same topic of small transactions, read with either isolation level in turn: the best of three each.

    A read takes a fifth of a second, so one that is disturbed says nothing.
    """
    topic = bench.new_topic(server, 1)
    count = 3_000
    commit(producer(server), topic, count)
    rates: dict[str, float] = {}
    for level in ("read_uncommitted", "read_committed") * 3:
        done = bench.load.run("consume", server.bootstrap, topic, 1, count * RECORDS, f"isolation.level={level}")
        rates[level] = max(rates.get(level, 0), done["records"] / done["seconds"])
    bench.delete_topic(server, topic)
    return {
        "records_per_s": rates["read_committed"],
        "committed_share": rates["read_committed"] / rates["read_uncommitted"],
    }


class Ids:
    """Many transactional ids, asked about on one connection."""

    def __init__(self, server: Server) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                self._talk = Talk(server)
                break
            except OSError:  # it does not accept yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        while self._talk.ask(FindCoordinatorRequest(key="any", key_type=1), 2).error_code:
            if time.monotonic() > deadline:
                raise LoadError("no transaction coordinator after 60 s")
            time.sleep(0.02)

    def open(self, topic: str) -> None:
        """Begin a transaction for each id."""
        for number in range(IDS):
            self._open_one(f"held-{number}", topic)

    def _open_one(self, name: str, topic: str) -> None:
        initialize = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=900_000)
        given = self._until_served(initialize, 4, lambda answer: answer.error_code)
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=given.producer_id,
            v3_and_below_producer_epoch=given.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        self._until_served(
            add, 3, lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        )

    def _until_served(self, request: Any, version: int, code_of: Any) -> Any:
        deadline = time.monotonic() + 60
        while True:
            answer = self._talk.ask(request, version)
            code = code_of(answer)
            if code == 0:
                return answer
            if code not in _TRANSIENT or time.monotonic() > deadline:
                raise LoadError(f"{type(request).__name__}: error code {code}")

    def await_all(self) -> None:
        """Until the coordinators know the transactions of all ids."""
        names = [f"held-{number}" for number in range(IDS)]
        deadline = time.monotonic() + 120
        while True:
            states = self._talk.ask(DescribeTransactionsRequest(transactional_ids=names), 0).transaction_states
            if all(each.error_code == 0 and each.transaction_state == "Ongoing" for each in states):
                return
            if time.monotonic() > deadline:
                raise LoadError("not all transactions are known 120 s after a restart")

    def close(self) -> None:
        self._talk.close()


def many_ids(bench: Bench, server: Server) -> Figures:
    """Ten thousand open transactions: memory, and how long a restarted coordinator takes to know them."""
    server.start()
    server.await_port()
    raw.await_record(server.host, server.port, "first")
    topic = bench.new_topic(server, 1)
    ids = Ids(server)
    before = server.resident_bytes()
    ids.open(topic)
    figures = {"MB": server.resident_bytes() / 1e6, "more_MB": (server.resident_bytes() - before) / 1e6}
    ids.close()
    server.halt()
    server.start()
    server.await_port()
    ids = Ids(server)
    ids.await_all()
    ids.close()
    return {**figures, "ids_restart_s": time.monotonic() - server.launched_at}


TRANSACTION_WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "transactions",
        f"transactions of {RECORDS} records of {SIZE} B, librdkafka, one producer",
        transactions,
        in_quick=True,
    ),
    Workload(
        "committed-reading",
        f"consume with read_committed, transactions of {RECORDS} records",
        committed_reading,
        in_quick=True,
    ),
    Workload("transactional-ids", f"{IDS:,} open transactions, and a restart", many_ids, "fresh", in_quick=True),
)
