"""The node of ``kbroker start --control``: its verbs, and the faults that it begins with."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import TYPE_CHECKING

import trio

from kbroker.testing.clock import MovedClock, MovedEnv
from kbroker.testing.control.server import ControlServer
from kbroker.testing.one_node import OneNode
from kbroker.testing.seen import CannotNow
from kbroker.tools.cli.console_beside import listener_for
from kbroker.tools.cli.control_options import ControlOptions
from kbroker.tools.cli.start import reachable

if TYPE_CHECKING:
    from pathlib import Path

    from kbroker.client.security import ClientSecurity
    from kbroker.config import BrokerConfig, Listener
    from kbroker.node.broker import Broker


class StartedNode(OneNode):
    """Reaches into the node that runs in this process's first thread; a ``start.Beside``."""

    def __init__(self, options: ControlOptions, client_config: Path | None = None) -> None:
        super().__init__()
        self.trio_clock = MovedClock()
        self._options = options
        self._client_config = client_config
        self._listener: Listener | None = None
        self._serves = False

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> StartedNode:
        """By the command line."""
        return cls(ControlOptions.of(arguments), arguments.control_config)

    def env(self) -> MovedEnv:
        """This machine, by the clock that a test moves."""
        return self.trio_clock.env()

    async def run(self, node: Broker, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve the control until cancelled."""
        self._node, self._clock = node, self.trio_clock
        self._token = trio.lowlevel.current_trio_token()
        node.on_opening.append(self._on_opening)
        with ExitStack() as stack:
            if self._options.faults:
                await trio.to_thread.run_sync(self._begin)
            address, token, _ = self._options
            if address is not None:
                server = ControlServer(self, address, token)
                stack.callback(server.stop)
                await trio.to_thread.run_sync(server.start)
                print(f"kbroker control: {server.url}", flush=True)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._node = None

    def check(self, config: BrokerConfig) -> None:
        """``UsageError`` if the control cannot ask the node as a client."""
        if self._options.address is not None:
            self._listener = listener_for(config, self._client_config, "control")

    def _begin(self) -> None:
        from kbroker.testing.script import FaultScript

        FaultScript(self).begin(self._options.faults)

    def _on_opening(self) -> None:
        self._serves = True

    @property
    def is_running(self) -> bool:
        """Whether the node is there, though it may not serve yet."""
        return self._node is not None

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for clients of this machine; ``CannotNow`` before it serves."""
        node = self._node
        if node is None or not self._serves or self._listener is None:
            raise CannotNow("the node does not serve yet" if node is not None else "the node has ended")
        return reachable(*node.ports[self._listener.name])

    def _own_security(self) -> ClientSecurity | None:
        if self._client_config is None:
            return None
        from kbroker.client.properties import ClientProperties
        from kbroker.client.security import security_of

        return security_of(ClientProperties.read(self._client_config))
