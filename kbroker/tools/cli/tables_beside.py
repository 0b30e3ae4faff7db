"""``--tables``: the followers of tables beside a node, as a process of its own that ends with it, and may die any time.

The node's event loop does nothing for it but take a line now and then. Nothing here is imported unless it is asked for.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import tomllib
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from kbroker.config import BrokerConfig, Listener
from kbroker.errors import FatalError
from kbroker.tools.cli.child import ended, module_command
from kbroker.tools.cli.console_beside import address, end_process, listener_for, reachable_host
from kbroker.tools.cli.core_supervisor import TRIES, Deaths

if TYPE_CHECKING:
    from kbroker.node.broker import Broker

NICE: Final = 15
"""The node, whose clients wait for it, comes first."""

log = logging.getLogger("kbroker")

States = MutableMapping[str, dict[str, Any]]
"""Place of a table -> what its follower has told last."""


class TablesBeside(NamedTuple):
    """The file of tables that the command line asks for."""

    file: Path
    client_config: Path | None
    """Client properties for a node whose listeners all ask who comes, or have TLS; the file names them."""

    @classmethod
    def of(cls, file: Path | str | None) -> TablesBeside | None:
        """Read what the node has to know of the file; None without one. ``FatalError`` says what is wrong."""
        if file is None:
            return None
        path = Path(file)
        try:
            config = tomllib.loads(path.read_text("utf-8")).get("command-config")
        except (OSError, ValueError) as error:
            raise FatalError(f"--tables {path}: {error}") from None
        return cls(path, path.parent / config if isinstance(config, str) else None)

    def check(self, config: BrokerConfig) -> None:
        """``UsageError`` if the followers cannot reach the node as it is configured."""
        self._listener(config)

    def _listener(self, config: BrokerConfig) -> Listener:
        return listener_for(config, self.client_config, "tables", how=f"command-config = FILE in {self.file}")

    def command(self, bootstrap: str, client_config: Path | None = None) -> list[str]:
        """The command line of the followers. ``client_config``: where the file names none."""
        command = [*module_command("kbroker"), "table", "run", str(self.file), "--until-eof", "--tell-state", "--quiet"]
        command += ["-b", bootstrap]
        if self.client_config is None and client_config is not None:
            command += ["--command-config", str(client_config)]
        return command

    async def run(self, broker: Broker, config: BrokerConfig) -> None:
        """Have the tables followed until cancelled. ``FatalError`` if that does not begin."""
        host, port = broker.ports[self._listener(config).name]
        command = self.command(address(reachable_host(host), port))
        await run_followers(command, broker.table_states, partial(print, flush=True))


async def run_followers(
    command: Sequence[str], states: States, tell: Callable[[str], None], deaths: Deaths | None = None
) -> None:
    """Run the followers, again and again if they die, until they have died too often or this is cancelled.

    ``FatalError`` if they do not begin the first time: what they have told is to be mended then.
    """
    deaths = Deaths() if deaths is None else deaths
    has_begun = False
    while True:
        code, begun = await _live(command, states, tell if not has_begun else _say_nothing)
        states.clear()
        has_begun = has_begun or begun
        if not has_begun:
            raise FatalError(f"no table is followed ({ended(code)}); what is wrong is told above")
        seconds = deaths.seconds_to_wait(trio.current_time())
        if seconds is None:
            log.error("the followers of tables died %d times within a minute and are GIVEN UP", TRIES)
            return
        log.error("the followers of tables died: %s; they are started again in %g s", ended(code), seconds)
        await trio.sleep(seconds)


def _say_nothing(line: str) -> None:
    pass


async def _live(command: Sequence[str], states: States, tell: Callable[[str], None]) -> tuple[int, bool]:
    """Run them once: the exit code, and whether they have begun."""
    # A session of its own: Ctrl-C is for the node, which ends them. Their standard input ends with the node.
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + NICE)
    begun = False
    try:
        assert process.stdout is not None
        rest = b""
        async for piece in process.stdout:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if not begun:
                    begun = True
                    tell(line.decode("utf-8", "replace"))
                    continue
                told = json.loads(line)
                states[told["table"]] = told
        return await process.wait(), begun
    finally:
        await end_process(process)
