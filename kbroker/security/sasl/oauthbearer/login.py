"""A client's OAUTHBEARER from its properties: where its tokens come from (KIP-768, KIP-1139, KIP-1258)."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

from kbroker.config.security.sasl import ENDPOINT_LOGINS, JWT_BEARER, JWT_RETRIEVERS, UNSECURED_LOGIN
from kbroker.security.sasl.mechanism import Settings
from kbroker.security.sasl.oauthbearer.assertion import Bearer, ByAssertion, assertions, has_assertion
from kbroker.security.sasl.oauthbearer.http import LIMITS, Limits, Url, ask, parse_url, provider_context
from kbroker.security.sasl.oauthbearer.messages import OAuthBearerClient, check_extensions
from kbroker.security.sasl.oauthbearer.retrieval import (
    Backoff,
    Credentials,
    Refresh,
    TokenRequest,
    Tokens,
    from_endpoint,
    from_file,
)
from kbroker.security.sasl.oauthbearer.unsecured import EXTENSION, has_unsecured_login, unsecured_token

_URL = "sasl.oauthbearer.token.endpoint.url"
_RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
_HANDLER = "sasl.login.callback.handler.class"
_JAAS_EXTENSION = "extension_"


def token_login(options: Mapping[str, str], settings: Settings) -> tuple[Callable[[], OAuthBearerClient], bool]:
    """A maker of authentications, one after another, and whether it may block.

    ``ValueError``, which tells no secret, if it is not said where tokens come from.
    """
    handler, url = settings[_HANDLER], settings[_URL]
    is_unsecured = has_unsecured_login(options)
    if handler == UNSECURED_LOGIN or (handler is None and not url and is_unsecured):
        return _unsecured(options), False
    if handler is not None and handler not in ENDPOINT_LOGINS:
        raise ValueError(f"{_HANDLER}: {handler} is a Java class that cannot be loaded")
    if not url:
        raise ValueError(f"{_URL} is not set, so there is nobody to ask for a token")
    if is_unsecured:
        raise ValueError(f"the options unsecuredLogin... do not go with {_URL}")
    if (name := settings[_RETRIEVER]) not in JWT_RETRIEVERS:
        raise ValueError(f"{_RETRIEVER}: {name} is a Java class that cannot be loaded")
    extensions = _extensions(options, _JAAS_EXTENSION)
    tokens = Tokens(_source(url, options, settings), settings["sasl.oauthbearer.sub.claim.name"], _refresh(settings))
    return lambda: OAuthBearerClient(tokens.token(), extensions), True


def _unsecured(options: Mapping[str, str]) -> Callable[[], OAuthBearerClient]:
    extensions = _extensions(options, EXTENSION)
    unsecured_token(options, 0)  # so that what makes no sense is told before anybody is asked
    return lambda: OAuthBearerClient(unsecured_token(options, time.time_ns() // 1_000_000), extensions)


def _extensions(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    found = {name[len(prefix) :]: value for name, value in options.items() if name.startswith(prefix)}
    check_extensions(found)
    return found


def _source(text: str, options: Mapping[str, str], settings: Settings) -> Callable[[], str]:
    try:
        url = parse_url(text)
    except ValueError as error:
        raise ValueError(f"{_URL}: {error}") from None
    if url.is_file:
        if settings[_RETRIEVER] == JWT_BEARER:
            raise ValueError(f"{_URL} is a file, and nobody there takes an assertion")
        return from_file(url)
    first, longest = (int(settings[f"sasl.login.retry.backoff.{name}"]) / 1000 for name in ("ms", "max.ms"))
    return from_endpoint(_question(url, options, settings), _request(options, settings), Backoff(first, longest))


def _question(url: Url, options: Mapping[str, str], settings: Settings) -> Callable[[Mapping[str, str], bytes], bytes]:
    context = provider_context(options)
    connect, read = (settings[f"sasl.login.{name}.timeout.ms"] for name in ("connect", "read"))
    seconds = LIMITS.connect if connect is None else connect / 1000
    limits = Limits(seconds, LIMITS.in_all if read is None else seconds + read / 1000)
    question = functools.partial(ask, url, context=context, limits=limits)
    return lambda headers, form: question(headers=headers, form=form)


def _request(options: Mapping[str, str], settings: Settings) -> TokenRequest:
    """The request for a token, by the properties; or by options of JAAS, which older configurations have."""

    def value(name: str, option: str) -> str | None:
        given = settings[name]
        text = getattr(given, "value", given) or options.get(option)
        return text.strip() or None if text else None

    client_id = value("sasl.oauthbearer.client.credentials.client.id", "clientId")
    scope = value("sasl.oauthbearer.scope", "scope")
    is_bearer = settings[_RETRIEVER] == JWT_BEARER
    if is_bearer or has_assertion(settings):
        make = assertions(settings, time.time)
        return Bearer(make, scope) if is_bearer else ByAssertion(make, client_id, scope)
    secret = value("sasl.oauthbearer.client.credentials.client.secret", "clientSecret")
    if client_id is None or secret is None:
        missing = "id" if client_id is None else "secret"
        raise ValueError(f"sasl.oauthbearer.client.credentials.client.{missing} is not set")
    return Credentials(client_id, secret, scope, bool(_optional(settings, "sasl.oauthbearer.header.urlencode")))


def _optional(settings: Settings, name: str) -> Any:
    """A property that clients have, and nodes do not."""
    try:
        return settings[name]
    except KeyError:
        return None


def _refresh(settings: Settings) -> Refresh:
    names = ("window.factor", "window.jitter", "min.period.seconds", "buffer.seconds")
    factor, jitter, period, buffer = (settings[f"sasl.login.refresh.{name}"] for name in names)
    return Refresh(float(factor), float(jitter), int(period), int(buffer))
