"""``kbroker up``: a cluster of several nodes on this machine, each a process of its own, until it is told to stop."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kbroker.config.listeners import EXPLORER_LISTENER
from kbroker.errors import FatalError
from kbroker.tools.cli.child import ended, module_command
from kbroker.tools.cli.cluster_plan import (
    DEFAULT_PORT,
    HOST,
    READY,
    NodePlan,
    plan_cluster,
    prepare,
    secure_setup,
    with_explorers,
)
from kbroker.tools.cli.common import not_negative, positive, refuse_without_console_packages
from kbroker.tools.cli.control_options import add_control_arguments, is_controlled
from kbroker.tools.cli.data_owners import is_cluster
from kbroker.tools.cli.node_per_core import add_tables_argument, core_count
from kbroker.tools.cli.output import console
from kbroker.tools.cli.registry_beside import RegistryBeside, add_registry_arguments
from kbroker.tools.cli.start import add_overrides, await_end_of_input, parse_overrides, quiet_exit
from kbroker.tools.cli.up_table import Node, State, caption, row, table

if TYPE_CHECKING:
    import trio
    from rich.table import Table

    from kbroker.tools.cli.secure_setup import SecureSetup
    from kbroker.tools.diagnosis.facts import ClusterView

STOP_SECONDS: Final = 120.0
"""The time that a node may take to stop before it is killed. One that gets no further ends by itself, much sooner."""

REFRESH_SECONDS: Final = 1.0
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0
"""Between a node's death and its restart; doubled each time that it dies again soon."""

DETAILS = f"""\
The nodes serve clients at --port and the ports after it; the ports after those are for their
controllers. Data is in DIR/node-1, DIR/node-2 ..., and beside each node's directory what it was
started with (node-1.properties) and what it told (node-1.log). The directories are formatted at the
first start.

With three nodes or more a topic has three replicas (default.replication.factor=3), and what is
acknowledged with acks=all is on two of them (min.insync.replicas=2): any node may be killed. The
first three are the controllers.

With --cores 2 each is a machine with two nodes, of one rack: DIR/node-1 has node 1 and, in core2, node 2;
DIR/node-3 is the next machine's. A machine's nodes that die are started again.

With --secure, DIR/security gets a certificate authority, certificates, users with random passwords, and
client properties: client.properties (for programs: all topics, groups and transactional ids) and
admin.properties (everything), and both as librdkafka has them; kbroker user and kbroker acl add others.
The nodes' user is broker.

Once all serve, one line on standard output says where: {READY} HOST:PORT,HOST:PORT,...
A terminal shows the nodes while they run; elsewhere, what happens to them is a line on standard
error. Ctrl-C or SIGTERM stops them one after the other, and again Ctrl-C kills them. Exit code 1: a
node did not start, or died."""


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``up``."""
    parser.add_argument("-n", "--nodes", type=positive, default=3, metavar="COUNT", help="how many (default 3)")
    parser.add_argument(
        "--cores",
        type=core_count,
        default=1,
        metavar="N",
        help="have each stand for a machine with N nodes in one rack",
    )
    parser.add_argument(
        "--port",
        type=not_negative,
        default=DEFAULT_PORT,
        metavar="PORT",
        help=f"port of the first node (default {DEFAULT_PORT}); 0 takes free ports",
    )
    parser.add_argument(
        "--first-node-id", type=not_negative, default=1, metavar="ID", help="node.id of the first node (default 1)"
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="where data goes (./kbroker-cluster, with --secure ./kbroker-secure)"
    )
    add_overrides(parser, "set a property of every node")
    parser.add_argument("--restart", action="store_true", help="start a node that dies again")
    parser.add_argument(
        "--secure",
        action="store_true",
        help="with TLS, users with passwords (SCRAM) and an authorizer, for clients and between the nodes",
    )
    parser.add_argument(
        "--console",
        nargs="?",
        const=8080,
        type=not_negative,
        metavar="PORT",
        help="serve the console, a page about the cluster, on the loopback interface (port 8080, 0: a free one)",
    )
    parser.add_argument(
        "--explorer",
        nargs="?",
        const=9292,
        type=not_negative,
        metavar="PORT",
        help="let kbroker watch show requests and answers: port of the first node's explorer (9292), 0 for free ones",
    )
    add_tables_argument(parser)
    add_control_arguments(parser)
    add_registry_arguments(parser)
    parser.add_argument(
        "--until-eof",
        action="store_true",
        help="stop, as on SIGTERM, when standard input ends: for a program whose nodes must not outlive it",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the cluster until SIGTERM or SIGINT."""
    if is_controlled(arguments):
        # By its name: tests stand above the command.
        code: int = importlib.import_module("kbroker.testing.control.cluster_command").run(arguments)
        return code
    data = data_of(arguments)
    secure = secure_setup(
        data, arguments.nodes, cores=arguments.cores, first_id=arguments.first_node_id, wanted=arguments.secure
    )
    plans = plan_cluster(
        arguments.nodes,
        data,
        port=arguments.port,
        cores=arguments.cores,
        first_id=arguments.first_node_id,
        properties=parse_overrides(arguments.override),
        secure=secure,
    )
    if arguments.explorer is not None:
        plans = with_explorers(plans, arguments.explorer)
    if arguments.console is not None:
        refuse_without_console_packages()
    registry = RegistryBeside.of(arguments)
    prepare(plans, secure)
    import trio

    supervisor = Supervisor(
        plans,
        restart=arguments.restart,
        secure=secure,
        console_port=arguments.console,
        tables=arguments.tables,
        until_eof=arguments.until_eof,
    )
    admin = None if secure is None else secure.admin()
    with quiet_exit(), nullcontext("") if registry is None else registry.serving(supervisor.bootstrap, admin) as url:
        supervisor.registry = url
        trio.run(supervisor.run)
    return 1 if supervisor.failed else 0


def data_of(arguments: argparse.Namespace) -> Path:
    """The directory of a cluster, by the options of ``up``."""
    return arguments.data or _default_data(arguments.secure)


def _default_data(secure: bool) -> Path:
    """The directory without ``--data``: of its kind alone, so that neither meets the other, nor ``kbroker start``."""
    chosen = Path("kbroker-secure" if secure else "kbroker-cluster")
    earlier = Path("kbroker-data")  # where releases before had it
    return earlier if not chosen.exists() and is_cluster(earlier, secure=secure) else chosen


class Supervisor:
    """Starts the nodes, watches them, shows them, stops them."""

    def __init__(
        self,
        plans: Sequence[NodePlan],
        *,
        restart: bool,
        secure: SecureSetup | None = None,
        console_port: int | None = None,
        tables: Path | None = None,
        until_eof: bool = False,
    ) -> None:
        """``console_port``: the console's on the loopback interface, None for no console. ``tables``: their file."""
        self._tables = tables
        self._secure = secure
        self._console_port = console_port
        self.registry = ""
        """The address of a schema registry that the console is told of."""
        self._until_eof = until_eof
        self._security = None if secure is None else secure.admin()
        self.nodes = [Node(plan) for plan in plans]
        self.failed = False
        self.cluster: ClusterView | None = None
        self._restart = restart
        self._stopping = False
        self._announced = False
        self._live: Any = None

    @property
    def bootstrap(self) -> str:
        """Where clients find the cluster."""
        return ",".join(node.plan.address for node in self.nodes)

    async def run(self) -> None:
        """Until a signal, or until there is no node left."""
        import trio

        self._serves = trio.Event()
        with trio.CancelScope() as everything:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._await_signals, everything)
                if self._until_eof:
                    nursery.start_soon(await_end_of_input, lambda reason: nursery.start_soon(self._stop_all))
                self._show(nursery)
                try:
                    async with trio.open_nursery() as nodes:
                        for node in self.nodes:
                            nodes.start_soon(self._keep, node)
                        if self._console_port is not None:
                            nursery.start_soon(self._run_console, self._console_port)
                        if self._tables is not None:
                            nursery.start_soon(self._run_tables, self._tables)
                finally:
                    self._kill_all()
                nursery.cancel_scope.cancel()
        if everything.cancelled_caught:
            self.failed = True
        if self._live is not None:
            self._live.update(self._table())
            self._live.stop()

    # --- One node ---------------------------------------------------------------------------------------------------

    async def _keep(self, node: Node) -> None:
        """Run a node, again and again if that is wanted."""
        import trio

        pause = FIRST_PAUSE
        while not self._stopping:
            began = time.monotonic()
            node.has_served = False
            code = await self._run_once(node)
            if self._stopping:
                node.enter(State.STOPPED)
                if code and (node.has_served or code != -signal.SIGTERM):  # one that was starting had nothing to save
                    self._notify(f"node {node.plan.node_id} did not stop cleanly: {ended(code)}")
                    self.failed = True
                return
            node.how = ended(code)
            was_serving = node.state is State.SERVING
            node.enter(State.DEAD)
            words = node.last_words()
            self._notify(
                f"node {node.plan.node_id} {'died' if was_serving else 'did not start'}: {node.how}; its log,"
                f" {node.plan.log_file}, ends with: {words}"
            )
            if not self._restart or not (was_serving or self._announced):
                self.failed = True
                if not self._announced:  # not a cluster: what is wrong has to be mended first
                    await self._stop_all()
                return
            pause = FIRST_PAUSE if time.monotonic() - began > 2 * LONGEST_PAUSE else pause
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _run_once(self, node: Node) -> int:
        """Start the process and wait for its end; the exit code, negative for a signal."""
        import subprocess

        import trio

        node.enter(State.STARTING)
        node.starts += 1
        with node.plan.log_file.open("ab") as log:
            # A session of its own: Ctrl-C is for the supervisor, which stops the nodes in order.
            node.process = process = await trio.lowlevel.open_process(
                node.plan.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        if self._stopping:  # since that was begun: who stops the nodes has passed this one by
            process.terminate()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._await_ready, node, process)
            code = await process.wait()
            nursery.cancel_scope.cancel()
        assert process.stdin is not None and process.stdout is not None
        await process.stdin.aclose()
        await process.stdout.aclose()
        return code

    async def _await_ready(self, node: Node, process: trio.Process) -> None:
        assert process.stdout is not None
        text = b""
        async for piece in process.stdout:
            text += piece
            if READY.encode() in text and text.endswith(b"\n"):
                break
        else:
            return
        if node.state is State.STARTING:
            node.enter(State.SERVING)
            node.has_served = True
        if self._announced:
            self._notify(f"node {node.plan.node_id} serves again")
        elif all(each.state is State.SERVING for each in self.nodes):
            self._announced = True
            await self._announce()
            self._serves.set()

    async def _announce(self) -> None:
        """Tell where the cluster is, and of a secure one how clients come in."""
        secure = self._secure
        if secure is None:
            self._print(f"{READY} {self.bootstrap}")
            return
        import trio

        problem = await trio.to_thread.run_sync(self._grant, secure, abandon_on_cancel=True)
        if problem:
            self._notify(f"user client could not be given its rights: {problem}")
        for line in announcement(secure, self.bootstrap):
            self._print(line)

    async def _run_console(self, port: int) -> None:
        """Run the console once the cluster serves. The cluster goes on without one that fails."""
        from kbroker.tools.cli.console_beside import run_console

        await self._serves.wait()
        command = [*module_command("kbroker"), "console", "--until-eof", "--listen", f"{HOST}:{port}"]
        command += ["-b", self.bootstrap]
        if self.registry:
            command += ["--registry", self.registry]
        if self._secure is not None:
            command += ["--command-config", str(self._secure.client_file("admin")), "--sign-in"]
        explorers = [node.plan.properties.get(EXPLORER_LISTENER, "").removeprefix("http://") for node in self.nodes]
        if all(explorers):
            command += ["--explorer", ",".join(explorers)]
        if self._tables is not None:
            command += ["--tables", str(self._tables)]
        try:
            await run_console(command, self._print)
        except FatalError as error:
            self._notify(str(error))

    async def _run_tables(self, file: Path) -> None:
        """Have tables followed once the cluster serves, by the user of programs. The cluster goes on without them."""
        from kbroker.tools.cli.tables_beside import TablesBeside, run_followers

        await self._serves.wait()
        try:
            tables = TablesBeside.of(file)
            assert tables is not None
            secure = self._secure
            command = tables.command(self.bootstrap, None if secure is None else secure.client_file("client"))
            await run_followers(command, {}, self._print)
        except FatalError as error:
            self._notify(str(error))

    def _grant(self, secure: SecureSetup) -> str:
        """Let the user of programs in; what went wrong, or an empty text."""
        from kbroker.client import Client, ClientError

        try:
            with Client(self.bootstrap, client_id="kbroker-up", timeout=10.0, security=self._security) as client:
                secure.grant(client)
        except ClientError as error:
            return str(error)
        return ""

    # --- Stopping ---------------------------------------------------------------------------------------------------

    async def _await_signals(self, everything: trio.CancelScope, task_status: trio.TaskStatus[None]) -> None:
        import trio

        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            task_status.started()
            async with trio.open_nursery() as nursery:
                async for _ in signals:
                    if self._stopping:
                        everything.cancel()
                    else:
                        nursery.start_soon(self._stop_all)

    async def _stop_all(self) -> None:
        """Stop the nodes one after the other, so that each hands over what it leads; the active controller last."""
        if self._stopping:
            return
        self._stopping = True
        controller = None if self.cluster is None else self.cluster.controller
        for node in sorted(self.nodes, key=lambda node: (node.plan.node_id == controller, node.plan.node_id)):
            await self._stop(node)

    async def _stop(self, node: Node) -> None:
        import trio

        process = node.process
        if process is None or process.returncode is not None:
            return
        node.enter(State.STOPPING)
        with suppress(ProcessLookupError):
            process.terminate()
            process.send_signal(signal.SIGCONT)
        with trio.move_on_after(STOP_SECONDS):
            await process.wait()
            return
        self._notify(f"node {node.plan.node_id} did not stop within {STOP_SECONDS:.0f} s and is killed")
        process.kill()
        await process.wait()

    def _kill_all(self) -> None:
        for node in self.nodes:
            if node.process is not None and node.process.returncode is None:
                node.process.kill()

    # --- Showing ----------------------------------------------------------------------------------------------------

    def _show(self, nursery: trio.Nursery) -> None:
        if not sys.stdout.isatty():
            return
        from rich.live import Live

        self._live = Live(self._table(), console=console(), auto_refresh=False, transient=False)
        self._live.start()
        nursery.start_soon(self._ask)
        nursery.start_soon(self._draw)

    def _notify(self, text: str) -> None:
        if self._live is not None:
            self._print(text)
        else:
            print(f"kbroker: {text}", file=sys.stderr, flush=True)

    def _print(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(text)
        else:
            print(text, flush=True)

    async def _draw(self) -> None:
        import trio

        while True:
            self._live.update(self._table(), refresh=True)
            await trio.sleep(0.5)

    async def _ask(self) -> None:
        """Ask the cluster about itself now and then; the more it takes to ask, the less often."""
        import trio

        while True:
            began = trio.current_time()
            self.cluster = await trio.to_thread.run_sync(self._ask_once, abandon_on_cancel=True)
            await trio.sleep(max(REFRESH_SECONDS, 20 * (trio.current_time() - began)))

    def _ask_once(self) -> ClusterView | None:
        from kbroker.client import Client, ClientError
        from kbroker.tools.diagnosis.asking import ask_cluster

        serving = [node.plan.address for node in self.nodes if node.state is State.SERVING]
        if not serving:
            return None
        try:
            with Client(",".join(serving), client_id="kbroker-up", timeout=1.0, security=self._security) as client:
                return ask_cluster(client)
        except ClientError:
            return None

    def _table(self) -> Table:
        now = time.monotonic()
        return table([row(node, self.cluster, now) for node in self.nodes], caption(self.cluster))


def announcement(secure: SecureSetup, bootstrap: str) -> list[str]:
    """The lines that tell where a secure cluster is, and by which files clients come in, which are written now."""
    secure.write_client_files(bootstrap)
    told = (("client", "topics, groups and transactions"), ("admin", "everything"))
    return [
        f"{READY} {bootstrap}",
        *(f"user {user} ({rights}): {secure.client_file(user)}" for user, rights in told),
        f"for librdkafka, from 2.6.1 on (confluent-kafka): {secure.librdkafka_file('client')}",
        f"for example: kbroker topic list --command-config {secure.client_file('admin')}",
    ]
