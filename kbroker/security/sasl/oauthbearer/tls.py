"""TLS to a token provider: by the options ``ssl.*`` of a line of JAAS, or as the machine trusts."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from kbroker.config.definition import InvalidConfig
from kbroker.config.security import SECURITY_CONFIGS


class _Options:
    """The options, typed and with Kafka's defaults."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def __getitem__(self, name: str) -> Any:
        key = SECURITY_CONFIGS[name]
        return key.parse(self._options[name]) if name in self._options else key.default_value()


def provider_context(options: Mapping[str, str]) -> ssl.SSLContext | None:
    """The context that the options ask for (``JaasOptionsUtils``); None if they ask for none.

    :class:`InvalidConfig` if a store cannot be read. It names the option, and tells no value.
    """
    if not any(name.startswith("ssl.") for name in options):
        return None
    for name in options:
        if name.startswith("ssl.") and name not in SECURITY_CONFIGS:
            raise InvalidConfig(f"{name} is no option of OAuthBearerLoginModule")
    from kbroker.security.tls.contexts import client_context

    return client_context(_Options(options))
