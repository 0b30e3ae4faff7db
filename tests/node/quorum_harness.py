"""Several whole nodes, one quorum, inside the test's own event loop, over real sockets of the loopback interface."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import trio

from kbroker.config import BrokerConfig
from kbroker.node.broker import Broker
from kbroker.raft_metadata.features import METADATA_VERSION
from kbroker.raft_metadata.image import MetadataImage
from kbroker.raft_metadata.metadata_version import LATEST_METADATA_VERSION
from kbroker.raft_metadata.raft.voters import ReplicaKey, VoterEndpoint, VoterNode, VoterSet
from kbroker.raft_metadata.storage import format_log_dirs
from kbroker.runtime.budgets import Budgets
from kbroker.runtime.env import RealEnv
from kbroker.tools.cli.cluster_plan import free_ports
from kbroker.types import random_uuid
from tests.node.node_harness import CLUSTER_ID, PATIENT, Client, Node
from tests.patience import SHORT, until

LISTENER = "CONTROLLER"

LATE_NEWS = PATIENT._replace(high_watermark_delay=60.0)
"""A fetch that waits is not answered for a new high watermark alone: what a test waits for comes without."""


class Quorum:
    """Nodes 1 to n, each of which can be started, stopped and killed."""

    def __init__(
        self,
        path: Path,
        count: int,
        nursery: trio.Nursery,
        *,
        dynamic: bool,
        initial: int,
        roles: str,
        roles_of: dict[int, str],
        properties: dict[str, str],
        racks: dict[int, str],
        metadata_version: int,
        properties_of: dict[int, dict[str, str]],
        budgets: Budgets,
    ) -> None:
        self.path = path
        self._budgets = budgets
        self.ports = free_ports(count)
        self.nodes: dict[int, Broker] = {}
        self._scopes: dict[int, trio.CancelScope] = {}
        self._stopped: dict[int, trio.Event] = {}
        self._nursery = nursery
        self._dynamic = dynamic
        self._roles = dict.fromkeys(range(1, count + 1), roles) | roles_of
        self._initial = initial
        self.ids = {number: number for number in range(1, count + 1)}
        """Node ids; a test may give one to two nodes."""
        self._properties = properties
        self._racks = racks
        self._metadata_version = metadata_version
        self._properties_of = properties_of
        self.voters = VoterSet.of(
            VoterNode(
                ReplicaKey(node_id, random_uuid(random.Random(node_id))),
                {LISTENER: VoterEndpoint("127.0.0.1", self.ports[node_id - 1])},
            )
            for node_id in range(1, initial + 1)
        )
        self.envs: dict[int, RealEnv] = {}
        self._joining: set[int] = set()

    def config(self, node_id: int) -> BrokerConfig:
        """The node's properties."""
        port = self.ports[node_id - 1]
        addresses = [f"127.0.0.1:{port}" for port in self.ports[: self._initial]]
        roles = self._roles[node_id]
        listeners = ["PLAINTEXT://127.0.0.1:0"] if "broker" in roles else []
        if "controller" in roles:
            listeners.append(f"{LISTENER}://127.0.0.1:{port}")
        quorum = (
            {"controller.quorum.bootstrap.servers": ",".join(addresses)}
            if self._dynamic
            else {
                "controller.quorum.voters": ",".join(f"{index}@{address}" for index, address in enumerate(addresses, 1))
            }
        )
        return BrokerConfig.from_properties(
            {
                "process.roles": roles,
                "node.id": str(self.ids[node_id]),
                "listeners": ",".join(listeners),
                "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{LISTENER}:PLAINTEXT",
                "controller.listener.names": LISTENER,
                "log.dirs": str(self.path / f"node{node_id}"),
                "controller.quorum.election.timeout.ms": "300",
                "controller.quorum.fetch.timeout.ms": "600",
                "broker.heartbeat.interval.ms": "100",
                "broker.session.timeout.ms": "1000",
                # A log in which nothing happens by itself; `test_idle_records` has it otherwise.
                "metadata.max.idle.interval.ms": "0",
                **quorum,
                **({"broker.rack": self._racks[node_id]} if node_id in self._racks else {}),
                **self._properties,
                **self._properties_of.get(node_id, {}),
            }
        )

    async def start(self, *node_ids: int) -> None:
        """Start nodes at the same time and wait until all of them serve."""
        async with trio.open_nursery() as nursery:
            for node_id in node_ids:
                nursery.start_soon(self._start, node_id)

    async def _start(self, node_id: int) -> None:
        config = self.config(node_id)
        env = self.envs.setdefault(node_id, RealEnv(seed=node_id, budgets=self._budgets))
        if not (self.path / f"node{node_id}" / "meta.properties").exists():
            format_log_dirs(
                env.disk,
                config.log_dirs,
                config.metadata_log_dir,
                node_id=self.ids[node_id],
                cluster_id=CLUSTER_ID,
                rng=random.Random(node_id + 1000 * (node_id in self._joining)),
                now_ms=1_700_000_000_000,
                initial_controllers=(
                    self.voters
                    if self._dynamic and node_id in self.voters.voters and node_id not in self._joining
                    else None
                ),
                feature_levels={METADATA_VERSION: self._metadata_version},
            )
        self.nodes[node_id] = await self._nursery.start(self._run, node_id, config, env)

    async def _run(
        self, node_id: int, config: BrokerConfig, env: RealEnv, task_status: trio.TaskStatus[Broker]
    ) -> None:
        stopped = self._stopped[node_id] = trio.Event()
        try:
            with trio.CancelScope() as scope:
                self._scopes[node_id] = scope
                await Broker(config, env).run(task_status)
        finally:
            stopped.set()

    def join_later(self, node_id: int) -> None:
        """The node's directory is to be formatted anew, as one that is no voter yet."""
        self._joining.add(node_id)

    def find_voters_by_bootstrap_servers(self) -> None:
        """Nodes that start from now on have ``controller.quorum.bootstrap.servers`` in place of fixed voters."""
        self._dynamic = True

    async def stop(self, *node_ids: int) -> None:
        """Stop nodes as SIGTERM does."""
        for node_id in node_ids:
            self._scopes[node_id].cancel()
        for node_id in node_ids:
            await self._stopped[node_id].wait()
            self.nodes.pop(node_id, None)

    async def kill(self, node_id: int) -> None:
        """End a node without the chance to say anything: what it says from now on gets nowhere."""
        node = self.nodes[node_id]

        async def silent(*_: Any) -> None:
            return None

        node.metadata.quorum.runner.hand_over = silent  # type: ignore[method-assign,assignment]
        node.lifecycle.leave = silent  # type: ignore[method-assign]
        await self.stop(node_id)

    def leader(self) -> int | None:
        """The active controller, if one of the nodes is."""
        leaders = [node for node in self.nodes.values() if node.metadata.is_leader]
        best = max(leaders, key=lambda node: node.metadata.describe_quorum().leader_epoch, default=None)
        return None if best is None else best.config.node_id

    async def until(self, condition: Callable[[], bool], within: float = SHORT) -> None:
        """Wait for something that others bring about."""
        await until(condition, seconds=within)

    async def await_leader(self) -> int:
        """Wait for an active controller that all nodes know."""

        def agreed() -> bool:
            leader = self.leader()
            return leader is not None and all(
                node.metadata.describe_quorum().leader_id == leader for node in self.nodes.values()
            )

        await self.until(agreed)
        leader = self.leader()
        assert leader is not None
        return leader

    async def leader_with_observers(self, ids: Sequence[int]) -> int:
        """The active controller, once it has heard of these observers and no others."""

        def found() -> bool:
            leader = self.leader()
            seen = [] if leader is None else self.nodes[leader].metadata.describe_quorum().observers
            return [observer.key.id for observer in seen] == list(ids)

        await self.until(found)
        return await self.await_leader()

    def node(self, node_id: int) -> Node:
        """A node to talk to."""
        return Node(self.nodes[node_id])

    async def controller_client(self, node_id: int) -> Client:
        """A connection to a node's controller listener."""
        return await self.node(node_id).connect(LISTENER)

    def newest_image(self) -> MetadataImage:
        """The metadata that the furthest of the nodes has."""
        return max((node.metadata.image for node in self.nodes.values()), key=lambda image: image.offset)

    async def controllers_registered(self, *node_ids: int) -> None:
        """Wait until every node's metadata has these controllers, which register while their nodes serve."""
        await self.until(
            lambda: all(sorted(node.metadata.image.controllers) == list(node_ids) for node in self.nodes.values())
        )

    async def topics_everywhere(self, names: Sequence[str]) -> None:
        """Wait until every node's metadata has these topics."""
        await self.until(
            lambda: all(set(names) <= set(node.metadata.image.topics.by_name) for node in self.nodes.values())
        )


@asynccontextmanager
async def quorum(
    path: Path,
    count: int = 3,
    *,
    dynamic: bool = False,
    initial: int | None = None,
    roles: str = "broker,controller",
    roles_of: dict[int, str] | None = None,
    racks: dict[int, str] | None = None,
    metadata_version: int = LATEST_METADATA_VERSION,
    properties_of: dict[int, dict[str, str]] | None = None,
    properties: Mapping[str, str] = MappingProxyType({}),
    budgets: Budgets = PATIENT,
    **more: str,
) -> AsyncIterator[Quorum]:
    """Nodes that are formatted on first start, ``initial`` of them voters; leaving stops them all."""
    async with trio.open_nursery() as nursery:
        cluster = Quorum(
            path,
            count,
            nursery,
            dynamic=dynamic,
            initial=initial or count,
            roles=roles,
            roles_of=roles_of or {},
            properties={name.replace("_", "."): value for name, value in {**properties, **more}.items()},
            racks=racks or {},
            budgets=budgets,
            metadata_version=metadata_version,
            properties_of=properties_of or {},
        )
        yield cluster
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def three_nodes(path: Path, **options: Any) -> AsyncIterator[Quorum]:
    """The usual :func:`quorum`: three nodes that have started and agree on a leader."""
    async with quorum(path, **options) as cluster:
        await cluster.start(1, 2, 3)
        await cluster.await_leader()
        yield cluster
