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

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from kbroker.cli.cluster_plan import READY, NodePlan, plan_cluster, prepare
from kbroker.client import Client, ClientError
from kbroker.client.nodes import describe_cluster, describe_quorum
from kbroker.errors import FatalError
from kbroker.testing.access import Accessible, ClientAccess, secure_access
from kbroker.testing.broker import _text
from kbroker.testing.link import OWN_CLIENT_ID, Link, LinkClosed, fault_arguments

if TYPE_CHECKING:
    from kbroker.cli.secure_setup import SecureSetup
    from kbroker.testing.faults import Fault, Faults

__all__ = ["ClusterNode", "RunningCluster", "running_cluster"]

_START_SECONDS = 60.0
_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.02

T = TypeVar("T")


class ClusterNode:
    """One node of a cluster and its process. Every call is bounded in time; ``TimeoutError`` says what did not come."""

    def __init__(self, cluster: RunningCluster, plan: NodePlan) -> None:
        self._cluster = cluster
        self._plan = plan
        self._link: Link | None = None
        self._serves = False
        self._faults: Faults | None = None
        self._faults_here: dict[int, Fault] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False

    @property
    def id(self) -> int:
        """``node.id``; from 1 on."""
        return self._plan.node_id

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of this node alone."""
        return self._plan.address

    @property
    def data_dir(self) -> Path:
        """Where the node's files are."""
        return self._plan.directory

    @property
    def log(self) -> str:
        """The node's log so far, over all its restarts."""
        with contextlib.suppress(FileNotFoundError):
            return self._plan.log_file.read_text("utf-8", "replace")
        return ""

    @property
    def pid(self) -> int | None:
        """The process, None while there is none."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def is_running(self) -> bool:
        """Whether there is a process, perhaps a paused one."""
        return self.pid is not None

    def start(self, *, wait: bool = True) -> None:
        """Start the node on its data, on the same port; returns once it serves, or at once.

        A node of three serves only when another one runs too: start two with ``wait=False`` and then wait for both.
        :class:`FatalError` if it ends instead of serving. Does nothing while it runs.
        """
        if self.is_running:
            return
        self._clean_up()
        with self._plan.log_file.open("ab") as log:
            ours, theirs = socket.socketpair()
            self._link = Link(ours, self._answer)
            with theirs:
                # Standard input is held open by this process alone: when it ends, however it ends, so do the nodes.
                self._process = subprocess.Popen(
                    self._plan.command_of("kbroker.testing.node", str(theirs.fileno())),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=[theirs.fileno()],
                )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._output = b""
        with contextlib.suppress(LinkClosed):  # it has ended already: who awaits it is told why
            for fault in list(self._faults_here.values()):
                self._link.post("add", **fault_arguments(fault))
            self._link.begin()
        if wait:
            self.await_ready()

    def await_ready(self, timeout: float = _START_SECONDS) -> None:
        """Return once the node serves; :class:`FatalError` if it ends instead."""
        what = f"node {self.id} does not serve"
        _until(self._is_ready, what, timeout, lambda: f"; its log ends:\n{self.log[-2000:]}")
        self._serves = True

    def _is_ready(self) -> bool:
        if READY.encode() in self._output:
            return True
        process = self._process
        if process is None or process.stdout is None:
            raise FatalError(f"node {self.id} is not started")
        code = process.poll()  # before reading: what it printed last is then there
        self._output += process.stdout.read() or b""
        if READY.encode() in self._output:
            return True
        if code is not None:
            raise FatalError(f"node {self.id} ended with exit code {code} instead of serving:\n{self.log[-2000:]}")
        return False

    def stop(self) -> int:
        """Stop cleanly, as on SIGTERM; the exit code, 0 if all went well. A paused node is resumed for it."""
        if self._process is None:
            return 0
        self._signal(signal.SIGTERM)
        self.resume()
        try:
            code = self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(f"node {self.id} did not stop within {_STOP_SECONDS:.0f} s") from None
        self._clean_up()
        return code

    def kill(self) -> None:
        """End the process at once, as by ``kill -9``: it has no chance to say or to save anything."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
        self._clean_up()

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): connections stay open, and nothing answers."""
        self._signal(signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        """Let a paused process go on."""
        if self._paused:
            self._signal(signal.SIGCONT)
            self._paused = False

    def restart(self) -> None:
        """Stop cleanly and start again."""
        self.stop()
        self.start()

    # --- Faults

    @property
    def faults(self) -> Faults:
        """The faults of this node alone; :attr:`RunningCluster.faults` are those of all."""
        if self._faults is None:
            from kbroker.testing.cluster_faults import ClusterHost
            from kbroker.testing.faults import Faults

            self._faults = Faults(ClusterHost(self._cluster, [self]), within=self._cluster.faults)
        return self._faults

    @property
    def _link_is_up(self) -> bool:
        return self._serves and self.is_running and not self._paused

    def _add_fault(self, fault: Fault) -> None:
        self._faults_here[fault.number] = fault
        self._command_fault("add", **fault_arguments(fault))

    def _remove_fault(self, fault: Fault) -> None:
        if self._faults_here.pop(fault.number, None) is not None:
            self._command_fault("remove", number=fault.number)

    def _command_fault(self, what: str, **arguments: Any) -> None:
        """Send a command about a fault to the node. A node that is down gets it at its start, a paused one later."""
        if self._link is None:
            return
        with contextlib.suppress(LinkClosed):
            if self._paused:
                self._link.post(what, **arguments)
            else:
                self._link.call(what, **arguments)

    def _answer(self, what: str, arguments: Mapping[str, Any]) -> Any:
        """Answer the node's question about a request; on the link's thread."""
        arguments = dict(arguments)
        fault = self._faults_here.get(arguments.pop("number"))
        if what == "fires":
            return fault is not None and fault.fires()
        if fault is not None:
            partitions = tuple((topic, index) for topic, index in arguments.pop("partitions"))
            fault.note(**arguments, partitions=partitions, node=self.id)
        return None

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _clean_up(self) -> None:
        process, self._process, self._paused, self._serves = self._process, None, False, False
        link, self._link = self._link, None
        if link is not None:
            link.close()
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def __repr__(self) -> str:
        state = "paused" if self._paused else f"pid {self.pid}" if self.is_running else "not running"
        return f"<node {self.id} at {self.bootstrap_servers}, {state}>"


class RunningCluster(Accessible):
    """Several nodes on this machine; a context manager. See :func:`running_cluster` for the arguments."""

    def __init__(
        self,
        count: int = 3,
        properties: Mapping[str, object] | None = None,
        *,
        port: int = 0,
        data_dir: str | Path | None = None,
        secure: bool = False,
    ) -> None:
        self._temporary = tempfile.mkdtemp(prefix="kbroker-cluster-") if data_dir is None else None
        self.data_dir = Path(data_dir if data_dir is not None else str(self._temporary))
        """Where the nodes' directories are."""
        given = {name: _text(name, value) for name, value in (properties or {}).items()}
        self._secure: SecureSetup | None = None
        try:
            if secure:
                from kbroker.cli.secure_setup import SecureSetup

                self._secure = SecureSetup(self.data_dir / "security")
            plans = plan_cluster(count, self.data_dir, port=port, properties=given, secure=self._secure)
            prepare(plans, self._secure)
        except BaseException:
            self._remove_data()
            raise
        self.nodes: Sequence[ClusterNode] = [ClusterNode(self, plan) for plan in plans]
        """The nodes in the order of their ids: node 1 is ``nodes[0]``."""
        self._faults: Faults | None = None

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

            self._faults = Faults(ClusterHost(self, self.nodes))
        return self._faults

    def node(self, node_id: int) -> ClusterNode:
        """The node with this id; ``KeyError`` if there is none."""
        for node in self.nodes:
            if node.id == node_id:
                return node
        raise KeyError(node_id)

    def start(self) -> RunningCluster:
        """Start all nodes that do not run, at the same time; returns once all serve and none is fenced."""
        for node in self.nodes:
            node.start(wait=False)
        deadline = time.monotonic() + _START_SECONDS
        for node in self.nodes:
            node.await_ready(max(0.0, deadline - time.monotonic()))
        self.await_unfenced()
        if self._secure is not None:
            with self.client() as client:
                self._secure.grant(client)
        return self

    def _access(self, user: str | None, mechanism: str) -> ClientAccess | None:
        return None if self._secure is None else secure_access(self._secure, user, mechanism)

    def heal(self) -> None:
        """Resume and start every node, and return once all replicas of all partitions are in sync."""
        for node in self.nodes:
            node.resume()
        self.start()
        self.await_in_sync()

    def stop(self) -> None:
        """Stop all nodes cleanly, one after the other; data in a temporary directory is removed.

        ``TimeoutError`` names a node that had to be killed.
        """
        late: list[str] = []
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

    # --- Asking -----------------------------------------------------------------------------------------------------

    @contextmanager
    def client(self, timeout: float = 30.0) -> Iterator[Client]:
        """A small synchronous client that knows the nodes that run and are not paused."""
        addresses = [node.bootstrap_servers for node in self.nodes if node.is_running and not node._paused]
        if not addresses:
            raise FatalError("no node runs")
        security = None if self._secure is None else self._secure.admin()
        with Client(",".join(addresses), client_id=OWN_CLIENT_ID, timeout=timeout, security=security) as client:
            yield client

    @property
    def controller(self) -> ClusterNode:
        """The active controller, waited for while there is none."""
        return self.node(self._ask(self._active_controller, "there is no active controller"))

    def _active_controller(self, client: Client) -> int | None:
        leader = int(describe_quorum(client).topics[0].partitions[0].leader_id)
        node = next((node for node in self.nodes if node.id == leader), None)
        # Who has not heard of its end yet still names a node that was killed.
        return leader if node is not None and node.is_running and not node._paused else None

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
                return node.id if node is not None and node.is_running and not node._paused else None
        return None

    def isr_of(self, topic: str, partition: int = 0) -> list[int]:
        """The ids of the replicas that are in sync."""

        def ask(client: Client) -> list[int] | None:
            [found] = client.refresh([topic])
            return next((sorted(e.isr_nodes) for e in found.partitions if e.partition_index == partition), None)

        return self._ask(ask, f"there is no {topic}-{partition}")

    def await_unfenced(self, timeout: float = 30.0) -> None:
        """Return once every node that runs has been admitted by the active controller."""
        wanted = {node.id for node in self.nodes if node.is_running and not node._paused}

        def ask(client: Client) -> bool | None:
            return wanted <= {broker.id for broker in describe_cluster(client).brokers if not broker.fenced} or None

        self._ask(ask, f"not all of the nodes {sorted(wanted)} are admitted", timeout)

    def await_in_sync(self, timeout: float = 60.0) -> None:
        """Return once every partition has a leader and all of its replicas are in sync."""

        def ask(client: Client) -> bool | None:
            partitions = [entry for topic in client.refresh(None) for entry in topic.partitions]
            return (
                all(entry.leader_id >= 0 and set(entry.isr_nodes) == set(entry.replica_nodes) for entry in partitions)
                or None
            )

        self._ask(ask, "not all replicas are in sync", timeout)

    def _ask(self, ask: Callable[[Client], T | None], what: str, timeout: float = 30.0) -> T:
        """Ask until the answer is not None."""
        found: list[T] = []

        def answered() -> bool:
            try:
                with self.client(timeout=2.0) as client:
                    answer = ask(client)
            except ClientError:
                return False
            if answer is not None:
                found.append(answer)
            return bool(found)

        _until(answered, what, timeout)
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

    def __repr__(self) -> str:
        return f"<cluster of {len(self.nodes)} at {self.bootstrap_servers}, data in {self.data_dir}>"


def _until(condition: Callable[[], bool], what: str, timeout: float, more: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{what} after {timeout:.0f} s{more()}")
        time.sleep(_POLL_SECONDS)


@contextmanager
def running_cluster(
    count: int = 3,
    properties: Mapping[str, object] | None = None,
    *,
    port: int = 0,
    data_dir: str | Path | None = None,
    secure: bool = False,
) -> Iterator[RunningCluster]:
    """Run ``count`` nodes for the length of a ``with`` block.

    ``properties`` are Kafka's, for every node, over those of a cluster in which one node of three may be lost. ``port``
    is that of the first node, 0 takes free ones. ``data_dir`` is kept when it is given. With ``secure`` it is what
    ``kbroker up --secure`` starts, and its users are ``client`` and ``admin``: see ``client_properties``.
    """
    cluster = RunningCluster(count, properties, port=port, data_dir=data_dir, secure=secure)
    with cluster:
        yield cluster
