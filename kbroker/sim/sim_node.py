"""One node of a simulated cluster: what happens to its process and to its machine."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import trio

from kbroker.config import BrokerConfig
from kbroker.log.checkpoint_files import OFFSET_CHECKPOINTS
from kbroker.log.file_names import SET_ASIDE_SUFFIX
from kbroker.node.broker import Broker
from kbroker.raft_metadata.features import METADATA_VERSION
from kbroker.raft_metadata.storage import format_log_dirs
from kbroker.sim.clients import BROKER_PORT, CONTROLLER_PORT
from kbroker.sim.clock import Pauser, current_node
from kbroker.sim.sim_env import EPOCH_MS, Machine, SimEnv, current_env
from kbroker.sim.tcp import SimNet
from kbroker.sim.world import Trace, Violation
from kbroker.tools.cli.start import find_fatal

CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZQ"
LISTENER = "CONTROLLER"
OFFSETS_PARTITIONS = 3
PROPERTIES = {
    "controller.listener.names": LISTENER,
    "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{LISTENER}:PLAINTEXT",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "transaction.state.log.num.partitions": "3",
    "auto.create.topics.enable": "false",
    "min.insync.replicas": "2",
    # Records without content only lengthen most courses; the scenario of idle controllers has them.
    "metadata.max.idle.interval.ms": "0",
}


class NodeObserver(Protocol):
    """The checks that a node is subject to while it serves."""

    def watch(self, node: SimNode, broker: Broker) -> None:
        """The node serves."""

    def forget(self, node: SimNode) -> None:
        """The node's life is over."""


class NodeWorld(Protocol):
    """The surroundings of a node: the cluster that it belongs to, and the network and the trace of the simulation."""

    @property
    def rng(self) -> random.Random: ...
    @property
    def net(self) -> SimNet: ...
    @property
    def trace(self) -> Trace: ...
    @property
    def nursery(self) -> trio.Nursery: ...
    @property
    def pauser(self) -> Pauser: ...
    @property
    def invariants(self) -> NodeObserver: ...
    @property
    def ids(self) -> Sequence[int]:
        """The brokers."""

    @property
    def controller_ids(self) -> Sequence[int]:
        """The voters."""

    @property
    def properties(self) -> Mapping[str, str]:
        """Properties of every node."""

    def neighbour_of(self, node_id: int) -> SimNode | None:
        """The first node of the machine that this one shares; None if it has, or is, the first one."""

    @property
    def metadata_version(self) -> int:
        """The level that nodes are formatted at."""

    def fail(self, failure: BaseException, cause: BaseException | None = None) -> None:
        """End the scenario."""


class SimNode:
    """A node of the cluster, which may be running or not."""

    def __init__(self, cluster: NodeWorld, node_id: int) -> None:
        self.id = node_id
        self.cluster = cluster
        beside = cluster.neighbour_of(node_id)
        rng = random.Random(cluster.rng.getrandbits(64))
        self.machine: Machine = Machine(node_id, cluster.net, rng, None if beside is None else beside.machine)
        self.lives = 0
        self.env: SimEnv | None = None
        """That of the life going on; None while the node is down."""
        self.broker: Broker | None = None
        """Once the node serves."""
        self.may_refuse = False
        """Whether its process may end by itself, with a line: a directory is gone, or another's."""
        self._scope: trio.CancelScope | None = None
        self._ended: trio.Event | None = None

    @property
    def name(self) -> str:
        """The machine's name."""
        return self.machine.host.name

    @property
    def running(self) -> bool:
        """Whether the process runs (it may be paused)."""
        return self.env is not None

    def config(self, other: Mapping[str, str] | None = None) -> BrokerConfig:
        """The node's properties; with ``other`` those of another program on its machine."""
        voters = self.cluster.controller_ids
        roles, listeners = [], []
        if self.id in self.cluster.ids:
            roles.append("broker")
            listeners.append(f"PLAINTEXT://{self.name}:{BROKER_PORT}")
        if self.id in voters:
            roles.append("controller")
            listeners.append(f"{LISTENER}://{self.name}:{CONTROLLER_PORT}")
        return BrokerConfig.from_properties(
            {
                **PROPERTIES,
                "process.roles": ",".join(roles),
                "node.id": str(self.id),
                "listeners": ",".join(listeners),
                "log.dirs": self.machine.data_dir,
                **self._rack(),
                "controller.quorum.voters": ",".join(f"{n}@node{n}:{CONTROLLER_PORT}" for n in voters),
                **self.cluster.properties,
                **(other or {}),
            }
        )

    def _rack(self) -> dict[str, str]:
        beside = self.cluster.neighbour_of(self.id)
        return {"broker.rack": f"of-{(beside or self).id}"} if self.machine.is_shared else {}

    def start(self) -> None:
        """Begin a life; ``broker`` is there once the node serves."""
        assert self.env is None, f"{self.name} runs already"
        self.lives += 1
        self.cluster.trace.note(f"{self.name} starts, life {self.lives}")
        env = self.env = self.machine.start()
        self._ended = trio.Event()
        self._scope = trio.CancelScope()
        self.cluster.nursery.start_soon(self._live, env, self._scope, self._ended, name=f"{self.name}")

    async def _live(self, env: SimEnv, scope: trio.CancelScope, ended: trio.Event) -> None:
        current_node.set(self.id)
        current_env.set(env)
        config = self.config()
        try:
            with scope:
                async with trio.open_nursery() as nursery:
                    if self.lives == 1:
                        format_log_dirs(
                            env.disk,
                            config.log_dirs,
                            config.metadata_log_dir,
                            node_id=self.id,
                            cluster_id=CLUSTER_ID,
                            rng=env.rng,
                            now_ms=EPOCH_MS,
                            feature_levels={METADATA_VERSION: self.cluster.metadata_version},
                        )
                    broker = Broker(config, env)
                    await nursery.start(broker.run)
                    if not env.dead:
                        self.broker = broker
                        self.cluster.trace.note(f"{self.name} serves")
                        self.cluster.invariants.watch(self, broker)
        except* Exception as errors:
            # Of a process that is gone, this is only how its tasks end.
            if env.dead:
                pass
            elif self.may_refuse and (fatal := find_fatal(errors)) is not None and "\n" not in str(fatal):
                self.cluster.trace.note(f"{self.name} has ended: {fatal}")
                self._gone(power=False)
            elif env.machine.failing is not None:
                self.cluster.trace.note(f"{self.name} has ended with its disk: {describe_error(errors)}")
                self._gone(power=False)
            else:
                self.cluster.fail(Violation(f"{self.name} has failed: {describe_error(errors)}"), errors)
        finally:
            ended.set()

    async def stop(self, within: float = 20.0) -> None:
        """End in good order, as on SIGTERM."""
        assert self._scope is not None and self._ended is not None and self.env is not None
        self.cluster.trace.note(f"{self.name} is told to stop")
        self._scope.cancel()
        with trio.move_on_after(within) as limit:
            await self._ended.wait()
        if limit.cancelled_caught:
            raise Violation(f"{self.name} does not stop within {within:g} s")
        self.cluster.trace.note(f"{self.name} has stopped")
        self._gone(power=False)

    def kill(self) -> None:
        """The process ends at once, as by SIGKILL: what it wrote is there, what it would have said is not."""
        self.cluster.trace.note(f"{self.name} is killed")
        self._gone(power=False)

    def crash(self, *, lose_all: bool = False) -> None:
        """The machine's power fails: what was not flushed is lost in part, or ``lose_all``, and nobody is told."""
        self.cluster.trace.note(f"{self.name} loses its power")
        self._gone(power=True, lose_all=lose_all)

    def _gone(self, *, power: bool, lose_all: bool = False) -> None:
        env, self.env = self.env, None
        if env is None:
            return
        self.cluster.pauser.resume(self.id)
        self.broker = None
        self.cluster.invariants.forget(self)
        self.machine.end(env, power=power, lose_all=lose_all)
        assert self._scope is not None
        self._scope.cancel()

    def spoil_checkpoints(self) -> None:
        """Some checkpoint files of a node that is down are emptied, cut or gone."""
        for name in OFFSET_CHECKPOINTS:
            if self.machine.rng.random() < 0.7:
                self.cluster.trace.note(f"{self.name}: {self.machine.disk.spoil(f'{self.machine.data_dir}/{name}')}")

    def damage(self, directories: Collection[str], suffixes: Sequence[str]) -> None:
        """Damage one to three files of log directories, of those that end so.

        Of a node that runs these are files of older segments: the latest are in its memory, whatever the disk does.
        """
        disk, rng = self.machine.disk, self.machine.rng
        files = []
        for directory in filter(disk.is_dir, sorted(f"{self.machine.data_dir}/{name}" for name in directories)):
            found = [name for name in disk.list_dir(directory) if name.endswith(tuple(suffixes))]
            files += [f"{directory}/{name}" for name in (found[:-2] if self.running else found)]
        for path in rng.sample(files, min(len(files), rng.randint(1, 3))):
            self.cluster.trace.note(f"{self.name}: {disk.damage(path)}")

    def set_aside(self) -> list[str]:
        """Returns what recovery has taken out of the logs; the node is killed for that."""
        self.kill()
        disk = self.machine.disk
        return [
            f"{name}/{file}"
            for name in disk.list_dir(self.machine.data_dir)
            if disk.is_dir(f"{self.machine.data_dir}/{name}")
            for file in disk.list_dir(f"{self.machine.data_dir}/{name}")
            if file.endswith(SET_ASIDE_SUFFIX)
        ]

    def pause(self) -> None:
        """All tasks of the process stand still, as by SIGSTOP."""
        self.cluster.trace.note(f"{self.name} is paused")
        self.cluster.pauser.pause(self.id)

    def resume(self) -> None:
        """Let all tasks of the process go on."""
        self.cluster.trace.note(f"{self.name} goes on")
        self.cluster.pauser.resume(self.id)


def describe_error(error: BaseException | None) -> str:
    """An error in one line; of a group, its first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
