"""GSSAPI on a listener: the keytab of its line of JAAS, and the rules that name its users."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from kbroker.config.config_key import InvalidConfig
from kbroker.errors import FatalError
from kbroker.node.security.sasl.mechanism import MechanismProperties
from kbroker.node.security.sasl.threads import LoginThreads
from kbroker.security.principal import KafkaPrincipal
from kbroker.security.sasl.conversation import OfferedMechanism
from kbroker.security.sasl.jaas import KERBEROS_FORM, JaasError, LoginModule
from kbroker.security.sasl.kerberos.exchange import GssapiServer
from kbroker.security.sasl.kerberos.login import KerberosOptions
from kbroker.security.sasl.kerberos.names import ShortNamer
from kbroker.security.sasl.mechanism import GSSAPI, SaslError

if TYPE_CHECKING:
    from kbroker.handlers.common.context import Services

logger = logging.getLogger(__name__)

_RULES = "sasl.kerberos.principal.to.local.rules"


class GssapiOnListener:
    """The mechanism of one listener.

    ``FatalError`` in one line if its properties cannot be followed, the keytab has no key of the principal, or the
    package ``gssapi`` is missing.
    """

    task = None

    def __init__(self, properties: MechanismProperties) -> None:
        default = "(sasl.enabled.mechanisms is GSSAPI unless it is set)"
        meaning = f"it names the keytab by which SASL mechanism GSSAPI lets clients in {default}"
        entry = properties.jaas(LoginModule.KERBEROS, KERBEROS_FORM, meaning)
        try:
            options = KerberosOptions.of(entry, properties["sasl.kerberos.service.name"])
            if not options.use_keytab:
                raise JaasError(f"a listener needs useKeyTab=true: {KERBEROS_FORM}")
            from kbroker.security.sasl.kerberos.library import Acceptor, default_realm

            self._acceptor = Acceptor(options)
            realm = default_realm()
        except InvalidConfig as error:
            raise FatalError(
                f"listener {properties.listener_name}: SASL mechanism GSSAPI cannot be had: {error.message}"
            ) from None
        except JaasError as error:
            raise FatalError(f"{properties.jaas_name}: {error}") from None
        except SaslError as error:
            raise FatalError(f"{properties.jaas_name}: the keytab cannot be used: {error}") from None
        try:
            self._namer = ShortNamer([str(rule) for rule in properties[_RULES]], realm)
        except ValueError as error:
            raise FatalError(f"listener {properties.listener_name}: rules of Kerberos names: {error}") from None
        for name in options.without_effect:
            logger.warning("%s: the option %s has no effect", properties.jaas_name, name)
        self._max_reauth_ms = properties.max_reauth_ms
        self._threads = LoginThreads()

    def offered(self, services: Services) -> OfferedMechanism:
        """The mechanism as the listener's clients find it."""
        return OfferedMechanism(
            lambda: _InThreads(GssapiServer(self._acceptor.context, self._namer), self._threads), self._max_reauth_ms
        )


class _InThreads:
    """The server's side of one authentication, each of its steps in a thread (`SaslServer`)."""

    mechanism = GSSAPI
    expires_at_ms: int | None = None

    def __init__(self, server: GssapiServer, threads: LoginThreads) -> None:
        self._server = server
        self._threads = threads

    @property
    def is_done(self) -> bool:
        """Whether the client has been let in."""
        return self._server.is_done

    @property
    def principal(self) -> KafkaPrincipal:
        """The client, once it has authenticated."""
        return self._server.principal

    def respond(self, token: bytes) -> Awaitable[bytes]:
        """The answer to a client's message, once a thread has it."""
        return self._threads.run(self._server.respond, token)
