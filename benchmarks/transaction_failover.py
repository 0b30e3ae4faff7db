"""A transaction coordinator is lost with ten thousand transactions open: how long until its successors know all."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.clients import LoadError
from benchmarks.cluster_servers import NODES, ClusterServer
from benchmarks.members import Loop, Wire
from benchmarks.servers import Server
from benchmarks.workloads import Bench, Figures, Workload
from kbroker.client.transactions import list_transactions
from kbroker.cores.coordinator.partitioner import partition_for
from kbroker.wire.messages.described_transactions import DescribeTransactionsRequest
from kbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from kbroker.wire.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, InitProducerIdRequest

IDS = 10_000
UNDER_WAY = 32
"""Connections on which transactions are begun at a time."""
STATE_TOPIC = "__transaction_state"
DATA_TOPIC = "of-transactions"
_TRANSIENT = (3, 5, 14, 15, 16, 51)
LIMIT_SECONDS = 120


class _Opener:
    """Begins transactions one after the other on a connection."""

    def __init__(self, wire: Wire, names: list[str]) -> None:
        self._wire = wire
        self._names = names
        self.done = 0
        self._next()

    def _next(self) -> None:
        if self._names:
            self._initialize(self._names.pop())

    def _initialize(self, name: str) -> None:
        def given(answer: Any) -> None:
            if answer.error_code in _TRANSIENT:
                self._initialize(name)
            elif answer.error_code:
                raise LoadError(f"InitProducerId: error code {answer.error_code}")
            else:
                self._add(name, answer.producer_id, answer.producer_epoch)

        self._wire.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=900_000), 4, given)

    def _add(self, name: str, producer_id: int, epoch: int) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=DATA_TOPIC, partitions=[0])],
        )

        def added(answer: Any) -> None:
            code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            if code in _TRANSIENT:
                self._add(name, producer_id, epoch)
            elif code:
                raise LoadError(f"AddPartitionsToTxn: error code {code}")
            else:
                self.done += 1
                self._next()

        self._wire.ask(request, 3, added)


def coordinator_killed(bench: Bench, server: Server) -> Figures:
    """kill -9 of a node that coordinates them all and is not the active controller, to the last one's partition."""
    assert isinstance(server, ClusterServer)
    cluster = server
    cluster.await_in_sync()
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(DATA_TOPIC, 1, NODES)], request_timeout=30)[DATA_TOPIC].result(40)
    leaders = _leaders(cluster)
    active = cluster.controller()
    victim = next(node for node in sorted(set(leaders.values())) if node != active)
    names = _names(leaders, victim)
    _open(cluster, victim, names)
    cluster.await_in_sync()
    by_partition = {partition_for(name, len(leaders)): name for name in names}
    began = time.monotonic()
    cluster.kill_node(victim)
    try:
        _await_known(cluster, set(by_partition.values()), began)
        taken = time.monotonic() - began
        _check_all(cluster, names)
    finally:
        cluster.start_node(victim)
    cluster.await_in_sync()
    admin.delete_topics([DATA_TOPIC], request_timeout=30)[DATA_TOPIC].result(40)
    return {"ids_failover_s": taken}


def _leaders(cluster: ClusterServer) -> dict[int, int]:
    """Leaders of the coordinators' partitions, once there are such."""
    deadline = time.monotonic() + LIMIT_SECONDS
    loop = Loop("127.0.0.1", cluster.port)
    wire = loop.open()
    while time.monotonic() < deadline:
        _ask(loop, wire, FindCoordinatorRequest(key="any", key_type=1), 2)  # this makes the topic
        with cluster.client() as client:
            [topic] = client.refresh([STATE_TOPIC])
        if topic.partitions and all(each.leader_id >= 0 for each in topic.partitions):
            loop.close(wire)
            return {each.partition_index: int(each.leader_id) for each in topic.partitions}
        time.sleep(0.05)
    raise LoadError(f"no transaction coordinators after {LIMIT_SECONDS} s")


def _ask(loop: Loop, wire: Wire, request: Any, version: int) -> Any:
    told: list[Any] = []
    wire.ask(request, version, told.append)
    loop.run_until(lambda: bool(told), f"an answer to {type(request).__name__}")
    return told[0]


def _names(leaders: dict[int, int], node: int) -> list[str]:
    """Transactional ids that a node coordinates."""
    names: list[str] = []
    number = 0
    while len(names) < IDS:
        name = f"held-{number}"
        if leaders[partition_for(name, len(leaders))] == node:
            names.append(name)
        number += 1
    return names


def _open(cluster: ClusterServer, node: int, names: list[str]) -> None:
    loop = Loop("127.0.0.1", cluster.plans[node - 1].port)
    wires = [loop.open() for _ in range(UNDER_WAY)]
    openers = [_Opener(wire, names[index::UNDER_WAY]) for index, wire in enumerate(wires)]
    loop.run_until(lambda: sum(each.done for each in openers) == len(names), "all transactions to begin", LIMIT_SECONDS)
    for wire in wires:
        loop.close(wire)


def _await_known(cluster: ClusterServer, names: set[str], began: float) -> None:
    """Until the nodes that are left know these, one of each partition: a partition is known as a whole."""
    loops = [Loop("127.0.0.1", plan.port) for plan in cluster.plans if plan.node_id in cluster._nodes]
    wires = [loop.open() for loop in loops]
    missing = set(names)
    while missing:
        if time.monotonic() > began + LIMIT_SECONDS:
            raise LoadError(f"{len(missing)} partitions of transactions are not known after {LIMIT_SECONDS} s")
        for loop, wire in zip(loops, wires, strict=True):
            answer = _ask(loop, wire, DescribeTransactionsRequest(transactional_ids=sorted(missing)), 0)
            missing -= {
                each.transactional_id for each in answer.transaction_states if each.transaction_state == "Ongoing"
            }
        time.sleep(0.005)
    for loop, wire in zip(loops, wires, strict=True):
        loop.close(wire)


def _check_all(cluster: ClusterServer, names: list[str]) -> None:
    with cluster.client(timeout=60.0) as client:
        found = {each.transactional_id for each in list_transactions(client, states=["Ongoing"]).found}
    if not set(names) <= found:
        raise LoadError(f"{len(set(names) - found)} of {len(names)} transactions are not open any more")


TRANSACTION_FAILOVER = Workload(
    "cluster-coordinator-killed", f"coordinator of {IDS:,} open transactions killed -9", coordinator_killed, "cluster"
)
