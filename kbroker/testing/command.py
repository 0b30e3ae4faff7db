"""``kbroker faults``: a node, or several, whose requests go wrong as they are told to; for tests in any language."""

from __future__ import annotations

import argparse
import os
import select
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kbroker.errors import ApiError, FatalError
from kbroker.testing.broker import RunningBroker
from kbroker.testing.cluster import RunningCluster
from kbroker.testing.script import FaultScript, summary
from kbroker.tools.cli.common import not_negative, positive, refuse_without_console_packages, told_to_stop
from kbroker.tools.cli.control_options import ControlOptions, add_control_arguments
from kbroker.tools.cli.log_output import set_up_logging
from kbroker.tools.cli.parser import UsageError
from kbroker.tools.cli.start import add_overrides, parse_overrides

_POLL_SECONDS = 0.5
_ERRORS = (ValueError, LookupError, ApiError, TimeoutError, RuntimeError, FatalError)

DETAILS = f"""\
What is to go wrong is told by LINEs, before the node is ready, and by lines on standard input, at any
time. It ends with `undo` or with the node. Standard output tells where clients connect (kbroker ready:
HOST:PORT), what is made of each line (ok, or fault NUMBER: ...), and each request that was acted on.

{summary()}

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
        help="serve the console on the loopback interface, and have its page switch faults (port 8080; 0: a free one)",
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
    made: Any = RunningCluster if arguments.nodes > 1 else RunningBroker
    count = [arguments.nodes] if arguments.nodes > 1 else []
    target = made(*count, properties=properties, port=arguments.port, data_dir=arguments.data_dir)
    try:
        with told_to_stop(), target:
            _serve(target, arguments.lines, arguments.console, options)
    except KeyboardInterrupt:  # while it started
        pass
    return 0


def _serve(
    target: RunningBroker | RunningCluster, first: Sequence[str], console: str | None, options: ControlOptions
) -> None:
    script = FaultScript(target)
    turn = threading.Lock()
    script.faults.on_injection = _say
    for line in first:
        try:
            _say(script.run(line) or "ok")
        except _ERRORS as error:
            wrong = UsageError if isinstance(error, ValueError) else FatalError
            raise wrong(f"{line}: {_message(error)}") from None
    address, token, lines = options
    script.begin(lines)
    if address is not None:
        from kbroker.testing.control.server import ControlServer

        server = ControlServer(target, address, token).start()
        _say(f"kbroker control: {server.url}")
    _say(f"kbroker ready: {target.bootstrap_servers}")

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
                _say(stack.enter_context(console_for(script, target.bootstrap_servers, listen, run)))
            for line in _lines(target):
                could, told = run(line)
                _say(told if could else f"error: {told}")
    except KeyboardInterrupt:
        pass  # to a clean stop


def _say(what: object) -> None:
    print(what, flush=True)


def _message(error: Exception) -> str:
    return str(error.message or error.code.name) if isinstance(error, ApiError) else str(error)


def _lines(target: RunningBroker | RunningCluster) -> Iterator[str]:
    """Yield the lines of standard input; after its end, wait for as long as the broker runs."""
    buffer, inputs = b"", [0]
    while not isinstance(target, RunningBroker) or target.is_running:
        if not select.select(inputs, [], [], _POLL_SECONDS)[0]:
            continue
        received = os.read(0, 4096)
        if not received:
            inputs = []
        *lines, buffer = (buffer + (received or b"\n")).split(b"\n")
        yield from (line.decode("utf-8", "replace") for line in lines if line.strip())
    raise FatalError("the node has ended; its log says why")
