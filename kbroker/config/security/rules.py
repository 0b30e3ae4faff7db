"""Properties that name a Java class in Kafka, and a callable in Python here: ``python:MODULE:NAME``.

Nothing is imported here. A node imports what its own file names; over the wire nobody can set such a property, since
that would be a way to run code on the node.
"""

from __future__ import annotations

import re
from typing import Final

from kbroker.config.broker import BrokerProperties
from kbroker.config.table import CLASS, LOW, MEDIUM, PER_BROKER, Table
from kbroker.errors import FatalError

PREFIX: Final = "python:"
"""The beginning of a name that stands for a callable in Python."""

FORM: Final = "python:MODULE:NAME"
PRINCIPAL_BUILDER: Final = "principal.builder.class"
CREATE_TOPIC_POLICY: Final = "create.topic.policy.class.name"
ALTER_CONFIG_POLICY: Final = "alter.config.policy.class.name"
DESCRIPTION_PLUGIN: Final = "group.streams.topology.description.plugin.class"
METRIC_REPORTERS: Final = "metric.reporters"
QUOTA_CALLBACK: Final = "client.quota.callback.class"
REPLICA_SELECTOR: Final = "replica.selector.class"
SERVER_CALLBACK: Final = "sasl.server.callback.handler.class"

DEFAULT_PRINCIPAL_BUILDER: Final = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


class RuleProperties(Table):
    """Properties that name a callable."""

    alter_config_policy_class_name = CLASS(None, LOW)
    """Callable that judges changes of configs, as `python:MODULE:NAME`; a controller asks it (KIP-133)."""
    create_topic_policy_class_name = CLASS(None, LOW)
    """Callable that judges new topics, as `python:MODULE:NAME`; a controller asks it (KIP-108)."""
    client_quota_callback_class = CLASS(None, LOW)
    """Callable that decides on clients' quotas, as `python:MODULE:NAME`; nothing, and the quotas that are set do."""
    group_streams_topology_description_plugin_class = CLASS(None, MEDIUM)
    """Callable that keeps the descriptions of the topologies of streams groups, as `python:MODULE:NAME` (KIP-1331)."""
    principal_builder_class = CLASS(DEFAULT_PRINCIPAL_BUILDER, MEDIUM, mode=PER_BROKER)
    """Callable that says who a connection belongs to:
    `org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder`, or `python:MODULE:NAME`."""
    sasl_server_callback_handler_class = CLASS(None, MEDIUM)
    """Callable that checks logins, as `python:MODULE:NAME`, with the prefix of a listener and a mechanism only
    (`listener.name.LISTENER.plain.`), not that of GSSAPI; or one of Kafka's classes for OAUTHBEARER."""


IN_FILE_ONLY: Final = frozenset(key.name for key in RuleProperties.KEYS)
"""Those that a node takes from its own file alone."""

OF_THE_NODE: Final = frozenset({QUOTA_CALLBACK, CREATE_TOPIC_POLICY, ALTER_CONFIG_POLICY, DESCRIPTION_PLUGIN})
"""Those that no listener can have for itself."""

_NAME = re.compile(r"python:(?:[^\W\d]\w*(?:\.[^\W\d]\w*)*|/[^:]*\.py):[^\W\d]\w*(?:\.[^\W\d]\w*)*")


def names_python(text: str | None) -> bool:
    """Whether a property's value names a callable in Python, well or not."""
    return text is not None and text.strip().startswith(PREFIX)


def check_name(property_name: str, text: str) -> None:
    """:class:`FatalError` for a value that names nothing that can be had, such as a Java class."""
    if not names_python(text):
        raise FatalError(
            f"{property_name}: {text.strip()}: Java classes cannot be loaded; a callable in Python is named {FORM}"
        )
    if _NAME.fullmatch(text.strip()) is None:
        raise FatalError(f"{property_name}: {text.strip()} is not of the form {FORM}, or python:/ABSOLUTE/FILE.py:NAME")


def check_rules(config: BrokerProperties) -> None:
    """:class:`FatalError` for a property of these whose value names nothing that can be had."""
    for name, value in config.values.items():
        short = _short_name(name)
        if short is None or not value or not value.strip():
            continue
        if short == PRINCIPAL_BUILDER and value.strip() == DEFAULT_PRINCIPAL_BUILDER:
            continue
        if short == SERVER_CALLBACK and ".oauthbearer." in name and not names_python(value):
            continue  # Kafka's own classes check tokens, too: the mechanism knows them
        check_name(name, value)
        if short in OF_THE_NODE and name != short:
            raise FatalError(f"{name}: it is the node's, not a listener's: set {short}")
        if short == SERVER_CALLBACK and name.count(".") < len(_MECHANISM_PREFIX) + short.count("."):
            raise FatalError(
                f"{name}: it needs the prefix of a listener and a mechanism, as in listener.name.LISTENER.plain.{short}"
            )


_MECHANISM_PREFIX = ("listener", "name", "LISTENER", "MECHANISM")


def _short_name(name: str) -> str | None:
    return next((short for short in IN_FILE_ONLY if name == short or name.endswith(f".{short}")), None)
