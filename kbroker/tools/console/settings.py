"""Settings of a console, as the command line has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kbroker.tools.console.masking import Masking, MaskRule

if TYPE_CHECKING:
    from kbroker.client import Client
    from kbroker.client.properties import ClientProperties
    from kbroker.client.schemas.settings import RegistrySettings


class Tables(Protocol):
    """The tables of a file, each named by its place. ``FatalError`` says what is wrong."""

    def states(self, client: Client) -> list[dict[str, Any]]:
        """Returns the state of each, or its problem."""

    def topic_of(self, place: str) -> str:
        """Returns its topic."""

    def describe(self, place: str, client: Client) -> dict[str, Any]:
        """Returns its state with columns, last commits and dead letters."""

    def pause(self, place: str, *, paused: bool) -> None:
        """Pause it, or let it go on."""


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """``hosts``: the values of a Host header that are taken, with their ports (``127.0.0.1:8080``)."""

    addresses: tuple[tuple[str, int], ...]
    hosts: frozenset[str]
    properties: ClientProperties | None = None
    timeout: float = 10.0
    writes: bool = False
    sign_in: bool = False
    masks: tuple[MaskRule, ...] = field(default=())
    data: tuple[Path, ...] = ()
    """Log directories of nodes on this machine, whose files may be looked into."""
    explorers: tuple[tuple[str, int], ...] = ()
    """Addresses of nodes' protocol explorers."""

    faults_fd: int | None = None
    """A socket of ``kbroker faults``."""
    registry: RegistrySettings | None = None
    cluster: str = ""
    """The name of the cluster, where the page shows several."""
    others: tuple[ConsoleSettings, ...] = ()
    """Clusters that the same page shows at addresses of their own."""
    tables: Tables | None = None
    """Tables that topics are followed into."""

    def masking(self, topic: str) -> Masking:
        """The masks of a topic's records."""
        return Masking(self.masks, topic)

    @property
    def bootstrap(self) -> str:
        """The addresses as one text."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.addresses)
