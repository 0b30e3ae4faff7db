"""``kbroker start --console``: the console beside a node, as a process of its own that ends with the node.

The node's event loop does nothing for it but wait for its end. Nothing here is imported unless it is asked for.
"""

from __future__ import annotations

import argparse
import logging
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from kbroker.config import BrokerConfig, Listener
from kbroker.config.listeners import EXPLORER_LISTENER, http_address
from kbroker.errors import FatalError
from kbroker.tools.cli.child import module_command
from kbroker.tools.cli.common import readable_errors, refuse_without_console_packages
from kbroker.tools.cli.parser import UsageError

if TYPE_CHECKING:
    from kbroker.node.broker import Broker

DEFAULT_PORT: Final = "8080"

STOP_SECONDS: Final = 3.0
"""The time that it may take to stop before it is killed."""

log = logging.getLogger("kbroker")


class ConsoleBeside(NamedTuple):
    """The console that the command line asks for."""

    host: str
    port: int
    writes: bool
    client_config: Path | None
    """Client properties for a node whose listeners all ask who comes, or have TLS."""
    anybody_may_change_everything: bool = False
    """Whether writes are allowed beyond the loopback interface although nobody signs in."""
    others: Sequence[Mapping[str, str]] = ()
    """The properties of the machine's other nodes."""
    registry: str = ""
    """The address of the schema registry beside the node."""
    tables: Path | None = None
    """The file of the tables that are followed beside the node."""

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> ConsoleBeside:
        """Judge the options. ``UsageError`` or ``FatalError`` says what is wrong, before the node starts."""
        host, colon, port = arguments.console.rpartition(":")
        host = host.removeprefix("[").removesuffix("]") if colon else "127.0.0.1"
        if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
            raise UsageError(f"--console {arguments.console}: expected [HOST:]PORT, such as {DEFAULT_PORT}")
        if int(port) == 0 and _names(host):
            raise UsageError("--console: port 0 is for the loopback interface")
        refuse_without_console_packages()
        return cls(
            host,
            int(port),
            arguments.console_writes,
            arguments.console_config,
            arguments.console_anybody_may_change_everything,
            tables=arguments.tables,
        )

    def check(self, config: BrokerConfig) -> None:
        """``UsageError`` if the console cannot reach the node as it is configured."""
        self._listener(config)
        if self.anybody_may_change_everything or not self.writes or not _names(self.host):
            return
        if not protocol_of(self.client_config).startswith("SASL_"):
            raise UsageError(
                f"--console {self.host} with --console-writes lets everybody change the cluster: users sign in where"
                " --console-config has SASL; give --console-anybody-may-change-everything if that is meant"
            )

    def _listener(self, config: BrokerConfig) -> Listener:
        return listener_for(config, self.client_config, "console")

    def command(self, broker: Broker, config: BrokerConfig) -> list[str]:
        """The command line of a console for a node that serves."""
        listener = self._listener(config)
        host, port = broker.ports[listener.name]
        command = [*module_command("kbroker"), "console", "--until-eof"]
        command += ["--listen", address(self.host, self.port), "-b", address(reachable_host(host), port)]
        if self.client_config is not None:
            command += ["--command-config", str(self.client_config)]
            if protocol_of(self.client_config).startswith("SASL_"):
                command.append("--sign-in")
        if self.writes:
            command.append("--writes")
        if self.anybody_may_change_everything:
            command.append("--anybody-may-change-everything")
        if self.registry:
            command += ["--registry", self.registry]
        explorer = http_address(config.raw, EXPLORER_LISTENER)
        if explorer is not None and broker.explorer_port is not None:
            explorers = [address(reachable_host(explorer[0]), broker.explorer_port)]
            found = (http_address(each, EXPLORER_LISTENER) for each in self.others)
            explorers += [address(reachable_host(each[0]), each[1]) for each in found if each is not None]
            command += ["--explorer", ",".join(explorers)]
        for directory in (*config.log_dirs, *(path for each in self.others for path in each["log.dirs"].split(","))):
            command += ["--data", str(directory)]
        if self.tables is not None:
            command += ["--tables", str(self.tables)]
        for name in _names(self.host):
            command += ["--allow-host", address(name, self.port)]
        return command

    async def run(self, broker: Broker, config: BrokerConfig) -> None:
        """Run the console until cancelled. ``FatalError`` if it does not start; the node outlives a later end."""
        await run_console(self.command(broker, config), partial(print, flush=True))


def protocol_of(client_config: Path | None) -> str:
    """The security protocol of client properties, those of a plain client without any."""
    if client_config is None:
        return "PLAINTEXT"
    from kbroker.client.properties import ClientProperties

    with readable_errors():
        return str(ClientProperties.read(client_config)["security.protocol"]).upper()


def listener_for(config: BrokerConfig, client_config: Path | None, option: str, how: str = "") -> Listener:
    """The listener by which something beside a node asks it: one of the loopback interface if there is one.

    ``UsageError`` names the ``option`` that asks for it, and ``how`` client properties are given, if not by an option.
    """
    if not config.broker_listeners:
        raise UsageError(f"--{option}: this node is a controller alone; give it to a broker")
    protocol = protocol_of(client_config)
    fitting = [each for each in config.broker_listeners if each.security_protocol == protocol]
    if not fitting and client_config is None:
        raise UsageError(
            f"--{option}: no listener of this node is PLAINTEXT: give client properties,"
            f" {how or f'--{option}-config FILE'}"
        )
    if not fitting:
        raise UsageError(f"--{option}-config: no listener of this node is {protocol}")
    return min(fitting, key=lambda each: not each.is_loopback)


async def run_console(command: Sequence[str], tell: Callable[[str], None]) -> None:
    """Run a console until cancelled, and tell where its page is.

    ``FatalError`` if it does not start. Whoever runs it outlives a later end.
    """
    # A session of its own: Ctrl-C is for the node, which ends the console. Its standard input ends with the node,
    # however that ends.
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        line = await _first_line(process)
        if not line:
            code = await process.wait()
            raise FatalError(f"the console did not start (exit code {code}); what it told is above")
        tell(line)
        code = await process.wait()
        log.error("the console has ended with exit code %d; the node serves on without it", code)
    finally:
        await end_process(process)


async def _first_line(process: trio.Process) -> str:
    """The line that says where the page is; empty if the process ends without one."""
    assert process.stdout is not None
    text = b""
    async for piece in process.stdout:
        text += piece
        if b"\n" in text:
            return text.decode("utf-8", "replace").splitlines()[0]
    return ""


async def end_process(process: trio.Process) -> None:
    """End it by SIGTERM, or kill it where that takes too long."""
    with trio.CancelScope(shield=True):
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            with trio.move_on_after(STOP_SECONDS):
                await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()


def _names(host: str) -> Sequence[str]:
    """The names by which browsers may name a page beyond the loopback interface.

    Names that nobody else can point to this machine: those of its loopback interface, as seen through a port that a
    container publishes, and its own.
    """
    if host in ("0.0.0.0", "::"):
        return ("localhost", "127.0.0.1", "::1", socket.gethostname())
    return () if host in ("127.0.0.1", "::1", "localhost") else (host,)


def reachable_host(host: str) -> str:
    """Returns the name by which this machine reaches an address that is bound."""
    return "localhost" if host in ("0.0.0.0", "::", "") else host


def address(host: str, port: int) -> str:
    """Returns ``host:port``, as commands take it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
