"""A client's side: from ``sasl.mechanism`` and ``sasl.jaas.config`` to the messages of a login.

Those who carry the messages, blocking or not, drive a :class:`Login`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kbroker.errors import ErrorCode, name_of
from kbroker.security.sasl.jaas import KERBEROS_FORM, JaasEntry, JaasError, LoginModule, parse_jaas
from kbroker.security.sasl.mechanism import GSSAPI, SaslClient, SaslError, Settings
from kbroker.security.sasl.plain import PLAIN, PlainClient
from kbroker.security.sasl.scram import ScramClient, ScramMechanism
from kbroker.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

_MOST_ROUNDS: Final = 10
"""No mechanism exchanges as many messages."""


class ClientMechanism(NamedTuple):
    """A mechanism with somebody's credentials, for any number of connections."""

    mechanism: str
    make: Callable[[str], SaslClient]
    """One authentication with the server of that host name or address, as the client has it.

    ``SaslError`` if there are no credentials to be had.
    """
    may_block: bool = False
    """Whether ``make`` and the steps of its authentication may wait for others: an event loop has them in a thread."""


class ClientSetup(NamedTuple):
    """Sets a mechanism up from a line of JAAS."""

    module: LoginModule
    form: str
    """Such a line, for messages."""
    set_up: Callable[[str, JaasEntry, Settings], ClientMechanism]
    """Of the mechanism's name, its line and all properties; ``ValueError``, which tells no secret."""


def _plain(mechanism: str, entry: JaasEntry, settings: Settings) -> ClientMechanism:
    user, password = entry.required("username"), entry.required("password")
    return ClientMechanism(mechanism, lambda _: PlainClient(user, password))


def _scram(mechanism: str, entry: JaasEntry, settings: Settings) -> ClientMechanism:
    of = ScramMechanism.of_name(mechanism)
    assert of is not None
    user, password = entry.required("username"), entry.required("password")
    is_token = entry.options.get("tokenauth", "").lower() == "true"
    return ClientMechanism(mechanism, lambda _: ScramClient(of, user, password, is_token=is_token))


def _gssapi(mechanism: str, entry: JaasEntry, settings: Settings) -> ClientMechanism:
    from kbroker.config.config_key import InvalidConfig
    from kbroker.security.sasl.kerberos.exchange import GssapiClient
    from kbroker.security.sasl.kerberos.login import KerberosOptions, RenewalRules

    options = KerberosOptions.of(entry, settings["sasl.kerberos.service.name"])
    rules = RenewalRules.of(settings)
    try:
        from kbroker.security.sasl.kerberos.library import Initiator

        initiator = Initiator(options, rules)
    except InvalidConfig as error:
        raise ValueError(f"SASL mechanism GSSAPI cannot be had: {error.message}") from None
    except SaslError as error:
        raise JaasError(str(error)) from None
    return ClientMechanism(mechanism, lambda host: GssapiClient(initiator.context(host)), may_block=True)


def _oauthbearer(mechanism: str, entry: JaasEntry, settings: Settings) -> ClientMechanism:
    from kbroker.config.config_key import InvalidConfig
    from kbroker.security.sasl.oauthbearer.login import token_login

    try:
        make, may_block = token_login(entry.options, settings)
    except InvalidConfig as error:
        raise ValueError(error.message) from None
    return ClientMechanism(mechanism, lambda _: make(), may_block)


def _with_password(module: LoginModule, set_up: Callable[[str, JaasEntry, Settings], ClientMechanism]) -> ClientSetup:
    return ClientSetup(module, f'{module.value} required username="broker" password="secret";', set_up)


CLIENT_MECHANISMS: Final[Mapping[str, ClientSetup]] = {
    PLAIN: _with_password(LoginModule.PLAIN, _plain),
    **{mechanism.mechanism_name: _with_password(LoginModule.SCRAM, _scram) for mechanism in ScramMechanism},
    GSSAPI: ClientSetup(LoginModule.KERBEROS, KERBEROS_FORM, _gssapi),
    "OAUTHBEARER": ClientSetup(LoginModule.OAUTHBEARER, f"{LoginModule.OAUTHBEARER.value} required;", _oauthbearer),
}
"""Those by which kbroker logs in; a module that imports much is imported by a function."""


def client_mechanism(mechanism: str, jaas: str, settings: Settings) -> ClientMechanism:
    """The mechanism of a client. ``ValueError``, which tells no secret, if it is not known or the line does not fit."""
    setup = CLIENT_MECHANISMS.get(mechanism)
    if setup is None:
        raise ValueError(f"SASL mechanism {mechanism} is not supported; {', '.join(CLIENT_MECHANISMS)} are")
    entry = parse_jaas(jaas)
    if entry.module is not setup.module:
        raise JaasError(f"SASL mechanism {mechanism} needs {setup.module.value}, not {entry.module.value}")
    return setup.set_up(mechanism, entry, settings)


class LoginFailed(Exception):
    """A login that failed. The text continues a sentence that begins with the server's address; it holds no secret."""


class Login:
    """A login of a client: SaslHandshake v1, then SaslAuthenticate up to v2. It sends nothing itself.

    A step that does not lead on raises :class:`LoginFailed`.
    """

    def __init__(self, of: ClientMechanism, host: str) -> None:
        """``host`` is the server's name or address, as the client has it."""
        self._of = of
        self._host = host
        self._client: SaslClient | None = None
        self._rounds = 0
        self.session_lifetime_ms = 0
        """The time of the session that the server has granted, 0 for ever (KIP-368)."""

    def handshake(self) -> SaslHandshakeRequest:
        """The first request."""
        return SaslHandshakeRequest(mechanism=self._of.mechanism)

    def shaken(self, response: SaslHandshakeResponse) -> SaslAuthenticateRequest:
        """The request that follows upon the answer to the handshake."""
        error, name = response.error_code, self._of.mechanism
        if error == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(sorted(response.mechanisms)) or "none"
            raise LoginFailed(f"does not have the SASL mechanism {name}; it has: {offered}")
        if error == ErrorCode.ILLEGAL_SASL_STATE:
            raise LoginFailed("does not ask for SASL there (is security.protocol right?)")
        if error:
            raise LoginFailed(f"refuses the SASL handshake: {name_of(error)}")
        try:
            self._client = self._of.make(self._host)
            return SaslAuthenticateRequest(auth_bytes=self._client.first())
        except SaslError as problem:
            raise LoginFailed(f"cannot be logged in to: {problem}") from None

    def answered(self, response: SaslAuthenticateResponse) -> SaslAuthenticateRequest | None:
        """The request that follows upon the answer to the last one; None if the client is let in."""
        client = self._client
        assert client is not None, "there was no handshake"
        self._rounds += 1
        if response.error_code:
            told = f"{(response.error_message or '').rstrip('. ')} ({name_of(response.error_code)})".strip()
            raise LoginFailed(f"refuses the login: {told}")
        was_done = client.is_done
        try:
            message = client.respond(bytes(response.auth_bytes))
        except SaslError as problem:
            raise LoginFailed(f"does not prove that it knows the user: {problem}") from None
        if was_done or (client.is_done and not message):
            self.session_lifetime_ms = max(0, response.session_lifetime_ms)
            return None
        if self._rounds >= _MOST_ROUNDS:
            raise LoginFailed(f"does not come to an end with SASL {self._of.mechanism}")
        return SaslAuthenticateRequest(auth_bytes=message)
