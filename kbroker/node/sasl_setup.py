"""A node's properties of SASL, made into steps: of its listeners' admission, and of its connections to other nodes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from kbroker.config.definition import Password
from kbroker.errors import FatalError
from kbroker.handlers.registration import BROKER, CONTROLLER, registrations
from kbroker.node.sasl_admission import SaslAdmission
from kbroker.node.sasl_connection import SaslConnection
from kbroker.security.principal import USER_TYPE, KafkaPrincipal
from kbroker.security.sasl.client import CLIENT_MECHANISMS, make_client
from kbroker.security.sasl.conversation import OfferedMechanism
from kbroker.security.sasl.jaas import JaasError, LoginModule, parse_jaas
from kbroker.security.sasl.plain import PLAIN, PasswordTable, PlainServer, plain_users
from kbroker.security.sasl.scram import (
    CredentialForm,
    ScramAccount,
    ScramCredential,
    ScramLookup,
    ScramMechanism,
    ScramServer,
    UnknownUsers,
)

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.handlers.context import Services
    from kbroker.wire.records.metadata import UserScramCredentialRecord

logger = logging.getLogger(__name__)

SERVER_MECHANISMS = (PLAIN, *(mechanism.mechanism_name for mechanism in ScramMechanism))
"""Those that a listener may have."""

_CALLBACKS = "sasl.server.callback.handler.class"


def jaas_property(listener_name: str, mechanism: str) -> str:
    """The property that holds a listener's and a mechanism's line of JAAS.

    There is no other: like Kafka, a node takes nothing from ``sasl.jaas.config`` without this prefix
    (``JaasContext.loadServerContext``).
    """
    return f"listener.name.{listener_name.lower()}.{mechanism.lower()}.sasl.jaas.config"


def _jaas(config: BrokerConfig, listener_name: str, mechanism: str) -> str | None:
    value = config.values.get(jaas_property(listener_name, mechanism))
    return value.value if isinstance(value, Password) else None


def warn_without_effect(config: BrokerConfig, name: str = "sasl.jaas.config") -> None:
    """Warn of a line of JAAS, if it is there, from which no listener takes anything, as in Kafka."""
    if name in config.raw:
        logger.warning(
            "%s has no effect: a listener's users stand in listener.name.LISTENER.MECHANISM.sasl.jaas.config", name
        )


class ListenerSasl:
    """What one listener offers, checked. ``FatalError`` in one line if it cannot be had."""

    def __init__(self, config: BrokerConfig, listener_name: str) -> None:
        self._config = config
        self._listener_name = listener_name
        self._passwords: PasswordTable | None = None
        names = [str(name) for name in config.security(listener_name)["sasl.enabled.mechanisms"]]
        for name in names:
            if name not in SERVER_MECHANISMS:
                raise FatalError(
                    f"listener {listener_name}: SASL mechanism {name} is not supported yet; set"
                    f" listener.name.{listener_name.lower()}.sasl.enabled.mechanisms, or sasl.enabled.mechanisms,"
                    f" to some of {', '.join(SERVER_MECHANISMS)}"
                )
        if not names:
            raise FatalError(f"listener {listener_name}: sasl.enabled.mechanisms is empty")
        for name in config.raw:
            if name.endswith(_CALLBACKS):
                raise FatalError(f"{name}: Java classes cannot be loaded; users of PLAIN stand in sasl.jaas.config")
        warn_without_effect(config, f"listener.name.{listener_name.lower()}.sasl.jaas.config")
        self.mechanisms = list(dict.fromkeys(names))
        if PLAIN in self.mechanisms:
            self._passwords = self._plain_passwords()

    def _plain_passwords(self) -> PasswordTable:
        name = jaas_property(self._listener_name, PLAIN)
        line = _jaas(self._config, self._listener_name, PLAIN)
        form = f'{LoginModule.PLAIN.value} required user_alice="secret";'
        if line is None:
            raise FatalError(f"{name} is not set: it names the users of SASL mechanism PLAIN, as {form}")
        try:
            entry = parse_jaas(line)
        except JaasError as error:
            raise FatalError(f"{name}: {error}") from None
        if entry.module is not LoginModule.PLAIN:
            raise FatalError(f"{name}: {entry.module.value} does not serve SASL mechanism PLAIN; it needs {form}")
        return PasswordTable(plain_users(entry.options))

    def admission(self, services: Services, *, is_controller: bool) -> SaslAdmission:
        """The step of the listener's admission."""
        config = self._config
        offered = {}
        for name in self.mechanisms:
            max_reauth_ms = int(config.security(self._listener_name, name)["connections.max.reauth.ms"])
            offered[name] = self._offered(name, services, max_reauth_ms)
        values = config.security(self._listener_name)
        kind = CONTROLLER if is_controller else BROKER
        return SaslAdmission(
            offered,
            services=services,
            table=registrations(kind, unstable=config.unstable_api_versions_enable),
            listener_name=self._listener_name,
            is_controller=is_controller,
            max_receive_bytes=int(values["sasl.server.max.receive.size"]),
            failure_delay=int(values["connection.failed.authentication.delay.ms"]) / 1000,
        )

    def _offered(self, name: str, services: Services, max_reauth_ms: int) -> OfferedMechanism:
        scram = ScramMechanism.of_name(name)
        if scram is None:
            passwords = self._passwords
            assert passwords is not None
            return OfferedMechanism(lambda: PlainServer(passwords.check), max_reauth_ms)
        lookup, unknown = _scram_lookup(scram, services), _unknown_users(scram, services)
        return OfferedMechanism(lambda: ScramServer(scram, lookup, unknown), max_reauth_ms)


def _scram_lookup(mechanism: ScramMechanism, services: Services) -> ScramLookup:
    metadata = services.metadata

    def lookup(name: str, is_token: bool) -> ScramAccount | None:
        if is_token:
            return None  # there are no delegation tokens to log in with
        record = metadata.scram_credential(name, mechanism)
        if record is None:
            return None
        credential = ScramCredential(
            bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
        )
        return ScramAccount(credential, KafkaPrincipal(USER_TYPE, name))

    return lookup


def _unknown_users(mechanism: ScramMechanism, services: Services) -> UnknownUsers:
    """With a secret of the random ids of a broker's log directories: brokers and controllers all know them.

    No client does, but for the directory of the metadata, which DescribeQuorum shows to those who may describe the
    cluster. It is the broker with the lowest id, so the secret changes when that one loses its disks.
    """
    metadata = services.metadata
    counted: Mapping[tuple[str, int], UserScramCredentialRecord] | None = None
    forms: Counter[CredentialForm] = Counter()

    def count() -> Counter[CredentialForm]:
        nonlocal counted, forms
        users = metadata.image.principals.scram  # another object when anything in it has changed
        if users is not counted:
            forms = Counter(
                CredentialForm.of(bytes(record.salt), record.iterations)
                for (_, of), record in users.items()
                if of == mechanism
            )
            counted = users
        return forms

    def shared_secret() -> bytes | None:
        brokers = metadata.image.brokers
        directories = brokers[min(brokers)].log_dirs if brokers else ()
        return b"".join(sorted(directories)) or None

    return UnknownUsers(mechanism, count, shared_secret)


def connection_step(config: BrokerConfig, listener_name: str, mechanism_property: str) -> SaslConnection:
    """The step of connections to other nodes' listeners of that name. ``FatalError`` if the node cannot log in."""
    mechanism = str(config.security(listener_name)[mechanism_property])
    if mechanism not in CLIENT_MECHANISMS:
        raise FatalError(
            f"{mechanism_property}: SASL mechanism {mechanism} is not supported yet; set it to one of"
            f" {', '.join(CLIENT_MECHANISMS)}"
        )
    name = jaas_property(listener_name, mechanism)
    line = _jaas(config, listener_name, mechanism)
    module = LoginModule.PLAIN if mechanism == PLAIN else LoginModule.SCRAM
    if line is None:
        raise FatalError(
            f"{name} is not set: this node logs in to others by it, as"
            f' {module.value} required username="broker" password="secret";'
        )
    try:
        make_client(mechanism, line)
    except ValueError as error:
        raise FatalError(f"{name}: {error}") from None
    return SaslConnection(lambda: make_client(mechanism, line), f"kbroker-{config.node_id}", trio.current_time)
