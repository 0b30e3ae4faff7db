"""A node's properties of SASL, made into steps: of its listeners' admission, and of its connections to other nodes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import trio

from kbroker.errors import FatalError
from kbroker.handlers.registration import BROKER, CONTROLLER, registrations
from kbroker.node.security.sasl.admission import SaslAdmission
from kbroker.node.security.sasl.connection import SaslConnection
from kbroker.node.security.sasl.mechanism import ListenerMechanism, MechanismProperties
from kbroker.node.security.sasl.scram import ScramOnListener
from kbroker.node.security.sasl.threads import LoginThreads
from kbroker.security.sasl.client import CLIENT_MECHANISMS, client_mechanism
from kbroker.security.sasl.conversation import OfferedMechanism
from kbroker.security.sasl.jaas import LoginModule
from kbroker.security.sasl.mechanism import GSSAPI
from kbroker.security.sasl.oauthbearer.token import OAUTHBEARER
from kbroker.security.sasl.plain import PLAIN, PasswordTable, PlainServer, plain_users
from kbroker.security.sasl.scram import ScramMechanism

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.handlers.common.context import Services
    from kbroker.node.rules.logins import LoginRule

logger = logging.getLogger(__name__)


def _gssapi(properties: MechanismProperties) -> ListenerMechanism:
    from kbroker.node.security.sasl.gssapi import GssapiOnListener

    return GssapiOnListener(properties)


def _oauthbearer(properties: MechanismProperties) -> ListenerMechanism:
    from kbroker.node.security.sasl.oauthbearer import OAuthBearerOnListener

    return OAuthBearerOnListener(properties)


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


MECHANISMS: Final[Mapping[str, Callable[[MechanismProperties], ListenerMechanism]]] = {
    PLAIN: PlainOnListener,
    **{mechanism.mechanism_name: ScramOnListener for mechanism in ScramMechanism},
    GSSAPI: _gssapi,
    "OAUTHBEARER": _oauthbearer,
}
"""Those that a listener may have, and how each is set up; a module that imports much is imported by a function."""

WITH_RULES: Final = (PLAIN, *(mechanism.mechanism_name for mechanism in ScramMechanism), OAUTHBEARER)
"""Mechanisms whose logins a rule of one's own may check."""

_LOGIN_CALLBACKS = "sasl.login.callback.handler.class"


def warn_without_effect(config: BrokerConfig, name: str = "sasl.jaas.config") -> None:
    """Warn of a line of JAAS, if it is there, from which no listener takes anything, as in Kafka."""
    if name in config.raw:
        logger.warning(
            "%s has no effect: a listener's users stand in listener.name.LISTENER.MECHANISM.sasl.jaas.config", name
        )


class ListenerSasl:
    """The mechanisms of one listener, checked. ``FatalError`` in one line if it cannot be had."""

    def __init__(self, config: BrokerConfig, listener_name: str) -> None:
        self._config = config
        self._listener_name = listener_name
        self._scope = trio.CancelScope()
        names = [str(name) for name in config.security(listener_name)["sasl.enabled.mechanisms"]]
        for name in names:
            if name not in MECHANISMS:
                raise FatalError(
                    f"listener {listener_name}: SASL mechanism {name} is not supported yet; set"
                    f" listener.name.{listener_name.lower()}.sasl.enabled.mechanisms, or sasl.enabled.mechanisms,"
                    f" to some of {', '.join(MECHANISMS)}"
                )
        if not names:
            raise FatalError(f"listener {listener_name}: sasl.enabled.mechanisms is empty")
        for name in names:
            mechanism = MechanismProperties(config, listener_name, name)
            if mechanism.callback is not None and name not in WITH_RULES:
                raise FatalError(f"{mechanism.callback[0]}: {name} takes no rule, only {', '.join(WITH_RULES)}")
        warn_without_effect(config, f"listener.name.{listener_name.lower()}.sasl.jaas.config")
        self.mechanisms = {
            name: MECHANISMS[name](MechanismProperties(config, listener_name, name)) for name in dict.fromkeys(names)
        }
        self.offered: dict[str, OfferedMechanism] = {}
        """The mechanisms as clients find them, those that authenticate again among them: whoever takes the place of
        this takes it over, so that nobody goes on by credentials that are gone."""

    async def run(self) -> None:
        """The tasks of the mechanisms, until ``stop``."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                for mechanism in self.mechanisms.values():
                    if mechanism.task is not None:
                        nursery.start_soon(mechanism.task)

    def stop(self) -> None:
        """End ``run``: others have taken the place of the mechanisms."""
        self._scope.cancel()

    def admission(self, services: Services, *, is_controller: bool) -> SaslAdmission:
        """The step of the listener's admission."""
        config = self._config
        values = config.security(self._listener_name)
        kind = CONTROLLER if is_controller else BROKER
        self.offered.clear()
        self.offered.update((name, mechanism.offered(services)) for name, mechanism in self.mechanisms.items())
        return SaslAdmission(
            self.offered,
            services=services,
            table=registrations(kind, unstable=config.unstable_api_versions_enable),
            listener_name=self._listener_name,
            is_controller=is_controller,
            max_receive_bytes=int(values["sasl.server.max.receive.size"]),
            failure_delay=int(values["connection.failed.authentication.delay.ms"]) / 1000,
        )


def connection_step(config: BrokerConfig, listener_name: str, mechanism_property: str) -> SaslConnection:
    """The step of connections to other nodes' listeners of that name. ``FatalError`` if the node cannot log in."""
    mechanism = str(config.security(listener_name)[mechanism_property])
    if mechanism not in CLIENT_MECHANISMS:
        raise FatalError(
            f"{mechanism_property}: SASL mechanism {mechanism} is not supported yet; set it to one of"
            f" {', '.join(CLIENT_MECHANISMS)}"
        )
    properties = MechanismProperties(config, listener_name, mechanism)
    if properties[_LOGIN_CALLBACKS] and mechanism != "OAUTHBEARER":
        raise FatalError(f"{_LOGIN_CALLBACKS}: Java classes cannot be loaded; it has values for OAUTHBEARER alone")
    if properties.jaas_line is None:
        raise FatalError(
            f"{properties.jaas_name} is not set: this node logs in to others by it, as"
            f" {CLIENT_MECHANISMS[mechanism].form}"
        )
    try:
        client = client_mechanism(mechanism, properties.jaas_line, properties.values)
    except ValueError as error:
        raise FatalError(f"{properties.jaas_name}: {error}") from None
    return SaslConnection(client, f"kbroker-{config.node_id}", LoginThreads().run, trio.current_time)
