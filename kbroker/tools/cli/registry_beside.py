"""``--registry``: a schema registry beside a node or a cluster, on a thread of its own; imported when asked for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from kbroker.config.listeners import is_loopback
from kbroker.tools.cli.control_options import address_of, token_in
from kbroker.tools.cli.parser import UsageError
from kbroker.value_types import NamedTuple

if TYPE_CHECKING:
    import trio

    from kbroker.client.security import ClientSecurity
    from kbroker.config import BrokerConfig
    from kbroker.node.broker import Broker
    from kbroker.registry.server import RegistryServer

DEFAULT_PORT: Final = "8081"


def add_registry_arguments(parser: argparse.ArgumentParser, *, of_one_node: bool = False) -> None:
    """The options; ``of_one_node``: of a node whose listeners may be any."""
    parser.add_argument(
        "--registry",
        nargs="?",
        const=DEFAULT_PORT,
        metavar="[HOST:]PORT",
        help=f"serve a schema registry, Confluent's API: on 127.0.0.1 unless told, port {DEFAULT_PORT}",
    )
    parser.add_argument(
        "--registry-token-file",
        type=Path,
        metavar="FILE",
        help="the registry is for who shows the token in this file, as bearer token or as any user's password; needed"
        " beyond the loopback interface",
    )
    if of_one_node:
        parser.add_argument(
            "--registry-config",
            type=Path,
            metavar="FILE",
            help="client properties by which the registry comes in, where no listener is PLAINTEXT",
        )


class Target(Protocol):
    """Tells a test where the registry is."""

    registry: RegistryServer | None


class RegistryBeside(NamedTuple):
    """Where the registry is, and how it comes in."""

    address: tuple[str, int]
    token: str | None
    client_config: Path | None

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> RegistryBeside | None:
        """Judge the options; None without a registry. ``UsageError`` or ``FatalError`` says what is wrong."""
        config = getattr(arguments, "registry_config", None)
        if arguments.registry is None:
            for name, value in (("token-file", arguments.registry_token_file), ("config", config)):
                if value is not None:
                    raise UsageError(f"--registry-{name} goes with --registry")
            return None
        address = address_of("--registry", arguments.registry, DEFAULT_PORT)
        token = None if arguments.registry_token_file is None else token_in(arguments.registry_token_file)
        if token is None and not is_loopback(address[0]):
            raise UsageError(
                f"--registry {arguments.registry}: beyond the loopback interface it needs --registry-token-file FILE:"
                " whoever reaches it may delete schemas"
            )
        return cls(address, token, config)

    def check(self, config: BrokerConfig) -> None:
        """``UsageError`` if the registry cannot ask the node as a client."""
        from kbroker.tools.cli.console_beside import listener_for

        listener_for(config, self.client_config, "registry")

    async def run(self, node: Broker, target: Target | None, task_status: trio.TaskStatus[str]) -> None:
        """Serve beside a node until cancelled; the task's status is where, empty where that asks for a token."""
        import trio

        from kbroker.client.properties import ClientProperties
        from kbroker.client.security import security_of
        from kbroker.tools.cli.console_beside import listener_for

        host, port = node.ports[listener_for(node.config, self.client_config, "registry").name]
        bootstrap = [("localhost" if host in ("0.0.0.0", "::", "") else host, port)]
        config = self.client_config
        security = None if config is None else security_of(ClientProperties.read(config))
        with self.serving(bootstrap, security, target) as url:
            task_status.started(url)
            await trio.sleep_forever()

    @contextmanager
    def serving(
        self, bootstrap: str | Sequence[tuple[str, int]], security: ClientSecurity | None, target: Target | None = None
    ) -> Iterator[str]:
        """Serve for the length of a block, and say where; an empty text in the block where that asks for a token."""
        from kbroker.registry.server import RegistryServer

        with RegistryServer(bootstrap, self.address, security=security, token=self.token) as server:
            print(f"kbroker registry: {server.url}", flush=True)
            if target is not None:
                target.registry = server
            yield server.url if self.token is None else ""
