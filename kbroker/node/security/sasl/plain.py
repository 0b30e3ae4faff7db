"""PLAIN on a listener: users and passwords of its line of JAAS, or a rule that checks them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.node.security.sasl.mechanism import MechanismProperties
from kbroker.security.sasl.conversation import OfferedMechanism
from kbroker.security.sasl.jaas import LoginModule
from kbroker.security.sasl.plain import PasswordTable, PlainServer, plain_users

if TYPE_CHECKING:
    from kbroker.handlers.context import Services
    from kbroker.node.rules.logins import LoginRule

_FORM = f'{LoginModule.PLAIN.value} required user_alice="secret";'


class PlainOnListener:
    """The mechanism of one listener. ``FatalError`` if its line of JAAS is missing or cannot be read.

    With a rule nothing is taken from the line, but that the node may log in to others by it.
    """

    task = None

    def __init__(self, properties: MechanismProperties) -> None:
        self._max_reauth_ms = properties.max_reauth_ms
        self._rule: LoginRule | None = None
        if properties.callback is not None:
            from kbroker.node.rules.logins import LoginRule
            from kbroker.rules.loading import load

            name, value = properties.callback
            self._rule = LoginRule(load(name, value, "check"), value, properties.listener_name)
            return
        entry = properties.jaas(LoginModule.PLAIN, _FORM, "it names the users of SASL mechanism PLAIN")
        self._passwords = PasswordTable(plain_users(entry.options))

    def offered(self, services: Services) -> OfferedMechanism:
        """The mechanism as the listener's clients find it."""
        rule = self._rule
        if rule is not None:
            from kbroker.node.rules.logins import RulePlainServer

            return OfferedMechanism(
                lambda: RulePlainServer(rule, ""), self._max_reauth_ms, lambda host: RulePlainServer(rule, host)
            )
        return OfferedMechanism(lambda: PlainServer(self._passwords.check), self._max_reauth_ms)
