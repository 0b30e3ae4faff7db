"""``kbroker faults``: nodes, or a foreign cluster, whose requests go wrong as they are told to; for any language."""

from __future__ import annotations

import argparse
import os
import queue
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kbroker.client.cluster import parse_bootstrap
from kbroker.client.errors import ClientError
from kbroker.errors import ApiError, FatalError
from kbroker.testing.broker import RunningBroker
from kbroker.testing.cluster import RunningCluster
from kbroker.testing.script import FaultScript, summary
from kbroker.tools.cli.common import not_negative, positive, refuse_without_console_packages, told_to_stop
from kbroker.tools.cli.control_options import ControlOptions, add_control_arguments
from kbroker.tools.cli.log_output import set_up_logging
from kbroker.tools.cli.parser import UsageError
from kbroker.tools.cli.start import add_overrides, parse_overrides

if TYPE_CHECKING:
    from kbroker.testing.upstream import UpstreamCluster

    _Target: TypeAlias = RunningBroker | RunningCluster | UpstreamCluster

_POLL_SECONDS = 0.5
_LAST_SECONDS = 2.0
_ERRORS = (ValueError, LookupError, ApiError, TimeoutError, RuntimeError, FatalError, ClientError)

DETAILS = f"""\
What is to go wrong is told by LINEs, before the node is ready, and by lines on standard input, at any
time. It ends with `undo` or with the node. Standard output tells where clients connect (kbroker ready:
HOST:PORT), what is made of each line (ok, or fault NUMBER: ...), and each request that was acted on.

{summary()}

With --upstream there is no node: clients of the addresses that it tells are passed on to that cluster's
brokers, Apache Kafka's or others. What is no request to a broker (clocks, nodes, expire, compact) is
refused then.

Arguments mean what docs/testing.md says. The node stops on Ctrl-C or SIGTERM; without --data-dir its
data are gone then. Example:

  kbroker faults 'drop Produce when=after topic=orders times=1' 'error Fetch code=NOT_LEADER_OR_FOLLOWER nth=3'"""


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of ``faults``."""
    parser.add_argument("lines", nargs="*", metavar="LINE", help="what goes wrong from the beginning")
    parser.add_argument("--port", type=not_negative, default=9092, metavar="PORT", help="(9092); 0 takes a free one")
    parser.add_argument("-n", "--nodes", type=positive, default=1, metavar="COUNT", help="how many nodes (default 1)")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="keep data here (default: a temporary directory)")
    parser.add_argument(
        "--console",
        nargs="?",
        const="8080",
        metavar="PORT",
        help="serve the console on the loopback interface, and have its page switch faults (port 8080; 0: a free one);"
        " with --upstream the page only shows",
    )
    parser.add_argument(
        "--upstream",
        metavar="HOST:PORT",
        help="start no node: stand before this cluster, with an address for each of its brokers from --port on",
    )
    parser.add_argument(
        "--upstream-config",
        type=Path,
        metavar="FILE",
        help="client properties by which the command itself asks that cluster, where it wants a login",
    )
    add_control_arguments(parser)
    add_overrides(parser, "set a property of every node")


def run(arguments: argparse.Namespace) -> int:
    """Until SIGTERM or SIGINT."""
    set_up_logging("warning")
    properties = parse_overrides(arguments.override)
    if arguments.console is not None:
        if not arguments.console.isdigit() or int(arguments.console) > 65535:
            raise UsageError(f"--console {arguments.console}: expected a port")
        refuse_without_console_packages()
    options = ControlOptions.of(arguments)
    target: _Target
    if arguments.upstream is not None or arguments.upstream_config is not None:
        target = _upstream(arguments)
    elif arguments.nodes > 1:
        target = RunningCluster(arguments.nodes, properties, port=arguments.port, data_dir=arguments.data_dir)
    else:
        target = RunningBroker(properties, port=arguments.port, data_dir=arguments.data_dir)
    try:
        with told_to_stop(), target, _Output() as say:
            _serve(target, arguments.lines, arguments.console, options, say, is_own=arguments.upstream is None)
    except KeyboardInterrupt:  # while it started
        pass
    except ClientError as error:
        raise FatalError(f"{arguments.upstream}: {error}") from None
    return 0


def _upstream(arguments: argparse.Namespace) -> UpstreamCluster:
    """The cluster that is to be stood before; ``UsageError`` for what does not go with it."""
    if arguments.upstream is None:
        raise UsageError("--upstream-config goes with --upstream")
    for option, given in (("-n", arguments.nodes > 1), ("--data-dir", arguments.data_dir), ("-o", arguments.override)):
        if given:
            raise UsageError(f"{option} does not go with --upstream: that cluster has nodes and data of its own")
    from kbroker.client.properties import ClientProperties
    from kbroker.client.security import security_of
    from kbroker.testing.upstream import UpstreamCluster

    security = None
    try:
        parse_bootstrap(arguments.upstream)
        if arguments.upstream_config is not None:
            security = security_of(ClientProperties.read(arguments.upstream_config))
    except ValueError as error:
        raise UsageError(f"--upstream {arguments.upstream}: {error}") from None
    except ClientError as error:
        raise FatalError(str(error)) from None
    if security is not None and security.protocol.has_tls:
        raise UsageError("TLS is not spoken to an --upstream cluster: name one of its listeners without TLS")
    return UpstreamCluster(arguments.upstream, port=arguments.port, security=security)


class _Output:
    """Standard output, on a thread of its own: who does not read what is done to requests does not hold them up."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._print, daemon=True)

    def __enter__(self) -> Callable[[object], None]:
        self._thread.start()
        return lambda what: self._lines.put(str(what))

    def __exit__(self, *_: object) -> None:
        self._lines.put(None)
        self._thread.join(_LAST_SECONDS)

    def _print(self) -> None:
        with suppress(OSError):  # nobody reads any more
            while (line := self._lines.get()) is not None:
                rest = f"{line}\n".encode()
                while rest:  # past sys.stdout, whose lock a write that never ends would keep at the end
                    written = os.write(1, rest)
                    rest = rest[written:]


def _serve(
    target: _Target,
    first: Sequence[str],
    console: str | None,
    options: ControlOptions,
    say: Callable[[object], None],
    *,
    is_own: bool,
) -> None:
    script = FaultScript(target)
    turn = threading.Lock()
    script.faults.on_injection = say
    for line in first:
        try:
            say(script.run(line) or "ok")
        except _ERRORS as error:
            wrong = UsageError if isinstance(error, ValueError) else FatalError
            raise wrong(f"{line}: {_message(error)}") from None
    address, token, lines = options
    script.begin(lines)
    if address is not None:
        from kbroker.testing.control.server import ControlServer

        server = ControlServer(target, address, token).start()
        say(f"kbroker control: {server.url}")
    say(f"kbroker ready: {target.bootstrap_servers}")

    def run(line: str) -> tuple[bool, str]:
        """Do a line, of standard input or of the console's page."""
        with turn:
            try:
                return True, script.run(line) or "ok"
            except _ERRORS as error:
                return False, _message(error)

    try:
        with ExitStack() as stack:
            if console is not None:
                from kbroker.testing.console import console_for

                listen = f"127.0.0.1:{console}"
                say(stack.enter_context(console_for(script, target.bootstrap_servers, listen, run, writes=is_own)))
            for line in _lines(target):
                could, told = run(line)
                say(told if could else f"error: {told}")
    except KeyboardInterrupt:
        pass  # to a clean stop


def _message(error: Exception) -> str:
    return str(error.message or error.code.name) if isinstance(error, ApiError) else str(error)


def _lines(target: _Target) -> Iterator[str]:
    """Yield the lines of standard input; after its end, wait for as long as the broker runs."""
    buffer, inputs = b"", [0]
    while isinstance(target, RunningCluster) or target.is_running:
        if not select.select(inputs, [], [], _POLL_SECONDS)[0]:
            continue
        received = os.read(0, 4096)
        if not received:
            inputs = []
        *lines, buffer = (buffer + (received or b"\n")).split(b"\n")
        yield from (line.decode("utf-8", "replace") for line in lines if line.strip())
    raise FatalError("the node has ended; its log says why")
