"""PLAIN on a listener: users and passwords of its line of JAAS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.node.sasl.mechanism import MechanismProperties
from kbroker.security.sasl.conversation import OfferedMechanism
from kbroker.security.sasl.jaas import LoginModule
from kbroker.security.sasl.plain import PasswordTable, PlainServer, plain_users

if TYPE_CHECKING:
    from kbroker.handlers.context import Services

_FORM = f'{LoginModule.PLAIN.value} required user_alice="secret";'


class PlainOnListener:
    """The mechanism of one listener. ``FatalError`` if its line of JAAS is missing or cannot be read."""

    task = None

    def __init__(self, properties: MechanismProperties) -> None:
        entry = properties.jaas(LoginModule.PLAIN, _FORM, "it names the users of SASL mechanism PLAIN")
        self._passwords = PasswordTable(plain_users(entry.options))
        self._max_reauth_ms = properties.max_reauth_ms

    def offered(self, services: Services) -> OfferedMechanism:
        """The mechanism as the listener's clients find it."""
        return OfferedMechanism(lambda: PlainServer(self._passwords.check), self._max_reauth_ms)
