"""``kbroker start``: run a node until it is told to stop."""

from __future__ import annotations

import argparse
import gc
import importlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kbroker.base import collector
from kbroker.base.import_later import import_later
from kbroker.config import BrokerConfig, read_properties_file, with_provided
from kbroker.config.listeners import EXPLORER_LISTENER, METRICS_LISTENER
from kbroker.config.provided import without_values
from kbroker.errors import FatalError
from kbroker.tools.cli.control_options import add_control_arguments, is_controlled
from kbroker.tools.cli.log_output import name_logs, set_up_audit_log, set_up_logging
from kbroker.tools.cli.node_per_core import (
    add_core_arguments,
    add_tables_argument,
    check_left_cores,
    is_first,
    is_machine,
    other_properties,
    own_properties,
    run_machine,
    tables_of,
)
from kbroker.tools.cli.parser import UsageError, add_repeated
from kbroker.tools.cli.registry_beside import RegistryBeside, Target, add_registry_arguments

if TYPE_CHECKING:
    import trio

    from kbroker.handlers.registration import Preload
    from kbroker.log.manager import LogManager
    from kbroker.node.broker import Broker
    from kbroker.runtime.env import Env
    from kbroker.tools.cli.console_beside import ConsoleBeside
    from kbroker.tools.cli.tables_beside import TablesBeside

STOP_SECONDS = 5.0
"""The time that a clean stop may take, without having made one more log durable, before the process ends without it."""

log = logging.getLogger("kbroker")


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``start``."""
    parser.add_argument(
        "-c",
        "--config",
        type=Path,
        metavar="FILE",
        help="Kafka's server.properties; without it, a development node on 127.0.0.1:9092",
    )
    add_overrides(parser, "set a property, over the file's")
    add_core_arguments(parser)
    parser.add_argument("--port", type=int, metavar="PORT", help="port of the development node (0 picks a free one)")
    parser.add_argument(
        "--data-dir", metavar="DIR", help="data directory of the development node (default ./kbroker-data)"
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="how much to tell on standard error",
    )
    parser.add_argument(
        "--audit-log",
        type=Path,
        metavar="FILE",
        help="write what the authorizer decides to this file, and not to standard error",
    )
    parser.add_argument(
        "--metrics",
        metavar="[HOST:]PORT",
        help="serve metrics for Prometheus there, on 127.0.0.1 unless a host is given",
    )
    parser.add_argument(
        "--explorer",
        nargs="?",
        const="9292",
        metavar="[HOST:]PORT",
        help="let kbroker watch show requests and answers: on 127.0.0.1 unless a host is given, port 9292",
    )
    parser.add_argument(
        "--console",
        nargs="?",
        const="8080",
        metavar="[HOST:]PORT",
        help="serve the console, a page for the browser: on 127.0.0.1 unless a host is given, port 8080",
    )
    parser.add_argument("--console-writes", action="store_true", help="let the console change things, too")
    parser.add_argument(
        "--console-anybody-may-change-everything",
        action="store_true",
        help="allow --console-writes beyond the loopback interface although nobody signs in",
    )
    parser.add_argument(
        "--console-config",
        type=Path,
        metavar="FILE",
        help="client properties by which the console comes in, where no listener is PLAINTEXT; with SASL users sign in",
    )
    add_tables_argument(parser)
    add_control_arguments(parser, of_one_node=True)
    add_registry_arguments(parser, of_one_node=True)
    parser.add_argument(
        "--until-eof",
        action="store_true",
        help="stop, as on SIGTERM, when standard input ends: for a program whose node must not outlive it",
    )


def development_properties(data_dir: str = "kbroker-data", port: int = 9092) -> dict[str, str]:
    """A combined single node on the loopback interface, for a person at a keyboard or a test."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "log.dirs": data_dir,
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


def with_controller_listener(properties: dict[str, str]) -> dict[str, str]:
    """Add a controller listener on a free loopback port when ``listeners`` has none.

    Whoever starts a development node thinks of clients only; its one controller talks to nobody else.
    """
    names = [entry.partition(":")[0].strip().upper() for entry in properties["listeners"].split(",")]
    controller = properties["controller.listener.names"].split(",")[0].strip().upper()
    if controller and controller not in names:
        properties["listeners"] += f",{controller}://127.0.0.1:0"
    return properties


def add_overrides(parser: argparse.ArgumentParser, what: str) -> None:
    """The option ``-o``, for ``parse_overrides``."""
    add_repeated(parser, "-o", "--override", metavar="NAME=VALUE", help=f"{what}")


def parse_overrides(overrides: Sequence[str]) -> dict[str, str]:
    """``["a=b"]`` as properties."""
    result: dict[str, str] = {}
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"-o {override}: expected NAME=VALUE")
        result[name.strip()] = value.strip()
    return result


_IMPORT_AFTER_SECONDS = 2.0
"""Clients come first after a start."""

_LONG_START_SECONDS = 5.0
"""Seconds after which a start has the collector on: by then it recovers logs, or waits for other nodes."""

_COLLECT_AFTER = 20_000
"""Objects that may be made before the youngest are looked through for cycles."""


_SELDOM_USED = ("ssl", "hmac", "idna", "bz2", "lzma")
"""Modules that Trio and the standard library import for what a plain node never does. OpenSSL alone takes 5 MB."""


def load_properties(arguments: argparse.Namespace) -> dict[str, str]:
    """The properties that the command line asks for, as those of one node."""
    overrides = parse_overrides(arguments.override)
    if arguments.metrics is not None:
        overrides = {METRICS_LISTENER: _http_address(arguments.metrics)} | overrides
    if arguments.explorer is not None:
        overrides = {EXPLORER_LISTENER: _http_address(arguments.explorer)} | overrides
    if arguments.config is None:
        properties = development_properties(
            arguments.data_dir or "kbroker-data", 9092 if arguments.port is None else arguments.port
        )
        return with_controller_listener(properties | overrides)
    for option, value in (("--port", arguments.port), ("--data-dir", arguments.data_dir)):
        if value is not None:
            raise UsageError(f"{option} is for the development node; with --config use -o NAME=VALUE")
    from kbroker.tools.cli.kafka_opts import with_java_options

    return with_provided(with_java_options(read_properties_file(arguments.config) | overrides, os.environ))


def _http_address(text: str) -> str:
    """``[HOST:]PORT`` as the value of a property."""
    host, colon, port = text.rpartition(":")
    return f"http://{host if colon else '127.0.0.1'}:{port}"


class Beside(Target, Protocol):
    """A test that reaches into a node of its own process (``kbroker.testing``)."""

    @property
    def trio_clock(self) -> trio.abc.Clock:
        """The clock that the node's Trio runs on."""

    def env(self) -> Env:
        """The world of the node."""

    def check(self, config: BrokerConfig) -> None:
        """``UsageError`` if the node as it is configured is none that the test can reach."""

    async def run(self, node: Broker, task_status: trio.TaskStatus[None]) -> None:
        """Run beside the node, which starts once this has."""


def run(arguments: argparse.Namespace, *, beside: Beside | None = None) -> int:
    """Serve until SIGTERM or SIGINT."""
    # What start-up makes lives as long as the node: collecting garbage in it would only cost time, now and later.
    # `_serve` turns the collector on again.
    gc.disable()
    import_later(*_SELDOM_USED)
    set_up_logging(arguments.log_level)
    if arguments.audit_log is not None:
        set_up_audit_log(arguments.audit_log)
    console = _console_of(arguments) if is_first(arguments) else None
    properties = load_properties(arguments)
    if is_machine(arguments):
        if beside is not None or is_controlled(arguments) or arguments.registry is not None:
            raise UsageError("--cores: what is done beside a node is done beside one")
        return run_machine(
            arguments, properties, format_first=partial(_format, arguments), until_eof=arguments.until_eof
        )
    if beside is None and is_controlled(arguments):
        # By its name: tests stand above the command, and are imported by none that does without.
        beside = importlib.import_module("kbroker.testing.control.started").StartedNode.of(arguments)
    config = BrokerConfig.from_properties(own_properties(arguments, properties))
    if console is not None:
        console = console._replace(others=other_properties(arguments, properties))
    registry, tables = RegistryBeside.of(arguments), tables_of(arguments)
    for other in (console, beside, registry, tables):
        if other is not None:
            other.check(config)
    check_left_cores(arguments, config)
    if is_first(arguments):
        from kbroker.tools.cli.config_warnings import warn_about

        warn_about(config, chosen_here=() if arguments.config else development_properties())
    _format(arguments, config)
    name_logs(arguments, config)
    until_eof = arguments.until_eof or arguments.core is not None
    return serve(config, until_eof=until_eof, beside=beside, console=console, registry=registry, tables=tables)


def _format(arguments: argparse.Namespace, config: BrokerConfig) -> None:
    """Make the directories of a development node ready; others are formatted by their users."""
    if arguments.config is None:
        from kbroker.tools.cli.storage import format_if_needed

        format_if_needed(config)


def _console_of(arguments: argparse.Namespace) -> ConsoleBeside | None:
    if arguments.console is None:
        unsafe = arguments.console_anybody_may_change_everything
        if arguments.console_writes or unsafe or arguments.console_config is not None:
            raise UsageError("--console-writes, --console-config and the like go with --console")
        return None
    from kbroker.tools.cli.console_beside import ConsoleBeside

    return ConsoleBeside.of(arguments)


def serve(
    config: BrokerConfig,
    *,
    until_eof: bool = False,
    beside: Beside | None = None,
    console: ConsoleBeside | None = None,
    registry: RegistryBeside | None = None,
    tables: TablesBeside | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> int:
    """Run the node until SIGTERM or SIGINT (or until standard input ends); the exit code.

    ``on_ready`` is called once clients are served, after the ready line.
    """
    import trio

    try:
        with quiet_exit():
            clock = None if beside is None else beside.trio_clock
            trio.run(_serve, config, until_eof, beside, console, registry, tables, on_ready, clock=clock)
    except FatalError as error:
        message = without_values(str(error), config.raw.values())
        if message == str(error):
            raise
        raise type(error)(message) from None
    return 0


def ready_line(broker: Broker, config: BrokerConfig) -> str:
    """``kbroker ready: HOST:PORT ...``: where clients of this machine find each broker listener."""
    listeners = config.broker_listeners or config.controller_listeners
    return f"kbroker ready: {' '.join(reachable(*broker.ports[each.name]) for each in listeners)}"


def reachable(host: str, port: int) -> str:
    """``host:port`` by which a client of this machine reaches an address that is bound."""
    if host in ("0.0.0.0", "::", ""):
        host = "localhost"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _serve(
    config: BrokerConfig,
    until_eof: bool,
    beside: Beside | None,
    console: ConsoleBeside | None,
    registry: RegistryBeside | None,
    tables: TablesBeside | None,
    on_ready: Callable[[], None],
) -> None:
    import trio

    from kbroker.node.broker import Broker
    from kbroker.runtime.env import RealEnv

    async with trio.open_nursery() as besides:  # they end after the node, which serves on while it leaves its cluster
        async with trio.open_nursery() as nursery:

            def stop(reason: str) -> None:
                if nursery.cancel_scope.cancel_called:
                    return
                log.info("stopping on %s", reason)
                _end_in_any_case(lambda: 0 if logs is None else logs.closed)
                nursery.cancel_scope.cancel()

            logs: LogManager | None = None

            # Before the node serves, too: one that waits for the others of its quorum may do so for long.
            await besides.start(_await_signals, stop)
            if until_eof:
                nursery.start_soon(await_end_of_input, stop)
            broker = Broker(config, RealEnv() if beside is None else beside.env())
            if beside is not None:
                await besides.start(beside.run, broker)
            serves = trio.Event()
            nursery.start_soon(_collect_in_a_long_start, serves)
            await nursery.start(broker.run)
            logs = broker.log_manager
            serves.set()
            gc.freeze()
            collector.freeze_survivors()
            _collect()
            if registry is not None:
                url = await nursery.start(registry.run, broker, beside)
                console = console and console._replace(registry=url)
            print(ready_line(broker, config), flush=True)
            on_ready()
            for other in (console, tables):
                if other is not None:
                    nursery.start_soon(other.run, broker, config)
            nursery.start_soon(_import_the_rest, _wanted_handlers(config, broker.lifecycle.is_alone))
        besides.cancel_scope.cancel()


async def _collect_in_a_long_start(serves: trio.Event) -> None:
    """Turn the collector on if the node still does not serve after `_LONG_START_SECONDS`.

    It may recover long logs, or wait for its quorum, for as long as it takes, and let circles pile up meanwhile.
    """
    import trio

    with trio.move_on_after(_LONG_START_SECONDS):
        await serves.wait()
        return
    _collect()


def _collect() -> None:
    """Turn the collector on, and let it come seldom.

    Requests are freed by their reference counts. With Python's 700, a turn of the loop with many of them under way has
    the collector look for cycles that are not there.
    """
    gc.set_threshold(_COLLECT_AFTER)
    gc.enable()


def _wanted_handlers(config: BrokerConfig, is_alone: bool) -> set[Preload]:
    """The handlers that are imported before anybody asks for them."""
    from kbroker.handlers.registration import Preload

    wanted = {Preload.ALL}
    protocols = {config.listener_security_protocol_map[listener.name] for listener in config.listeners}
    if protocols != {"PLAINTEXT"} or config.values.get("authorizer.class.name"):
        wanted.add(Preload.SECURED)
    if not (is_alone and config.is_broker):  # brokers come to the only controller
        wanted.add(Preload.PEERS)
    return wanted


_BEHIND_HANDLERS = (
    "kbroker.node.replicas.produce_writer",
    "kbroker.node.replicas.fetch_reader",
    "kbroker.cores.groups.group_coordinator",
)
"""Modules that handlers reach by way of the node's services."""


async def _import_the_rest(wanted: Container[Preload]) -> None:
    """Import the handlers that nobody has asked for, and what groups need, once the first clients have theirs.

    No later request waits for an import, nor gets a module of the release that was installed over this one since.
    Handlers that this node is hardly asked for are left out: they come with their first request.
    """
    import trio

    from kbroker.handlers.registration import BOTH, registrations

    await trio.sleep(_IMPORT_AFTER_SECONDS)
    try:
        for registration in registrations(BOTH).values():
            if registration.preload in wanted:
                registration.load()
                await trio.lowlevel.checkpoint()
        for name in _BEHIND_HANDLERS:
            importlib.import_module(name)
        gc.freeze()  # as what the start itself made
    except Exception:  # an installation that is being changed: what is there goes on being served
        log.exception("not everything could be imported")


async def _await_signals(stop: Callable[[str], None], task_status: trio.TaskStatus[None]) -> None:
    """Stop on a signal. More of them end nothing in the midst of its clean stop: they go on being waited for."""
    import signal

    import trio

    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            stop(signal.Signals(number).name)


async def await_end_of_input(stop: Callable[[str], None]) -> None:
    """Read standard input, which holds nothing of interest, to its end."""
    import trio

    with suppress(OSError):
        while True:
            try:
                await trio.lowlevel.wait_readable(0)
            except PermissionError:  # a file, which is not waited for
                pass
            if not os.read(0, 4096):
                break
    stop("the end of standard input")


def _end_in_any_case(closed: Callable[[], int]) -> None:
    def give_up_in_time() -> None:
        before = -1
        while closed() > before:
            before = closed()
            time.sleep(STOP_SECONDS)
        sys.stderr.write(f"kbroker: not stopped within {STOP_SECONDS:.0f} s, ending anyway\n")
        sys.stderr.flush()
        os._exit(1)

    threading.Thread(target=give_up_in_time, daemon=True).start()


@contextmanager
def quiet_exit() -> Iterator[None]:
    """Bring a :class:`FatalError` out of the exception groups that nurseries wrap it in."""
    try:
        yield
    except BaseExceptionGroup as group:
        fatal = find_fatal(group)
        if fatal is None:
            raise
        raise fatal from None


def find_fatal(error: BaseException) -> FatalError | None:
    """The first :class:`FatalError` in a tree of exception groups."""
    if isinstance(error, FatalError):
        return error
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            found = find_fatal(inner)
            if found is not None:
                return found
    return None
