"""From a load to nodes, cores, disks and network, by what work costs a node (`kbroker.base.costs`). Pure.

A node is one core. Figures are of the whole cluster unless their names say otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from kbroker.base.costs import (
    BYTE_COPIED,
    BYTE_IN,
    BYTE_IN_TLS,
    BYTE_OUT,
    BYTE_OUT_TLS,
    CONNECTION,
    KNOWN_PARTITION,
    NODE,
    RECORD,
    REPLICA,
    REPLICA_START,
    REQUEST,
    REQUEST_ALONE,
    REQUEST_TLS,
    START,
)

BUSY: Final = 0.5
"""The share of a core, a link and a disk's rate that the load may take: the rest is for peaks, for the load of a
machine that is away, and for copying it anew."""
FULL: Final = 0.7
"""The share of a disk that records may take."""
START_SECONDS: Final = 10
"""A node has no more replicas than it opens in this time."""
CACHED_SECONDS: Final = 300
"""Readers that are no further behind than this read from memory."""


@dataclass(frozen=True, slots=True)
class Load:
    """The work that a cluster is to do, and the machines for it."""

    messages: float
    """A second, all topics together."""
    size: float
    """Bytes of a message, before compression."""
    ratio: float = 1.0
    """The share of these bytes that compression leaves."""
    batch: float = 16_384
    """Bytes of a Produce request, as they are sent."""
    retention_s: float = 7 * 86_400
    readers: int = 1
    """The times that everything is read, by groups that are near the end."""
    replicas: int = 3
    partitions: int = 12
    connections: int = 100
    """To each node."""
    tls: bool = False
    """Of clients and between nodes."""
    cores: int = 4
    """Of a machine."""
    network: float = 1.25e9
    """Bytes a second of a machine, each way."""
    disk: float = 500e6
    """Bytes a second that a machine's disks write."""

    @property
    def written(self) -> float:
        """Bytes a second that leaders write."""
        return self.messages * self.size * self.ratio

    @property
    def requests(self) -> float:
        """Produce requests a second: one has at least one message."""
        return min(self.written / self.batch, self.messages)

    def busy_cores(self, nodes: float) -> float:
        """Processor seconds a second of so many nodes. A request costs less, the busier they are: evenly in between."""
        alone, by_requests = self._alone, self._parts
        most = by_requests * alone + self._cores_by_bytes
        return most / (1 + by_requests * (REQUEST_ALONE.value - REQUEST.value) / nodes)

    def nodes_for_cores(self) -> float:
        """Returns how many nodes, in fractions, are `BUSY` with the load."""
        each = self._alone - BUSY * (REQUEST_ALONE.value - REQUEST.value)
        return (self._parts * each + self._cores_by_bytes) / BUSY

    @property
    def _alone(self) -> float:
        return REQUEST_ALONE.value + self.tls * REQUEST_TLS.value

    @property
    def _parts(self) -> float:
        """Requests a second of all kinds, as each counts for a node.

        A Fetch waits for a batch, and then is answered: two for each reader. A copy is that for the leader and as much
        for the follower; the Produce waits for the copies, too.
        """
        return self.requests * (1 + 2 * self.readers + 4 * self.copies + (self.copies > 0))

    @property
    def copies(self) -> int:
        """Replicas that follow."""
        return self.replicas - 1

    @property
    def _cores_by_bytes(self) -> float:
        sent = self.readers + self.copies
        costs = BYTE_IN.value + sent * BYTE_OUT.value + self.copies * BYTE_COPIED.value
        if self.tls:
            costs += BYTE_IN_TLS.value * (1 + self.copies) + sent * BYTE_OUT_TLS.value
        return self.messages * RECORD.value + self.written * costs

    def needs(self) -> dict[str, float]:
        """Returns how many machines each resource asks for, in fractions."""
        most = max(self.replicas, self.readers + self.replicas - 1)  # bytes in, and bytes out
        return {
            "processors": self.nodes_for_cores() / self.cores,
            "network": self.written * most / BUSY / self.network,
            "disk rate": self.written * self.replicas / BUSY / self.disk,
            "start": self.partitions * self.replicas * REPLICA_START.value / START_SECONDS / self.cores,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """The machines and nodes for a load. Bytes and rates are of each machine."""

    machines: int
    nodes: int
    bottleneck: str
    by_load: float
    """Machines that the load alone asks for, in fractions; the replicas may ask for more."""
    busy_cores: float
    network_in: float
    network_out: float
    disk_bytes: float
    disk_rate: float
    memory: float
    page_cache: float
    restart_seconds: float
    """Of one node, stopped or killed."""
    copy_seconds: float
    """Until a machine has its replicas again, with empty disks."""
    matters_most: str
    """The assumption that costs most if it is wrong: what readers, partitions or bytes after compression are twice of,
    or a batch half; the retention, where none of these asks for another machine."""
    growth: float
    """The factor by which the load grows then, or the disks."""
    notes: tuple[str, ...]


def plan_capacity(load: Load) -> Plan:
    """Returns the machines and nodes for a load, and what each of them bears."""
    needs = load.needs()
    resource = max(needs, key=lambda name: needs[name])
    machines = max(load.replicas, math.ceil(needs[resource]))
    on_each = max(needs["processors"], needs["start"]) * load.cores / machines
    nodes = machines * min(load.cores, max(1, math.ceil(on_each)))
    written = load.written
    kept = written * load.retention_s * load.replicas / machines
    replicas = load.partitions * load.replicas
    fastest = min((1 - BUSY) * load.network, (1 - BUSY) * load.disk, (1 - BUSY) / BYTE_COPIED.value * nodes / machines)
    matters, growth = _what_matters_most(load)
    if needs[resource] * growth <= machines:
        matters, growth = "retention", 2.0
    return Plan(
        machines=machines,
        nodes=nodes,
        bottleneck="replicas" if machines > needs[resource] + 1 else resource,
        by_load=needs[resource],
        busy_cores=load.busy_cores(nodes),
        network_in=written * load.replicas / machines,
        network_out=written * (load.readers + load.copies) / machines,
        disk_bytes=kept / FULL,
        disk_rate=written * load.replicas / machines,
        memory=(
            (NODE.value + load.connections * CONNECTION.value + load.partitions * KNOWN_PARTITION.value) * nodes
            + replicas * REPLICA.value
        )
        / machines,
        page_cache=written * load.replicas / machines * CACHED_SECONDS,
        restart_seconds=START.value + replicas / nodes * REPLICA_START.value,
        copy_seconds=kept / fastest,
        matters_most=matters,
        growth=growth,
        notes=tuple(_notes(load, nodes)),
    )


def _what_matters_most(load: Load) -> tuple[str, float]:
    """Returns the assumption by which the machines that the load asks for grow most, and how much."""
    others = {
        "batch": replace(load, batch=load.batch / 2),
        "ratio": replace(load, ratio=min(load.ratio * 2, 1.0)),
        "readers": replace(load, readers=load.readers * 2),
        "partitions": replace(load, partitions=load.partitions * 2),
    }
    before = max(load.needs().values())
    grown = {name: max(other.needs().values()) / before for name, other in others.items()}
    most = max(grown, key=lambda name: grown[name])
    return most, grown[most]


def _notes(load: Load, nodes: int) -> list[str]:
    notes = []
    if load.partitions < nodes:
        notes.append(f"{load.partitions} partitions have no more leaders: {nodes - load.partitions} nodes lead nothing")
    share = load.busy_cores(nodes) / load.partitions
    if share > BUSY:
        notes.append(f"a partition takes {share:.2f} of a core, which no node spares: have more partitions")
    if load.replicas == 1:
        notes.append("one replica: what a machine's disks lose is lost")
    return notes
