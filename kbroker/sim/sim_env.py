"""The world of one simulated node: :class:`SimEnv` is a :class:`kbroker.runtime.env.Env` made of a seed.

A node lives several times; its machine keeps what is durable. Each life has an ``Env`` of its own, so that what is
left of the tasks of a life that has ended can do no more harm than those of a dead process.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from contextvars import ContextVar
from copy import copy
from math import inf
from typing import Any, TypeVar

import trio

from kbroker.log.disk import Disk
from kbroker.log.fake_disk import FakeDisk
from kbroker.runtime.budgets import DEFAULTS
from kbroker.runtime.env import DiskReads, Network
from kbroker.sim.clock import sim_clock
from kbroker.sim.tcp import NodeNetwork, SimHost, SimNet

T = TypeVar("T")

current_env: ContextVar[SimEnv | None] = ContextVar("current_env", default=None)
"""The life whose task is running; None for the simulation itself and its clients."""

DATA_DIR, SECOND_DIR = "/data", "/more"
"""Where a node's files are on its machine; the directories are made with the machine. The second is seldom used."""

BUDGETS = DEFAULTS._replace(hand_over_bytes=0, turn_partitions=1, turn_records=1)

EPOCH_MS = 1_700_000_000_000
"""The wall clock when a simulation begins."""


class Machine:
    """A node's machine, which outlives its process: disk, clock and address, and how good they are."""

    def __init__(self, node_id: int, net: SimNet, rng: random.Random, beside: Machine | None = None) -> None:
        """A node ``beside`` another one shares its disk, and nothing else: it has directories, an address and a clock
        of its own."""
        self.node_id = node_id
        self.is_shared = False
        self.net = net
        self.rng = rng
        self.host: SimHost = net.host(f"node{node_id}")
        self.disk = FakeDisk(seed=rng.getrandbits(32))
        self.data_dir = DATA_DIR
        """Where the node's files are."""
        if beside is not None:
            self.is_shared = beside.is_shared = True
            self.disk, self.data_dir = beside.disk.shared(), f"{DATA_DIR}-{node_id}"
        for directory in (self.data_dir, SECOND_DIR):
            self.disk.make_dirs(directory)
        self.disk.sync_dir("/")
        self.skew_ms = 0
        """The time that the wall clock is ahead of the true time."""
        self.disk_latency = 0.001
        """Seconds that blocking work takes on average."""
        self.opening_seconds = 0.0
        """The time that the next process takes to verify its logs, beside its event loop; 0: at once, and in it."""
        self.failing: str | None = None
        """An operation of the disk (see :class:`FakeDisk`) that fails with EIO."""
        self.failing_below = "/"
        """Where it fails."""
        self.links = 0
        """Second names that the node has given to files, of logs that it hands over."""
        self._env: SimEnv

    def start(self) -> SimEnv:
        """A process begins."""
        self.net.start_host(self.host)
        self.disk.on_operation = self._on_operation
        self._env = SimEnv(self)
        return self._env

    def beside(self, name: str) -> SimEnv:
        """Returns the world of another program on this machine: the same disk and clock, and an address of its own."""
        other = copy(self)
        other.host = self.net.host(name)
        return SimEnv(other)

    def _on_operation(self, operation: str, path: str) -> None:
        self.links += operation == "link"
        if operation == self.failing and path.startswith(self.failing_below):
            self._env.disk_failed = True
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def end(self, env: SimEnv, *, power: bool, lose_all: bool = False) -> None:
        """The process ends at once; with ``power``, the machine's power fails too, and what was not flushed with it."""
        env.die()
        self.net.stop_host(self.host, silently=power)
        if self.is_shared and power:
            raise ValueError("the other processes of this machine would go on")
        disk = self.disk.shared() if self.is_shared else self.disk.snapshot()
        self.disk.stop()
        self.disk = disk
        if power:
            disk.crash(lose_all=lose_all)


class SimEnv:
    """The environment of a node for one life, from a start to the next crash or stop."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._clock = sim_clock()
        self.rng = random.Random(machine.rng.getrandbits(64))
        self.disk: Disk = machine.disk
        self.disk_reads = DiskReads()
        self.budgets = BUDGETS
        self.has_threads = machine.opening_seconds > 0
        self._long_seconds = machine.opening_seconds
        network = NodeNetwork(machine.net, machine.host, use_poller=machine.rng.random() < 0.7)
        self._network = network
        self.network: Network = network
        self.dead = False
        self.disk_failed = False
        """An operation of its disk has failed."""

    def die(self) -> None:
        """The process is gone."""
        self.dead = True
        self._network.dead = True

    def now(self) -> float:
        return self._clock.time

    def wall_clock_ms(self) -> int:
        now_ms = EPOCH_MS + int(self._clock.time * 1000) + self.machine.skew_ms
        self.machine.disk.now_ms = now_ms
        return now_ms

    async def run_blocking(self, fn: Callable[..., T], *args: Any) -> T:
        """Call it as a thread does: it takes its time and ends, whether or not the caller is cancelled meanwhile."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.dead:
            return fn(*args)
        latency = self.rng.expovariate(1 / self.machine.disk_latency)
        before = self.rng.random() * latency
        await self._clock.wait(before)
        try:
            result = fn(*args)
        finally:
            await self._clock.wait(latency - before)
        return result

    async def run_long(self, fn: Callable[[], T]) -> T:
        """Call it when its time is over, or as soon as the caller is cancelled: it has been told then."""
        await trio.lowlevel.checkpoint_if_cancelled()
        until = self._clock.time + self._long_seconds
        while self._clock.time < until and not self.dead and trio.current_effective_deadline() > -inf:
            await self._clock.wait(min(0.1, until - self._clock.time))
        return fn()

    def in_memory(self, fd: int, position: int, length: int) -> bool:
        return True

    def read_now(self, fd: int, position: int, length: int) -> bytearray | None:
        raise NotImplementedError("files of a simulated disk have no descriptors")

    def read_ahead(self, fd: int, position: int, length: int) -> None:
        raise NotImplementedError("files of a simulated disk have no descriptors")
