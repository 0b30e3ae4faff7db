"""A whole cluster inside a test: several nodes, each a process that can be killed, paused, stopped and started again.

::

    from kbroker.testing import running_cluster

    def test_my_service_survives_a_lost_node():
        with running_cluster(3) as cluster:
            start_my_service(cluster.bootstrap_servers)
            cluster.leader_of("orders", 0).kill()
            ...

The nodes are what ``kbroker up`` starts: a topic has three replicas, and what is acknowledged with ``acks=all`` is on
two of them. With pytest, the fixture ``kafka_cluster`` comes with the installed package.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from kbroker.client import Client, ClientError
from kbroker.client.nodes import describe_cluster, describe_quorum
from kbroker.errors import FatalError
from kbroker.testing.access import Accessible, ClientAccess, secure_access
from kbroker.testing.broker import _text
from kbroker.testing.cluster_node import START_SECONDS, ClusterNode, until
from kbroker.testing.link import OWN_CLIENT_ID
from kbroker.testing.parameters import Index, Seconds
from kbroker.testing.seen import ClockSeen, NodeAction, NodeSeen, NotThere
from kbroker.testing.verbs import Verbs
from kbroker.tools.cli.cluster_plan import plan_another, plan_cluster, prepare, secure_setup

if TYPE_CHECKING:
    from kbroker.client.security import ClientSecurity
    from kbroker.testing.clock import MovedClock
    from kbroker.testing.faults import Faults
    from kbroker.tools.cli.secure_setup import SecureSetup

__all__ = ["ClusterNode", "RunningCluster", "running_cluster"]

_FIRST_ANSWER_SECONDS = 2.0
"""For the first answer of a cluster that may be without a leader. It is asked again, and given twice as long."""
_ANSWER_SECONDS = 120.0

T = TypeVar("T")


class RunningCluster(Accessible, Verbs):
    """Several nodes on this machine, for the length of a ``with`` block.

    ``properties`` are Kafka's, for every node, over those of a cluster in which one node of three may be lost. ``port``
    is that of the first node, 0 takes free ones. ``data_dir`` is kept when it is given. With ``secure`` it is what
    ``kbroker up --secure`` starts, and its users are ``client`` and ``admin``: see ``client_properties``.
    """

    def __init__(
        self,
        count: int = 3,
        properties: Mapping[str, object] | None = None,
        *,
        port: int = 0,
        first_id: int = 1,
        data_dir: str | Path | None = None,
        secure: bool = False,
    ) -> None:
        self._temporary = tempfile.mkdtemp(prefix="kbroker-cluster-") if data_dir is None else None
        self.data_dir = Path(data_dir if data_dir is not None else str(self._temporary))
        """Where the nodes' directories are."""
        given = {name: _text(name, value) for name, value in (properties or {}).items()}
        self._secure: SecureSetup | None = None
        try:
            self._secure = secure_setup(self.data_dir, count, first_id=first_id, wanted=secure)
            plans = plan_cluster(
                count, self.data_dir, port=port, first_id=first_id, properties=given, secure=self._secure
            )
            prepare(plans, self._secure)
        except BaseException:
            self._remove_data()
            raise
        self._plans = plans
        self._nodes = [ClusterNode(plan, self._faults_of) for plan in plans]
        self._changing = threading.RLock()
        """Held while nodes are started or ended by their ids, and while clocks are moved."""
        self._faults: Faults | None = None
        self._moved: MovedClock | None = None

    @property
    def nodes(self) -> Sequence[ClusterNode]:
        """The nodes in the order of their ids, from ``first_id`` on: node 1 is ``nodes[0]`` unless told."""
        return self._nodes

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,host:port,...`` of all nodes, running or not."""
        return ",".join(node.bootstrap_servers for node in self.nodes)

    @property
    def faults(self) -> Faults:
        """The faults of every node; see :class:`kbroker.testing.faults.Faults`."""
        if self._faults is None:
            from kbroker.testing.cluster_faults import ClusterHost
            from kbroker.testing.faults import Faults

            self._faults = Faults(ClusterHost(self, self._nodes))
        return self._faults

    def _faults_of(self, node: ClusterNode) -> Faults:
        from kbroker.testing.cluster_faults import ClusterHost
        from kbroker.testing.faults import Faults

        return Faults(ClusterHost(self, [node]), within=self.faults, node=node.id)

    def node(self, node_id: int) -> ClusterNode:
        """The node with this id; ``KeyError`` if there is none."""
        for node in self.nodes:
            if node.id == node_id:
                return node
        raise KeyError(node_id)

    def start(self) -> RunningCluster:
        """Start all nodes that do not run, at the same time; returns once all serve and know that none is fenced.

        ``TimeoutError`` after 180 s if one is kept from that, as where a test has cut its connections: start the
        others by themselves then (``node.start()``).
        """
        for node in self.nodes:
            node.start(wait=False)
        deadline = time.monotonic() + START_SECONDS
        for node in self.nodes:
            node.await_ready(max(0.0, deadline - time.monotonic()))
        self.await_unfenced()
        if self._secure is not None:
            with self.client() as client:
                self._secure.grant(client)
        return self

    @property
    def secure_setup(self) -> SecureSetup | None:
        """The certificates and users of a secure cluster."""
        return self._secure

    def _access(self, user: str | None, mechanism: str) -> ClientAccess | None:
        return None if self._secure is None else secure_access(self._secure, user, mechanism)

    def heal(self) -> None:
        """Resume and start every node, and return once all know that all replicas of all partitions are in sync.

        ``TimeoutError`` as from `start`: connections that a test has cut are not mended here.
        """
        for node in self.nodes:
            node.resume()
        self.start()
        self.await_in_sync()

    def stop(self) -> None:
        """Stop all nodes cleanly, one after the other; data in a temporary directory is removed.

        ``TimeoutError`` names a node that had to be killed.
        """
        late: list[str] = []
        self._stop_registry()
        for node in self.nodes:
            node.resume()
        for node in self.nodes:
            try:
                node.stop()
            except TimeoutError as error:
                late.append(str(error))
        self._remove_data()
        if late:
            raise TimeoutError(", ".join(late))

    def kill(self) -> None:
        """``kill -9`` of all nodes at once."""
        for node in self.nodes:
            node._signal(signal.SIGKILL)
        for node in self.nodes:
            node.kill()

    # --- Verbs ------------------------------------------------------------------------------------------------------

    is_cluster = True

    @property
    def nodes_seen(self) -> list[NodeSeen]:
        """The nodes, whether they run or not."""
        return [node.seen for node in self._nodes]

    def faults_of(self, node: int) -> Faults:
        """The faults of one node; ``NotThere``."""
        return self._node_named(node).faults

    def _node_named(self, node_id: int) -> ClusterNode:
        try:
            return self.node(node_id)
        except KeyError:
            raise NotThere(f"there is no node {node_id}") from None

    def change_node(self, node: Index, action: NodeAction) -> NodeSeen:
        """Do to a node what ``action`` says (:meth:`Verbs.change_node`)."""
        chosen = self._node_named(node)
        with self._changing:
            chosen.change(action)
        return chosen.seen

    def add_node(self) -> NodeSeen:
        """Add a node, a broker only, and return once it serves and all nodes know it."""
        with self._changing:
            plan = plan_another(self._plans, self.data_dir, self._secure)
            prepare([*self._plans, plan], self._secure)
            node = ClusterNode(plan, self._faults_of)
            node._clock = None if self._moved is None else self._moved.state
            for fault in self.faults.active:
                if fault.is_of(self.faults):
                    node._add_fault(fault)
            node._tell = self.request_log.add if self.request_log.is_on else None
            self._plans.append(plan)
            self._nodes.append(node)
            node.start()
            self.await_unfenced()
        return node.seen

    def advance(self, seconds: Seconds) -> None:
        """Move the clocks of all nodes ahead; return once they have done what was due by then.

        Sessions of brokers with their controller end by a jump that is longer than them: it returns once all nodes that
        run are admitted again, and every partition has a leader where there had been one.
        """
        if seconds < 0:
            raise ValueError("the clocks of a cluster go ahead only")
        self._set_clocks(lambda clock: clock.move(seconds))
        self.await_unfenced()

    def stop_clock(self) -> None:
        """Have the clocks of all nodes stand (:meth:`Verbs.stop_clock`)."""
        self._set_clocks(lambda clock: clock.stop())

    def start_clock(self) -> None:
        """Have the clocks go on from where they stand."""
        self._set_clocks(lambda clock: clock.go_on())

    @property
    def clock(self) -> ClockSeen:
        """The clocks of the nodes."""
        return self._moved_clock().seen()

    def _moved_clock(self) -> MovedClock:
        if self._moved is None:
            from kbroker.testing.clock import MovedClock

            self._moved = MovedClock()
        return self._moved

    def _set_clocks(self, change: Callable[[MovedClock], None]) -> None:
        """Have all nodes go by a clock that is changed here; return once they have done what is due by then."""
        with self._changing:
            clock = self._moved_clock()
            change(clock)
            for wait in [node._set_clock(clock.state) for node in self._nodes]:
                wait()

    def record_requests(self, on: bool = True) -> None:
        """Record the requests of all clients at all nodes (:meth:`Verbs.record_requests`)."""
        log = self.request_log
        with self._changing:
            log.clear()
            log.is_on = on
            for node in self._nodes:
                node._observe(log.add if on else None)

    def _await_requests(self) -> None:
        for node in self._nodes:
            node._metadata_offset()  # what it has told before it answers this is here then

    def _reset_nodes(self, timeout: float) -> None:
        with self._changing:
            if self._moved is not None and self._moved.stands:
                self.start_clock()
            self.heal()

    # --- Asking -----------------------------------------------------------------------------------------------------

    @contextmanager
    def client(self, timeout: float = 30.0) -> Iterator[Client]:
        """A small synchronous client that knows the nodes that run and are not paused, and first asks the one with the
        newest metadata: another may not have heard of the end of a third, of a new topic or of a new leader."""
        newest_first = sorted(self.nodes, key=lambda node: -node._metadata_offset())
        addresses = [node.bootstrap_servers for node in newest_first if node._is_up]
        if not addresses:
            raise FatalError("no node runs")
        bootstrap, security = ",".join(addresses), self._own_security()
        with Client(bootstrap, client_id=OWN_CLIENT_ID, timeout=timeout, security=security) as client:
            yield client

    def _own_security(self) -> ClientSecurity | None:
        return None if self._secure is None else self._secure.admin()

    @property
    def controller(self) -> ClusterNode:
        """The active controller, waited for while there is none."""
        return self.node(self._ask(self._active_controller, "there is no active controller"))

    def _active_controller(self, client: Client) -> int | None:
        leader = int(describe_quorum(client).topics[0].partitions[0].leader_id)
        node = next((node for node in self.nodes if node.id == leader), None)
        # Who has not heard of its end yet still names a node that was killed.
        return leader if node is not None and node._is_up else None

    def leader_of(self, topic: str, partition: int = 0) -> ClusterNode:
        """The node that leads a partition, waited for while there is none among those that run."""
        return self.node(
            self._ask(lambda client: self._leader(client, topic, partition), f"nobody leads {topic}-{partition}")
        )

    def _leader(self, client: Client, topic: str, partition: int) -> int | None:
        [found] = client.refresh([topic])
        for entry in found.partitions:
            if entry.partition_index == partition:
                node = next((node for node in self.nodes if node.id == entry.leader_id), None)
                return node.id if node is not None and node._is_up else None
        return None

    def isr_of(self, topic: str, partition: int = 0) -> list[int]:
        """The ids of the replicas that are in sync."""

        def ask(client: Client) -> list[int] | None:
            [found] = client.refresh([topic])
            return next((sorted(e.isr_nodes) for e in found.partitions if e.partition_index == partition), None)

        return self._ask(ask, f"there is no {topic}-{partition}")

    def await_unfenced(self, timeout: float = START_SECONDS) -> None:
        """Return once every node that runs has been admitted by the active controller, and all of them know it."""
        wanted = {node.id for node in self.nodes if node._is_up}

        def ask(client: Client) -> bool | None:
            return wanted <= {broker.id for broker in describe_cluster(client).brokers if not broker.fenced} or None

        self._ask(ask, f"not all of the nodes {sorted(wanted)} are admitted", timeout)
        self._await_news(timeout)

    def await_in_sync(self, timeout: float = START_SECONDS) -> None:
        """Return once every partition has a leader and all of its replicas are in sync, and every node knows it."""

        def ask(client: Client) -> bool | None:
            partitions = [entry for topic in client.refresh(None) for entry in topic.partitions]
            return (
                all(entry.leader_id >= 0 and set(entry.isr_nodes) == set(entry.replica_nodes) for entry in partitions)
                or None
            )

        self._ask(ask, "not all replicas are in sync", timeout)
        self._await_news(timeout)

    def _await_news(self, timeout: float) -> None:
        """Return once every node that serves knows what any of them knows now."""
        newest = -1

        def all_tell() -> bool:
            nonlocal newest
            offsets = [node._metadata_offset() for node in self.nodes]
            newest = max(offsets)
            return all(offset >= 0 or not node._link_is_up for node, offset in zip(self.nodes, offsets, strict=True))

        until(all_tell, "not all nodes tell what they know", timeout)  # one that is slow to tell may know most
        until(
            lambda: all(not node._link_is_up or node._metadata_offset() >= newest for node in self.nodes),
            f"not all nodes know the metadata up to offset {newest}",
            timeout,
        )

    def _ask(self, ask: Callable[[Client], T | None], what: str, timeout: float = _ANSWER_SECONDS) -> T:
        """Ask until the answer is not None."""
        found: list[T] = []
        patience = _FIRST_ANSWER_SECONDS
        deadline = time.monotonic() + timeout

        def answered() -> bool:
            nonlocal patience
            begun = time.monotonic()
            limit = max(_FIRST_ANSWER_SECONDS, min(patience, deadline - begun))
            try:
                with self.client(timeout=limit) as client:
                    answer = ask(client)
            except ClientError:
                if time.monotonic() - begun >= limit:  # it was too short for a slow machine
                    patience *= 2
                return False
            if answer is not None:
                found.append(answer)
            return bool(found)

        until(answered, what, timeout)
        return found[0]

    # --- Ends -------------------------------------------------------------------------------------------------------

    def _remove_data(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> RunningCluster:
        try:
            return self.start()
        except BaseException:
            self.kill()
            self._remove_data()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self.kill()  # what went wrong counts, not how the nodes stop
            self._remove_data()
            self._stop_registry()

    def __repr__(self) -> str:
        return f"<cluster of {len(self.nodes)} at {self.bootstrap_servers}, data in {self.data_dir}>"


running_cluster = RunningCluster
"""``with running_cluster(3) as cluster``: a cluster for the length of the block."""
