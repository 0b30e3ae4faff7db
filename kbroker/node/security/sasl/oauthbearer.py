"""OAUTHBEARER on a listener: which tokens it takes, and by whose keys."""

from __future__ import annotations

import functools
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from kbroker.config.config_key import InvalidConfig
from kbroker.config.security.sasl import JWT_VALIDATORS, SIGNED_VALIDATORS, UNSECURED_VALIDATOR
from kbroker.errors import FatalError
from kbroker.node.security.sasl.mechanism import MechanismProperties
from kbroker.security.sasl.conversation import OfferedMechanism
from kbroker.security.sasl.jaas import LoginModule
from kbroker.security.sasl.oauthbearer.claims import ClaimRules, judge_claims
from kbroker.security.sasl.oauthbearer.http import ProviderError, Url, ask, parse_url, provider_context
from kbroker.security.sasl.oauthbearer.messages import OAuthBearerServer
from kbroker.security.sasl.oauthbearer.token import BearerToken, Validator
from kbroker.security.sasl.oauthbearer.unsecured import unsecured_validator

if TYPE_CHECKING:
    from kbroker.handlers.common.context import Services
    from kbroker.node.rules.tokens import TokenRule
    from kbroker.runtime.env import Env

logger = logging.getLogger(__name__)

_FORM = f"{LoginModule.OAUTHBEARER.value} required;"
_URL = "sasl.oauthbearer.jwks.endpoint.url"
_HANDLER = "sasl.server.callback.handler.class"
_AUDIENCE = "sasl.oauthbearer.expected.audience"
_ISSUER = "sasl.oauthbearer.expected.issuer"


class _Keys(Protocol):
    async def verified(self, token: str, wait: float) -> dict[str, Any]: ...


class OAuthBearerOnListener:
    """The mechanism of one listener. ``FatalError`` in one line if it is not said which tokens it takes."""

    def __init__(self, properties: MechanismProperties) -> None:
        self._properties = properties
        self._max_reauth_ms = properties.max_reauth_ms
        self.task: Callable[[], Awaitable[None]] | None = None
        """Runs as long as the node, if there is one."""
        line = properties.jaas_line
        self._options = {} if line is None else properties.jaas(LoginModule.OAUTHBEARER, _FORM, "").options
        self._rule: TokenRule | None = None
        if properties.callback is None:
            self._make_validator = self._chosen()
            return
        from kbroker.node.rules.tokens import TokenRule
        from kbroker.rules.loading import load

        if properties[_URL]:
            raise self._fatal(_URL, f"has no effect: the rule of {_HANDLER} judges tokens")
        name, value = properties.callback
        self._rule = TokenRule(load(name, value, "validate"), value, properties.listener_name)

    def offered(self, services: Services) -> OfferedMechanism:
        """The mechanism as the listener's clients find it."""
        if self._rule is not None:
            server = self._rule.server
            return OfferedMechanism(lambda: server(""), self._max_reauth_ms, server)
        validate = self._make_validator(services.env)
        return OfferedMechanism(lambda: OAuthBearerServer(validate), self._max_reauth_ms)

    def _fatal(self, name: str, text: str) -> FatalError:
        return FatalError(f"{self._properties.prefix}{name}: {text}")

    def _chosen(self) -> Callable[[Env], Validator]:
        """The maker of the validator."""
        properties = self._properties
        handler, url = properties[_HANDLER], properties[_URL]
        if handler is None and not url:
            raise self._fatal(
                _URL,
                "is not set: OAUTHBEARER needs the address of the token provider's keys. (Tokens without a signature,"
                f" which anybody can make, are taken if {_HANDLER} is {UNSECURED_VALIDATOR})",
            )
        if handler == UNSECURED_VALIDATOR:
            return self._unsecured(url)
        if handler is not None and handler not in SIGNED_VALIDATORS:
            raise self._fatal(_HANDLER, f"{handler} is a Java class that cannot be loaded")
        if not url:
            raise self._fatal(_URL, "is not set: without the token provider's keys no signature can be checked")
        if (name := properties["sasl.oauthbearer.jwt.validator.class"]) not in JWT_VALIDATORS:
            raise self._fatal("sasl.oauthbearer.jwt.validator.class", f"{name} is a Java class that cannot be loaded")
        return self._signed(url)

    def _unsecured(self, url: str | None) -> Callable[[Env], Validator]:
        if url:
            raise self._fatal(_HANDLER, f"takes tokens without a signature, and would not look at the keys of {_URL}")
        try:
            unsecured_validator(self._options, lambda: 0)
        except ValueError as error:
            raise FatalError(f"{self._properties.jaas_name}: {error}") from None
        logger.warning(
            "listener %s takes OAUTHBEARER tokens without a signature: its clients are whoever they say they are",
            self._properties.listener_name,
        )
        return lambda env: unsecured_validator(self._options, env.wall_clock_ms)

    def _signed(self, url: str) -> Callable[[Env], Validator]:
        rules, keys = self._rules(), self._keys(url)

        def make(env: Env) -> Validator:
            async def validate(token: str) -> BearerToken:
                claims = await keys.verified(token, env.budgets.provider_wait)
                return judge_claims(claims, rules, env.wall_clock_ms())

            return validate

        return make

    def _rules(self) -> ClaimRules:
        """The rules for claims; what is not checked must be said to be so (Kafka 4.4's ``BrokerJwtValidator``)."""
        properties = self._properties
        audiences = frozenset(name.strip() for name in properties[_AUDIENCE] if name.strip())
        issuer = (properties[_ISSUER] or "").strip() or None
        for name, is_set in ((_AUDIENCE, bool(audiences)), (_ISSUER, issuer is not None)):
            allowed = f"sasl.oauthbearer.allow.unverified.{name.rpartition('.')[2]}"
            if is_set:
                continue
            if not properties[allowed]:
                raise self._fatal(name, f"is not set, so any would do; if that is meant, set {allowed}=true")
            logger.warning(
                "listener %s takes OAUTHBEARER tokens for everything that their provider signs: %s is not set",
                properties.listener_name,
                name,
            )
        skew = int(properties["sasl.oauthbearer.clock.skew.seconds"])
        if skew < 0:
            raise self._fatal("sasl.oauthbearer.clock.skew.seconds", "is negative")
        scope, sub = (properties[f"sasl.oauthbearer.{name}.claim.name"].strip() for name in ("scope", "sub"))
        if not scope or not sub:
            raise self._fatal("sasl.oauthbearer.sub.claim.name", "or that of the scope's claim is empty")
        return ClaimRules(audiences, issuer, skew, scope, sub)

    def _keys(self, text: str) -> _Keys:
        try:
            from kbroker.node.security.sasl.provider_keys import FileKeys, ProviderKeys  # needs joserfc
            from kbroker.security.sasl.oauthbearer.refresh import RefreshTimes

            url = parse_url(text)
            if url.is_file:
                return FileKeys(url)
            context = provider_context(self._options)
        except InvalidConfig as error:
            raise self._fatal(_URL, error.message) from None
        except (ValueError, ProviderError) as error:
            raise self._fatal(_URL, str(error)) from None
        if url.is_exposed:
            logger.warning(
                "listener %s gets its token provider's keys over http: whoever sits in between can make tokens",
                self._properties.listener_name,
            )
        keys = ProviderKeys(_question(url, context), RefreshTimes(*self._times()), str(url))
        self.task = keys.run
        return keys

    def _times(self) -> tuple[float, float, float]:
        names = ("refresh.ms", "retry.backoff.ms", "retry.backoff.max.ms")
        refresh, first, longest = (int(self._properties[f"sasl.oauthbearer.jwks.endpoint.{name}"]) for name in names)
        if min(refresh, first, longest) < 0:
            raise self._fatal("sasl.oauthbearer.jwks.endpoint.refresh.ms", "and the backoffs must not be negative")
        # A second at the least between two questions: none of them is worth more to the node than to the provider.
        return max(1.0, refresh / 1000), max(0.01, first / 1000), max(0.01, longest / 1000)


def _question(url: Url, context: ssl.SSLContext | None) -> Callable[[], bytes]:
    return functools.partial(ask, url, context=context, headers={"Accept": "application/json"})
