"""A listener's mechanism: the properties it is set up by, and what the table of mechanisms wants of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from kbroker.config.config_key import Password
from kbroker.config.security.rules import SERVER_CALLBACK, names_python
from kbroker.errors import FatalError
from kbroker.security.sasl.conversation import OfferedMechanism
from kbroker.security.sasl.jaas import JaasEntry, JaasError, LoginModule, parse_jaas

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.handlers.common.context import Services


class ListenerMechanism(Protocol):
    """A mechanism of one listener, its properties checked."""

    @property
    def task(self) -> Callable[[], Awaitable[None]] | None:
        """Runs as long as the node, from before its listeners are open; None if there is nothing to do."""

    def offered(self, services: Services) -> OfferedMechanism:
        """The mechanism as the listener's clients find it."""


class MechanismProperties:
    """The properties of a mechanism on one listener."""

    def __init__(self, config: BrokerConfig, listener_name: str, mechanism: str) -> None:
        self.config = config
        self.listener_name = listener_name
        self.mechanism = mechanism
        self.prefix = f"listener.name.{listener_name.lower()}.{mechanism.lower()}."
        self.values = config.security(listener_name, mechanism)

    @property
    def jaas_name(self) -> str:
        """The property that holds the line of JAAS.

        There is no other: like Kafka, a node takes nothing from ``sasl.jaas.config`` without this prefix
        (``JaasContext.loadServerContext``).
        """
        return f"{self.prefix}sasl.jaas.config"

    @property
    def jaas_line(self) -> str | None:
        """The line of JAAS, None if there is none."""
        value = self.config.values.get(self.jaas_name)
        return value.value if isinstance(value, Password) else None

    @property
    def max_reauth_ms(self) -> int:
        """The mechanism's ``connections.max.reauth.ms``."""
        return int(self.values["connections.max.reauth.ms"])

    @property
    def callback(self) -> tuple[str, str] | None:
        """The rule that checks logins, and the property that names it; None without one. It needs the whole prefix."""
        name = f"{self.prefix}{SERVER_CALLBACK}"
        value = (self.config.values.get(name) or "").strip()
        return (name, value) if names_python(value) else None

    def __getitem__(self, name: str) -> Any:
        """A property of security, typed, as it holds for the listener and the mechanism."""
        return self.values[name]

    def jaas(self, module: LoginModule, form: str, meaning: str) -> JaasEntry:
        """The line of JAAS, which must be there and name ``module``.

        ``FatalError`` in one line otherwise, which shows ``form``, and says by ``meaning`` what the line is for.
        """
        name, line = self.jaas_name, self.jaas_line
        if line is None:
            raise FatalError(f"{name} is not set: {meaning}, as {form}")
        try:
            entry = parse_jaas(line)
        except JaasError as error:
            raise FatalError(f"{name}: {error}") from None
        if entry.module is not module:
            told = f"{entry.module.value} does not serve SASL mechanism {self.mechanism}; it needs {form}"
            raise FatalError(f"{name}: {told}")
        return entry
