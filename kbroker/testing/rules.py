"""Rules in Python for a broker in a test: objects of the test itself, which the broker finds under made-up names."""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from kbroker.config.assignors import BUILT_IN, CONSUMER_ASSIGNORS, SHARE_ASSIGNORS, STREAMS_ASSIGNORS
from kbroker.rules import Login, Password, ScramMechanism
from kbroker.rules.loading import call_of, load
from kbroker.testing.access import MECHANISMS

_numbers = itertools.count(1)


class Rules(NamedTuple):
    """The rules of a broker; None for none. Each may be a callable, an object or a text ``python:MODULE:NAME``."""

    authorizer: Any = None
    authenticator: Any = None
    """Checks the logins of PLAIN."""
    principal_builder: Any = None
    quota_callback: Any = None
    token_validator: Any = None
    """Judges the tokens of OAUTHBEARER."""
    scram_credentials: Any = None
    """Knows the credentials of the users of SCRAM."""
    streams_assignors: Mapping[str, Any] | None = None
    """By name; so are the next."""
    consumer_assignors: Mapping[str, Any] | None = None
    share_assignor: Any = None
    create_topic_policy: Any = None
    alter_config_policy: Any = None
    topology_descriptions: Any = None


class GivenRules:
    """Rules under names that a property can hold, until ``remove``. ``ValueError`` for a login without passwords."""

    def __init__(self, rules: Rules, listener: str | None, own: tuple[str, str] | None) -> None:
        """``listener`` is that of SASL, if any; ``own`` are user and password by which the broker reaches itself."""
        self._names: list[str] = []
        self.properties: dict[str, str] = {}
        if rules.authenticator is not None:
            if listener is None or own is None:
                raise ValueError("an authenticator needs security='sasl_ssl' or 'sasl_plaintext'")
            checked = with_own_user(rules.authenticator, *own)
            self._add(f"listener.name.{listener}.plain.sasl.server.callback.handler.class", checked)
        if rules.token_validator is not None:
            if listener is None or own is None:
                raise ValueError("a token_validator needs security='sasl_ssl' or 'sasl_plaintext'")
            prefix = f"listener.name.{listener}"
            self._add(f"{prefix}.oauthbearer.sasl.server.callback.handler.class", rules.token_validator)
            self.properties["sasl.enabled.mechanisms"] = ",".join((*MECHANISMS, "OAUTHBEARER"))
        if rules.scram_credentials is not None:
            if listener is None:
                raise ValueError("scram_credentials need security='sasl_ssl' or 'sasl_plaintext'")
            for mechanism in ScramMechanism:
                prefix = f"listener.name.{listener}.{mechanism.mechanism_name.lower()}"
                self._add(f"{prefix}.sasl.server.callback.handler.class", rules.scram_credentials)
        self._add("authorizer.class.name", rules.authorizer)
        self._add("principal.builder.class", rules.principal_builder)
        self._add("client.quota.callback.class", rules.quota_callback)
        self._add_assignors(STREAMS_ASSIGNORS, rules.streams_assignors)
        self._add_assignors(CONSUMER_ASSIGNORS, rules.consumer_assignors)
        self._add(SHARE_ASSIGNORS, rules.share_assignor)
        self._add("create.topic.policy.class.name", rules.create_topic_policy)
        self._add("alter.config.policy.class.name", rules.alter_config_policy)
        self._add("group.streams.topology.description.plugin.class", rules.topology_descriptions)

    def _add(self, name: str, rule: Any) -> None:
        if rule is not None:
            self.properties[name] = rule if isinstance(rule, str) else self._made_up(rule)

    def _add_assignors(self, name: str, assignors: Mapping[str, Any] | None) -> None:
        """Name assignors by the names that groups know, before Kafka's own."""
        if not assignors:
            return
        given = self._made_up(SimpleNamespace(**assignors))
        self.properties[name] = ",".join((*(f"{given}.{each}" for each in assignors), *BUILT_IN[name]))

    def _made_up(self, rule: Any) -> str:
        """A name that a node finds the object by."""
        attribute = f"given_{next(_numbers)}"
        setattr(sys.modules[__name__], attribute, rule)
        self._names.append(attribute)
        return f"python:{__name__}:{attribute}"

    def remove(self) -> None:
        """Forget them."""
        for name in self._names:
            delattr(sys.modules[__name__], name)
        self._names.clear()


def with_own_user(authenticator: Any, username: str, password: str) -> Any:
    """An authenticator that also lets in the broker itself, without asking the test's."""
    if isinstance(authenticator, str):
        authenticator = load("authenticator", authenticator, "check")
    check: Callable[[Login], Any] = call_of(authenticator, "check")
    is_own = _comparer(username, password)

    def plain(login: Login) -> Any:
        return True if is_own(login) else check(login)

    async def waiting(login: Login) -> Any:
        return True if is_own(login) else await check(login)

    wrapped: Any = waiting if inspect.iscoroutinefunction(check) else plain
    for name in ("timeout_seconds", "threads"):
        if hasattr(authenticator, name):
            setattr(wrapped, name, getattr(authenticator, name))
    return wrapped


def _comparer(username: str, password: str) -> Callable[[Login], bool]:
    own = Password(password)
    return lambda login: login.username == username and login.password == own
