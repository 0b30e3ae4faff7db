"""Properties of authorization."""

from __future__ import annotations

from kbroker.config.broker import BrokerProperties
from kbroker.config.config_key import NOT_NULL
from kbroker.config.security.rules import FORM, check_name, names_python
from kbroker.config.table import HIGH, LIST, LOW, STRING, Table
from kbroker.errors import FatalError

AUTHORIZER = "authorizer.class.name"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"

OF_AUTHORIZER = frozenset({SUPER_USERS, ALLOW_EVERYONE})
"""Properties that the authorizer reads. To Kafka, too, they are not among a node's own, and described as unknown."""


class AuthorizationProperties(Table):
    """Properties of authorization."""

    authorizer_class_name = STRING("", LOW, NOT_NULL)
    """The authorizer, which decides who may do what: `org.apache.kafka.metadata.authorizer.StandardAuthorizer`, or
    `python:MODULE:NAME`. Without one everybody may do all."""
    early_start_listeners = LIST(None, HIGH)
    """Listeners that may be opened before the authorizer has loaded its rules. Those of controllers always are."""


def has_authorizer(config: BrokerProperties) -> bool:
    """Whether a node is to have an authorizer."""
    return bool((config.values.get(AUTHORIZER) or "").strip())


def allows_everyone(config: BrokerProperties) -> bool:
    """Whether everybody may use what no ACL is for."""
    return config.raw.get(ALLOW_EVERYONE, "").strip().lower() == "true"


def check_authorization(config: BrokerProperties) -> None:
    """:class:`FatalError` for an authorizer or a listener that there is not."""
    name = (config.values.get(AUTHORIZER) or "").strip()
    if names_python(name):
        check_name(AUTHORIZER, name)
    elif name not in ("", STANDARD_AUTHORIZER):
        raise FatalError(f"{AUTHORIZER}: {name} is not supported, only {STANDARD_AUTHORIZER} and {FORM}")
    known = {listener.name for listener in config.listeners} | set(config.controller_listener_names)
    for listener in config.values.get("early.start.listeners") or ():
        if listener.strip() and listener.strip().upper() not in known:
            raise FatalError(
                f"early.start.listeners contains listener {listener.strip().upper()}, but this is not contained in "
                "listeners or controller.listener.names"
            )
